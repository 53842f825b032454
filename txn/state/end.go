package state

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// EndRequest commits or aborts a producer's transaction.
type EndRequest struct {
	ID       string
	Producer Producer
	Commit   bool
	Client   Version
	Cluster  Version
	Fresh    wire.ProducerID // a new id, if one was drawn; else NoProducer
}

// EndTxn decides the outcome of a transaction; the markers follow as an effect. The body of the reply is a Reply: with
// v2 its Producer is what the client goes on with.
//
// Kafka: TransactionCoordinator.endTransaction and endTransactionWithTV1.
func (s *State) EndTxn(tok coord.Token, now time.Time, r EndRequest) coord.Decision {
	if r.ID == "" {
		return refuse(tok, kerr.InvalidRequest)
	}
	t := s.byID[r.ID]
	switch {
	case t == nil:
		return refuse(tok, kerr.InvalidProducerIDMapping)
	case r.Client.Bumps():
		return s.endV2(tok, now, t, r)
	case t.ProducerID != r.Producer.ID:
		return refuse(tok, kerr.InvalidProducerIDMapping)
	case t.Epoch != r.Producer.Epoch && !planted.On(planted.EndEpochUnchecked):
		return refuse(tok, kerr.ProducerFenced)
	case t.Status == Ongoing:
		n := t.next(t.outcome(r.Commit), now.UnixMilli())
		n.Client = r.Client
		return s.end(tok, now, &n, r.Cluster)
	}
	d := s.repeated(tok, t, r.Commit)
	if d.Replies[0].Body.(Reply).Err == nil {
		// The epoch does not tell one transaction from the next here: a coordinator that has been replaced, and has not heard of it, would
		// take the end of a transaction that only its successor knows for that of the one before. It cannot write any more.
		d.Batch = t.write(r.Cluster, now).Batch
	}
	return d
}

func (t *Txn) outcome(commit bool) Status {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

// repeated answers an EndTxn of a transaction that is not open, under v1.
func (s *State) repeated(tok coord.Token, t *Txn, commit bool) coord.Decision {
	switch {
	case commit && t.Status == CompleteCommit, !commit && t.Status == CompleteAbort, planted.On(planted.AnyEndRepeated) && t.Status.completed():
		return answer(tok, Reply{Producer: t.producer()})
	case t.Status.prepared():
		return refuse(tok, kerr.ConcurrentTransactions)
	}
	return refuse(tok, kerr.InvalidTxnState)
}

// endV2 is EndTxn where every end bumps the epoch: a request that names the epoch before the current one, or the last
// epoch of the id before, is a repetition; one that names the current epoch is the next end. Neither is answered before
// the last transaction is complete: until then the producer's next id and epoch may not be the current ones yet.
func (s *State) endV2(tok coord.Token, now time.Time, t *Txn, r EndRequest) coord.Decision {
	if t.Status.prepared() {
		return refuse(tok, kerr.ConcurrentTransactions)
	}
	afterBump := t.ProducerID == r.Producer.ID && t.Epoch == r.Producer.Epoch+1
	afterRotation := t.Previous == r.Producer.ID && t.ProducerID != r.Producer.ID && r.Producer.Epoch == lastUsableEpoch && t.Epoch == 0
	if t.ProducerID != r.Producer.ID && !afterRotation {
		return refuse(tok, kerr.InvalidProducerIDMapping)
	}
	current := t.producer() == r.Producer || planted.On(planted.EndEpochUnchecked)
	if !current && !(t.Status.completed() && (afterBump || afterRotation)) {
		return refuse(tok, kerr.ProducerFenced)
	}
	switch {
	case t.Status == Ongoing:
		return s.finish(tok, now, t, t.outcome(r.Commit), r)
	case !current:
		return s.repeated(tok, t, r.Commit)
	case r.Commit: // of nothing
		return refuse(tok, kerr.InvalidTxnState)
	}
	return s.finish(tok, now, t, PrepareAbort, r) // of nothing, which bumps the epoch all the same
}

// finish decides under v2.
func (s *State) finish(tok coord.Token, now time.Time, t *Txn, outcome Status, r EndRequest) coord.Decision {
	n := t.next(outcome, now.UnixMilli())
	n.Client, n.Next = r.Client, wire.NoProducer
	if t.exhausted() {
		if r.Fresh == wire.NoProducer {
			return answer(tok, Reply{NeedsID: true, Producer: NoProducer})
		}
		n.Next = r.Fresh
	}
	if n.Epoch <= lastUsableEpoch {
		n.Epoch++
	}
	if t.Status != Ongoing {
		n.Started = n.Updated
	}
	return s.end(tok, now, &n, r.Cluster)
}

func (s *State) end(tok coord.Token, now time.Time, n *Txn, cluster Version) coord.Decision {
	d := n.write(cluster, now)
	goesOn := n.producer()
	if n.Next != wire.NoProducer {
		goesOn = Producer{ID: n.Next}
	}
	d.Replies = []coord.Reply{{Token: tok, Body: Reply{Producer: goesOn}}}
	d.Effects = []coord.Effect{n.markers()}
	return d
}

// Complete ends a transaction whose markers are all written. It does nothing when the transaction is not the one that
// the markers were for.
func (s *State) Complete(now time.Time, m SendMarkers, cluster Version) coord.Decision {
	t := s.byID[m.ID]
	if t == nil || !t.Status.prepared() || t.producer() != m.Producer || (t.Status == PrepareCommit) != m.Commit {
		return coord.Decision{}
	}
	status := CompleteAbort
	if m.Commit {
		status = CompleteCommit
	}
	n := t.next(status, now.UnixMilli())
	n.Partitions = nil
	if n.Next != wire.NoProducer {
		n.ProducerID, n.Epoch, n.Next = n.Next, 0, wire.NoProducer
	}
	return n.write(cluster, now)
}
