package log

import (
	"context"
	"errors"
	"testing"

	"github.com/kajamq/kaja/vfs/memfs"
)

// D2, D3: the scrubber finds a flip in a sealed segment, says where, and changes nothing; what is active it leaves to recovery.
func TestScrub(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, func(c *Config) { c.SegmentBytes = 1000 })
	for range 30 {
		b.append(spec{n: 1, size: 100})
	}
	n, err := b.log.Scrub(t.Context(), nil)
	if err != nil || n != b.log.SealedSize() || n == 0 || n >= b.log.Size() {
		t.Fatalf("%d bytes, %v", n, err)
	}
	s := b.log.view.Load().segments[1]
	f, err := mem.OpenRW(s.path(suffixLog))
	b.must(err)
	_, err = f.WriteAt([]byte{'!'}, 300)
	b.must(err)
	size := b.log.Size()
	var corrupt *CorruptError
	if _, err := b.log.Scrub(t.Context(), nil); !errors.As(err, &corrupt) || corrupt.File != s.path(suffixLog) || corrupt.Pos == 0 {
		t.Fatalf("after a flip: %v", err)
	}
	if b.log.Size() != size || b.log.Err() != nil {
		t.Fatal("the log has changed")
	}
	stop := errors.New("stop")
	if _, err := b.log.Scrub(t.Context(), func(context.Context, int) error { return stop }); !errors.Is(err, stop) {
		t.Fatalf("throttle's error: %v", err)
	}
}
