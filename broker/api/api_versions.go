package api

import (
	"cmp"
	"context"
	"slices"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, key 18, versions 0-5.
//
//   - every version: the keys and version ranges of the listener, ordered by key. The response header is always v0.
//   - v3 (KIP-511): the client names its software; features (KIP-584).
//   - v4: supported features whose lowest level is 0 are listed, too; older Java clients fail on them.
//   - v5 (KIP-1242): the client says which cluster and node it believes to reach.
//
// Errors: 35 for a version that is not served, as a v0 answer with one entry, key 18, on a connection that goes on; 42
// for an impossible software name or version, or if only one of cluster and node is given; 129 if either is another's.

// supportedFeatures are the levels this version of kaja can work at, ordered by name.
func supportedFeatures() []kmsg.ApiVersionsResponseSupportedFeature {
	return []kmsg.ApiVersionsResponseSupportedFeature{
		{Name: image.FeatureELR, MinVersion: 0, MaxVersion: 1},
		{Name: "kraft.version", MinVersion: 0, MaxVersion: 0},
		{Name: image.FeatureMetadataVersion, MinVersion: 33, MaxVersion: 33},
		{Name: image.FeatureTransactionVersion, MinVersion: 0, MaxVersion: 2},
	}
}

// BrokerFeatures is supportedFeatures as a broker registers them. kraft.version is not among them: it belongs to the
// metadata log itself.
func BrokerFeatures() map[string]image.VersionRange {
	m := map[string]image.VersionRange{}
	for _, f := range supportedFeatures() {
		if f.Name != "kraft.version" {
			m[f.Name] = image.VersionRange{Min: f.MinVersion, Max: f.MaxVersion}
		}
	}
	return m
}

// RouteLister lists what a listener serves.
type RouteLister interface {
	// Routes gives the routes of a connection in any order.
	Routes(c *server.Conn) []server.Route
}

type apiVersions struct {
	routes    RouteLister
	image     func() *image.Image
	clusterID string
	nodeID    wire.BrokerID
	// controllerListener says of a listener that it serves controllers: there the cluster and node that a v5 client
	// names are not compared, since it may have been told another node's. Nil: none does.
	controllerListener func(listener string) bool
}

func (h *apiVersions) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.ApiVersionsRequest)
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = req.Version
	if req.Unsupported {
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		for _, r := range h.routes.Routes(req.Conn) {
			if r.Key == msg.Key() {
				resp.ApiKeys = append(resp.ApiKeys, advertise(r))
			}
		}
		w.Reply(resp)
		return
	}
	if err := h.check(req, msg); err != nil {
		resp.ErrorCode = err.Code
		w.Reply(resp)
		return
	}
	if req.Version >= 3 {
		req.Conn.SetSoftware(server.Software{Name: msg.ClientSoftwareName, Version: msg.ClientSoftwareVersion})
	}
	routes := h.routes.Routes(req.Conn)
	resp.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 0, len(routes))
	for _, r := range routes {
		resp.ApiKeys = append(resp.ApiKeys, advertise(r))
	}
	slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return cmp.Compare(a.ApiKey, b.ApiKey) })
	if req.Version >= 3 {
		h.addFeatures(resp)
	}
	w.Reply(resp)
}

func advertise(r server.Route) kmsg.ApiVersionsResponseApiKey {
	return kmsg.ApiVersionsResponseApiKey{ApiKey: r.Key, MinVersion: r.Min, MaxVersion: r.Max}
}

// check finds what makes a request of a supported version fail.
func (h *apiVersions) check(req *server.Request, msg *kmsg.ApiVersionsRequest) *kerr.Error {
	if req.Version >= 3 && (!isSoftwareName(msg.ClientSoftwareName) || !isSoftwareName(msg.ClientSoftwareVersion)) {
		return kerr.InvalidRequest
	}
	if req.Version < 5 {
		return nil
	}
	if (msg.ClusterID == nil) != (msg.NodeID == int32(wire.NoBroker)) {
		return kerr.InvalidRequest
	}
	if msg.ClusterID == nil || h.controllerListener != nil && h.controllerListener(req.Conn.Listener) {
		return nil
	}
	if *msg.ClusterID != h.clusterID || wire.BrokerID(msg.NodeID) != h.nodeID {
		return kerr.RebootstrapRequired
	}
	return nil
}

// isSoftwareName reports whether s is [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])? (KIP-511).
func isSoftwareName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '-' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}

// addFeatures fills in supported and finalised features; a level of 0 is not listed as finalised.
func (h *apiVersions) addFeatures(resp *kmsg.ApiVersionsResponse) {
	for _, f := range supportedFeatures() {
		if resp.Version >= 4 || f.MinVersion > 0 {
			resp.SupportedFeatures = append(resp.SupportedFeatures, f)
		}
	}
	img := h.image()
	if img == nil {
		return // epoch -1: not known yet
	}
	resp.FinalizedFeaturesEpoch = int64(img.Offset())
	for name, level := range img.Features() {
		if level > 0 {
			resp.FinalizedFeatures = append(resp.FinalizedFeatures, kmsg.ApiVersionsResponseFinalizedFeature{
				Name: name, MinVersionLevel: level, MaxVersionLevel: level,
			})
		}
	}
}
