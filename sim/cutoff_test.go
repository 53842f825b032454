package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// A leader that was cut off from the other nodes and replaced does not know what its successor has taken. It sends no consumer back
// that comes with a newer position, and names no end of an epoch that it does not know: either may be data of its successor. A
// leader that knows that it leads answers as Kafka's (R14, C17).
func TestCutOffLeaderSendsNobodyBack(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := startThree(t, c, "min.insync.replicas=2")
		replicated(t, c, "t", 1, nil)
		whole(t, c, "t", 30*time.Second)
		producer, err := c.Client("producer", kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		send := func(from, to int) *kgo.Record {
			var last *kgo.Record
			for i := from; i < to; i++ {
				r, err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}).First()
				if err != nil || r.Offset != int64(i) {
					t.Fatalf("record %d lies at %d: %v", i, r.Offset, err)
				}
				last = r
			}
			return last
		}
		send(0, 10)
		m := kmsg.NewPtrMetadataRequest()
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}}
		told := at(t, producer, 1, m).(*kmsg.MetadataResponse).Topics[0]
		id, topic, epoch := int(told.Partitions[0].Leader), told.TopicID, told.Partitions[0].LeaderEpoch
		old := nodes[id-1]
		asker, err := c.Client("asker", kgo.SeedBrokers(old.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer asker.Close()
		request := func(r kmsg.Request) kmsg.Response {
			resp, err := asker.SeedBrokers()[0].Request(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		ask := func(from int64, of int32) (fetch, end error) {
			f := kmsg.NewPtrFetchRequest()
			f.ReplicaID, f.MaxBytes, f.Topics = -1, 1<<20, []kmsg.FetchRequestTopic{{Topic: "t", TopicID: topic, Partitions: []kmsg.FetchRequestTopicPartition{
				{FetchOffset: from, CurrentLeaderEpoch: epoch, LastFetchedEpoch: -1, PartitionMaxBytes: 1 << 20}}}}
			e := kmsg.NewPtrOffsetForLeaderEpochRequest()
			e.ReplicaID, e.Topics = -1, []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
				{CurrentLeaderEpoch: epoch, LeaderEpoch: of}}}}
			p := request(f).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			q := request(e).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			if q.ErrorCode == 0 && q.EndOffset != -1 {
				t.Errorf("epoch %d ends at %d", of, q.EndOffset)
			}
			return kerr.ErrorForCode(p.ErrorCode), kerr.ErrorForCode(q.ErrorCode)
		}
		if fetch, end := ask(50, epoch+1); !errors.Is(fetch, kerr.OffsetOutOfRange) || end != nil {
			t.Errorf("a leader that leads: %v, %v", fetch, end)
		}
		for _, n := range nodes {
			if n != old {
				c.Net.Cut(old.Name(), n.Name())
				c.Net.Cut(n.Name(), old.Name())
			}
		}
		last := send(10, 50)
		if fetch, end := ask(50, last.LeaderEpoch); !errors.Is(fetch, kerr.NotLeaderForPartition) || !errors.Is(end, kerr.NotLeaderForPartition) {
			t.Errorf("a leader that was replaced and does not know it: %v, %v", fetch, end)
		}
		if fetch, _ := ask(-1, last.LeaderEpoch); !errors.Is(fetch, kerr.OffsetOutOfRange) {
			t.Errorf("before the start of the log: %v", fetch)
		}
		consumer, err := c.Client("consumer", kgo.SeedBrokers(old.Addr()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(50).WithEpoch(last.LeaderEpoch)}}))
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(5 * time.Second)
			send(50, 51)
		}()
		first := int64(-1)
		if got := consumer.PollFetches(ctx).Records(); len(got) > 0 {
			first = got[0].Offset
		}
		if first != 50 {
			t.Errorf("a consumer at 50 that asks the node that was cut off gets the record at %d", first)
		}
	})
}

// Nor does it call a producer wrong: what its successor has taken of the producer may make right what looks wrong here. So does a
// transaction coordinator that was cut off and replaced; it confirms nothing either. Both say that they may lead no more, where those that lead refuse (R14, C17).
func TestCutOffLeaderCallsNobodyWrong(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := startThree(t, c, "min.insync.replicas=2", "transaction.state.log.num.partitions=12")
		replicated(t, c, "t", 1, nil)
		whole(t, c, "t", 30*time.Second)
		producer, err := c.Client("producer", kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		send := func(n int) {
			for range n {
				if err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("v")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(10)
		id, epoch, err := producer.ProducerID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		m := kmsg.NewPtrMetadataRequest()
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}}
		leader := at(t, producer, 1, m).(*kmsg.MetadataResponse).Topics[0].Partitions[0].Leader
		old := nodes[leader-1]
		txn := coordinatedBy(t, producer, leader)

		asker, err := c.Client("asker", kgo.SeedBrokers(old.Addr()), kgo.MaxVersions(kversion.V3_0_0()))
		if err != nil {
			t.Fatal(err)
		}
		defer asker.Close()
		ask := func(r kmsg.Request) kmsg.Response {
			resp, err := asker.SeedBrokers()[0].Request(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		produce := func(sequence int32) error {
			b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch,
				Producer: &batch.Producer{ID: wire.ProducerID(id), Epoch: wire.ProducerEpoch(epoch), Sequence: sequence}})
			b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
			records, _, err := b.Build(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			r := kmsg.NewPtrProduceRequest()
			r.Acks, r.TimeoutMillis = -1, 1000
			r.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
			return kerr.ErrorForCode(ask(r).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
		}
		init := func(to func(kmsg.Request) kmsg.Response, p int64, e int16) (int64, int16, error) {
			r := kmsg.NewPtrInitProducerIDRequest()
			r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &txn, 60000, p, e
			got := to(r).(*kmsg.InitProducerIDResponse)
			return got.ProducerID, got.ProducerEpoch, kerr.ErrorForCode(got.ErrorCode)
		}
		add := func(p int64, e int16) error {
			r := kmsg.NewPtrAddPartitionsToTxnRequest()
			r.TransactionalID, r.ProducerID, r.ProducerEpoch = txn, p, e
			r.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}}
			resp, err := asker.SeedBrokers()[0].Request(t.Context(), r)
			if err != nil {
				return err // nobody answers
			}
			return kerr.ErrorForCode(resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode)
		}
		end := func(p int64, e int16) error {
			r := kmsg.NewPtrEndTxnRequest()
			r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = txn, p, e, true
			return kerr.ErrorForCode(ask(r).(*kmsg.EndTxnResponse).ErrorCode)
		}
		txnID, txnEpoch, err := init(ask, -1, -1)
		if err != nil {
			t.Fatal(err)
		}
		expect := func(who string, wantProduce, wantFenced error) {
			t.Helper()
			if err := produce(50); !errors.Is(err, wantProduce) {
				t.Errorf("%s: sequence 50: %v, want %v", who, err, wantProduce)
			}
			if err := add(txnID, txnEpoch+1); !errors.Is(err, wantFenced) {
				t.Errorf("%s: AddPartitionsToTxn of the next epoch: %v, want %v", who, err, wantFenced)
			}
			if err := end(txnID, txnEpoch+1); !errors.Is(err, wantFenced) {
				t.Errorf("%s: EndTxn of the next epoch: %v, want %v", who, err, wantFenced)
			}
			if _, _, err := init(ask, txnID, txnEpoch+1); !errors.Is(err, wantFenced) {
				t.Errorf("%s: InitProducerId that goes on from the next epoch: %v, want %v", who, err, wantFenced)
			}
		}
		expect("those that lead", kerr.OutOfOrderSequenceNumber, kerr.ProducerFenced)
		if err := end(txnID, txnEpoch); !errors.Is(err, kerr.InvalidTxnState) {
			t.Errorf("EndTxn of nothing: %v", err)
		}
		for range 2 {
			if err := add(txnID, txnEpoch); err != nil {
				t.Errorf("AddPartitionsToTxn: %v", err)
			}
		}
		for _, n := range nodes {
			if n != old {
				c.Net.Cut(old.Name(), n.Name())
				c.Net.Cut(n.Name(), old.Name())
			}
		}
		send(40) // which the successor takes
		expect("those that were replaced and do not know it", kerr.NotLeaderForPartition, kerr.NotCoordinator)
		if err := add(txnID, txnEpoch); err == nil {
			t.Error("a coordinator that was replaced says that a partition is in the transaction")
		}
	})
}

// coordinatedBy gives a transactional id whose coordinator is the node.
func coordinatedBy(t *testing.T, cl *kgo.Client, node int32) string {
	t.Helper()
	for i := range 1000 {
		r := kmsg.NewPtrFindCoordinatorRequest()
		r.CoordinatorType, r.CoordinatorKeys = 1, []string{fmt.Sprintf("txn-%d", i)}
		if got := at(t, cl, 1, r).(*kmsg.FindCoordinatorResponse).Coordinators[0]; got.ErrorCode == 0 && got.NodeID == node {
			return got.Key
		}
		time.Sleep(10 * time.Millisecond) // the topic may be being made
	}
	t.Fatalf("node %d coordinates none of 1000 ids", node)
	return ""
}
