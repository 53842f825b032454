package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
)

// deleteGroups answers DeleteGroups (key 42), versions 0-3. A name that is asked for twice is answered once. Errors per
// group: 14, 15, 16, 68, 69. v3 has a message, which is always null here: no group of ours needs one.
type deleteGroups struct{ groups *groupcoord.Service }

func (h deleteGroups) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DeleteGroupsRequest)
	h.groups.DeleteGroups(msg.Groups, func(groups []kmsg.DeleteGroupsResponseGroup) {
		resp := kmsg.NewPtrDeleteGroupsResponse()
		resp.Version, resp.Groups = msg.Version, groups
		w.Reply(resp)
	})
}
