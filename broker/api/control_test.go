package api

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// suspects is a controller that also keeps who was suspected.
type suspects struct {
	*raftctl.Controller
	seen chan wire.BrokerID
}

func (s suspects) Suspect(id wire.BrokerID, _ wire.BrokerEpoch) { s.seen <- id }

// nodeKit is a metaNode whose connection has proven to be node 2's, with the handlers for nodes.
func nodeKit(t testing.TB) (*metaNode, suspects) {
	n := newMetaNode(t, nil)
	n.conn.SetPeer(peer.ID{ClusterID: n.controller.Image().ClusterID(), NodeID: 2})
	s := suspects{n.controller, make(chan wire.BrokerID, 1)}
	n.handlers[56] = alterPartition{s}.handle
	n.handlers[62] = brokerRegistration{controller: s, clusterID: n.controller.Image().ClusterID()}.handle
	n.handlers[63] = (&brokerHeartbeat{controller: s, patience: alterTimeout, conns: map[*server.Conn]wire.BrokerEpoch{}}).handle
	n.handlers[67] = allocateProducerIDs{s}.handle
	n.handlers[73] = assignReplicasToDirs{s}.handle
	return n, s
}

func registerReq(version int16, id int32) *kmsg.BrokerRegistrationRequest {
	r := kmsg.NewPtrBrokerRegistrationRequest()
	r.Version, r.BrokerID, r.ClusterID, r.IncarnationID = version, id, "5L6g3nShT-eMCtK--X86sw", [16]byte{15: 2}
	r.LogDirs, r.PreviousBrokerEpoch = [][16]byte{{0: 7, 15: 202}}, -1
	r.Listeners = []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: "two", Port: 9092}}
	for name, v := range BrokerFeatures() {
		r.Features = append(r.Features, kmsg.BrokerRegistrationRequestFeature{Name: name, MinSupportedVersion: v.Min, MaxSupportedVersion: v.Max})
	}
	return r
}

func TestBrokerRegistrationCodes(t *testing.T) {
	n, _ := nodeKit(t)
	for _, c := range []struct {
		name   string
		change func(r *kmsg.BrokerRegistrationRequest)
		want   *kerr.Error
	}{
		{"another broker's id", func(r *kmsg.BrokerRegistrationRequest) { r.BrokerID = 3 }, kerr.ClusterAuthorizationFailed},
		{"another cluster", func(r *kmsg.BrokerRegistrationRequest) { r.ClusterID = "x" }, kerr.InconsistentClusterID},
		{"from ZooKeeper", func(r *kmsg.BrokerRegistrationRequest) { r.IsMigratingZkBroker = true }, kerr.BrokerIDNotRegistered},
		{"no directory", func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = nil }, kerr.InvalidRegistration},
		{"a directory of broker 1", func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = [][16]byte{{15: 201}} }, kerr.InvalidRegistration},
		{"no features", func(r *kmsg.BrokerRegistrationRequest) { r.Features = nil }, kerr.UnsupportedVersion},
	} {
		r := registerReq(4, 2)
		c.change(r)
		got := n.ask(t, r).(*kmsg.BrokerRegistrationResponse)
		if got.ErrorCode != c.want.Code || got.BrokerEpoch != -1 {
			t.Errorf("%s: code %d epoch %d, want %d and -1", c.name, got.ErrorCode, got.BrokerEpoch, c.want.Code)
		}
	}
	for v := int16(0); v <= 4; v++ {
		got := n.ask(t, registerReq(v, 2)).(*kmsg.BrokerRegistrationResponse)
		want := kmsg.BrokerRegistrationResponse{Version: v, BrokerEpoch: 2}
		if v < 2 { // no directories in these versions
			want.ErrorCode, want.BrokerEpoch = kerr.InvalidRegistration.Code, -1
		}
		if d := cmp.Diff(want, *got, cmp.AllowUnexported(kmsg.Tags{})); d != "" {
			t.Errorf("v%d (-want +got):\n%s", v, d)
		}
	}
	other := registerReq(4, 2)
	other.IncarnationID = [16]byte{15: 9}
	if got := n.ask(t, other).(*kmsg.BrokerRegistrationResponse); got.ErrorCode != 0 || got.BrokerEpoch != 3 {
		t.Errorf("a new process on the same disks: %+v, want epoch 3 at once", got)
	}
}

func TestBrokerHeartbeatCodes(t *testing.T) {
	n, s := nodeKit(t)
	beat := func(version int16, change func(r *kmsg.BrokerHeartbeatRequest)) *kmsg.BrokerHeartbeatResponse {
		r := kmsg.NewPtrBrokerHeartbeatRequest()
		r.Version, r.BrokerID, r.BrokerEpoch, r.CurrentMetadataOffset = version, 2, 2, int64(n.controller.Image().Offset())
		change(r)
		return n.ask(t, r).(*kmsg.BrokerHeartbeatResponse)
	}
	same := func(*kmsg.BrokerHeartbeatRequest) {}
	if got := beat(2, same); got.ErrorCode != kerr.BrokerIDNotRegistered.Code || !got.IsFenced {
		t.Errorf("before it is registered: %+v", got)
	}
	n.ask(t, registerReq(4, 2))
	for v := int16(0); v <= 2; v++ {
		if got := beat(v, func(r *kmsg.BrokerHeartbeatRequest) { r.WantFence = true }); got.ErrorCode != 0 || !got.IsFenced || !got.IsCaughtUp || got.ShouldShutdown {
			t.Errorf("v%d of a broker that is not ready: %+v", v, got)
		}
	}
	if got := beat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.CurrentMetadataOffset = 0 }); got.IsCaughtUp || !got.IsFenced {
		t.Errorf("behind its registration: %+v", got)
	}
	if got := beat(2, same); got.ErrorCode != 0 || got.IsFenced {
		t.Errorf("ready: %+v, want unfenced", got)
	}
	if got := beat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.BrokerEpoch = 1 }); got.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("of an older life: %+v", got)
	}
	if got := beat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.BrokerID = 1 }); got.ErrorCode != kerr.ClusterAuthorizationFailed.Code {
		t.Errorf("for another broker: %+v", got)
	}
	if got := beat(2, func(r *kmsg.BrokerHeartbeatRequest) { r.WantShutdown = true }); !got.ShouldShutdown || !got.IsFenced {
		t.Errorf("of a broker that leads nothing and wants to stop: %+v", got)
	}
	select {
	case id := <-s.seen:
		t.Errorf("broker %d is suspected while its connection is open", id)
	default:
	}
}

// The end of the connection that carried heartbeats makes the controller look for the broker, once.
func TestHeartbeatConnectionEnds(t *testing.T) {
	n, s := nodeKit(t)
	n.ask(t, registerReq(4, 2))
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		r := kmsg.NewPtrBrokerHeartbeatRequest()
		r.Version, r.BrokerID, r.BrokerEpoch = 2, 2, 2
		n.handlers[63](ctx, &server.Request{Key: 63, Version: 2, Msg: r, Conn: n.conn}, &caught{})
	}
	cancel()
	if id := <-s.seen; id != 2 {
		t.Errorf("broker %d is suspected, want 2", id)
	}
}

func TestAlterPartitionCodes(t *testing.T) {
	n, _ := nodeKit(t)
	n.ask(t, registerReq(4, 2))
	created, err := n.controller.CreateTopics(t.Context(), []raftctl.NewTopic{{Name: "t", Partitions: -1, ReplicationFactor: -1,
		Assignments: []raftctl.Assignment{{Partition: 0, Replicas: []wire.BrokerID{1, 2}}}}}, false)
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	n.conn.SetPeer(peer.ID{NodeID: 1})
	ask := func(version int16, change func(r *kmsg.AlterPartitionRequest)) *kmsg.AlterPartitionResponse {
		r := kmsg.NewPtrAlterPartitionRequest()
		r.Version, r.BrokerID, r.BrokerEpoch = version, 1, 1
		r.Topics = []kmsg.AlterPartitionRequestTopic{{TopicID: created[0].ID, Partitions: []kmsg.AlterPartitionRequestTopicPartition{{
			NewISR: []int32{1}, NewEpochISR: []kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{{BrokerID: 1, BrokerEpoch: 1}}}}}}
		change(r)
		return n.ask(t, r).(*kmsg.AlterPartitionResponse)
	}
	for _, c := range []struct {
		name   string
		change func(r *kmsg.AlterPartitionRequest)
		all    *kerr.Error
		one    *kerr.Error
	}{
		{"another broker", func(r *kmsg.AlterPartitionRequest) { r.BrokerID = 2 }, kerr.ClusterAuthorizationFailed, nil},
		{"an older life", func(r *kmsg.AlterPartitionRequest) { r.BrokerEpoch = 0 }, kerr.StaleBrokerEpoch, nil},
		{"unknown topic", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].TopicID = [16]byte{1} }, nil, kerr.UnknownTopicID},
		{"unknown partition", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].Partitions[0].Partition = 5 }, nil, kerr.UnknownTopicOrPartition},
		{"older leader epoch", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].Partitions[0].LeaderEpoch = -1 }, nil, kerr.FencedLeaderEpoch},
		{"later leader epoch", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].Partitions[0].LeaderEpoch = 9 }, nil, kerr.NotController},
		{"older partition epoch", func(r *kmsg.AlterPartitionRequest) { r.Topics[0].Partitions[0].PartitionEpoch = -1 }, nil, kerr.InvalidUpdateVersion},
		{"without the leader", func(r *kmsg.AlterPartitionRequest) {
			r.Topics[0].Partitions[0].NewISR = []int32{2}
			r.Topics[0].Partitions[0].NewEpochISR[0].BrokerID = 2
		}, nil, kerr.InvalidRequest},
		{"with a fenced broker", func(r *kmsg.AlterPartitionRequest) {
			p := &r.Topics[0].Partitions[0]
			p.NewISR = []int32{1, 2}
			p.NewEpochISR = append(p.NewEpochISR, kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: 2, BrokerEpoch: 2})
		}, nil, kerr.IneligibleReplica},
	} {
		for v := int16(2); v <= 3; v++ {
			got := ask(v, c.change)
			if c.all != nil {
				if got.ErrorCode != c.all.Code || got.Topics != nil {
					t.Errorf("%s v%d: %+v, want %v", c.name, v, got, c.all)
				}
				continue
			}
			if got.ErrorCode != 0 || len(got.Topics) != 1 || got.Topics[0].Partitions[0].ErrorCode != c.one.Code {
				t.Errorf("%s v%d: %+v, want %v", c.name, v, got, c.one)
			}
		}
	}
	got := ask(3, func(*kmsg.AlterPartitionRequest) {})
	p := kmsg.AlterPartitionResponseTopicPartition{LeaderID: 1, ISR: []int32{1}, PartitionEpoch: 1}
	want := kmsg.AlterPartitionResponse{Version: 3, Topics: []kmsg.AlterPartitionResponseTopic{{TopidID: created[0].ID, Partitions: []kmsg.AlterPartitionResponseTopicPartition{p}}}}
	if d := cmp.Diff(want, *got, cmp.AllowUnexported(kmsg.Tags{})); d != "" {
		t.Errorf("the ISR as it is (-want +got):\n%s", d)
	}
}

func TestAssignDirsAndProducerIDs(t *testing.T) {
	n, _ := nodeKit(t)
	n.ask(t, registerReq(4, 2))
	created, err := n.controller.CreateTopics(t.Context(), []raftctl.NewTopic{{Name: "t", Partitions: -1, ReplicationFactor: -1,
		Assignments: []raftctl.Assignment{{Partition: 0, Replicas: []wire.BrokerID{1, 2}}}}}, false)
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	r := kmsg.NewPtrAssignReplicasToDirsRequest()
	r.BrokerID, r.BrokerEpoch = 2, 2
	part := func(p int32) kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition {
		return kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{Partition: p}
	}
	dir := [16]byte{0: 7, 15: 202}
	r.Directories = []kmsg.AssignReplicasToDirsRequestDirectory{{ID: dir, Topics: []kmsg.AssignReplicasToDirsRequestDirectoryTopic{
		{TopicID: created[0].ID, Partitions: []kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{part(0), part(7)}},
		{TopicID: [16]byte{1}, Partitions: []kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{part(0)}}}}}
	got := n.ask(t, r).(*kmsg.AssignReplicasToDirsResponse)
	out := func(p int32, code int16) kmsg.AssignReplicasToDirsResponseDirectoryTopicPartition {
		return kmsg.AssignReplicasToDirsResponseDirectoryTopicPartition{Partition: p, ErrorCode: code}
	}
	want := kmsg.AssignReplicasToDirsResponse{Directories: []kmsg.AssignReplicasToDirsResponseDirectory{{ID: dir, Topics: []kmsg.AssignReplicasToDirsResponseDirectoryTopic{
		{TopicID: created[0].ID, Partitions: []kmsg.AssignReplicasToDirsResponseDirectoryTopicPartition{out(0, 0), out(7, 3)}},
		{TopicID: [16]byte{1}, Partitions: []kmsg.AssignReplicasToDirsResponseDirectoryTopicPartition{out(0, 100)}}}}}}
	if d := cmp.Diff(want, *got, cmp.AllowUnexported(kmsg.Tags{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	ids := kmsg.NewPtrAllocateProducerIDsRequest()
	ids.BrokerID, ids.BrokerEpoch = 2, 2
	first := n.ask(t, ids).(*kmsg.AllocateProducerIDsResponse)
	second := n.ask(t, ids).(*kmsg.AllocateProducerIDsResponse)
	if first.ErrorCode != 0 || first.ProducerIDLen != 1000 || second.ProducerIDStart != first.ProducerIDStart+1000 {
		t.Errorf("%+v then %+v", first, second)
	}
	ids.BrokerEpoch = 1
	if stale := n.ask(t, ids).(*kmsg.AllocateProducerIDsResponse); stale.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("an older life: %+v", stale)
	}
}

// active is an activeController whose leader is elsewhere, or here.
type active struct {
	activeController
	leads   bool
	forward func(f control.Forwarded) (kmsg.Response, error)
	seen    []control.Forwarded
}

func (a *active) Alone() bool   { return false }
func (a *active) Leading() bool { return a.leads }
func (a *active) Forward(_ context.Context, f control.Forwarded) (kmsg.Response, error) {
	a.seen = append(a.seen, f)
	return a.forward(f)
}

// What a node forwards arrives at the controller as if the client had sent it there, and the answer comes back.
func TestEnvelopeCarriesRequests(t *testing.T) {
	n := newMetaNode(t, nil)
	there := &forwarder{active: &active{leads: true}, inner: map[int16]server.Route{}}
	var inside *server.Request
	there.take(19, 2, 7, func(ctx context.Context, req *server.Request, w server.Responder) {
		inside = req
		n.handlers[19](ctx, req, w)
	})
	env := &envelope{inner: there.inner, active: there.active, images: n.controller, refused: notController}
	n.handlers[58] = env.handle
	client := server.NewConn(9, "PLAINTEXT", nil, &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 5})
	client.SetPrincipal(auth.Principal{Type: "User", Name: "ann"})
	lanes := caller(func(req kmsg.Request) kmsg.Response { return n.ask(t, req) })
	access := control.New(control.Options{Local: elsewhere{}, NodeID: 2, Lanes: &control.Lanes{Beats: lanes, ISR: lanes, Asked: lanes, Other: lanes},
		Await: func(_ context.Context, offset wire.Offset) error {
			if got := n.controller.Image().Offset(); offset != got {
				t.Errorf("waits for offset %d, want %d", offset, got)
			}
			return nil
		}})
	here := &forwarder{active: access, inner: map[int16]server.Route{}}
	e := here.entry(19, 2, 7, func(context.Context, *server.Request, server.Responder) { t.Error("decided at the wrong node") })
	req := createReq(false, topicReq("t", 1, 1)).(*kmsg.CreateTopicsRequest)
	var w caught
	e.Handle(t.Context(), &server.Request{Key: 19, Version: 7, ClientID: "cli", Msg: req, Conn: client}, &w)
	got := w.resp.(*kmsg.CreateTopicsResponse)
	if len(got.Topics) != 1 || got.Topics[0].ErrorCode != 0 || got.Topics[0].NumPartitions != 1 {
		t.Fatalf("%+v", got)
	}
	if inside.ClientID != "cli" || inside.Conn.Principal().Name != "ann" || inside.Conn.Remote.(*net.TCPAddr).IP.String() != "10.1.2.3" {
		t.Errorf("inside: client %q of %v at %v", inside.ClientID, inside.Conn.Principal(), inside.Conn.Remote)
	}
	if _, proven := inside.Conn.Peer(); proven {
		t.Error("the client has got the node's rights")
	}
}

type caller func(req kmsg.Request) kmsg.Response

func (c caller) Do(_ context.Context, _ wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	return c(req), nil
}

// elsewhere is a controller that follows node 1.
type elsewhere struct{ control.Controller }

func (elsewhere) Leading() bool                  { return false }
func (elsewhere) Leader() (peer.ID, bool)        { return peer.ID{NodeID: 1}, true }
func (elsewhere) LeaderContext() context.Context { return context.Background() }

func TestEnvelopeCodes(t *testing.T) {
	n := newMetaNode(t, nil)
	a := &active{leads: true}
	env := &envelope{inner: map[int16]server.Route{19: {Key: 19, Min: 2, Max: 7, Handle: n.handlers[19]}}, active: a, images: n.controller, refused: notController}
	n.handlers[58] = env.handle
	request := func(req kmsg.Request) []byte { return kmsg.NewRequestFormatter().AppendRequest(nil, req, 7)[4:] }
	old := kmsg.NewPtrCreateTopicsRequest()
	old.Version = 1
	good := request(createReq(true, topicReq("t", 1, 1)))
	principal := wire.AppendPrincipal(nil, "User", "x")
	for _, c := range []struct {
		name      string
		data      []byte
		principal []byte
		follows   bool
		want      *kerr.Error
	}{
		{"bad principal", good, []byte{9}, false, kerr.PrincipalDeserializationFailure},
		{"bad request", good[:20], principal, false, kerr.InvalidRequest},
		{"no header", nil, principal, false, kerr.InvalidRequest},
		{"not forwarded", request(metadataReq(13, "t")), principal, false, kerr.InvalidRequest},
		{"too old", request(old), principal, false, kerr.UnsupportedVersion},
		{"not the controller", good, principal, true, kerr.NotController},
		{"good", good, principal, false, nil},
	} {
		r := kmsg.NewPtrEnvelopeRequest()
		r.RequestData, r.RequestPrincipal, r.ClientHostAddress = c.data, c.principal, []byte{127, 0, 0, 1}
		a.leads = !c.follows
		got := n.ask(t, r).(*kmsg.EnvelopeResponse)
		if got.ErrorCode != code(c.want) || (c.want != nil) != (len(got.ResponseData) == 0) {
			t.Errorf("%s: code %d with %d bytes, want %v", c.name, got.ErrorCode, len(got.ResponseData), c.want)
		}
	}
}

// Without a controller every admin request has an honest answer when its time is over.
func TestForwardWithoutController(t *testing.T) {
	a := &active{forward: func(control.Forwarded) (kmsg.Response, error) {
		return nil, &raftctl.Error{Code: kerr.RequestTimedOut, Message: "The active controller could not be reached."}
	}}
	f := &forwarder{active: a, inner: map[int16]server.Route{}}
	name := "t"
	for _, c := range []struct {
		req   kmsg.Request
		codes func(kmsg.Response) []int16
	}{
		{createReq(false, topicReq("t", 1, 1)), func(r kmsg.Response) []int16 { return []int16{r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode} }},
		{latest(&kmsg.DeleteTopicsRequest{Topics: []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}}), func(r kmsg.Response) []int16 { return []int16{r.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode} }},
		{partitionsReq("t", 4), func(r kmsg.Response) []int16 { return []int16{r.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode} }},
		{electReq(2, 0, electTopic("t", 0)), func(r kmsg.Response) []int16 {
			e := r.(*kmsg.ElectLeadersResponse)
			return []int16{e.ErrorCode, e.Topics[0].Partitions[0].ErrorCode}
		}},
		{featureReq(2, false), func(r kmsg.Response) []int16 { return []int16{r.(*kmsg.UpdateFeaturesResponse).ErrorCode} }},
		{latest(kmsg.NewPtrUnregisterBrokerRequest()), func(r kmsg.Response) []int16 { return []int16{r.(*kmsg.UnregisterBrokerResponse).ErrorCode} }},
		{latest(kmsg.NewPtrDescribeQuorumRequest()), func(r kmsg.Response) []int16 { return []int16{r.(*kmsg.DescribeQuorumResponse).ErrorCode} }},
	} {
		var w caught
		f.entry(c.req.Key(), 0, 9, nil).Handle(t.Context(), &server.Request{Key: c.req.Key(), Version: c.req.GetVersion(), Msg: c.req, Conn: server.NewConn(1, "PLAINTEXT", nil, nil)}, &w)
		if w.resp == nil {
			t.Errorf("%T: no answer", c.req)
			continue
		}
		if codes := c.codes(w.resp); slices.ContainsFunc(codes, func(got int16) bool { return got != kerr.RequestTimedOut.Code }) {
			t.Errorf("%T: codes %v, want 7", c.req, codes)
		}
	}
}

// A node that has just lost the role asks the next controller, and one that has just got it decides itself.
func TestForwardFollowsTheLeader(t *testing.T) {
	answer := &kmsg.UnregisterBrokerResponse{ErrorCode: kerr.BrokerIDNotRegistered.Code}
	a := &active{leads: true}
	a.forward = func(control.Forwarded) (kmsg.Response, error) { return answer, nil }
	f := &forwarder{active: a, inner: map[int16]server.Route{}}
	here := func(_ context.Context, _ *server.Request, w server.Responder) {
		a.leads = false
		w.Reply(&kmsg.UnregisterBrokerResponse{ErrorCode: kerr.NotController.Code})
	}
	ask := func(h server.HandlerFunc) int16 {
		var w caught
		f.wrap(h)(t.Context(), &server.Request{Key: 64, Msg: kmsg.NewPtrUnregisterBrokerRequest(), Conn: server.NewConn(1, "PLAINTEXT", nil, nil)}, &w)
		return w.resp.(*kmsg.UnregisterBrokerResponse).ErrorCode
	}
	if got := ask(here); got != kerr.BrokerIDNotRegistered.Code || len(a.seen) != 1 {
		t.Errorf("code %d after %d envelopes, want the next controller's answer", got, len(a.seen))
	}
	a.forward = func(control.Forwarded) (kmsg.Response, error) { return nil, control.ErrHere }
	if got := ask(func(_ context.Context, _ *server.Request, w server.Responder) {
		w.Reply(&kmsg.UnregisterBrokerResponse{})
	}); got != 0 {
		t.Errorf("code %d, want the answer of this node", got)
	}
}

// On a controller's listener DescribeCluster tells of the controllers, for tools with --bootstrap-controller.
func TestDescribeControllers(t *testing.T) {
	n := newMetaNode(t, nil)
	n.handlers[60] = describeCluster{images: n.controller, endpoints: hereEndpoints{}, controllerListener: func(string) bool { return true },
		controllers: func(id wire.BrokerID) (image.Endpoint, bool) {
			return image.Endpoint{Listener: "CONTROLLER", Host: "one", Port: 9093}, id == 1
		}}.handle
	for v := int16(1); v <= 2; v++ {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.Version, r.EndpointType = v, 2
		got := n.ask(t, r).(*kmsg.DescribeClusterResponse)
		if got.ErrorCode != 0 || got.ControllerID != 1 || len(got.Brokers) != 1 || got.Brokers[0].Host != "one" || got.Brokers[0].Port != 9093 {
			t.Errorf("v%d: %+v", v, got)
		}
	}
}
