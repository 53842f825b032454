package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// allocateProducerIDs answers AllocateProducerIds (key 67), version 0, of brokers that have proven who they are, with a
// block that nobody else gets. Errors: 31 for another broker's id, 41, 77, 102.
type allocateProducerIDs struct{ controller brokerController }

func (h allocateProducerIDs) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.AllocateProducerIDsRequest)
	resp := msg.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
	if !isPeer(req, wire.BrokerID(msg.BrokerID)) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		w.Reply(resp)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	block, err := h.controller.AllocateProducerIDs(ctx, wire.BrokerID(msg.BrokerID), wire.BrokerEpoch(msg.BrokerEpoch))
	if err != nil {
		resp.ErrorCode, _ = refusal(err)
	} else {
		resp.ProducerIDStart, resp.ProducerIDLen = int64(block.First), int32(block.Count)
	}
	w.Reply(resp)
}
