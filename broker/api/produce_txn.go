package api

import (
	"context"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// produceAbortableFrom is the first version that knows TRANSACTION_ABORTABLE, produceAddsFrom the first whose clients
// leave it to the broker to add partitions to their transactions (KIP-890).
const (
	produceAbortableFrom = 11
	produceAddsFrom      = 12
)

// place is a partition of a request: the index of its topic and its own.
type place struct{ topic, index int }

// admitted is how a partition's transactional batch stands with the transaction's coordinator.
type admitted struct {
	by  replica.Admission
	err error // why it may not be appended
}

// txnBatches finds the transactional batches of the request, and refuses a request that may not have them as a whole.
func (r *produceRun) txnBatches() (map[place]batch.Batch, error) {
	var found map[place]batch.Batch
	producer := wire.NoProducer
	for i := range r.msg.Topics {
		for j := range r.msg.Topics[i].Partitions {
			b, ok := txnBatch(r.msg.Topics[i].Partitions[j].Records)
			if !ok {
				continue
			}
			switch {
			case r.msg.TransactionID == nil:
				return nil, kerr.TransactionalIDAuthorizationFailed
			case producer != wire.NoProducer && producer != b.ProducerID():
				return nil, kerr.InvalidProducerIDMapping
			case found == nil:
				found = make(map[place]batch.Batch)
			}
			producer = b.ProducerID()
			found[place{i, j}] = b
		}
	}
	return found, nil
}

// txnBatch gives the first transactional batch among records.
func txnBatch(records []byte) (batch.Batch, bool) {
	for {
		b, rest, err := batch.Next(records)
		if err != nil {
			return nil, false
		}
		if b.Transactional() {
			return b, true
		}
		records = rest
	}
}

// admit asks the transaction's coordinator about every partition whose transaction is not open yet, in one question, and
// waits for the answer: the connection's next request must not overtake this one.
func (r *produceRun) admit(ctx context.Context, batches map[place]batch.Batch, nameOf func(topic int) (string, error)) {
	r.admitted = make(map[place]admitted, len(batches))
	ask := state.AddRequest{ID: *r.msg.TransactionID, User: txnClient(r.req)}
	if r.req.Version >= produceAddsFrom {
		ask.Client = state.V2
	}
	unchecked := !ask.Client.Bumps() && !r.enroll.verifies()
	var asked []enrolling
	for i := range r.msg.Topics {
		name, err := nameOf(i)
		if err != nil {
			continue // append answers that
		}
		for j := range r.msg.Topics[i].Partitions {
			b, ok := batches[place{i, j}]
			if !ok {
				continue
			}
			ask.Producer = state.Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch()}
			part, err := findReplica(r.img, r.parts, name, wire.PartitionID(r.msg.Topics[i].Partitions[j].Partition))
			if err == nil && !unchecked {
				asked = append(asked, enrolling{at: place{i, j}, part: part, sequence: b.BaseSequence()})
			}
			r.admitted[place{i, j}] = admitted{by: replica.Admission{V2: ask.Client.Bumps(), Unchecked: unchecked}}
		}
	}
	got := r.enroll.enroll(ctx, ask, func() []wire.TopicPartition { return r.guard(ask.Producer, asked) })
	for _, e := range asked {
		if a := r.admitted[e.at]; a.err == nil && a.by.Guard != 0 {
			a.err = r.refusedBy(got, e.part.TP, e.part.Unsure())
			r.admitted[e.at] = a
		}
	}
}

// enrolling is a partition with a transactional batch.
type enrolling struct {
	at       place
	part     *replica.Partition
	sequence int32
}

// guard takes a guard for each partition whose transaction is not open, and names those partitions.
func (r *produceRun) guard(producer state.Producer, asked []enrolling) []wire.TopicPartition {
	var tps []wire.TopicPartition
	for _, e := range asked {
		a := r.admitted[e.at]
		a.by.Guard, a.err = e.part.BeginTxn(producer.ID, producer.Epoch, e.sequence)
		if a.err == nil && a.by.Guard != 0 {
			tps = append(tps, e.part.TP)
		}
		r.admitted[e.at] = a
	}
	return tps
}

// refusedBy is what a partition is told after the coordinator's answer; nil if it belongs to the transaction. unsure says that this broker may
// have been replaced as the leader of tp.
//
// Kafka: AddPartitionsToTxnManager, ReplicaManager.handleProduceAppend.
func (r *produceRun) refusedBy(got enrolled, tp wire.TopicPartition, unsure bool) error {
	switch got.err {
	case nil:
	case kerr.ProducerFenced:
		return kerr.InvalidProducerEpoch
	case kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator:
		if unsure {
			return kerr.NotLeaderForPartition // the client asks who leads
		}
		return kerr.NotEnoughReplicas // the client sends it again
	case kerr.ConcurrentTransactions:
		if r.req.Version < produceAddsFrom {
			return kerr.NotEnoughReplicas
		}
		return got.err
	default:
		return got.err
	}
	for _, m := range got.missing {
		if m != tp {
			continue
		}
		if r.req.Version >= produceAbortableFrom {
			return kerr.TransactionAbortable
		}
		return kerr.InvalidTxnState
	}
	return nil
}
