package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// addOffsetsToTxn answers AddOffsetsToTxn (key 25), versions 0-4: the partition of __consumer_offsets of a group becomes
// part of the transaction. v2 PRODUCER_FENCED; v3 flexible; v4 (KIP-890) knows TRANSACTION_ABORTABLE, which is not sent
// here. Errors: 14, 15, 16, 42, 47 (v0-1), 49, 51, 90.
type addOffsetsToTxn struct {
	image  func() *image.Image
	topic  offsetsTopic
	groups *groupcoord.Service
	txns   txnCoordinator
}

func (h addOffsetsToTxn) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.AddOffsetsToTxnRequest)
	resp := msg.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	if _, ok := h.image().Topic(image.OffsetsTopic); !ok {
		until, cancel := context.WithTimeout(ctx, firstUseWait)
		defer cancel()
		if err := h.topic.EnsureOffsetsTopic(until); err != nil {
			resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
			w.Reply(resp)
			return
		}
	}
	p, ok := h.groups.Partition(msg.Group)
	if !ok {
		resp.ErrorCode = kerr.CoordinatorNotAvailable.Code
		w.Reply(resp)
		return
	}
	h.txns.AddPartitions(state.AddRequest{
		ID: msg.TransactionalID, Producer: txnProducer(msg.ProducerID, msg.ProducerEpoch), Client: state.V0, User: txnClient(req),
		Partitions: []wire.TopicPartition{{Topic: image.OffsetsTopic, Partition: p}},
	}, func(err *kerr.Error) {
		resp.ErrorCode = fencedCode(err, msg.Version, addKnowsFencedSince)
		w.Reply(resp)
	})
}
