package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kadm"
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
// transaction coordinator that was cut off and replaced; it adds nothing to a transaction either. Both say that they may lead no more,
// from the moment at which others lead, where those that lead refuse; the controller's own node, which goes on answering itself for
// as long as it takes itself for the controller, too (R14, C17).
func TestCutOffLeaderCallsNobodyWrong(t *testing.T) {
	for name, controllers := range map[string]bool{"the controller's node": true, "another node": false} {
		t.Run(name, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				w := newWronged(t, seed, controllers)
				w.expect("those that lead", kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.ProducerFenced)
				if err := w.end(0); !errors.Is(err, kerr.InvalidTxnState) {
					t.Errorf("EndTxn of nothing: %v", err)
				}
				for range 2 {
					if err := w.add(0); err != nil {
						t.Errorf("AddPartitionsToTxn: %v", err)
					}
				}
				w.cutOff()
				for range 300 {
					w.expect("those that were replaced", kerr.NotLeaderForPartition, kerr.NotLeaderForPartition, kerr.NotCoordinator)
					time.Sleep(5 * time.Millisecond)
				}
				if err := w.add(0); !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("a coordinator that was replaced is asked to add a partition that it has: %v, want no answer while its record is in doubt", err)
				}
			})
		})
	}
}

// wronged are a leader that is the coordinator of a transaction, too, and those who ask it.
type wronged struct {
	t     *testing.T
	c     *Cluster
	nodes []*Node
	old   *Node

	asker  *kgo.Client // asks old
	other  *kgo.Client // asks the others
	peer   int         // the id of one of them
	part   int32       // of the topic t, which old leads
	leader int32       // the id of old

	plain, txn wire.ProducerID
	epoch      [2]wire.ProducerEpoch // of plain and of txn
	txnID      string
}

func newWronged(t *testing.T, seed uint64, controllers bool) *wronged {
	w := &wronged{t: t, c: NewCluster(t, seed), part: -1}
	w.nodes = startThree(t, w.c, "min.insync.replicas=2", "transaction.state.log.num.partitions=12")
	replicated(t, w.c, "t", 3, nil)
	whole(t, w.c, "t", 30*time.Second)
	var err error
	if w.other, err = w.c.Client("producer", kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.other.Close)
	for _, p := range at(t, w.other, 1, metadataOf("t")).(*kmsg.MetadataResponse).Topics[0].Partitions {
		if w.nodes[p.Leader-1].controller().Leading() == controllers {
			w.old, w.leader, w.part = w.nodes[p.Leader-1], p.Leader, p.Partition
			w.peer = int(p.Leader)%3 + 1
			w.txnID = coordinatedBy(t, w.other, 1, p.Leader)
		}
	}
	if w.old == nil {
		t.Fatal("no node that leads a partition is what is looked for")
	}
	if w.asker, err = w.c.Client("asker", kgo.SeedBrokers(w.old.Addr()), kgo.MaxVersions(kversion.V3_0_0()), kgo.RetryTimeout(time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.asker.Close)
	if err := w.other.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: w.part, Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	id, epoch, err := w.other.ProducerID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, err := w.init(-1, -1)
	if err != nil {
		t.Fatal(err)
	}
	w.plain, w.txn = wire.ProducerID(id), wire.ProducerID(first.ProducerID)
	w.epoch = [2]wire.ProducerEpoch{wire.ProducerEpoch(epoch), wire.ProducerEpoch(first.ProducerEpoch)}
	return w
}

// cutOff takes the node from the others, and returns as soon as these say who leads instead.
func (w *wronged) cutOff() {
	for _, n := range w.nodes {
		if n != w.old {
			w.c.Net.Cut(w.old.Name(), n.Name())
			w.c.Net.Cut(n.Name(), w.old.Name())
		}
	}
	leader := func() int32 {
		for _, p := range at(w.t, w.other, w.peer, metadataOf("t")).(*kmsg.MetadataResponse).Topics[0].Partitions {
			if p.Partition == w.part {
				return p.Leader
			}
		}
		return -1
	}
	for before := leader(); leader() == before; time.Sleep(time.Millisecond) {
	}
}

func (w *wronged) ask(r kmsg.Request) (kmsg.Response, error) {
	return w.asker.SeedBrokers()[0].Request(w.t.Context(), r)
}

// produce sends a batch of the plain producer, or of the transaction's, whose epoch is newer by that much.
func (w *wronged) produce(txn bool, newer wire.ProducerEpoch, sequence int32) error {
	p := &batch.Producer{ID: w.plain, Epoch: w.epoch[0] + newer, Sequence: sequence}
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, 1000
	if txn {
		p.ID, p.Epoch, r.TransactionID = w.txn, w.epoch[1]+newer, &w.txnID
	}
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Transactional: txn, Producer: p})
	b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
	records, _, err := b.Build(nil, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	r.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: w.part, Records: records}}}}
	resp, err := w.ask(r)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
}

func (w *wronged) init(id int64, epoch int16) (*kmsg.InitProducerIDResponse, error) {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &w.txnID, 60000, id, epoch
	resp, err := w.ask(r)
	if err != nil {
		return nil, err
	}
	got := resp.(*kmsg.InitProducerIDResponse)
	return got, kerr.ErrorForCode(got.ErrorCode)
}

func (w *wronged) add(newer wire.ProducerEpoch) error {
	r := kmsg.NewPtrAddPartitionsToTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch = w.txnID, int64(w.txn), int16(w.epoch[1]+newer)
	r.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{w.part}}}
	resp, err := w.ask(r)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode)
}

func (w *wronged) end(newer wire.ProducerEpoch) error {
	r := kmsg.NewPtrEndTxnRequest()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = w.txnID, int64(w.txn), int16(w.epoch[1]+newer), true
	resp, err := w.ask(r)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.EndTxnResponse).ErrorCode)
}

// expect asks for what only a successor may know: a later sequence, a newer epoch.
func (w *wronged) expect(who string, sequence, writer, fenced error) {
	w.t.Helper()
	check := func(what string, got, want error) {
		w.t.Helper()
		if !errors.Is(got, want) {
			w.t.Errorf("%s: %s: %v, want %v", who, what, got, want)
		}
	}
	check("sequence 50", w.produce(false, 0, 50), sequence)
	check("a transaction's batch of the next epoch", w.produce(true, 1, 0), writer)
	check("AddPartitionsToTxn of the next epoch", w.add(1), fenced)
	check("EndTxn of the next epoch", w.end(1), fenced)
	_, err := w.init(int64(w.txn), int16(w.epoch[1])+1)
	check("InitProducerId that goes on from the next epoch", err, fenced)
}

// A group coordinator that was cut off and replaced tells nobody the offsets that it knows: later ones may have been committed since. Where
// no controller is left, and for a while has not been, it tells them.
func TestCutOffCoordinatorTellsNoOffsets(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		w := newWronged(t, seed, seed%2 == 0)
		group := coordinatedBy(t, w.other, 0, w.leader)
		offsets := kadm.Offsets{}
		offsets.AddOffset("t", 0, 5, -1)
		if err := kadm.NewClient(w.other).CommitAllOffsets(t.Context(), group, offsets); err != nil {
			t.Fatal(err)
		}
		fetch := func() (int64, error) {
			r := kmsg.NewPtrOffsetFetchRequest()
			r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0}}}}}
			resp, err := w.ask(r)
			if err != nil {
				return 0, err
			}
			got := resp.(*kmsg.OffsetFetchResponse).Groups[0]
			if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
				return 0, err
			}
			return got.Topics[0].Partitions[0].Offset, kerr.ErrorForCode(got.Topics[0].Partitions[0].ErrorCode)
		}
		if o, err := fetch(); o != 5 || err != nil {
			t.Fatalf("the coordinator tells %d, %v", o, err)
		}
		w.cutOff()
		if o, err := fetch(); !errors.Is(err, kerr.NotCoordinator) {
			t.Errorf("a coordinator that was replaced tells %d, %v", o, err)
		}
		time.Sleep(time.Minute)
		if o, err := fetch(); o != 5 || err != nil {
			t.Errorf("a minute without any controller, and it tells %d, %v", o, err)
		}
	})
}

// A group's coordinator that nobody cuts off tells the offsets, however short the sessions are: the controller hears its voters no more
// often for it.
func TestShortSessionsLeaveNobodyInDoubt(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		startThree(t, c, "broker.session.timeout.ms=50")
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", 30*time.Second)
		for id := range int32(3) {
			cl, err := c.Client("asker", kgo.RetryTimeout(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			group := coordinatedBy(t, cl, 0, id+1)
			refused := 0
			for range 200 {
				r := kmsg.NewPtrOffsetFetchRequest()
				r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group}}
				if got := at(t, cl, int(id+1), r).(*kmsg.OffsetFetchResponse).Groups[0]; got.ErrorCode == kerr.NotCoordinator.Code {
					refused++
				}
				time.Sleep(5 * time.Millisecond)
			}
			if refused > 0 {
				t.Errorf("node %d refuses %d of 200 questions for offsets", id+1, refused)
			}
			cl.Close()
		}
	})
}

// coordinatedBy gives a group (kind 0) or a transactional id (1) whose coordinator is the node.
func coordinatedBy(t *testing.T, cl *kgo.Client, kind int8, node int32) string {
	t.Helper()
	for i := range 1000 {
		r := kmsg.NewPtrFindCoordinatorRequest()
		r.CoordinatorType, r.CoordinatorKeys = kind, []string{fmt.Sprintf("id-%d", i)}
		if got := at(t, cl, int(node), r).(*kmsg.FindCoordinatorResponse).Coordinators[0]; got.ErrorCode == 0 && got.NodeID == node {
			return got.Key
		}
		time.Sleep(10 * time.Millisecond) // the topic may be being made
	}
	t.Fatalf("node %d coordinates none of 1000 ids", node)
	return ""
}

// A controller that hands its leadership over may hear its voters until its successor leads: a broker that it goes on answering, since
// both are cut off at that moment, knows that it may have been replaced before it is.
func TestHandOverLeavesNoBrokerSure(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		controllers, brokers := c.Apart(3, "broker.session.timeout.ms=500", "offsets.topic.num.partitions=12")
		for _, n := range controllers {
			n.settings = append(n.settings, "broker.session.timeout.ms=500")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.StartAll(ctx, append(slices.Clone(controllers), brokers...)...); err != nil {
			t.Fatal(err)
		}
		cl, err := c.Client("asker", kgo.RetryTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		const id = 4
		sure := tellsOffsets(t, cl, id, coordinatedBy(t, cl, 0, id))
		if !sure() {
			t.Fatal("a coordinator that nobody cuts off tells no offsets")
		}
		old := c.Controller(time.Minute)
		for _, n := range c.nodes {
			if n != old && n != brokers[0] {
				c.Net.Cut(n.Name(), old.Name())
				c.Net.Cut(n.Name(), brokers[0].Name())
				c.Net.Cut(brokers[0].Name(), n.Name())
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			old.controller().HandOver(t.Context())
		}()
		others := slices.DeleteFunc(slices.Clone(controllers), func(n *Node) bool { return n == old })
		unsureOnceReplaced(t, id, others, 10*time.Second, sure)
		<-done
	})
}
