package server

import (
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestBudgetParts(t *testing.T) {
	b := newBudget(1000<<20, 100<<20, time.Second)
	big := claim{size: 500 << 20}
	if _, _, err := b.acquire(&big, 895<<20, 500<<20); err != nil {
		t.Fatal(err)
	}
	// The common part holds one more MiB; the favoured one gets its reserve, a small one its part, others wait.
	favoured, small, other := claim{size: 90 << 20}, claim{size: 1 << 10}, claim{size: 2 << 20}
	for _, c := range []*claim{&favoured, &small} {
		_, waited, err := b.acquire(c, c.size, c.size)
		if waited || err != nil {
			t.Fatalf("waited %v, %v", waited, err)
		}
	}
	if favoured.reserve != 90<<20 || b.favoured != &favoured {
		t.Errorf("reserve %d", favoured.reserve)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, waited, err := b.acquire(&other, 2<<20, 2<<20); !waited || err != nil {
			t.Errorf("waited %v, %v", waited, err)
		}
	})
	for _, n := b.used(); n == 0; _, n = b.used() {
		runtime.Gosched()
	}
	late := claim{size: 1 << 10} // comes after one that waits, and is small
	if _, waited, err := b.acquire(&late, 1<<10, 1<<10); waited || err != nil || late.small != 1<<10 {
		t.Errorf("waited %v, %v, small %d", waited, err, late.small)
	}
	b.release(&big)
	wg.Wait()
	for _, c := range []*claim{&favoured, &small, &other, &late} {
		b.release(c)
	}
	if n, waiting := b.used(); n != 0 || waiting != 0 || len(b.holders) != 0 || b.timer != nil || b.favoured != nil {
		t.Errorf("left over: %d bytes, %d waiting", n, waiting)
	}
	var over *OverBudgetError
	if _, _, err := b.acquire(&big, 1001<<20, 1001<<20); !errors.As(err, &over) || over.Limit != 1000<<20 {
		t.Errorf("error %v", err)
	}
}

// TestBudgetHonestGrowers lets many frames of 100 MiB arrive together in a budget of 256 MiB: all complete.
func TestBudgetHonestGrowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(256<<20, 100<<20, 10*time.Second)
		var wg sync.WaitGroup
		for range 200 {
			wg.Go(func() {
				var c claim
				c.evict = func(err error) { t.Errorf("evicted: %v", err); b.cancel(&c, err) }
				b.begin(&c, 100<<20, true)
				held, got := int64(0), int64(0)
				for size := int64(64 << 10); got < 100<<20; size = min(4*size, 100<<20) {
					granted, _, err := b.acquire(&c, size, 100<<20)
					if err != nil {
						t.Errorf("acquire: %v", err)
						break
					}
					if held > 0 {
						b.give(&c, held)
					}
					held, got = granted, granted
					b.progress(&c, got)
					pause(time.Millisecond)
				}
				b.complete(&c)
				b.release(&c)
			})
		}
		wg.Wait()
		if n, waiting := b.used(); n != 0 || waiting != 0 {
			t.Errorf("left over: %d bytes, %d waiting", n, waiting)
		}
		b.close()
	})
}

// TestBudgetOfNodes fills every part of the budget: a small request of a node waits for none of it, a client's does.
func TestBudgetOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(1<<20, 64<<10, 10*time.Second)
		defer b.close()
		full := claim{size: 1 << 20}
		for n := b.limit(); n > 0; n /= 2 {
			for b.tryAcquire(&full, n) {
			}
		}
		var small []*claim
		for b.usedSmall+1024 <= b.small {
			c := &claim{size: 1024}
			small = append(small, c)
			if _, waited, err := b.acquire(c, 1024, 1024); waited || err != nil {
				t.Fatal(waited, err)
			}
		}
		b.favoured = &full
		client := make(chan error, 1)
		go func() {
			c := claim{size: 2048}
			_, _, err := b.acquire(&c, 2048, 2048)
			client <- err
		}()
		synctest.Wait()
		node := claim{size: 2048, node: true}
		if n, waited, err := b.acquire(&node, 2048, 2048); n != 2048 || waited || err != nil {
			t.Errorf("a node's request got %d, waited %v, %v", n, waited, err)
		}
		select {
		case err := <-client:
			t.Errorf("a client's request does not wait: %v", err)
		default:
		}
		b.release(&node)
		for _, c := range small {
			b.release(c)
		}
		b.release(&full)
		if err := <-client; err != nil {
			t.Error(err)
		}
	})
}

// TestBudgetRandom runs random requests and checks that the parts never hold more than they can and end empty.
func TestBudgetRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(1, 400), 1, 6), 1, 30).Draw(rt, "acquisitions")
		synctest.Test(t, func(t *testing.T) {
			b := newBudget(1000, 300, time.Second)
			var wg sync.WaitGroup
			for i, acquisitions := range sizes {
				wg.Go(func() {
					c := claim{size: 1 << 20}
					c.evict = func(err error) { b.cancel(&c, err) }
					b.begin(&c, c.size, i%2 == 0)
					for _, n := range acquisitions {
						if _, _, err := b.acquire(&c, n, n); err != nil {
							break
						}
						b.mu.Lock()
						if b.usedCommon > b.common || b.usedReserve > b.reserve || b.usedSmall > b.small ||
							b.usedCommon < 0 || b.usedReserve < 0 || b.usedSmall < 0 {
							t.Errorf("out of bounds: %d %d %d", b.usedCommon, b.usedReserve, b.usedSmall)
						}
						b.mu.Unlock()
						pause(time.Duration(n) * time.Millisecond)
						if n%3 == 0 {
							b.give(&c, min(n/2, c.held()))
						}
						b.progress(&c, c.received+n*1000)
					}
					b.complete(&c)
					b.release(&c)
				})
			}
			wg.Wait()
			if n, waiting := b.used(); n != 0 || waiting != 0 || len(b.holders) != 0 {
				t.Errorf("left over: %d bytes, %d waiting, %d holders", n, waiting, len(b.holders))
			}
			b.close()
		})
	})
}

// TestHalfOpenFrames keeps 500 frames of 100 MB claimed with a few bytes sent: next to nothing is allocated and a
// normal client is served.
func TestHalfOpenFrames(t *testing.T) {
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{RequestBytes: 1 << 30})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 500 {
		mustWrite(t, dial(t, s), append(size(100_000_000), 0, 12, 0))
	}
	nc := dial(t, s)
	for i := range int32(1000) {
		mustWrite(t, nc, heartbeat(i))
		mustRead(t, nc, i)
	}
	waitFor(t, func() bool { n, _ := s.budget.used(); return n == 500*int64(sizeFor(firstChunk)) })
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 500*(80<<10)+8<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

// TestSlowFramesUnderPressure fills the budget with frames that stop half-way. A normal client is served all the time,
// and a client with a large frame as soon as the silent ones have been found out.
func TestSlowFramesUnderPressure(t *testing.T) {
	limits := Limits{RequestBytes: 8 << 20, MaxFrameBytes: 4 << 20}
	bubble(t, heartbeatRoutes(replyHeartbeat), limits, func(t *testing.T, s *Server, l *pipeListener, logs *logBuffer) {
		var slow []net.Conn
		for range 8 {
			nc := l.dial()
			mustWrite(t, nc, heartbeat(0))
			mustRead(t, nc, 0)
			// A whole frame of 1 MiB lies within the trust of a second one.
			mustWrite(t, nc, append(size(3<<20, header(12, 0, 1)...), make([]byte, 300<<10)...))
			slow = append(slow, nc)
		}
		nc := l.dial()
		mustWrite(t, nc, heartbeat(1))
		mustRead(t, nc, 1)
		begin := time.Now()
		large := frame(append(header(12, 0, 2), append([]byte{0, 1, 'g', 0, 0, 0, 0, 0, 1, 'm'}, make([]byte, 4<<20-100)...)...))
		if _, err := nc.Write(large); err != nil {
			t.Fatalf("%v, log: %s", err, logs)
		}
		mustRead(t, nc, 2)
		if d := time.Since(begin); d > 30*time.Second {
			t.Errorf("served after %v", d)
		}
		synctest.Wait()
		if len(s.conns) == 9 && time.Since(begin) > 0 {
			t.Errorf("nobody was closed; log: %s", logs)
		}
		for _, nc := range slow {
			_ = nc.Close()
		}
		_ = nc.Close()
		synctest.Wait()
	})
}

// TestOverBudget sends a frame that alone exceeds the budget.
func TestOverBudget(t *testing.T) {
	s, logs := start(t, framingRoutes(), Limits{RequestBytes: 1 << 20})
	nc := dial(t, s)
	b := frame(append(header(3, 1, 1), make([]byte, 2<<20)...))
	_, _ = nc.Write(b) // closed in the middle
	waitFor(t, func() bool { return lines(logs, "exceeds the memory budget") == 1 })
}

// TestBigFramesArrive sends frames around the sizes at which memory grows.
func TestBigFramesArrive(t *testing.T) {
	var got [][]byte
	s, _ := start(t, testRoutes{36: {Key: 36, Min: 0, Max: 2, Handle: saslEcho(&got)}}, Limits{})
	nc := dial(t, s)
	for i, n := range []int{0, 1, 400, 496, 520, 64 << 10, 68 << 10, 70 << 10, 256 << 10, 1 << 20, 3 << 20, 9 << 20, 20} {
		r := kmsg.NewPtrSASLAuthenticateRequest()
		r.SASLAuthBytes = make([]byte, n)
		for j := range r.SASLAuthBytes {
			r.SASLAuthBytes[j] = byte(j * (i + 3))
		}
		mustWrite(t, nc, request(int32(i), r))
		body := mustRead(t, nc, int32(i))
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		if err := resp.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		if string(resp.SASLAuthBytes) != string(r.SASLAuthBytes) {
			t.Fatalf("frame with %d bytes was changed", n)
		}
	}
}

// TestDecodingOverBudget sends a frame that fits but would not when decoded: it is refused before anything is decoded.
func TestDecodingOverBudget(t *testing.T) {
	s, logs := start(t, framingRoutes(), Limits{RequestBytes: 1 << 20})
	nc := dial(t, s)
	const topics = 100_000
	body := binary.BigEndian.AppendUint32(header(3, 1, 1), topics)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	mustWrite(t, nc, frame(append(body, make([]byte, 2*topics)...)))
	mustBeClosed(t, nc)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 2<<20 {
		t.Errorf("%d bytes allocated", n)
	}
	waitFor(t, func() bool { return lines(logs, "exceeds the memory budget") == 1 })
}
