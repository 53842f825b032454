package state

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Status is the status of a transaction, in the numbers of Kafka's records.
type Status int8

// The statuses. Dead is never stored: an expired id is a tombstone.
const (
	Empty          Status = 0
	Ongoing        Status = 1
	PrepareCommit  Status = 2
	PrepareAbort   Status = 3
	CompleteCommit Status = 4
	CompleteAbort  Status = 5
	Dead           Status = 6
	// PrepareEpochFence is a status that Kafka has in memory only. It has no meaning here but is a legal filter.
	PrepareEpochFence Status = 7
)

var statusNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}

// String is Kafka's name of the status, as ListTransactions and DescribeTransactions send it.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("Status(%d)", int8(s))
	}
	return statusNames[s]
}

// ParseStatus reads Kafka's name of a status.
func ParseStatus(name string) (Status, bool) {
	i := slices.Index(statusNames[:], name)
	return Status(i), i >= 0
}

func (s Status) prepared() bool  { return s == PrepareCommit || s == PrepareAbort }
func (s Status) completed() bool { return s == CompleteCommit || s == CompleteAbort }

// Version is a level of transaction.version: of the cluster, or that a client works at.
type Version int16

// The levels. V1 differs from V0 in the version of the records only; what V2 does is KIP-890's.
const (
	V0 Version = 0
	V1 Version = 1
	V2 Version = 2
)

// Bumps reports whether every end of a transaction bumps the epoch.
func (v Version) Bumps() bool { return v >= V2 }

// lastUsableEpoch is the last epoch that a client may get: fencing it must still be possible (Kafka:
// TransactionMetadata.isEpochExhausted).
const lastUsableEpoch wire.ProducerEpoch = math.MaxInt16 - 1

// NoTimeoutMs is the timeout of a transaction that never runs out of time (KIP-939).
const NoTimeoutMs = math.MaxInt32

// Txn is what is known of one transactional id.
type Txn struct {
	ID         string
	ProducerID wire.ProducerID
	Previous   wire.ProducerID // producer id before the last record; NoProducer: none is known
	Next       wire.ProducerID // producer id from the completion on, when the epochs of this one are used up
	Epoch      wire.ProducerEpoch
	TimeoutMs  int32
	Status     Status
	Partitions map[wire.TopicPartition]struct{}
	Updated    int64   // milliseconds
	Started    int64   // milliseconds, -1: never
	Client     Version // of the client that moved it last

	retry retry  // soft
	user  Client // soft
}

// retry allows an InitProducerId that names epoch to be answered again with what the id has now (KIP-360). It counts
// only while the id has that producer id and epoch still.
type retry struct {
	epoch wire.ProducerEpoch
	of    Producer
}

// Producer is one incarnation of a producer.
type Producer struct {
	ID    wire.ProducerID
	Epoch wire.ProducerEpoch
}

// NoProducer is no incarnation.
var NoProducer = Producer{ID: wire.NoProducer, Epoch: wire.NoEpoch}

// Client is who uses a transactional id, as its coordinator saw it last. Zero: not seen by this coordinator.
type Client struct{ ID, Host string }

func (t *Txn) producer() Producer { return Producer{t.ProducerID, t.Epoch} }

func (t *Txn) exhausted() bool { return t.Epoch >= lastUsableEpoch }

// lastEpoch is the epoch that an InitProducerId may name besides the current one, NoEpoch if there is none: the one
// before an InitProducerId whose answer was lost, and with v2 the one that the last end of a transaction has bumped,
// which is how a client goes on whose transaction ran out of time (KIP-588).
func (t *Txn) lastEpoch() wire.ProducerEpoch {
	switch {
	case t.retry.of == t.producer():
		return t.retry.epoch
	case !t.Client.Bumps() || !t.Status.prepared() && !t.Status.completed():
		return wire.NoEpoch
	case t.Epoch == 0:
		return lastUsableEpoch // of the id before
	}
	return t.Epoch - 1
}

// timedOut reports whether an ongoing transaction has run out of time.
func (t *Txn) timedOut(now time.Time) bool {
	return t.Status == Ongoing && t.TimeoutMs != NoTimeoutMs && t.Started+int64(t.TimeoutMs) < now.UnixMilli()
}

// SortedPartitions lists the partitions by topic and number.
func (t *Txn) SortedPartitions() []wire.TopicPartition {
	return slices.SortedFunc(maps.Keys(t.Partitions), func(a, b wire.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// next is a copy to be changed into the next record's state; partitions are shared until replaced.
func (t *Txn) next(status Status, nowMs int64) Txn {
	n := *t
	n.Previous, n.Status, n.Updated = t.ProducerID, status, max(nowMs, t.Updated)
	return n
}

// value is the record that makes t durable. Version 0 has no place for what v2 needs.
func (t *Txn) value(cluster Version) []byte {
	v := coordrec.TxnValue{
		Version: coordrec.TxnValueFixed, ProducerID: t.ProducerID, PreviousProducerID: t.Previous, NextProducerID: t.Next,
		ProducerEpoch: t.Epoch, NextProducerEpoch: wire.NoEpoch, TimeoutMs: t.TimeoutMs, Status: int8(t.Status),
		LastUpdateMs: t.Updated, StartMs: t.Started, ClientTxnVersion: int16(t.Client),
	}
	if cluster >= V1 {
		v.Version = coordrec.TxnValueTagged
	}
	if t.Status != Empty {
		v.Topics = []coordrec.TxnTopic{}
	}
	for _, tp := range t.SortedPartitions() {
		if n := len(v.Topics); n == 0 || v.Topics[n-1].Topic != tp.Topic {
			v.Topics = append(v.Topics, coordrec.TxnTopic{Topic: tp.Topic})
		}
		last := &v.Topics[len(v.Topics)-1]
		last.Partitions = append(last.Partitions, int32(tp.Partition))
	}
	return v.Append(nil)
}

// parse makes the state of a record.
func parse(id string, value []byte) (*Txn, error) {
	v, err := coordrec.DecodeTxnValue(value)
	if err != nil {
		return nil, fmt.Errorf("transactional id %q: %w", id, err)
	}
	t := &Txn{
		ID: id, ProducerID: v.ProducerID, Previous: v.PreviousProducerID, Next: v.NextProducerID, Epoch: v.ProducerEpoch,
		TimeoutMs: v.TimeoutMs, Status: Status(v.Status), Updated: v.LastUpdateMs, Started: v.StartMs,
		Client: Version(v.ClientTxnVersion), Partitions: map[wire.TopicPartition]struct{}{},
	}
	if t.Status < Empty || t.Status > CompleteAbort {
		return nil, fmt.Errorf("transactional id %q: status %d is not one of a record", id, v.Status)
	}
	for _, topic := range v.Topics {
		for _, p := range topic.Partitions {
			t.Partitions[wire.TopicPartition{Topic: topic.Topic, Partition: wire.PartitionID(p)}] = struct{}{}
		}
	}
	return t, nil
}
