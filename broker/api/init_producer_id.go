package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// initProducerID answers InitProducerId (key 22), versions 0-5. Every request without a transactional id gets an id of
// its own, epoch 0; with one, its coordinator fences older incarnations and gives the next. v3 adds the id and epoch that
// a producer goes on from (KIP-360); v4 PRODUCER_FENCED; v5 (KIP-890) knows TRANSACTION_ABORTABLE, which is not sent
// here. Errors: 41 and 7 from the controller, 42; with a transactional id also 14, 15, 16, 47 (v0-3), 50, 51, 90.
type initProducerID struct {
	ids  producerIDs
	txns *txn.Service
}

const initKnowsFencedSince = 4

// producerIDs gives ids that nobody else gets; raftctl.ProducerIDAllocator is one.
type producerIDs interface {
	Next(ctx context.Context) (wire.ProducerID, error)
}

func (h initProducerID) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.InitProducerIDRequest)
	resp := msg.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = int64(wire.NoProducer), int16(wire.NoEpoch)
	noID, noEpoch := msg.ProducerID == int64(wire.NoProducer), msg.ProducerEpoch == int16(wire.NoEpoch)
	switch {
	case req.Version >= 3 && noID != noEpoch:
		resp.ErrorCode = kerr.InvalidRequest.Code
	case msg.TransactionalID != nil:
		h.transactional(req, msg, resp, w)
		return
	default:
		ctx, cancel := context.WithTimeout(ctx, alterTimeout)
		defer cancel()
		id, err := h.ids.Next(ctx)
		if err != nil {
			resp.ErrorCode, _ = refusal(err)
			break
		}
		resp.ProducerID, resp.ProducerEpoch = int64(id), 0
	}
	w.Reply(resp)
}

func (h initProducerID) transactional(req *server.Request, msg *kmsg.InitProducerIDRequest, resp *kmsg.InitProducerIDResponse, w server.Responder) {
	r := state.InitRequest{ID: *msg.TransactionalID, TimeoutMs: msg.TransactionTimeoutMillis, User: txnClient(req)}
	if req.Version >= 3 && msg.ProducerID != int64(wire.NoProducer) {
		p := txnProducer(msg.ProducerID, msg.ProducerEpoch)
		r.Expected = &p
	}
	if r.ID == "" {
		resp.ErrorCode = kerr.InvalidRequest.Code
		w.Reply(resp)
		return
	}
	h.txns.InitProducerID(r, func(got state.Reply) {
		resp.ErrorCode = fencedCode(got.Err, req.Version, initKnowsFencedSince)
		resp.ProducerID, resp.ProducerEpoch = int64(got.Producer.ID), int16(got.Producer.Epoch)
		w.Reply(resp)
	})
}
