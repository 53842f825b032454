package api

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/txn"
)

// describeTransactions answers DescribeTransactions (key 65), version 0. An entry carries, beyond Kafka's fields, the
// client id and the address of who used the transactional id last, as tagged fields that other clients skip; they are
// missing when this coordinator was loaded since. Errors, all per id: 14, 16, 42, 105.
type describeTransactions struct{ txns *txn.Service }

// Tagged fields of kaja in an entry of DescribeTransactions, each the bytes of a string.
const (
	TxnTagClientID = 10_000
	TxnTagHost     = 10_001
)

func (h describeTransactions) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeTransactionsRequest)
	resp := msg.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	resp.TransactionStates = make([]kmsg.DescribeTransactionsResponseTransactionState, len(msg.TransactionalIDs))
	var mu sync.Mutex
	waiting := len(msg.TransactionalIDs) + 1
	finish := func(fill func()) {
		mu.Lock()
		fill()
		waiting--
		last := waiting == 0
		mu.Unlock()
		if last {
			w.Reply(resp)
		}
	}
	for i, id := range msg.TransactionalIDs {
		out := &resp.TransactionStates[i]
		out.Default()
		out.TransactionalID = id
		if id == "" {
			finish(func() { out.ErrorCode = kerr.InvalidRequest.Code })
			continue
		}
		h.txns.Describe(id, func(d txn.Description, err *kerr.Error) { finish(func() { describeTxn(out, d, err) }) })
	}
	finish(func() {})
}

func describeTxn(out *kmsg.DescribeTransactionsResponseTransactionState, d txn.Description, err *kerr.Error) {
	if err != nil {
		out.ErrorCode = err.Code
		return
	}
	out.State, out.TimeoutMillis, out.StartTimestamp = d.Status.String(), d.TimeoutMs, d.StartedMs
	out.ProducerID, out.ProducerEpoch = int64(d.Producer.ID), int16(d.Producer.Epoch)
	for _, tp := range d.Partitions {
		if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			t.Topic = tp.Topic
			out.Topics = append(out.Topics, t)
		}
		last := &out.Topics[len(out.Topics)-1]
		last.Partitions = append(last.Partitions, int32(tp.Partition))
	}
	if d.User.ID != "" {
		out.UnknownTags.Set(TxnTagClientID, []byte(d.User.ID))
	}
	if d.User.Host != "" {
		out.UnknownTags.Set(TxnTagHost, []byte(d.User.Host))
	}
}
