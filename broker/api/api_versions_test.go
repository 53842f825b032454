package api

import (
	"context"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type listedRoutes []server.Route

func (l listedRoutes) Routes(*server.Conn) []server.Route { return l }

// replied keeps the one answer of a handler.
type replied struct{ resp kmsg.Response }

func (r *replied) Reply(resp kmsg.Response)        { r.resp = resp }
func (r *replied) ReplyFunc(func() []wire.Segment) { panic("not expected") }
func (r *replied) Drop(error)                      { panic("not expected") }

func apiVersionsForTest(t *testing.T) *apiVersions {
	t.Helper()
	img, _, err := image.Empty("cluster-1").With(image.Position{Offset: 41}, []coordrec.MetadataRecord{
		&coordrec.FeatureLevelRecord{Name: image.FeatureMetadataVersion, Level: 33},
		&coordrec.FeatureLevelRecord{Name: image.FeatureELR, Level: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &apiVersions{
		routes:    listedRoutes{{Key: 18, Min: 0, Max: 5}, {Key: 0, Min: 0, Max: 13, FirstServed: 3}},
		image:     func() *image.Image { return img },
		clusterID: "cluster-1", nodeID: 7,
		controllerListener: func(l string) bool { return l == "CONTROLLER" },
	}
}

func askVersions(h *apiVersions, listener string, version int16, edit func(*kmsg.ApiVersionsRequest)) (
	*kmsg.ApiVersionsResponse, *server.Conn) {
	msg := kmsg.NewPtrApiVersionsRequest()
	msg.Version = version
	if version >= 3 {
		msg.ClientSoftwareName, msg.ClientSoftwareVersion = "apache-kafka-java", "4.4.0"
	}
	if edit != nil {
		edit(msg)
	}
	conn := server.NewConn(1, listener, &net.TCPAddr{}, &net.TCPAddr{})
	var got replied
	h.handle(context.Background(), &server.Request{Key: 18, Version: version, Msg: msg, Conn: conn}, &got)
	return got.resp.(*kmsg.ApiVersionsResponse), conn
}

func TestAPIVersionsContent(t *testing.T) {
	h := apiVersionsForTest(t)
	keys := []kmsg.ApiVersionsResponseApiKey{{ApiKey: 0, MaxVersion: 13}, {ApiKey: 18, MaxVersion: 5}}
	for version := range int16(6) {
		resp, conn := askVersions(h, "PLAINTEXT", version, nil)
		want := kmsg.NewPtrApiVersionsResponse()
		want.Version, want.ApiKeys = version, keys
		if version >= 3 {
			want.FinalizedFeaturesEpoch = int64(h.image().Offset())
			want.FinalizedFeatures = []kmsg.ApiVersionsResponseFinalizedFeature{
				{Name: "eligible.leader.replicas.version", MinVersionLevel: 1, MaxVersionLevel: 1},
				{Name: "metadata.version", MinVersionLevel: 33, MaxVersionLevel: 33},
			}
			want.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{
				{Name: "metadata.version", MinVersion: 33, MaxVersion: 33},
			}
			if got := conn.Software(); got != (server.Software{Name: "apache-kafka-java", Version: "4.4.0"}) {
				t.Errorf("v%d: software %v", version, got)
			}
		}
		if version >= 4 {
			want.SupportedFeatures = []kmsg.ApiVersionsResponseSupportedFeature{
				{Name: "eligible.leader.replicas.version", MinVersion: 0, MaxVersion: 1},
				{Name: "kraft.version", MinVersion: 0, MaxVersion: 0},
				{Name: "metadata.version", MinVersion: 33, MaxVersion: 33}, {Name: "transaction.version", MinVersion: 0, MaxVersion: 2},
			}
		}
		if d := cmp.Diff(want, resp, cmp.AllowUnexported(kmsg.Tags{})); d != "" {
			t.Errorf("v%d (-want +got):\n%s", version, d)
		}
	}
}

func TestAPIVersionsUnsupported(t *testing.T) {
	h := apiVersionsForTest(t)
	var got replied
	h.handle(context.Background(), &server.Request{Key: 18, Msg: kmsg.NewPtrApiVersionsRequest(), Unsupported: true,
		Conn: server.NewConn(1, "PLAINTEXT", nil, nil)}, &got)
	// As a running Kafka 4.4 answers version 99.
	if b := string(got.resp.AppendTo(nil)); b != "\x00\x23\x00\x00\x00\x01\x00\x12\x00\x00\x00\x05" {
		t.Errorf("answer % x", b)
	}
}

func TestAPIVersionsChecks(t *testing.T) {
	h := apiVersionsForTest(t)
	ptr := func(s string) *string { return &s }
	for _, tc := range []struct {
		name, software, listener string
		version                  int16
		cluster                  *string
		node                     int32
		want                     int16
	}{
		{name: "one letter", software: "a", version: 3, node: -1},
		{name: "dots and dashes", software: "a.-.b", version: 3, node: -1},
		{name: "underscore", software: "a_b", version: 3, node: -1, want: 42},
		{name: "empty", software: "", version: 3, node: -1, want: 42},
		{name: "dash first", software: "-a", version: 4, node: -1, want: 42},
		{name: "dot last", software: "a.", version: 4, node: -1, want: 42},
		{name: "not ascii", software: "kåja", version: 4, node: -1, want: 42},
		{name: "newline", software: "a\n", version: 4, node: -1, want: 42},
		{name: "cluster and node", software: "a", version: 5, cluster: ptr("cluster-1"), node: 7},
		{name: "neither", software: "a", version: 5, node: -1},
		{name: "cluster only", software: "a", version: 5, cluster: ptr("cluster-1"), node: -1, want: 42},
		{name: "node only", software: "a", version: 5, node: 7, want: 42},
		{name: "other cluster", software: "a", version: 5, cluster: ptr("x"), node: 7, want: 129},
		{name: "other node", software: "a", version: 5, cluster: ptr("cluster-1"), node: 8, want: 129},
		{name: "negative node", software: "a", version: 5, cluster: ptr("cluster-1"), node: -2, want: 129},
		{name: "empty cluster", software: "a", version: 5, cluster: ptr(""), node: 7, want: 129},
		{name: "controller compares nothing", software: "a", listener: "CONTROLLER", version: 5, cluster: ptr("x"), node: 9},
		{name: "controller wants both", software: "a", listener: "CONTROLLER", version: 5, node: 9, want: 42},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp, conn := askVersions(h, tc.listener, tc.version, func(m *kmsg.ApiVersionsRequest) {
				m.ClientSoftwareName, m.ClientSoftwareVersion = tc.software, "1"
				m.ClusterID, m.NodeID = tc.cluster, tc.node
			})
			if resp.ErrorCode != tc.want {
				t.Fatalf("error %d, want %d", resp.ErrorCode, tc.want)
			}
			if tc.want != 0 && (len(resp.ApiKeys) != 0 || conn.Software() != (server.Software{})) {
				t.Errorf("a refused request has keys %v and software %v", resp.ApiKeys, conn.Software())
			}
		})
	}
}
