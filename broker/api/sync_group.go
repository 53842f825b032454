package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
)

// syncGroup answers SyncGroup (key 14), versions 0-5. v3 static members (KIP-345); v5 protocol type and name, which
// must then be there (KIP-559). Errors: 14, 15, 16, 22, 23, 24, 25, 27, 82.
type syncGroup struct{ groups *groupcoord.Service }

func (h syncGroup) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.SyncGroupRequest)
	if msg.Version >= 5 && (msg.ProtocolType == nil || msg.Protocol == nil) {
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.Version, resp.ErrorCode = msg.Version, kerr.InconsistentGroupProtocol.Code
		w.Reply(resp)
		return
	}
	h.groups.SyncGroup(msg, func(resp *kmsg.SyncGroupResponse) { w.Reply(resp) })
}
