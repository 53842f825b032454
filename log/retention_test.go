package log

import (
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

// A segment whose timestamps cannot be read is kept, which is told once, and goes when they can be.
func TestUnreadableTimestampsKeepASegment(t *testing.T) {
	var told strings.Builder
	faults := faultfs.New(memfs.New(nil))
	b := newBench(t, faults, func(c *Config) { c.RetentionAge = time.Hour })
	b.append(spec{n: 1, size: 10})
	b.must(b.log.Roll())
	b.append(spec{n: 1, size: 10})
	b.must(b.log.Close())
	b.open(true, b.log.EndOffset())
	b.log.logger = slog.New(slog.NewTextHandler(&told, nil))
	b.now = b.now.Add(2 * time.Hour)
	faults.Add(faultfs.Rule{Path: "*" + suffixTimeIndex, Err: syscall.EIO})
	for range 3 {
		n, err := b.log.DeleteOld(b.now, b.log.EndOffset())
		b.must(err)
		if n != 0 {
			t.Fatalf("%d segments went", n)
		}
	}
	if n := strings.Count(told.String(), "cannot be read"); n != 1 {
		t.Fatalf("told %d times: %s", n, told.String())
	}
	faults.Clear()
	if n, err := b.log.DeleteOld(b.now, b.log.EndOffset()); n != 2 || err != nil {
		t.Fatalf("%d segments went, %v", n, err)
	}
}
