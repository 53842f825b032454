package compattests_test

import (
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codes of the transactional APIs.
const (
	codeNotEnoughReplicas = 19
	codeOutOfOrder        = 45
	codeInvalidEpoch      = 47
	codeInvalidTxnState   = 48
	codeInvalidMapping    = 49
	codeConcurrent        = 51
	codeUnstableOffset    = 88
	codeProducerFenced    = 90
	codeTxnAbortable      = 120
	transactionalBatch    = 1 << 4 // in a batch's attributes
	txnSettleTime         = 20 * time.Second
	testTxnTimeoutMillis  = 60_000
)

// rawProducer is a transactional producer of single requests. v2 works at transaction version 2.
type rawProducer struct {
	t     *testing.T
	c     *raw.Conn // to the node that leads the partitions and coordinates the groups of the test
	coord *raw.Conn // to the coordinator of txnID
	txnID string
	id    int64
	epoch int16
	v2    bool
}

// newRawProducer makes one and initialises it.
func newRawProducer(t *testing.T, b *target.Broker, txnID string, v2 bool) *rawProducer {
	t.Helper()
	p := &rawProducer{t: t, c: dial(t, b), txnID: txnID, id: -1, epoch: -1, v2: v2}
	p.findCoordinator()
	p.init()
	return p
}

func (p *rawProducer) findCoordinator() {
	p.t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorType, req.CoordinatorKey = 3, 1, p.txnID
	var at *kmsg.FindCoordinatorResponse
	err := poll.Until(p.t.Context(), txnSettleTime, "a coordinator", func() (bool, error) {
		at = do[*kmsg.FindCoordinatorResponse](p.t, p.c, req)
		return at.ErrorCode == 0, nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.coord = dialAddr(p.t, net.JoinHostPort(at.Host, strconv.Itoa(int(at.Port))))
}

// tryInit asks once for the next incarnation; what it goes on from is the producer's id and epoch with resume.
func (p *rawProducer) tryInit(version int16, resume bool) *kmsg.InitProducerIDResponse {
	p.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = version, &p.txnID, testTxnTimeoutMillis
	if resume {
		req.ProducerID, req.ProducerEpoch = p.id, p.epoch
	}
	return do[*kmsg.InitProducerIDResponse](p.t, p.coord, req)
}

// init fences others and takes the next incarnation; while a transaction is being ended it waits.
func (p *rawProducer) init() {
	p.t.Helper()
	err := poll.Until(p.t.Context(), txnSettleTime, "the producer is initialised", func() (bool, error) {
		resp := p.tryInit(4, false)
		switch resp.ErrorCode {
		case 0:
			p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
			return true, nil
		case codeConcurrent, 14, 15, 16:
			return false, nil
		}
		p.t.Fatalf("InitProducerId %q: code %d", p.txnID, resp.ErrorCode)
		return false, nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *rawProducer) batch(sequence int32, values ...string) raw.Batch {
	b := raw.NewBatch(raw.Values(values...)...).Idempotent(p.id, p.epoch, sequence)
	b.Attributes |= transactionalBatch
	return b
}

// produce sends one batch at a version of Produce up to 12, which names topics.
func (p *rawProducer) produce(version int16, topic string, partition, sequence int32, values ...string) int16 {
	p.t.Helper()
	req := produceRequest(topic, partition, p.batch(sequence, values...).Bytes())
	req.Version, req.TransactionID, req.Acks = version, &p.txnID, -1
	return onlyPartition(p.t, do[*kmsg.ProduceResponse](p.t, p.c, req)).ErrorCode
}

// send is produce at the producer's own version; it must succeed.
func (p *rawProducer) send(topic string, partition, sequence int32, values ...string) {
	p.t.Helper()
	version := int16(11)
	if p.v2 {
		version = 12
	}
	// 51 of Kafka, while markers are on their way; 19 where the coordinator cannot be asked just now, or a late marker comes between.
	untilCode(p.t, "Produce", func() int16 { return p.produce(version, topic, partition, sequence, values...) }, codeNotEnoughReplicas, codeConcurrent)
}

func (p *rawProducer) add(topic string, partitions ...int32) int16 {
	p.t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, p.txnID, p.id, p.epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: partitions}}
	resp := do[*kmsg.AddPartitionsToTxnResponse](p.t, p.coord, req)
	return resp.Topics[0].Partitions[0].ErrorCode
}

// begin adds partitions, waiting while the last transaction is being completed or the coordinator loads. With v2 the broker
// does that.
func (p *rawProducer) begin(topic string, partitions ...int32) {
	p.t.Helper()
	if p.v2 {
		return
	}
	untilCode(p.t, "AddPartitionsToTxn", func() int16 { return p.add(topic, partitions...) }, 14, 15, 16, codeConcurrent)
}

// end ends the transaction once and takes the next epoch from the answer.
func (p *rawProducer) end(commit bool) int16 {
	p.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 3, p.txnID, p.id, p.epoch, commit
	if p.v2 {
		req.Version = 5
	}
	resp := do[*kmsg.EndTxnResponse](p.t, p.coord, req)
	if p.v2 && resp.ErrorCode == 0 {
		p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
	}
	return resp.ErrorCode
}

// describe gives the state of the transactional id.
func (p *rawProducer) describe() kmsg.DescribeTransactionsResponseTransactionState {
	p.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{p.txnID}
	return do[*kmsg.DescribeTransactionsResponse](p.t, p.coord, req).TransactionStates[0]
}

func (p *rawProducer) awaitState(state string) {
	p.t.Helper()
	err := poll.Until(p.t.Context(), txnSettleTime, "the transaction is "+state, func() (bool, error) { return p.describe().State == state, nil })
	if err != nil {
		p.t.Fatalf("%v; it is %s", err, p.describe().State)
	}
}

// stableOffset is the end that a read_committed consumer sees.
func stableOffset(t *testing.T, c *raw.Conn, topic string, partition int32) int64 {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.IsolationLevel = 6, -1, 1
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = partition, -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	got := do[*kmsg.ListOffsetsResponse](t, c, req).Topics[0].Partitions[0]
	wantCode(t, "ListOffsets", got.ErrorCode, 0)
	return got.Offset
}

// awaitStable waits until nothing is open in a partition, and gives its end.
func awaitStable(t *testing.T, c *raw.Conn, topic string, partition int32) int64 {
	t.Helper()
	var end, stable int64
	err := poll.Until(t.Context(), txnSettleTime, "the last stable offset is the end", func() (bool, error) {
		end = listOffset(t, c, topic, partition, -1).Offset
		stable = stableOffset(t, c, topic, partition)
		return end == stable, nil
	})
	if err != nil {
		t.Fatalf("%s-%d: last stable offset %d, end %d: %v", topic, partition, stable, end, err)
	}
	return end
}

// openTransactions counts producers with an open transaction in a partition.
func openTransactions(t *testing.T, c *raw.Conn, topic string, partition int32) int {
	t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	p := do[*kmsg.DescribeProducersResponse](t, c, req).Topics[0].Partitions[0]
	wantCode(t, "DescribeProducers", p.ErrorCode, 0)
	n := 0
	for _, a := range p.ActiveProducers {
		if a.CurrentTxnStartOffset >= 0 {
			n++
		}
	}
	return n
}

// untilCode asks until the answer carries no error; the codes of retry are waited out.
func untilCode(t *testing.T, what string, ask func() int16, retry ...int16) {
	t.Helper()
	err := poll.Until(t.Context(), txnSettleTime, what, func() (bool, error) {
		code := ask()
		switch {
		case code == 0:
			return true, nil
		case slices.Contains(retry, code):
			return false, nil
		}
		t.Fatalf("%s: code %d", what, code)
		return false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
