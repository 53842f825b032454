package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
)

// leaveGroup answers LeaveGroup (key 13), versions 0-5. Before v3 one member, whose error is the response's; v3 many
// members, also by instance id alone (KIP-345); v5 reason (KIP-800). Errors: 14, 15, 16, 24; per member 25, 82.
type leaveGroup struct{ groups *groupcoord.Service }

func (h leaveGroup) handle(_ context.Context, req *server.Request, w server.Responder) {
	h.groups.LeaveGroup(req.Msg.(*kmsg.LeaveGroupRequest), func(resp *kmsg.LeaveGroupResponse) { w.Reply(resp) })
}
