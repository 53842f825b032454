package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
)

// heartbeat answers Heartbeat (key 12), versions 0-4. v3 static members (KIP-345). Errors: 15, 16, 22, 24, 25, 27, 82;
// 14 is answered as success.
type heartbeat struct{ groups *groupcoord.Service }

func (h heartbeat) handle(_ context.Context, req *server.Request, w server.Responder) {
	h.groups.Heartbeat(req.Msg.(*kmsg.HeartbeatRequest), func(resp *kmsg.HeartbeatResponse) { w.Reply(resp) })
}
