package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// endTxn answers EndTxn (key 26), versions 0-5. v2 PRODUCER_FENCED; v3 flexible; v4 (KIP-890) knows
// TRANSACTION_ABORTABLE, which is not sent here; v5 (KIP-890) ends a transaction of version 2 and answers with the id
// and epoch of the next. The answer leaves when the decision is committed; the markers follow. Errors: 14, 15, 16 (these
// two: unknown), 42, 47 (v0-1), 48, 49, 51, 90.
type endTxn struct{ txns *txn.Service }

const (
	endBumpsFrom        = 5
	endKnowsFencedSince = 2
)

func (h endTxn) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.EndTxnRequest)
	r := state.EndRequest{
		ID: msg.TransactionalID, Producer: txnProducer(msg.ProducerID, msg.ProducerEpoch), Commit: msg.Commit, Fresh: wire.NoProducer,
	}
	if msg.Version >= endBumpsFrom {
		r.Client = state.V2
	}
	h.txns.EndTxn(r, func(got state.Reply) {
		resp := msg.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = fencedCode(got.Err, msg.Version, endKnowsFencedSince)
		resp.ProducerID, resp.ProducerEpoch = int64(got.Producer.ID), int16(got.Producer.Epoch)
		w.Reply(resp)
	})
}
