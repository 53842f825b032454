package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unregisterBroker answers UnregisterBroker (key 64), version 0: the cluster forgets a broker, and its node leaves the
// metadata quorum. Errors: 7, 31, 41, 102.
type unregisterBroker struct{ unregisterer quorumAdmin }

func (h unregisterBroker) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.UnregisterBrokerRequest)
	resp := msg.ResponseKind().(*kmsg.UnregisterBrokerResponse)
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	if err := h.unregisterer.UnregisterBroker(ctx, wire.BrokerID(msg.BrokerID)); err != nil {
		resp.ErrorCode, resp.ErrorMessage = refusal(err)
	}
	w.Reply(resp)
}
