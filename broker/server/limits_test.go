package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bubble runs a server on a pipe listener in virtual time.
func bubble(t *testing.T, routes Routes, limits Limits, f func(t *testing.T, s *Server, l *pipeListener, logs *logBuffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		s, logs := start(t, routes, limits, onPipe(l))
		f(t, s, l, logs)
	})
}

// closedAfter reads until the server closes and says how long that took.
func closedAfter(t *testing.T, nc net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	mustBeClosed(t, nc)
	return time.Since(start)
}

func TestFirstRequestTimeout(t *testing.T) {
	for _, tc := range []struct {
		name string
		send []byte
	}{{"nothing", nil}, {"two bytes of the size", []byte{0, 0}}, {"half a frame", heartbeat(1)[:12]}} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, heartbeatRoutes(replyHeartbeat), Limits{}, func(t *testing.T, _ *Server, l *pipeListener, logs *logBuffer) {
				nc := l.dial()
				mustWrite(t, nc, tc.send)
				if d := closedAfter(t, nc); d != 10*time.Second {
					t.Errorf("closed after %v", d)
				}
				synctest.Wait()
				if lines(logs, "no complete request in time") != 1 {
					t.Errorf("log: %s", logs)
				}
			})
		})
	}
}

// TestSlowFirstRequest sends a byte a second: progress does not help before the first complete request.
func TestSlowFirstRequest(t *testing.T) {
	bubble(t, heartbeatRoutes(replyHeartbeat), Limits{}, func(t *testing.T, _ *Server, l *pipeListener, _ *logBuffer) {
		nc := l.dial()
		begin := time.Now()
		for _, b := range heartbeat(1) {
			if _, err := nc.Write([]byte{b}); err != nil {
				break
			}
			pause(time.Second)
		}
		if d := time.Since(begin); d < 10*time.Second || d > 11*time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

func TestIdleClose(t *testing.T) {
	bubble(t, heartbeatRoutes(replyHeartbeat), Limits{Idle: time.Minute}, func(t *testing.T, _ *Server, l *pipeListener, logs *logBuffer) {
		nc := l.dial()
		for i := range int32(10) { // busy for five minutes
			mustWrite(t, nc, heartbeat(i))
			mustRead(t, nc, i)
			pause(30 * time.Second)
		}
		if d := closedAfter(t, nc); d != 30*time.Second {
			t.Errorf("closed %v later", d)
		}
		synctest.Wait()
		if logs.String() != "" {
			t.Errorf("an idle close is nothing to log: %s", logs)
		}
	})
}

// TestIdleLongPoll answers a request after three times the idle time; the connection is idle only after it.
func TestIdleLongPoll(t *testing.T) {
	handle := func(ctx context.Context, req *Request, w Responder) {
		time.AfterFunc(3*time.Minute, func() { replyHeartbeat(ctx, req, w) })
	}
	bubble(t, heartbeatRoutes(handle), Limits{Idle: time.Minute}, func(t *testing.T, _ *Server, l *pipeListener, _ *logBuffer) {
		nc := l.dial()
		mustWrite(t, nc, heartbeat(1))
		begin := time.Now()
		mustRead(t, nc, 1)
		if d := time.Since(begin); d != 3*time.Minute {
			t.Errorf("answered after %v", d)
		}
		if d := closedAfter(t, nc); d < time.Minute || d > 2*time.Minute {
			t.Errorf("closed %v after the answer", d)
		}
	})
}

// TestSlowFrameIsNotIdle sends one frame more slowly than the idle time, but steadily.
func TestSlowFrameIsNotIdle(t *testing.T) {
	bubble(t, heartbeatRoutes(replyHeartbeat), Limits{Idle: time.Minute}, func(t *testing.T, _ *Server, l *pipeListener, _ *logBuffer) {
		nc := l.dial()
		mustWrite(t, nc, heartbeat(1))
		mustRead(t, nc, 1)
		for _, b := range heartbeat(2) {
			pause(40 * time.Second)
			mustWrite(t, nc, []byte{b})
		}
		mustRead(t, nc, 2)
	})
}

// TestSlots stops reading a client that has too many requests unanswered, and goes on when one is.
func TestSlots(t *testing.T) {
	responders := make(chan Responder, 100)
	handle := func(_ context.Context, _ *Request, w Responder) { responders <- w }
	bubble(t, heartbeatRoutes(handle), Limits{InFlight: 3}, func(t *testing.T, _ *Server, l *pipeListener, _ *logBuffer) {
		nc := l.dial()
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range int32(100) {
				mustWrite(t, nc, heartbeat(i))
			}
		})
		for i := range int32(100) {
			synctest.Wait()
			if n := len(responders); n != int(min(3, 100-i)) {
				t.Fatalf("%d requests are in flight after %d answers", n, i)
			}
			(<-responders).Reply(kmsg.NewPtrHeartbeatResponse())
			mustRead(t, nc, i)
		}
		wg.Wait()
	})
}

// TestSlowReader never reads: what waits for it is bounded, and it is dropped when it takes nothing for the stall time.
func TestSlowReader(t *testing.T) {
	var calls, done int
	handle := func(_ context.Context, req *Request, w Responder) {
		calls++
		if req.CorrelationID%2 == 0 {
			resp := kmsg.NewPtrHeartbeatResponse()
			resp.UnknownTags.Set(1, make([]byte, 10<<10))
			resp.Version = 4
			w.Reply(resp)
			return
		}
		w.ReplyFunc(func() []wire.Segment {
			return []wire.Segment{{Bytes: make([]byte, 10<<10), Done: func() { done++ }}}
		})
	}
	limits := Limits{WriteStall: 20 * time.Second, ResponseBytes: 50 << 10, InFlight: 20}
	bubble(t, heartbeatRoutes(handle), limits, func(t *testing.T, s *Server, l *pipeListener, logs *logBuffer) {
		nc := l.dial()
		begin := time.Now()
		for i := int32(0); ; i++ {
			r := kmsg.NewPtrHeartbeatRequest()
			r.Version = 4
			if _, err := nc.Write(request(i, r)); err != nil {
				break
			}
		}
		if d := time.Since(begin); d < 15*time.Second || d > 20*time.Second {
			t.Errorf("dropped after %v", d)
		}
		if calls > 21 {
			t.Errorf("%d requests were read", calls)
		}
		synctest.Wait()
		if done > calls/2 || lines(logs, "does not read its answers") != 1 {
			t.Errorf("done %d, log: %s", done, logs)
		}
	})
}

// TestSlowReaderThatMoves takes a little within every stall time and gets everything.
func TestSlowReaderThatMoves(t *testing.T) {
	const n = 100 << 10
	handle := func(_ context.Context, _ *Request, w Responder) {
		w.ReplyFunc(func() []wire.Segment { return []wire.Segment{{Bytes: make([]byte, n)}} })
	}
	bubble(t, heartbeatRoutes(handle), Limits{WriteStall: 20 * time.Second}, func(t *testing.T, _ *Server, l *pipeListener, _ *logBuffer) {
		nc := l.dial()
		mustWrite(t, nc, heartbeat(1))
		got := 0
		for b := make([]byte, 1<<10); got < n+8; {
			pause(10 * time.Second)
			k, err := nc.Read(b)
			if err != nil {
				t.Fatalf("after %d bytes: %v", got, err)
			}
			got += k
		}
	})
}

// TestCloseAnswersWaiting closes the server while a request waits: it is answered, and the next one is not read.
func TestCloseAnswersWaiting(t *testing.T) {
	responders := make(chan Responder, 2)
	handle := func(_ context.Context, _ *Request, w Responder) { responders <- w }
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		s, _ := start(t, heartbeatRoutes(handle), Limits{}, onPipe(l))
		nc, idle := l.dial(), l.dial()
		mustWrite(t, nc, heartbeat(1))
		w := <-responders
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
		mustBeClosed(t, idle)
		synctest.Wait()
		w.Reply(kmsg.NewPtrHeartbeatResponse())
		mustRead(t, nc, 1)
		mustBeClosed(t, nc)
		wg.Wait()
	})
}

// TestCloseGivesUp closes while a request is never answered.
func TestCloseGivesUp(t *testing.T) {
	responders := make(chan Responder, 1)
	handle := func(_ context.Context, _ *Request, w Responder) { responders <- w }
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		s, _ := start(t, heartbeatRoutes(handle), Limits{}, onPipe(l))
		nc := l.dial()
		mustWrite(t, nc, heartbeat(1))
		w := <-responders
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		mustBeClosed(t, nc)
		w.Reply(kmsg.NewPtrHeartbeatResponse()) // too late, and harmless
	})
}

// TestHalfClose sends requests and FIN: they are answered before the connection closes, as Kafka does.
func TestHalfClose(t *testing.T) {
	responders := make(chan Responder, 2)
	s, _ := start(t, heartbeatRoutes(func(_ context.Context, _ *Request, w Responder) { responders <- w }), Limits{})
	nc := dial(t, s)
	mustWrite(t, nc, append(heartbeat(1), heartbeat(2)...))
	closeWrite(nc)
	a, b := <-responders, <-responders
	b.Reply(kmsg.NewPtrHeartbeatResponse())
	a.Reply(kmsg.NewPtrHeartbeatResponse())
	mustRead(t, nc, 1)
	mustRead(t, nc, 2)
	mustBeClosed(t, nc)
}

func TestMaxConnectionsPerIP(t *testing.T) {
	s, logs := start(t, heartbeatRoutes(replyHeartbeat), Limits{MaxConnectionsPerIP: 1, PerIP: map[string]int{"127.0.0.1": 2}})
	for i := range int32(3) {
		a, b := dial(t, s), dial(t, s)
		mustWrite(t, a, heartbeat(i))
		mustRead(t, a, i)
		mustWrite(t, b, heartbeat(i))
		mustRead(t, b, i)
		mustBeClosed(t, dial(t, s))
		_, _ = a.Close(), b.Close()
		waitFor(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) == 0 && len(s.perIP) == 0 })
	}
	if lines(logs, "too many from this address") == 0 {
		t.Errorf("log: %s", logs)
	}
}

func TestOnlyListedAddresses(t *testing.T) {
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{MaxConnectionsPerIP: -1, PerIP: map[string]int{"127.0.0.2": 1}})
	mustBeClosed(t, dial(t, s))
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	nc, err := from.Dial("tcp", s.Addr("PLAINTEXT").String())
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, nc, heartbeat(1))
	mustRead(t, nc, 1)
	_ = nc.Close()
}

// TestNeverIdle keeps a connection for a week without a request.
func TestNeverIdle(t *testing.T) {
	bubble(t, heartbeatRoutes(replyHeartbeat), Limits{Idle: -1}, func(t *testing.T, s *Server, l *pipeListener, _ *logBuffer) {
		nc := l.dial()
		for i := range int32(3) {
			mustWrite(t, nc, heartbeat(i))
			mustRead(t, nc, i)
			pause(7 * 24 * time.Hour)
		}
		_ = nc.Close()
	})
}

func TestMaxConnections(t *testing.T) {
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{MaxConnections: 1})
	a, b := dial(t, s), dial(t, s)
	mustWrite(t, a, heartbeat(1))
	mustRead(t, a, 1)
	mustWrite(t, b, heartbeat(2))
	_ = b.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, _, err := readResponse(b); err == nil {
		t.Fatal("the second connection is served although one is the limit")
	}
	_ = b.SetReadDeadline(time.Now().Add(10 * time.Second))
	_ = a.Close()
	mustRead(t, b, 2)
}

// failingListener fails a number of accepts as a process out of descriptors does.
type failingListener struct {
	*pipeListener
	left int
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.left > 0 {
		l.left--
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.pipeListener.Accept()
}

func TestAcceptSurvivesEMFILE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failingListener{newPipeListener(), 20}
		begin := time.Now()
		s, logs := start(t, heartbeatRoutes(replyHeartbeat), Limits{}, func(o *Options) {
			o.Listen = func(string, string) (net.Listener, error) { return l, nil }
		})
		_ = s
		nc := l.dial()
		mustWrite(t, nc, heartbeat(1))
		mustRead(t, nc, 1)
		// 5+10+…+640 ms, then 12 s: one line a second at most.
		if d := time.Since(begin); d > 14*time.Second {
			t.Errorf("served after %v", d)
		}
		if n := lines(logs, "accept failed"); n == 0 || n > 14 {
			t.Errorf("%d log lines", n)
		}
		_ = nc.Close()
	})
}

func TestListenAddresses(t *testing.T) {
	s, logs := start(t, heartbeatRoutes(replyHeartbeat), Limits{Backlog: 50}, func(o *Options) {
		o.Listeners[0].Addrs = []string{"127.0.0.1:0", "127.0.0.2:0", "192.0.2.1:0"}
	})
	l := s.listeners[0]
	if len(l.bound) != 2 || l.bound[0].Addr().(*net.TCPAddr).Port != l.bound[1].Addr().(*net.TCPAddr).Port {
		t.Fatalf("bound to %v", l.bound)
	}
	if lines(logs, "address skipped") != 1 {
		t.Errorf("log: %s", logs)
	}
	if s.Addr("NONE") != nil {
		t.Error("an unknown listener has an address")
	}
}

func TestListenFailureUnbinds(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	s, err := New(Options{
		Listeners: []Listener{
			{Name: "A", Addrs: []string{"127.0.0.1:0"}, Protocol: ProtocolPlaintext},
			{Name: "B", Addrs: []string{taken.Addr().String()}, Protocol: ProtocolPlaintext},
		},
		Routes: testRoutes{}, Logger: slog.New(slog.DiscardHandler), Listen: net.Listen,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("error %v", err)
	}
	if _, err := net.Dial("tcp", s.Addr("A").String()); err == nil {
		t.Error("listener A is still bound")
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := func() Options {
		return Options{Listeners: []Listener{{Name: "A", Addrs: []string{":0"}, Protocol: ProtocolPlaintext}},
			Routes: testRoutes{}, Logger: slog.New(slog.DiscardHandler), Listen: net.Listen}
	}
	for name, edit := range map[string]func(*Options){
		"no routes":       func(o *Options) { o.Routes = nil },
		"no logger":       func(o *Options) { o.Logger = nil },
		"no listen":       func(o *Options) { o.Listen = nil },
		"no listener":     func(o *Options) { o.Listeners = nil },
		"lower case":      func(o *Options) { o.Listeners[0].Name = "a" },
		"twice":           func(o *Options) { o.Listeners = append(o.Listeners, o.Listeners[0]) },
		"no address":      func(o *Options) { o.Listeners[0].Addrs = nil },
		"TLS":             func(o *Options) { o.Listeners[0].Protocol = "SSL" },
		"negative frame":  func(o *Options) { o.Limits.MaxFrameBytes = -1 },
		"negative count":  func(o *Options) { o.Limits.MaxConnections = -1 },
		"negative budget": func(o *Options) { o.Limits.RequestBytes = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			edit(&o)
			if _, err := New(o); err == nil {
				t.Error("accepted")
			}
		})
	}
	if _, err := New(good()); err != nil {
		t.Error(err)
	}
}

// TestIdleCloseIsFIN closes an idle TCP connection: the client reads an orderly end.
func TestIdleCloseIsFIN(t *testing.T) {
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{Idle: 50 * time.Millisecond})
	nc := dial(t, s)
	mustWrite(t, nc, heartbeat(1))
	mustRead(t, nc, 1)
	mustBeClosed(t, nc)
}

// TestFrameLimitBeforeAuthentication holds on listeners that authenticate, and ends with it.
func TestFrameLimitBeforeAuthentication(t *testing.T) {
	s := &Server{limits: Limits{MaxFrameBytes: 1000, MaxUnauthenticatedFrameBytes: 10}}
	for _, tc := range []struct {
		protocol string
		authed   bool
		want     int
	}{
		{"PLAINTEXT", false, 1000}, {"SASL_PLAINTEXT", false, 10}, {"SSL", false, 10}, {"SASL_SSL", false, 10},
		{"SASL_PLAINTEXT", true, 1000}, {"SSL", true, 1000},
	} {
		c := &conn{info: NewConn(1, "L", nil, nil), srv: s, lis: &listener{protocol: tc.protocol}}
		if tc.authed {
			c.info.SetPrincipal(auth.Principal{Type: "User", Name: "a"})
		}
		if got := c.frameLimit(); got != tc.want {
			t.Errorf("%s, authenticated %v: limit %d, want %d", tc.protocol, tc.authed, got, tc.want)
		}
	}
}

// TestHandshakeOverBusyServer fills the whole budget with requests whose handlers do not come back: new clients are
// still served their small requests at once.
func TestHandshakeOverBusyServer(t *testing.T) {
	routes := framingRoutes()
	routes[36] = Route{Key: 36, Min: 0, Max: 2, Handle: func(ctx context.Context, _ *Request, w Responder) {
		<-ctx.Done()
		w.Drop(nil)
	}}
	limits := Limits{RequestBytes: 16 << 20, MaxFrameBytes: 4 << 20}
	bubble(t, routes, limits, func(t *testing.T, s *Server, l *pipeListener, _ *logBuffer) {
		var busy []net.Conn
		var wg sync.WaitGroup
		for i := range int32(40) {
			nc := l.dial()
			busy = append(busy, nc)
			r := kmsg.NewPtrSASLAuthenticateRequest()
			r.SASLAuthBytes = make([]byte, 3<<20)
			wg.Go(func() { _, _ = nc.Write(request(i, r)) })
		}
		synctest.Wait()
		if n, waiting := s.budget.used(); n < 8<<20 || waiting == 0 {
			t.Fatalf("%d bytes are used, %d requests wait", n, waiting)
		}
		begin := time.Now()
		for i := range int32(100) {
			nc := l.dial()
			mustWrite(t, nc, frame(header(18, 0, i)))
			mustRead(t, nc, i)
			_ = nc.Close()
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("handshakes took %v", d)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("close: %v", err)
		}
		for _, nc := range busy {
			_ = nc.Close()
		}
		wg.Wait()
	})
}
