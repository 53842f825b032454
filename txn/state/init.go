package state

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// InitRequest asks for a producer's next incarnation.
type InitRequest struct {
	ID        string
	TimeoutMs int32
	Expected  *Producer       // what the client goes on from (KIP-360); nil: it has nothing
	Fresh     wire.ProducerID // a new id, if one was drawn; else NoProducer
	Cluster   Version         // finalised transaction.version
	User      Client
}

// InitProducerID fences older incarnations of a producer and gives the next one. An open transaction is aborted first:
// the answer is CONCURRENT_TRANSACTIONS until that is done. The body of the reply is a Reply.
//
// Kafka: TransactionCoordinator.handleInitProducerId.
func (s *State) InitProducerID(tok coord.Token, now time.Time, r InitRequest) coord.Decision {
	switch {
	case r.ID == "":
		return refuse(tok, kerr.InvalidRequest)
	case r.TimeoutMs <= 0 || r.TimeoutMs > s.cfg.MaxTimeoutMs:
		return refuse(tok, kerr.InvalidTransactionTimeout)
	}
	t := s.byID[r.ID]
	switch {
	case t == nil:
		return s.create(tok, now, r)
	case t.Status.prepared():
		return refuse(tok, kerr.ConcurrentTransactions)
	case r.Expected != nil && !t.knows(*r.Expected):
		return refuse(tok, kerr.ProducerFenced)
	case t.Status == Ongoing && r.Expected != nil && *r.Expected != t.producer():
		// Kafka aborts the transaction of the current incarnation here for one that is fenced already.
		return refuse(tok, kerr.ProducerFenced)
	case t.Status == Ongoing && !planted.On(planted.InitKeepsOpen):
		d := t.fence(r.Cluster, now)
		d.Replies = []coord.Reply{{Token: tok, Body: Reply{Err: kerr.ConcurrentTransactions, Producer: NoProducer}}}
		return d
	}
	return s.advance(tok, now, t, r)
}

// knows reports whether expected may go on under this id: it is the current producer id (the epoch is looked at later),
// or the one before it with its epochs used up, whose rotation the client did not learn of.
func (t *Txn) knows(expected Producer) bool {
	return expected.ID == t.ProducerID || expected.ID == t.Previous && expected.Epoch >= lastUsableEpoch
}

func (s *State) create(tok coord.Token, now time.Time, r InitRequest) coord.Decision {
	if r.Fresh == wire.NoProducer {
		return answer(tok, Reply{NeedsID: true, Producer: NoProducer})
	}
	n := Txn{
		ID: r.ID, ProducerID: r.Fresh, Previous: r.Fresh, Next: wire.NoProducer, Epoch: 0, TimeoutMs: r.TimeoutMs,
		Status: Empty, Updated: now.UnixMilli(), Started: -1,
	}
	return s.begin(tok, now, &n, r, wire.NoEpoch)
}

// advance gives a finished or unused id its next incarnation.
func (s *State) advance(tok coord.Token, now time.Time, t *Txn, r InitRequest) coord.Decision {
	n := t.next(Empty, now.UnixMilli())
	n.Next, n.TimeoutMs, n.Started, n.Partitions = wire.NoProducer, r.TimeoutMs, -1, nil
	last := wire.NoEpoch
	switch expected := r.Expected; {
	case t.exhausted() && (expected == nil || expected.Epoch == t.Epoch):
		if r.Fresh == wire.NoProducer {
			return answer(tok, Reply{NeedsID: true, Producer: NoProducer})
		}
		n.ProducerID, n.Epoch = r.Fresh, 0
		if expected != nil {
			last = t.Epoch
		}
	case expected == nil:
		n.Epoch++
	case expected.Epoch == t.Epoch && !t.exhausted():
		n.Epoch++
		last = t.Epoch
	case expected.Epoch == t.lastEpoch() && t.lastEpoch() != wire.NoEpoch:
		last = t.lastEpoch() // the answer was lost: the same again
	default:
		return refuse(tok, kerr.ProducerFenced)
	}
	return s.begin(tok, now, &n, r, last)
}

func (s *State) begin(tok coord.Token, now time.Time, n *Txn, r InitRequest, last wire.ProducerEpoch) coord.Decision {
	d := n.write(r.Cluster, now)
	d.Replies = []coord.Reply{{Token: tok, Body: Reply{Producer: n.producer()}}}
	d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
		if err == nil {
			t := s.byID[n.ID]
			t.retry, t.user = retry{epoch: last, of: n.producer()}, r.User
		}
		return nil, nil
	}
	return d
}

// fence decides to abort an ongoing transaction for a producer that gets no say: the markers carry the next epoch, so
// that nothing the old incarnation sends is taken any more. Under v1 and v2 alike that is one epoch (KAFKA-19367).
func (t *Txn) fence(cluster Version, now time.Time) coord.Decision {
	n := t.next(PrepareAbort, now.UnixMilli())
	if n.Epoch <= lastUsableEpoch && !planted.On(planted.TimeoutWithoutFence) {
		n.Epoch++
	}
	n.Next, n.Client = wire.NoProducer, cluster
	d := n.write(cluster, now)
	d.Effects = []coord.Effect{n.markers()}
	return d
}
