package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
)

// joinGroup answers JoinGroup (key 11), versions 0-9. v1 rebalance timeout; v4 members without id get
// MEMBER_ID_REQUIRED first (KIP-394); v5 static members (KIP-345); v7 protocol type in the answer (KIP-559); v8 reason
// (KIP-800); v9 SkipAssignment (KIP-814). Errors: 14, 15, 16, 23, 24, 25, 26, 27, 79, 81, 82.
type joinGroup struct{ groups *groupcoord.Service }

func (h joinGroup) handle(_ context.Context, req *server.Request, w server.Responder) {
	h.groups.JoinGroup(req.Msg.(*kmsg.JoinGroupRequest), groupClient(req), func(resp *kmsg.JoinGroupResponse) { w.Reply(resp) })
}
