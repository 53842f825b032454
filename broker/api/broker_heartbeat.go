package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerHeartbeat answers BrokerHeartbeat (key 63), versions 0-2, of brokers that have proven who they are. v1 directories
// that went offline (KIP-858); v2 directories that take no new partitions (KIP-1066). A tagged field of kaja's own names
// the deleted topics that the broker holds nothing of any more, two of the answer up to where the metadata had got and since when the
// controller may have been replaced. The end of the connection makes the controller look for the broker. Errors: 31 for another broker's id, 41, 77, 102.
type brokerHeartbeat struct {
	controller brokerController
	// patience is how long an answer is waited for, which rests on what the controller commits and applies. The heartbeat
	// counts from its arrival; a broker that is not answered at all would connect anew each time.
	patience time.Duration

	mu    sync.Mutex
	conns map[*server.Conn]wire.BrokerEpoch // connections that carry heartbeats, and whose
}

func (h *brokerHeartbeat) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.BrokerHeartbeatRequest)
	resp := msg.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
	resp.IsFenced = true
	if !isPeer(req, wire.BrokerID(msg.BrokerID)) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		w.Reply(resp)
		return
	}
	h.watch(ctx, req.Conn, wire.BrokerID(msg.BrokerID), wire.BrokerEpoch(msg.BrokerEpoch))
	hb := raftctl.Heartbeat{
		ID: wire.BrokerID(msg.BrokerID), Epoch: wire.BrokerEpoch(msg.BrokerEpoch), Offset: wire.Offset(msg.CurrentMetadataOffset),
		WantFence: msg.WantFence, WantShutDown: msg.WantShutdown, OfflineDirs: uuids(msg.OfflineLogDirs),
	}
	if msg.CordonedLogDirs != nil {
		hb.Cordoned = append([]wire.UUID{}, uuids(msg.CordonedLogDirs)...)
	}
	if gone, ok := wire.Tag(&msg.UnknownTags, wire.TagGoneTopics); ok {
		hb.Gone = slices.Clone(wire.ParseUUIDs(gone))
	}
	ctx, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	reply, err := h.controller.Heartbeat(ctx, hb)
	if err != nil {
		resp.ErrorCode, _ = refusal(err)
	} else {
		resp.IsCaughtUp, resp.IsFenced, resp.ShouldShutdown = reply.CaughtUp, reply.Fenced, reply.ShouldShutDown
		wire.SetOffsetTag(&resp.UnknownTags, reply.Metadata)
		wire.SetSinceTag(&resp.UnknownTags, reply.Since)
	}
	w.Reply(resp)
}

// watch has the controller look for the broker when the connection ends. ctx is the connection's.
func (h *brokerHeartbeat) watch(ctx context.Context, conn *server.Conn, id wire.BrokerID, epoch wire.BrokerEpoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, known := h.conns[conn]
	h.conns[conn] = epoch
	if known {
		return
	}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		epoch := h.conns[conn]
		delete(h.conns, conn)
		h.mu.Unlock()
		h.controller.Suspect(id, epoch)
	})
}
