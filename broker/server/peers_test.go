package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/peerclient"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const secret = "correct horse battery staple"

func nodeIdentity(t testing.TB, node int32, secret string) *peer.Identity {
	t.Helper()
	i, err := peer.NewIdentity(peer.ID{ClusterID: "c", NodeID: wire.BrokerID(node), DirectoryID: wire.UUID{15: byte(node)}}, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// testPeers is Peers with an identity; what is delivered comes by delivered.
type testPeers struct {
	identity  *peer.Identity
	delivered chan delivery
}

type delivery struct {
	nc   net.Conn
	kind peer.Kind
	id   peer.ID
}

func (p *testPeers) Accept(nc net.Conn) (peer.Kind, peer.ID, error) {
	return p.identity.Accept(nc, func(peer.Kind, peer.ID) error { return nil })
}

func (p *testPeers) Deliver(nc net.Conn, kind peer.Kind, id peer.ID) {
	p.delivered <- delivery{nc, kind, id}
}

// nodeRoutes serves Heartbeat to everybody and BrokerHeartbeat to nodes.
type nodeRoutes struct{ seen chan peer.ID }

func (r nodeRoutes) Route(c *Conn, key int16) (Route, bool) {
	switch key {
	case 12:
		return Route{Key: 12, Max: 4, Handle: replyHeartbeat}, true
	case 18:
		return Route{Key: 18, Max: 4, Handle: func(_ context.Context, req *Request, w Responder) {
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.Version = req.Version
			resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 12, MaxVersion: 4}, {ApiKey: 63, MaxVersion: 1}}
			w.Reply(resp)
		}}, true
	case 63:
		if _, proven := c.Peer(); proven {
			return Route{Key: 63, Max: 1, Handle: r.heartbeat}, true
		}
	}
	return Route{}, false
}

func (r nodeRoutes) heartbeat(_ context.Context, req *Request, w Responder) {
	id, _ := req.Conn.Peer()
	r.seen <- id
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	resp.Version = req.Version
	resp.IsCaughtUp = true
	w.Reply(resp)
}

func startPeers(t *testing.T) (*Server, *testPeers, nodeRoutes, *logBuffer) {
	t.Helper()
	peers := &testPeers{identity: nodeIdentity(t, 2, secret), delivered: make(chan delivery, 1)}
	routes := nodeRoutes{make(chan peer.ID, 1)}
	s, logs := start(t, routes, Limits{}, func(o *Options) {
		o.Peers = peers
		o.Listeners[0].Peers = true
		o.Listeners = append(o.Listeners, Listener{Name: "CLIENTS", Addrs: []string{"127.0.0.1:0"}, Protocol: ProtocolPlaintext})
	})
	return s, peers, routes, logs
}

func TestANodeSendsKafkaRequestsAfterItsHandshake(t *testing.T) {
	s, _, routes, _ := startPeers(t)
	c := peerclient.New(peerclient.Options{
		Identity: nodeIdentity(t, 1, secret), Dial: (&net.Dialer{}).DialContext, Logger: slog.New(slog.DiscardHandler),
		Resolve: func(wire.BrokerID) (string, peer.ID, error) { return s.Addr("PLAINTEXT").String(), peer.ID{}, nil },
	})
	defer c.Close()
	for _, do := range []func(context.Context, wire.BrokerID, kmsg.Request) (kmsg.Response, error){c.Do, c.Conn("x").Do} {
		resp, err := do(t.Context(), 2, kmsg.NewPtrBrokerHeartbeatRequest())
		if err != nil {
			t.Fatal(err)
		}
		if r, ok := resp.(*kmsg.BrokerHeartbeatResponse); !ok || !r.IsCaughtUp || r.Version != 1 {
			t.Errorf("the answer is %+v", resp)
		}
		if id := <-routes.seen; id.NodeID != 1 || id.DirectoryID != (wire.UUID{15: 1}) {
			t.Errorf("the handler saw %s", id)
		}
	}
}

func TestRaftAndCallsAreHandedOver(t *testing.T) {
	s, peers, _, _ := startPeers(t)
	for _, kind := range []peer.Kind{peer.Raft, peer.Call} {
		nc := dial(t, s)
		if _, err := nodeIdentity(t, 1, secret).Dial(nc, kind, func(peer.ID) error { return nil }); err != nil {
			t.Fatal(err)
		}
		got := <-peers.delivered
		if got.kind != kind || got.id.NodeID != 1 {
			t.Fatalf("kind %d of %s was delivered", got.kind, got.id)
		}
		mustWrite(t, nc, []byte("to"))
		var b [4]byte
		if _, err := io.ReadFull(got.nc, b[:2]); err != nil || string(b[:2]) != "to" {
			t.Fatalf("read %q: %v", b[:2], err)
		}
		mustWrite(t, got.nc, []byte("back"))
		if _, err := io.ReadFull(nc, b[:]); err != nil || string(b[:]) != "back" {
			t.Fatalf("read %q: %v", b[:], err)
		}
		_ = got.nc.Close()
	}
}

// What a node says is not for strangers: without a proof, on a listener for clients, and after a Kafka request.
func TestStrangersAreNoNodes(t *testing.T) {
	s, peers, routes, _ := startPeers(t)
	hb := kmsg.NewPtrBrokerHeartbeatRequest()
	closed := func(nc net.Conn) bool {
		_, err := io.ReadAll(nc)
		return !errors.Is(err, context.DeadlineExceeded)
	}
	t.Run("no handshake", func(t *testing.T) {
		nc := dial(t, s)
		mustWrite(t, nc, request(1, hb))
		mustBeClosed(t, nc)
	})
	t.Run("another secret", func(t *testing.T) {
		nc := dial(t, s)
		if _, err := nodeIdentity(t, 1, secret+".").Dial(nc, peer.Kafka, func(peer.ID) error { return nil }); err == nil || !closed(nc) {
			t.Errorf("let in: %v", err)
		}
	})
	t.Run("a listener for clients", func(t *testing.T) {
		nc, err := net.Dial("tcp", s.Addr("CLIENTS").String())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close() // read to its end
		if _, err := nodeIdentity(t, 1, secret).Dial(nc, peer.Kafka, func(peer.ID) error { return nil }); err == nil {
			t.Error("let in")
		}
	})
	t.Run("after a request", func(t *testing.T) {
		nc := dial(t, s)
		mustWrite(t, nc, heartbeat(1))
		mustRead(t, nc, 1)
		if _, err := nodeIdentity(t, 1, secret).Dial(nc, peer.Kafka, func(peer.ID) error { return nil }); err == nil {
			t.Error("let in")
		}
	})
	select {
	case <-routes.seen:
		t.Error("a request was handled")
	case d := <-peers.delivered:
		t.Errorf("kind %d was delivered", d.kind)
	default:
	}
}

// A server that closes does not wait for a handshake that does not go on.
func TestCloseDuringAHandshake(t *testing.T) {
	s, peers, _, _ := startPeers(t)
	begun := make(chan struct{})
	s.peers = beginPeers{peers, begun}
	nc := dial(t, s)
	mustWrite(t, nc, []byte{0xff, 'K', 'J', 'A', 1, byte(peer.Raft), 0, 0})
	<-begun
	began := time.Now()
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > peer.HandshakeTimeout/2 {
		t.Errorf("it took %v", d)
	}
}

type beginPeers struct {
	*testPeers
	begun chan struct{}
}

func (p beginPeers) Accept(nc net.Conn) (peer.Kind, peer.ID, error) {
	close(p.begun)
	return p.testPeers.Accept(nc)
}

// Before the node is ready other nodes shake hands; requests wait, those of clients longer than those of nodes.
func TestRequestsWaitUntilTheyAreServed(t *testing.T) {
	peers := &testPeers{identity: nodeIdentity(t, 2, secret), delivered: make(chan delivery, 1)}
	routes := nodeRoutes{make(chan peer.ID, 1)}
	s, err := New(Options{
		Listeners: []Listener{
			{Name: "PLAINTEXT", Addrs: []string{"127.0.0.1:0"}, Protocol: ProtocolPlaintext, Peers: true},
			{Name: "CONTROLLER", Addrs: []string{"127.0.0.1:0"}, Protocol: ProtocolPlaintext, Peers: true, Early: true},
		},
		Routes: routes, Logger: slog.New(slog.DiscardHandler), Listen: net.Listen, Peers: peers,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AcceptNodes(); err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context()) // the test is over
	answered := func(nc net.Conn) <-chan struct{} {
		mustWrite(t, nc, heartbeat(1))
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, _ = readResponse(nc)
		}()
		return done
	}
	open := func(name string) net.Conn {
		nc, err := net.Dial("tcp", s.Addr(name).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		return nc
	}
	proven := open("PLAINTEXT")
	if _, err := nodeIdentity(t, 1, secret).Dial(proven, peer.Kafka, func(peer.ID) error { return nil }); err != nil {
		t.Fatal(err)
	}
	ofNode, ofAdmin, ofClient := answered(proven), answered(open("CONTROLLER")), answered(open("PLAINTEXT"))
	mustWait := func(what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
			t.Errorf("%s was answered too early", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
	mustWait("a node", ofNode)
	mustWait("an admin", ofAdmin)
	s.ServeNodes()
	<-ofNode
	<-ofAdmin
	mustWait("a client", ofClient)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	<-ofClient
}
