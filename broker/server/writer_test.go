package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// saslEcho answers with the bytes it got.
func saslEcho(*[][]byte) HandlerFunc {
	return func(_ context.Context, req *Request, w Responder) {
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.Version = req.Version
		resp.SASLAuthBytes = req.Msg.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes
		w.Reply(resp)
	}
}

// source is a file that hides or shows its descriptor.
type source struct {
	*os.File
	hidden bool
}

func (s source) SysFile() (*os.File, bool) { return s.File, !s.hidden }

// failingSource fails to read.
type failingSource struct{}

func (failingSource) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }
func (failingSource) SysFile() (*os.File, bool)         { return nil, false }

func randomFile(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	data := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(data)
	f, err := os.Create(filepath.Join(t.TempDir(), "00000000000000000000.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f, data
}

// replySegments answers with random pieces of memory and of f, drawn by the correlation id.
func replySegments(f *os.File, data []byte, open *atomic.Int64) HandlerFunc {
	return func(_ context.Context, req *Request, w Responder) {
		seed := uint64(req.CorrelationID)
		w.ReplyFunc(func() []wire.Segment {
			segs, _ := randomSegments(seed, f, data, open)
			return segs
		})
	}
}

// TestSegments sends answers made of random pieces of memory and of a file, by sendfile and copied, over TCP with small
// socket buffers, from one shared descriptor to several clients at once.
func TestSegments(t *testing.T) {
	f, data := randomFile(t, 3<<20)
	var open atomic.Int64
	s, _ := start(t, heartbeatRoutes(replySegments(f, data, &open)), Limits{SendBufferBytes: 64 << 10})
	const clients, each = 4, 40
	errs := make(chan error, clients)
	for client := range clients {
		nc := dial(t, s)
		go func() {
			errs <- func() error {
				for i := range each {
					corr := int32(client*each + i)
					if _, err := nc.Write(heartbeat(corr)); err != nil {
						return err
					}
					got, body, err := readResponse(nc)
					if err != nil {
						return err
					}
					if _, want := randomSegments(uint64(corr), f, data, nil); got != corr || !bytes.Equal(body, want) {
						return errors.New("answer differs")
					}
				}
				return nil
			}()
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	waitFor(t, func() bool { return open.Load() == 0 })
}

// randomSegments makes an answer and its bytes; open counts segments that are not done.
func randomSegments(seed uint64, f *os.File, data []byte, open *atomic.Int64) ([]wire.Segment, []byte) {
	rng := rand.New(rand.NewPCG(seed, 2))
	var segs []wire.Segment
	var want []byte
	for range 1 + rng.IntN(6) {
		n := rng.IntN([]int{100, 40 << 10, 300 << 10}[rng.IntN(3)])
		off := rng.IntN(len(data) - n)
		seg := wire.Segment{Bytes: data[off : off+n]}
		if k := rng.IntN(3); k > 0 {
			seg = wire.Segment{File: source{f, k == 2}, Off: int64(off), Len: int64(n)}
		}
		if rng.IntN(4) > 0 && open != nil {
			open.Add(1)
			seg.Done = func() { open.Add(-1) }
		}
		segs = append(segs, seg)
		want = append(want, data[off:off+n]...)
	}
	return segs, want
}

// TestSourceFails ends the connection when what was promised can't be read: the frame can't be completed.
func TestSourceFails(t *testing.T) {
	f, _ := randomFile(t, 100<<10)
	for name, src := range map[string]wire.Source{
		"read error": failingSource{}, "short file": source{f, true}, "short file by sendfile": source{f, false},
	} {
		t.Run(name, func(t *testing.T) {
			var done atomic.Int64
			handle := func(_ context.Context, _ *Request, w Responder) {
				w.ReplyFunc(func() []wire.Segment {
					return []wire.Segment{
						{Bytes: []byte("head"), Done: func() { done.Add(1) }},
						{File: src, Off: 64 << 10, Len: 64 << 10, Done: func() { done.Add(1) }},
						{Bytes: []byte("tail"), Done: func() { done.Add(1) }},
					}
				})
			}
			s, logs := start(t, heartbeatRoutes(handle), Limits{})
			nc := dial(t, s)
			mustWrite(t, nc, heartbeat(1))
			if _, err := io.ReadAll(nc); err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Fatal(err)
			}
			waitFor(t, func() bool { return done.Load() == 3 && lines(logs, "answer could not be sent") == 1 })
		})
	}
}

// TestStalledSendfile drops a client that stops reading in the middle of a range of a file.
func TestStalledSendfile(t *testing.T) {
	f, data := randomFile(t, 16<<20)
	var done atomic.Int64
	handle := func(_ context.Context, _ *Request, w Responder) {
		w.ReplyFunc(func() []wire.Segment {
			return []wire.Segment{{File: source{f, false}, Len: int64(len(data)), Done: func() { done.Add(1) }}}
		})
	}
	s, logs := start(t, heartbeatRoutes(handle), Limits{WriteStall: 200 * time.Millisecond})
	nc := dial(t, s)
	mustWrite(t, nc, heartbeat(1))
	waitFor(t, func() bool { return done.Load() == 1 && lines(logs, "does not read its answers") == 1 })
}
