package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnNode is a node with a topic and a coordinator whose log takes its time: every flush of __transaction_state waits.
func txnNode(t *testing.T, delay time.Duration) (*node, *client) {
	fs := faultfs.New(memfs.New(time.Now))
	n := start(t, fs, map[string]string{"transaction.state.log.num.partitions": "1"})
	c := n.dial()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 7, 10_000
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 2, ReplicationFactor: 1}}
	if got := c.ask(create).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; got != 0 {
		t.Fatal(kerr.ErrorForCode(got))
	}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorType, find.CoordinatorKey = 3, 1, "tx"
	if got := c.ask(find).(*kmsg.FindCoordinatorResponse).ErrorCode; got != 0 {
		t.Fatal(kerr.ErrorForCode(got))
	}
	if delay > 0 {
		fs.Before(func(op faultfs.Op, name string) {
			if op == faultfs.OpSync && strings.Contains(name, "__transaction_state") {
				<-time.After(delay)
			}
		})
	}
	return n, c
}

// initTxn gives the first incarnation of a transactional id.
func initTxn(t *testing.T, c *client, id string) (wire.ProducerID, wire.ProducerEpoch) {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &id, 60_000
	resp := c.ask(req).(*kmsg.InitProducerIDResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		t.Fatal(err)
	}
	return wire.ProducerID(resp.ProducerID), wire.ProducerEpoch(resp.ProducerEpoch)
}

func txnProduce(version int16, txnID string, id wire.ProducerID, epoch wire.ProducerEpoch, sequence, partition int32) *kmsg.ProduceRequest {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Transactional: true,
		Producer: &batch.Producer{ID: id, Epoch: epoch, Sequence: sequence}})
	b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: fmt.Append(nil, sequence)})
	records, _, err := b.Build(nil, nil)
	if err != nil {
		panic(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis, req.TransactionID = version, -1, 10_000, &txnID
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: records}}}}
	return req
}

// A coordinator that takes 200 ms and five requests in flight: the ones behind the first wait until that is appended, so
// none is out of order (45).
func TestFiveInFlightWaitForTheCoordinator(t *testing.T) {
	const delay = 200 * time.Millisecond
	for _, version := range []int16{11, 12} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			_, c := txnNode(t, delay)
			id, epoch := initTxn(t, c, "tx")
			if version < 12 {
				add := kmsg.NewPtrAddPartitionsToTxnRequest()
				add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, "tx", int64(id), int16(epoch)
				add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
				if got := c.ask(add).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode; got != 0 {
					t.Fatal(kerr.ErrorForCode(got))
				}
			}
			const requests = 5
			format := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test"))
			var frames []byte
			for i := range int32(requests) {
				frames = append(frames, format.AppendRequest(nil, txnProduce(version, "tx", id, epoch, i, 0), i)...)
			}
			began := time.Now()
			if _, err := c.conn.Write(frames); err != nil {
				t.Fatal(err)
			}
			for i := range int32(requests) {
				var size [4]byte
				if _, err := io.ReadFull(c.conn, size[:]); err != nil {
					t.Fatal(err)
				}
				body := make([]byte, binary.BigEndian.Uint32(size[:]))
				if _, err := io.ReadFull(c.conn, body); err != nil {
					t.Fatal(err)
				}
				resp := kmsg.NewPtrProduceResponse()
				resp.Version = version
				if err := resp.ReadFrom(body[5:]); err != nil {
					t.Fatal(err)
				}
				if p := resp.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.BaseOffset != int64(i) {
					t.Errorf("request %d: %v at %d", i, kerr.ErrorForCode(p.ErrorCode), p.BaseOffset)
				}
			}
			if took := time.Since(began); version >= 12 && took < delay {
				t.Errorf("done after %v: the coordinator was not slow", took)
			}
		})
	}
}

// Versions 4 and 5 are served to clients too, as Kafka without an authorizer does: partitions of several transactions are
// added in one request, what is asked about only is not.
func TestClientAddsPartitionsOfManyTransactions(t *testing.T) {
	for _, version := range []int16{4, 5} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			_, c := txnNode(t, 0)
			req := kmsg.NewPtrAddPartitionsToTxnRequest()
			req.Version = version
			ask := func(txnID string, verify bool, id wire.ProducerID, epoch wire.ProducerEpoch, partitions ...int32) {
				one := kmsg.NewAddPartitionsToTxnRequestTransaction()
				one.TransactionalID, one.ProducerID, one.ProducerEpoch, one.VerifyOnly = txnID, int64(id), int16(epoch), verify
				one.Topics = []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: partitions}}
				req.Transactions = append(req.Transactions, one)
			}
			id, epoch := initTxn(t, c, "a")
			ask("a", false, id, epoch, 0, 1)
			other, otherEpoch := initTxn(t, c, "b")
			ask("b", true, other, otherEpoch, 0)
			ask("nobody", false, 77, 0, 0)
			resp := c.ask(req).(*kmsg.AddPartitionsToTxnResponse)
			var got []int16
			for _, txn := range resp.Transactions {
				for _, p := range txn.Topics[0].Partitions {
					got = append(got, p.ErrorCode)
				}
			}
			if want := []int16{0, 0, kerr.TransactionAbortable.Code, kerr.InvalidProducerIDMapping.Code}; resp.ErrorCode != 0 || !slices.Equal(got, want) {
				t.Errorf("codes %d %v, want 0 %v", resp.ErrorCode, got, want)
			}
			for txnID, want := range map[string]int16{"a": 0, "b": kerr.TransactionAbortable.Code} {
				produce := txnProduce(11, txnID, id, epoch, 0, 1)
				if txnID == "b" {
					produce = txnProduce(11, txnID, other, otherEpoch, 0, 0)
				}
				if got := c.ask(produce).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != want {
					t.Errorf("%s: a record into its partition is answered %d, want %d", txnID, got, want)
				}
			}
		})
	}
}

// A node whose disk is cut off right after EndTxn's answer comes back with the transaction complete and nothing open
// (field case B14), wherever the markers were on their way.
func TestCrashAfterEndTxn(t *testing.T) {
	for round := range 8 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			mem := memfs.New(time.Now)
			n := start(t, mem, map[string]string{"transaction.state.log.num.partitions": "1"})
			c := n.dial()
			create := kmsg.NewPtrCreateTopicsRequest()
			create.Version, create.TimeoutMillis = 7, 10_000
			create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 2, ReplicationFactor: 1}}
			c.ask(create)
			find := kmsg.NewPtrFindCoordinatorRequest()
			find.Version, find.CoordinatorType, find.CoordinatorKey = 3, 1, "tx"
			c.ask(find)
			id, epoch := initTxn(t, c, "tx")
			for p := range int32(2) {
				resp := c.ask(txnProduce(12, "tx", id, epoch, 0, p)).(*kmsg.ProduceResponse)
				if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
					t.Fatal(err)
				}
			}
			end := kmsg.NewPtrEndTxnRequest()
			end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = 5, "tx", int64(id), int16(epoch), round%2 == 0
			if err := kerr.ErrorForCode(c.ask(end).(*kmsg.EndTxnResponse).ErrorCode); err != nil {
				t.Fatal(err)
			}
			crashed := mem.Crash([]memfs.Fate{memfs.Coin, memfs.Coin, memfs.Lose, memfs.Keep}[round/2], uint64(round))
			again := start(t, crashed, map[string]string{"transaction.state.log.num.partitions": "1"})
			c = again.dial()
			state := map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[round%2 == 0]
			describe := kmsg.NewPtrDescribeTransactionsRequest()
			describe.TransactionalIDs = []string{"tx"}
			deadline := time.Now().Add(10 * time.Second)
			for {
				got := c.ask(describe).(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
				if got.State == state {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("state %s %v, want %s", got.State, kerr.ErrorForCode(got.ErrorCode), state)
				}
			}
			for p := range wire.PartitionID(2) {
				part, ok := again.replicas.Load().ByName("t", p)
				if !ok {
					t.Fatal("partition is gone")
				}
				// A marker that was there already is written once more, which changes nothing.
				if o := part.Offsets(); o.LSO != o.HW || o.HW < 2 || o.HW > 3 {
					t.Errorf("partition %d: %+v, want the LSO at the HW, 2 or 3", p, o)
				}
			}
		})
	}
}

// A transaction that no coordinator knows of is found, and named in a metric by its topic.
func TestHangingTransactionIsFound(t *testing.T) {
	n, c := txnNode(t, 0)
	if found := n.findHanging(t.Context()); found != 0 {
		t.Fatalf("%d hanging transactions in an idle node", found)
	}
	part, _ := n.replicas.Load().ByName("t", 0)
	b := txnProduce(11, "x", 99, 0, 0, 0).Topics[0].Partitions[0].Records
	v, err := log.Validate(b, log.ValidateOptions{Config: part.Config(), Now: time.Now(), ProduceVersion: 11, Codecs: n.codecs})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := part.AppendTxn(v, replica.Admission{Unchecked: true}, 1); err != nil {
		t.Fatal(err)
	}
	id, epoch := initTxn(t, c, "tx")
	c.ask(txnProduce(12, "tx", id, epoch, 0, 1)) // in order
	n.env.Wall = func() time.Time { return time.Now().Add(time.Hour) }
	if found := n.findHanging(t.Context()); found != 1 {
		t.Errorf("%d hanging transactions, want 1", found)
	}
	families, err := n.env.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		if f.GetName() == "kaja_txn_oldest_open_seconds" {
			series += len(f.GetMetric())
		}
	}
	if series != 1 {
		t.Errorf("%d topics with open transactions, want 1", series)
	}
}
