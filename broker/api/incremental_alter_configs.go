package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// incrementalAlterConfigs answers IncrementalAlterConfigs (key 44), versions 0-1 (KIP-339). Errors by resource: 3, 7, 17,
// 40, 41, 42.
type incrementalAlterConfigs struct{ alterConfigs }

func (h incrementalAlterConfigs) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.IncrementalAlterConfigsRequest)
	resp := msg.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	requests := make([]raftctl.AlterConfigs, 0, len(msg.Resources))
	for _, r := range msg.Resources {
		a := raftctl.AlterConfigs{Resource: resourceOf(r.ResourceType, r.ResourceName)}
		for _, c := range r.Configs {
			a.Changes = append(a.Changes, raftctl.ConfigChange{Name: c.Name, Op: raftctl.ConfigOp(c.Op), Value: c.Value})
		}
		requests = append(requests, a)
	}
	for i, res := range h.apply(ctx, requests, msg.ValidateOnly) {
		rr := kmsg.NewIncrementalAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = msg.Resources[i].ResourceType, msg.Resources[i].ResourceName
		rr.ErrorCode, rr.ErrorMessage = resultOf(res)
		resp.Resources = append(resp.Resources, rr)
	}
	w.Reply(resp)
}
