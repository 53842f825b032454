package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// testRoutes maps keys to routes on every listener.
type testRoutes map[int16]Route

func (r testRoutes) Route(_ *Conn, key int16) (Route, bool) {
	route, ok := r[key]
	return route, ok
}

// logBuffer keeps what a logger wrote.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pipeListener accepts the ends of net.Pipe, for tests in a bubble.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092} }

func (l *pipeListener) dial() net.Conn {
	a, b := net.Pipe()
	l.conns <- b
	return a
}

// start runs a server with one PLAINTEXT listener; it is closed at the end of the test.
func start(t testing.TB, routes Routes, limits Limits, edit ...func(*Options)) (*Server, *logBuffer) {
	t.Helper()
	logs := &logBuffer{}
	o := Options{
		Listeners: []Listener{{Name: "PLAINTEXT", Addrs: []string{"127.0.0.1:0"}, Protocol: ProtocolPlaintext}},
		Routes:    routes, Logger: slog.New(slog.NewTextHandler(logs, nil)), Listen: net.Listen, Limits: limits,
	}
	for _, e := range edit {
		e(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if n, waiting := s.budget.used(); n != 0 || waiting != 0 {
			t.Errorf("after close %d bytes of the budget are held and %d requests wait", n, waiting)
		}
	})
	return s, logs
}

// onPipe makes start listen on l.
func onPipe(l *pipeListener) func(*Options) {
	return func(o *Options) { o.Listen = func(string, string) (net.Listener, error) { return l, nil } }
}

func dial(t testing.TB, s *Server) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr("PLAINTEXT").String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return nc
}

// frame puts the length field before payload.
func frame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// request is a framed request of client id "t".
func request(corr int32, r kmsg.Request) []byte {
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("t"))
	return f.AppendRequest(nil, r, corr)
}

func mustWrite(t testing.TB, nc net.Conn, b []byte) {
	t.Helper()
	if _, err := nc.Write(b); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// readResponse reads one frame: its correlation id and what follows.
func readResponse(nc net.Conn) (int32, []byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(nc, size[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(nc, b); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:], nil
}

func mustRead(t testing.TB, nc net.Conn, corr int32) []byte {
	t.Helper()
	got, body, err := readResponse(nc)
	if err != nil {
		t.Fatalf("read answer %d: %v", corr, err)
	}
	if got != corr {
		t.Fatalf("answer has correlation id %d, want %d", got, corr)
	}
	return body
}

func mustBeClosed(t testing.TB, nc net.Conn) {
	t.Helper()
	b, err := io.ReadAll(nc)
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("want FIN, got %v", err)
	}
	if len(b) != 0 {
		t.Fatalf("want FIN, got % x first", b)
	}
}

// heartbeat v0 is a small request whose answer is an error code.
func heartbeat(corr int32) []byte {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version = 0
	return request(corr, r)
}

func replyHeartbeat(_ context.Context, req *Request, w Responder) {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = req.Version
	w.Reply(resp)
}

func heartbeatRoutes(h HandlerFunc) testRoutes {
	return testRoutes{12: {Key: 12, Min: 0, Max: 4, Handle: h}}
}
