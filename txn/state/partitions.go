package state

import (
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// AddRequest adds partitions to a producer's transaction, or asks whether they are in it.
type AddRequest struct {
	ID         string
	Producer   Producer
	Partitions []wire.TopicPartition
	Client     Version
	Cluster    Version
	User       Client // zero: not known to the sender
}

// check is what AddPartitions and Verify have in common; nil if the producer may go on.
func (s *State) check(r AddRequest) (*Txn, *kerr.Error) {
	if r.ID == "" {
		return nil, kerr.InvalidRequest
	}
	t := s.byID[r.ID]
	switch {
	case t == nil || t.ProducerID != r.Producer.ID:
		return nil, kerr.InvalidProducerIDMapping
	case t.Epoch != r.Producer.Epoch && !planted.On(planted.WriterEpochUnchecked):
		return nil, kerr.ProducerFenced
	case t.Status.prepared():
		return nil, kerr.ConcurrentTransactions
	}
	return t, nil
}

// AddPartitions begins or extends the producer's transaction. The body of the reply is a Reply.
//
// Kafka: TransactionCoordinator.handleAddPartitionsToTransaction.
func (s *State) AddPartitions(tok coord.Token, now time.Time, r AddRequest) coord.Decision {
	t, refusal := s.check(r)
	if refusal != nil {
		return refuse(tok, refusal)
	}
	if t.Status == Ongoing && t.holds(r.Partitions) {
		d := answer(tok, Reply{Producer: r.Producer})
		if !r.Client.Bumps() {
			// As in EndTxn: under v1 a coordinator that was replaced would take the next transaction for the one that it knows.
			d.Batch = t.write(r.Cluster, now).Batch
		}
		return d
	}
	n := t.next(Ongoing, now.UnixMilli())
	n.Client = r.Client
	if t.Status != Ongoing {
		n.Started = n.Updated
	}
	n.Partitions = maps.Clone(t.Partitions)
	for _, tp := range r.Partitions {
		n.Partitions[tp] = struct{}{}
	}
	d := n.write(r.Cluster, now)
	d.Replies = []coord.Reply{{Token: tok, Body: Reply{Producer: r.Producer}}}
	if r.User != (Client{}) {
		d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
			if err == nil {
				s.byID[r.ID].user = r.User
			}
			return nil, nil
		}
	}
	return d
}

func (t *Txn) holds(partitions []wire.TopicPartition) bool {
	for _, tp := range partitions {
		if _, ok := t.Partitions[tp]; !ok {
			return false
		}
	}
	return true
}

// VerifyReply is the body of the reply to Verify.
type VerifyReply struct {
	Err     *kerr.Error           // why no partition was looked at
	Missing []wire.TopicPartition // asked for and not in the transaction
}

// Verify says which of the partitions are in the producer's transaction (KIP-890).
func (s *State) Verify(tok coord.Token, r AddRequest) coord.Decision {
	var v VerifyReply
	t, refusal := s.check(r)
	if v.Err = refusal; refusal == nil {
		for _, tp := range r.Partitions {
			if _, ok := t.Partitions[tp]; !ok || t.Status != Ongoing {
				v.Missing = append(v.Missing, tp)
			}
		}
	}
	return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: v}}}
}
