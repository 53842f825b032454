package server

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/peerclient"
	"github.com/kajamq/kaja/internal/tlstest"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// nodeTLS is TLS between nodes of ca, all of them on this machine.
func nodeTLS(t testing.TB, ca *tlstest.CA) *peer.TLS {
	t.Helper()
	p := ca.Node([]string{"127.0.0.1"})
	s, err := peer.NewTLS(peer.TLSOptions{Certificate: p.Chain, Key: p.Key, Trust: ca.PEM(), ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13, CheckNames: true, Wall: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onTLS makes the listener of start an SSL one.
func onTLS(s *peer.TLS) func(*Options) {
	return func(o *Options) { o.Listeners[0].Protocol, o.Listeners[0].TLS = ProtocolSSL, s }
}

// clientOf is what a client with a certificate of ca connects with.
func clientOf(t testing.TB, ca *tlstest.CA) *tls.Config {
	return &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1", Certificates: []tls.Certificate{ca.Node(nil).TLS(t)}, MinVersion: tls.VersionTLS12}
}

// connections is how many there are.
func connections(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// A node sends requests, and streams are handed over, on a connection that certificates alone stand behind.
func TestNodesOverTLS(t *testing.T) {
	s := nodeTLS(t, tlstest.NewCA(t, "nodes"))
	byCertificate := func(node int32) *peer.Identity {
		i, err := peer.Credentials{TLS: s}.Identity(peer.ID{ClusterID: "c", NodeID: wire.BrokerID(node), DirectoryID: wire.UUID{15: byte(node)}})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	peers := &testPeers{identity: byCertificate(2), delivered: make(chan delivery, 1)}
	routes := nodeRoutes{make(chan peer.ID, 1)}
	srv, _ := start(t, routes, Limits{}, onTLS(s), func(o *Options) { o.Peers, o.Listeners[0].Peers = peers, true })
	dial := peer.Credentials{TLS: s}.Dialer((&net.Dialer{}).DialContext, slog.New(slog.DiscardHandler))
	c := peerclient.New(peerclient.Options{
		Identity: byCertificate(1), Dial: dial, Logger: slog.New(slog.DiscardHandler),
		Resolve: func(wire.BrokerID) (string, peer.ID, error) { return srv.Addr("PLAINTEXT").String(), peer.ID{}, nil },
	})
	defer c.Close()
	if _, err := c.Do(t.Context(), 2, kmsg.NewPtrBrokerHeartbeatRequest()); err != nil {
		t.Fatal(err)
	}
	if id := <-routes.seen; id.NodeID != 1 {
		t.Errorf("the handler saw %s", id)
	}
	nc, err := dial(t.Context(), "tcp", srv.Addr("PLAINTEXT").String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close() // the test is over
	if _, err := byCertificate(1).Dial(nc, peer.Raft, func(peer.ID) error { return nil }); err != nil {
		t.Fatal(err)
	}
	got := <-peers.delivered
	mustWrite(t, nc, []byte("to"))
	var b [4]byte
	if _, err := io.ReadFull(got.nc, b[:2]); err != nil || string(b[:2]) != "to" || got.kind != peer.Raft {
		t.Errorf("kind %d, read %q: %v", got.kind, b[:2], err)
	}
	mustWrite(t, got.nc, []byte("back"))
	if _, err := io.ReadFull(nc, b[:]); err != nil || string(b[:]) != "back" {
		t.Errorf("read %q: %v", b[:], err)
	}
	_ = got.nc.Close()
}

// There is no sendfile through TLS: ranges of files are copied, and arrive as they are, pipelined requests among them.
func TestSegmentsOverTLS(t *testing.T) {
	f, data := randomFile(t, 3<<20)
	var open atomic.Int64
	ca := tlstest.NewCA(t, "nodes")
	s, _ := start(t, heartbeatRoutes(replySegments(f, data, &open)), Limits{SendBufferBytes: 64 << 10}, onTLS(nodeTLS(t, ca)))
	nc := tls.Client(dial(t, s), clientOf(t, ca))
	const each = 40
	sent := make(chan error, 1)
	go func() {
		var err error
		for i := range int32(each) {
			if _, e := nc.Write(heartbeat(i)); e != nil {
				err = e
			}
		}
		sent <- err
	}()
	for i := range int32(each) {
		body := mustRead(t, nc, i)
		if _, want := randomSegments(uint64(i), f, data, nil); !bytes.Equal(body, want) {
			t.Fatalf("answer %d differs", i)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d pieces were not released", n)
	}
}

// Plain text on a listener with TLS, and TLS on one without, end at once, each with one line that says so.
func TestTLSAndPlainTextDoNotMix(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	for _, tt := range []struct {
		name string
		send []byte
		want string
	}{
		{"a request", heartbeat(1), "does not speak TLS"},
		{"HTTP", []byte("GET / HTTP/1.1\r\n\r\n"), "does not speak TLS"},
		{"a node's preamble", []byte{0xff, 'K', 'J', 'A', 1, 1, 0, 0}, "a node that does not speak TLS"},
	} {
		s, logs := start(t, heartbeatRoutes(replyHeartbeat), Limits{}, onTLS(nodeTLS(t, ca)))
		nc := dial(t, s)
		mustWrite(t, nc, tt.send)
		mustBeClosed(t, nc)
		_ = nc.Close()
		waitFor(t, func() bool { return lines(logs, "WARN") > 0 })
		if lines(logs, "WARN") != 1 || lines(logs, tt.want) != 1 || lines(logs, "TLS handshake failed") != 1 {
			t.Errorf("%s: log: %s", tt.name, logs)
		}
	}
	plain, plainLog := start(t, heartbeatRoutes(replyHeartbeat), Limits{})
	nc := dial(t, plain)
	if err := tls.Client(nc, clientOf(t, ca)).Handshake(); err == nil {
		t.Error("TLS was spoken on a plain listener")
	}
	waitFor(t, func() bool {
		return lines(plainLog, "the other side speaks TLS, and listener PLAINTEXT is PLAINTEXT") == 1
	})
	// A connection that is closed without a word, as one that only asks whether somebody is there, is worth no line.
	debug := &logBuffer{}
	secure, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{}, onTLS(nodeTLS(t, ca)), func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(debug, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	_ = dial(t, secure).Close()
	waitFor(t, func() bool { return lines(debug, "connection closed") == 1 })
	if lines(debug, "WARN") != 0 || lines(debug, "reason=peer") != 1 {
		t.Errorf("log: %s", debug)
	}
}

// Handshakes that do not go on count as connections, and end after their time: those who wait for room get it.
func TestUnfinishedTLSHandshakes(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	s := nodeTLS(t, ca)
	for name, hello := range map[string][]byte{"silence": nil, "half a record": []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newPipeListener()
				srv, logs := start(t, heartbeatRoutes(replyHeartbeat), Limits{MaxConnections: 3}, onPipe(l), func(o *Options) {
					o.Listeners[0].Protocol, o.Listeners[0].TLS = ProtocolSSL, s
				})
				began := time.Now()
				for range 3 {
					if nc := l.dial(); len(hello) > 0 {
						mustWrite(t, nc, hello)
					}
				}
				synctest.Wait()
				if connections(srv) != 3 {
					t.Fatalf("%d connections", connections(srv))
				}
				late := l.dial() // blocks until one of them has ended
				if d := time.Since(began); d != peer.HandshakeTimeout {
					t.Errorf("there was room after %v", d)
				}
				_ = late.Close()
				synctest.Wait()
				if lines(logs, "it was not over after 5s") != 1 {
					t.Errorf("log: %s", logs)
				}
			})
		})
	}
}

// A server that closes waits for no TLS handshake.
func TestCloseDuringATLSHandshake(t *testing.T) {
	srv, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{}, onTLS(nodeTLS(t, tlstest.NewCA(t, "nodes"))))
	nc := dial(t, srv)
	mustWrite(t, nc, []byte("\x16\x03\x01"))
	waitFor(t, func() bool { return connections(srv) == 1 })
	began := time.Now()
	if err := srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > peer.HandshakeTimeout/2 {
		t.Errorf("it took %v", d)
	}
}

// The limit of a frame holds on a listener with TLS for who has shown no certificate.
func TestFrameLimitWithoutACertificate(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	p := ca.Node([]string{"127.0.0.1"})
	s, err := peer.NewTLS(peer.TLSOptions{Certificate: p.Chain, Key: p.Key, Trust: ca.PEM(), ClientAuth: tls.VerifyClientCertIfGiven,
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13, Wall: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	srv, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{MaxUnauthenticatedFrameBytes: 8}, onTLS(s))
	for _, known := range []bool{true, false} {
		cfg := clientOf(t, ca)
		if !known {
			cfg.Certificates = nil
		}
		nc := tls.Client(dial(t, srv), cfg)
		mustWrite(t, nc, heartbeat(1))
		if _, _, err := readResponse(nc); known != (err == nil) || !known && !errors.Is(err, io.EOF) {
			t.Errorf("with a certificate %v: %v", known, err)
		}
	}
}

// A stranger's handshake takes no more than a bound, and what is more than usual of it comes out of the memory of requests.
func TestMemoryOfATLSHandshake(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		srv, logs := start(t, heartbeatRoutes(replyHeartbeat), Limits{}, onTLS(nodeTLS(t, ca)))
		cfg := clientOf(t, ca)
		cfg.MinVersion, cfg.MaxVersion = version, version
		cert := &cfg.Certificates[0]
		cert.Certificate = append(cert.Certificate, make([]byte, 100<<10))
		nc := tls.Client(dial(t, srv), cfg)
		_, _ = nc.Write(heartbeat(1))
		if b, err := io.ReadAll(nc); len(b) > 0 {
			t.Errorf("version %x: read %q, %v", version, b, err)
		}
		waitFor(t, func() bool { return lines(logs, "handshake of more than 65536 bytes") == 1 })
	}
	const fit = 5
	srv, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{RequestBytes: 2 * fit * handshakeMemory, SlowFrame: time.Hour}, onTLS(nodeTLS(t, ca)))
	// A hello of 60,000 bytes, of which two thirds come.
	hello := append([]byte("\x16\x03\x01\x40\x00\x01\x00\xea\x60"), make([]byte, 16<<10-4)...)
	hello = append(append(hello, "\x16\x03\x01\x40\x00"...), make([]byte, 16<<10)...)
	hello = append(append(hello, "\x16\x03\x01\x20\x00"...), make([]byte, 8<<10)...)
	usual := dial(t, srv)
	mustWrite(t, usual, hello[:freeHandshake-1])
	waitFor(t, func() bool { return connections(srv) == 1 })
	var crowd []net.Conn
	for range 4 * fit {
		crowd = append(crowd, dial(t, srv))
		go func(nc net.Conn) { _, _ = nc.Write(hello) }(crowd[len(crowd)-1])
	}
	waitFor(t, func() bool { _, waiting := srv.budget.used(); return waiting > 0 })
	if used, _ := srv.budget.used(); used < handshakeMemory || used > srv.budget.limit()+srv.budget.small {
		t.Errorf("%d bytes of %d are counted", used, srv.budget.limit())
	}
	nc := tls.Client(dial(t, srv), clientOf(t, ca))
	mustWrite(t, nc, heartbeat(1))
	if err := nc.Handshake(); err != nil {
		t.Errorf("a usual handshake waits for memory: %v", err)
	}
	for _, c := range append(crowd, usual, nc) {
		_ = c.Close()
	}
	waitFor(t, func() bool { used, waiting := srv.budget.used(); return used == 0 && waiting == 0 })
}

// What a client without a certificate sends in its handshake may stay in memory with the connection: there is not much of it.
func TestLongHelloWithoutACertificate(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	p := ca.Node([]string{"127.0.0.1"})
	s, err := peer.NewTLS(peer.TLSOptions{Certificate: p.Chain, Key: p.Key, Trust: ca.PEM(), ClientAuth: tls.VerifyClientCertIfGiven,
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13, Wall: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	srv, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{}, onTLS(s))
	for _, known := range []bool{true, false} {
		cfg := clientOf(t, ca)
		for i := range 100 {
			cfg.NextProtos = append(cfg.NextProtos, fmt.Sprintf("%0200d", i))
		}
		if !known {
			cfg.Certificates = nil
		}
		nc := tls.Client(dial(t, srv), cfg)
		_, _ = nc.Write(heartbeat(1))
		if _, _, err := readResponse(nc); known != (err == nil) {
			t.Errorf("with a certificate %v: %v", known, err)
		}
	}
}
