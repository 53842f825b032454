package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// BenchmarkEcho is the path of one small request: read, decode, handle, answer.
func BenchmarkEcho(b *testing.B) {
	s, _ := start(b, heartbeatRoutes(replyHeartbeat), Limits{})
	nc := dial(b, s)
	req := heartbeat(1)
	in := make([]byte, 10)
	b.ReportAllocs()
	for b.Loop() {
		mustWrite(b, nc, req)
		if _, err := io.ReadFull(nc, in); err != nil {
			b.Fatal(err)
		}
	}
}

// TestEchoAllocations bounds what the server allocates for one small request: the request with its responder, kmsg's
// request, and the handler's response; the strings that kmsg copies come on top (group and member id).
func TestEchoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops buffers under the race detector")
	}
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{})
	nc := dial(t, s)
	req, in := heartbeat(1), make([]byte, 10)
	n := testing.AllocsPerRun(2000, func() {
		mustWrite(t, nc, req)
		if _, err := io.ReadFull(nc, in); err != nil {
			t.Fatal(err)
		}
	})
	if n > 4 {
		t.Errorf("%.1f allocations a request", n)
	}
}

// BenchmarkFrame64K is the path of a request of 64 KiB with a small answer.
func BenchmarkFrame64K(b *testing.B) {
	s, _ := start(b, testRoutes{36: {Key: 36, Min: 0, Max: 2, Handle: func(_ context.Context, req *Request, w Responder) {
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.Version = req.Version
		w.Reply(resp)
	}}}, Limits{})
	nc := dial(b, s)
	r := kmsg.NewPtrSASLAuthenticateRequest()
	r.SASLAuthBytes = make([]byte, 64<<10)
	req := request(1, r)
	b.SetBytes(64 << 10)
	b.ReportAllocs()
	for b.Loop() {
		mustWrite(b, nc, req)
		if _, _, err := readResponse(nc); err != nil {
			b.Fatal(err)
		}
	}
}

// TestIdleConnections bounds what a connection takes that has served a request and waits for the next, and that it is one
// goroutine. The client's end, in the same process, has no goroutine.
func TestIdleConnections(t *testing.T) {
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{})
	const n = 500
	conns := make([]net.Conn, n)
	measure := func() (uint64, int) {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse, runtime.NumGoroutine()
	}
	before, goroutines := measure()
	for i := range conns {
		conns[i] = dial(t, s)
		mustWrite(t, conns[i], heartbeat(1))
		mustRead(t, conns[i], 1)
	}
	after, now := measure()
	if now-goroutines != n {
		t.Errorf("%d goroutines for %d connections", now-goroutines, n)
	}
	if per := int64(after-before) / n; per > 16<<10 {
		t.Errorf("%d bytes a connection, the client's end included", per)
	} else {
		t.Logf("%d bytes a connection, the client's end included", per)
	}
}

// BenchmarkFetch sends 1 MiB of a file a request, by the kernel and copied. cpu-us/MiB is that of the whole process, the
// client included; on loopback it says how the two compare, not what a network would show.
func BenchmarkFetch(b *testing.B) {
	f, data := randomFile(b, 4<<20)
	for name, hidden := range map[string]bool{"sendfile": false, "copy": true} {
		b.Run(name, func(b *testing.B) {
			s, _ := start(b, heartbeatRoutes(func(_ context.Context, _ *Request, w Responder) {
				w.ReplyFunc(func() []wire.Segment {
					return []wire.Segment{{Bytes: data[:60]}, {File: source{f, hidden}, Off: 1 << 20, Len: 1 << 20}}
				})
			}), Limits{})
			nc := dial(b, s)
			in := make([]byte, 1<<20+60+8)
			b.SetBytes(1 << 20)
			b.ReportAllocs()
			begin := cpuMicros()
			for b.Loop() {
				fetchOnce(b, nc, in)
			}
			b.ReportMetric(float64(cpuMicros()-begin)/float64(b.N), "cpu-us/MiB")
		})
	}
}

func fetchOnce(b *testing.B, nc net.Conn, in []byte) {
	mustWrite(b, nc, heartbeat(1))
	if _, err := io.ReadFull(nc, in); err != nil {
		b.Fatal(err)
	}
}

// cpuMicros is the CPU time of this process in microseconds.
func cpuMicros() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return (u.Utime.Sec+u.Stime.Sec)*1e6 + u.Utime.Usec + u.Stime.Usec
}
