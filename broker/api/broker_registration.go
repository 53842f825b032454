package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerRegistration answers BrokerRegistration (key 62), versions 0-4, of brokers that have proven who they are. v1 the
// flag of a migration from ZooKeeper, which is refused; v2 log directories (below it, none: 119); v3 the epoch of a clean
// stop. The broker is fenced until its heartbeats say that it is ready. Errors: 31 for another broker's id, 35, 41, 101, 102,
// 104, 119.
type brokerRegistration struct {
	controller brokerController
	clusterID  string
}

func (h brokerRegistration) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.BrokerRegistrationRequest)
	resp := msg.ResponseKind().(*kmsg.BrokerRegistrationResponse)
	resp.BrokerEpoch = int64(wire.NoBrokerEpoch)
	switch {
	case !isPeer(req, wire.BrokerID(msg.BrokerID)):
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	case msg.ClusterID != h.clusterID:
		resp.ErrorCode = kerr.InconsistentClusterID.Code
	case msg.IsMigratingZkBroker:
		resp.ErrorCode = kerr.BrokerIDNotRegistered.Code
	default:
		ctx, cancel := context.WithTimeout(ctx, alterTimeout)
		defer cancel()
		epoch, err := h.controller.RegisterBroker(ctx, registrationOf(msg))
		if err != nil {
			resp.ErrorCode, _ = refusal(err)
			break
		}
		resp.BrokerEpoch = int64(epoch)
	}
	w.Reply(resp)
}

func registrationOf(msg *kmsg.BrokerRegistrationRequest) raftctl.Registration {
	reg := raftctl.Registration{
		ID: wire.BrokerID(msg.BrokerID), Incarnation: msg.IncarnationID, Rack: msg.Rack, LogDirs: uuids(msg.LogDirs),
		PreviousEpoch: wire.BrokerEpoch(msg.PreviousBrokerEpoch), Features: map[string]image.VersionRange{},
	}
	for _, l := range msg.Listeners {
		reg.Endpoints = append(reg.Endpoints, image.Endpoint{Listener: l.Name, Host: l.Host, Port: l.Port, Protocol: l.SecurityProtocol})
	}
	for _, f := range msg.Features {
		reg.Features[f.Name] = image.VersionRange{Min: f.MinSupportedVersion, Max: f.MaxSupportedVersion}
	}
	return reg
}

func uuids(ids [][16]byte) []wire.UUID {
	var out []wire.UUID
	for _, id := range ids {
		out = append(out, id)
	}
	return out
}
