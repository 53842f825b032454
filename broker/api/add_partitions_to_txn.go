package api

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// addPartitionsToTxn answers AddPartitionsToTxn (key 24), versions 0-5. v2 PRODUCER_FENCED; v3 flexible; v4 many
// transactions and VerifyOnly, v5 TRANSACTION_ABORTABLE (KIP-890): these two are meant for nodes, but Kafka without an
// authorizer serves them to everybody, and clients use them (@platformatic/kafka takes the highest version it is offered).
// A transaction is extended by all partitions or by none.
// Errors, all per partition: 3, 14, 15, 16, 29 (internal topics), 42, 47 (v0-1), 49, 51, 55 (another one failed),
// 90, 120.
type addPartitionsToTxn struct {
	image func() *image.Image
	txns  txnCoordinator
}

const (
	addManyFrom         = 4
	addKnowsFencedSince = 2
)

func (h addPartitionsToTxn) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.AddPartitionsToTxnRequest)
	resp := msg.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if msg.Version >= addManyFrom {
		h.many(req, resp, w)
		return
	}
	r := state.AddRequest{
		ID: msg.TransactionalID, Producer: txnProducer(msg.ProducerID, msg.ProducerEpoch), Client: state.V0, User: txnClient(req),
	}
	refused := h.resolve(msg, resp, &r)
	if refused || len(r.Partitions) == 0 {
		w.Reply(resp)
		return
	}
	h.txns.AddPartitions(r, func(err *kerr.Error) {
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				resp.Topics[i].Partitions[j].ErrorCode = fencedCode(err, msg.Version, addKnowsFencedSince)
			}
		}
		w.Reply(resp)
	})
}

// many adds or verifies partitions of several transactions, above all for another node, on which a producer writes. That
// node may have newer metadata than this one; what is to be added must be known here too (see hasAll).
func (h addPartitionsToTxn) many(req *server.Request, resp *kmsg.AddPartitionsToTxnResponse, w server.Responder) {
	msg := req.Msg.(*kmsg.AddPartitionsToTxnRequest)
	img := h.image()
	var user state.Client // a node can't tell whose it asks for
	if _, node := req.Conn.Peer(); !node {
		user = txnClient(req)
	}
	resp.Transactions = make([]kmsg.AddPartitionsToTxnResponseTransaction, len(msg.Transactions))
	var left atomic.Int32
	left.Store(int32(len(msg.Transactions)) + 1)
	finish := func() {
		if left.Add(-1) == 0 {
			w.Reply(resp)
		}
	}
	for i := range msg.Transactions {
		t, out := &msg.Transactions[i], &resp.Transactions[i]
		out.TransactionalID = t.TransactionalID
		r := state.AddRequest{ID: t.TransactionalID, Producer: txnProducer(t.ProducerID, t.ProducerEpoch), Client: state.V2, User: user}
		for _, topic := range t.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				rp.Partition = p
				rt.Partitions = append(rt.Partitions, rp)
				r.Partitions = append(r.Partitions, wire.TopicPartition{Topic: topic.Topic, Partition: wire.PartitionID(p)})
			}
			out.Topics = append(out.Topics, rt)
		}
		if t.VerifyOnly {
			r.Client = state.V0
			h.txns.Verify(r, func(v state.VerifyReply) {
				answerParts(out, func(tp wire.TopicPartition) int16 {
					if v.Err == nil && slices.Contains(v.Missing, tp) {
						return kerr.TransactionAbortable.Code // in 4 too, as Kafka does
					}
					return code(v.Err)
				})
				finish()
			})
			continue
		}
		if !hasAll(img, r.Partitions) {
			answerParts(out, func(tp wire.TopicPartition) int16 {
				if _, ok := img.Partition(tp.Topic, tp.Partition); ok {
					return kerr.OperationNotAttempted.Code
				}
				return kerr.UnknownTopicOrPartition.Code
			})
			finish()
			continue
		}
		h.txns.AddPartitions(r, func(err *kerr.Error) {
			answerParts(out, func(wire.TopicPartition) int16 { return code(err) })
			finish()
		})
	}
	finish()
}

// hasAll reports whether the metadata has all of the partitions. A coordinator adds none that its own metadata lacks: at
// the end of the transaction it would take a partition that was just created for one that was deleted, and owe it no marker.
func hasAll(img *image.Image, tps []wire.TopicPartition) bool {
	return !slices.ContainsFunc(tps, func(tp wire.TopicPartition) bool {
		_, ok := img.Partition(tp.Topic, tp.Partition)
		return !ok
	})
}

func answerParts(out *kmsg.AddPartitionsToTxnResponseTransaction, code func(wire.TopicPartition) int16) {
	for i := range out.Topics {
		t := &out.Topics[i]
		for j := range t.Partitions {
			t.Partitions[j].ErrorCode = code(wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(t.Partitions[j].Partition)})
		}
	}
}

// resolve fills in the response as it is when some partitions can't be added, and what the coordinator is asked.
func (h addPartitionsToTxn) resolve(msg *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse, r *state.AddRequest) (refused bool) {
	img := h.image()
	for _, t := range msg.Topics {
		rt := kmsg.NewAddPartitionsToTxnResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p, kerr.OperationNotAttempted.Code
			tp := wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p)}
			if image.IsInternal(t.Topic) {
				rp.ErrorCode, refused = kerr.TopicAuthorizationFailed.Code, true
			} else if _, ok := img.Partition(tp.Topic, tp.Partition); !ok {
				rp.ErrorCode, refused = kerr.UnknownTopicOrPartition.Code, true
			}
			r.Partitions = append(r.Partitions, tp)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return refused
}

func txnProducer(id int64, epoch int16) state.Producer {
	return state.Producer{ID: wire.ProducerID(id), Epoch: wire.ProducerEpoch(epoch)}
}
