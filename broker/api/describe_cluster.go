package api

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeCluster answers DescribeCluster (key 60), versions 0-2. v1 endpoint types (KIP-919); v2 fenced brokers
// (KIP-1073). Errors: 114 where controllers are asked for on a broker's listener, 115 for a type that does not exist.
type describeCluster struct {
	images    imageSource
	endpoints endpointFinder
	// controllerListener says of a listener that it serves controllers, which are then what is described.
	controllerListener func(listener string) bool
	// controllers says where a controller takes requests.
	controllers controllerEndpoints
}

const (
	endpointBrokers     = 1
	endpointControllers = 2
)

func (h describeCluster) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeClusterRequest)
	resp := msg.ResponseKind().(*kmsg.DescribeClusterResponse)
	served := int8(endpointBrokers)
	if h.controllerListener(req.Conn.Listener) {
		served = endpointControllers
	}
	if req.Version >= 1 && msg.EndpointType != served {
		err, text := wrongEndpointType(msg.EndpointType, served)
		resp.ErrorCode, resp.ErrorMessage = err.Code, &text
		resp.ControllerID = int32(wire.NoBroker)
		w.Reply(resp)
		return
	}
	img := h.images.Image()
	a := &metadataAnswer{img: img, conn: req.Conn, endpoints: h.endpoints}
	told := kmsg.NewMetadataResponse()
	a.cluster(&told)
	resp.ClusterID, resp.ControllerID, resp.EndpointType = img.ClusterID(), told.ControllerID, served
	if served == endpointControllers {
		resp.ControllerID, resp.Brokers = int32(img.ControllerID()), h.quorum(img)
	}
	for b := range img.Brokers() {
		host, port, ok := h.endpoints.Endpoint(req.Conn, b.ID)
		if !ok || b.Fenced && !msg.IncludeFencedBrokers || served == endpointControllers {
			continue
		}
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack, rb.IsFenced = int32(b.ID), host, port, rackOf(b), b.Fenced
		resp.Brokers = append(resp.Brokers, rb)
	}
	if msg.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = auth.ClusterOperations()
	}
	w.Reply(resp)
}

// quorum is the controllers that have said where they are; a node that is the only one has not.
func (h describeCluster) quorum(img *image.Image) []kmsg.DescribeClusterResponseBroker {
	ids := map[wire.BrokerID]bool{img.ControllerID(): true}
	for n := range img.Nodes() {
		if n.Controller {
			ids[n.ID] = true
		}
	}
	var out []kmsg.DescribeClusterResponseBroker
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if e, ok := h.controllers(id); ok {
			rb := kmsg.NewDescribeClusterResponseBroker()
			rb.NodeID, rb.Host, rb.Port = int32(id), e.Host, int32(e.Port)
			out = append(out, rb)
		}
	}
	return out
}

func wrongEndpointType(wanted, served int8) (*kerr.Error, string) {
	names := map[int8]string{endpointBrokers: "BROKER", endpointControllers: "CONTROLLER"}
	if names[wanted] == "" {
		return kerr.UnsupportedEndpointType, fmt.Sprintf("Unsupported endpoint type %d", wanted)
	}
	return kerr.MismatchedEndpointType, fmt.Sprintf("The request was sent to an endpoint of type %s, but we wanted an endpoint of type %s", names[served], names[wanted])
}
