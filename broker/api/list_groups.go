package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
)

// listGroups answers ListGroups (key 16), versions 0-5, with the groups coordinated by this broker. v4 states and their
// filter (KIP-518); v5 types and their filter (KIP-848). Errors: 14, 15.
type listGroups struct{ groups *groupcoord.Service }

func (h listGroups) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.ListGroupsRequest)
	h.groups.ListGroups(msg.StatesFilter, msg.TypesFilter, func(groups []kmsg.ListGroupsResponseGroup, err *kerr.Error) {
		resp := kmsg.NewPtrListGroupsResponse()
		resp.Version, resp.Groups = msg.Version, groups
		if err != nil {
			resp.ErrorCode = err.Code
		}
		w.Reply(resp)
	})
}
