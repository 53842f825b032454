package log

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

func (b *bench) allocated(mem *memfs.FS, base wire.Offset) int64 {
	b.t.Helper()
	n, err := mem.Allocated(b.dir + "/" + fileName(base, suffixLog))
	b.must(err)
	return n
}

// preallocate: a segment gets its space when it is begun, the length stays, and what was not used goes back when the
// segment is sealed and at a clean stop. A crash leaves it for whoever seals the segment.
func TestPreallocate(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, func(c *Config) { c.SegmentBytes, c.Preallocate = 1000, true })
	if got := b.allocated(mem, 0); got != 1000 {
		t.Fatalf("the first segment has %d bytes reserved", got)
	}
	for range 6 {
		b.append(spec{n: 1, size: 300})
	}
	bases := make([]wire.Offset, 0, 3)
	for _, s := range b.log.view.Load().segments {
		bases = append(bases, s.base)
	}
	if len(bases) != 3 || b.allocated(mem, 0) != 0 || b.allocated(mem, bases[1]) != 0 || b.allocated(mem, bases[2]) != 1000 {
		t.Fatalf("segments %v reserve %d, %d, %d", bases, b.allocated(mem, 0), b.allocated(mem, bases[1]), b.allocated(mem, bases[2]))
	}
	want := b.bytes(0)
	b.must(b.log.Flush())
	c := b.on(t, mem) // after SIGKILL
	c.config.Preallocate = false
	c.open(false, 0)
	if !bytes.Equal(c.bytes(0), want) || c.rec.BytesTruncated != 0 {
		t.Fatalf("after a crash: %+v", c.rec)
	}
	c.must(c.log.Close())
	if got := c.allocated(mem, bases[2]); got != 0 {
		t.Fatalf("a clean stop leaves %d bytes reserved", got)
	}
}

// A preallocation that finds no space is undone: the append is refused, nothing of the new segment stays, and the log
// goes on when space is back.
func TestPreallocateWithoutSpace(t *testing.T) {
	faults := faultfs.New(memfs.New(nil))
	b := newBench(t, faults, func(c *Config) { c.SegmentBytes, c.Preallocate = 1000, true })
	b.append(spec{n: 1, size: 600})
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		rule := faults.Add(faultfs.Rule{Op: faultfs.OpAllocate, Err: cause})
		before, err := faults.List(b.dir)
		b.must(err)
		_, err = b.log.AppendAsLeader(b.validate(b.make(spec{n: 1, size: 600})), 0)
		if !errors.Is(err, ErrDiskFull) || rule.Hits() != 1 || b.log.EndOffset() != 1 || b.log.Segments() != 1 {
			t.Fatalf("append without space: %v, end %d", err, b.log.EndOffset())
		}
		after, err := faults.List(b.dir)
		b.must(err)
		left := strings.ReplaceAll(strings.Join(after, " "), " 00000000000000000001.snapshot", "")
		if left != strings.ReplaceAll(strings.Join(before, " "), " 00000000000000000001.snapshot", "") {
			t.Fatalf("left over: %v, before %v", after, before)
		}
		faults.Clear()
	}
	if a := b.append(spec{n: 1, size: 600}); a.First != 1 || !a.Rolled {
		t.Fatalf("append when space is back: %+v", a)
	}
}

// The real call reserves blocks, and the cut gives them back.
func TestPreallocateOnThisSystem(t *testing.T) {
	dir := t.TempDir()
	blocks := func(name string) int64 {
		var st syscall.Stat_t
		if err := syscall.Stat(name, &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	f, err := vfs.OS{}.Create(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Allocate(1 << 20); err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil || size != 3 {
		t.Fatalf("length %d, %v", size, err)
	}
	reserved := blocks(dir + "/f")
	if err := f.Truncate(3); err != nil {
		t.Fatal(err)
	}
	if reserved >= 1<<20 && blocks(dir+"/f") >= 1<<20 {
		t.Fatalf("%d bytes stay reserved of %d", blocks(dir+"/f"), reserved)
	}
	data, err := os.ReadFile(dir + "/f")
	if err != nil || string(data) != "abc" {
		t.Fatalf("read %q, %v", data, err)
	}
}

// B07: retention goes by the largest timestamp in a segment. One in the future keeps it and is told once; retention.bytes
// still works. One in seconds lets it go at once.
func TestTimestampsOfOtherUnits(t *testing.T) {
	var told strings.Builder
	b := newBench(t, nil, func(c *Config) {
		c.RetentionAge, c.TimestampAfterMax = time.Hour, Forever
	})
	b.log.logger = slog.New(slog.NewTextHandler(&told, nil))
	b.append(spec{n: 1, size: 10, ts: b.now.Unix()}) // seconds
	b.must(b.log.Roll())
	b.append(spec{n: 1, size: 10, ts: b.now.UnixMicro()})
	b.must(b.log.Roll())
	b.append(spec{n: 1, size: 10})
	b.must(b.log.Roll())
	for range 3 {
		b.now = b.now.Add(2 * time.Hour)
		_, err := b.log.DeleteOld(b.now, b.log.EndOffset())
		b.must(err)
		if b.log.StartOffset() != 1 {
			t.Fatalf("log starts at %d", b.log.StartOffset())
		}
	}
	if n := strings.Count(told.String(), "timestamps in the future"); n != 1 {
		t.Fatalf("told %d times: %s", n, told.String())
	}
	c := b.config
	c.RetentionBytes = 0
	b.log.SetConfig(&c)
	_, err := b.log.DeleteOld(b.now, b.log.EndOffset())
	b.must(err)
	if b.log.StartOffset() != 3 {
		t.Fatalf("by size: log starts at %d", b.log.StartOffset())
	}
}

// segment.jitter.ms: segments roll up to that much earlier, each at a moment of its own that a restart does not change.
func TestJitterSpreadsRolls(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentAge, c.SegmentJitter = time.Hour, time.Hour })
	seen := map[time.Duration]bool{}
	for base := range wire.Offset(64) {
		j := b.log.jitter(base, time.Hour)
		if j < 0 || j >= time.Hour || j != b.log.jitter(base, time.Hour) {
			t.Fatalf("jitter of %d is %v", base, j)
		}
		seen[j.Truncate(10*time.Minute)] = true
	}
	if len(seen) != 6 || b.log.jitter(3, 0) != 0 {
		t.Fatalf("64 segments fall into %d of 6 tenths of minutes", len(seen))
	}
	limit := time.Hour - b.log.jitter(0, time.Hour)
	b.append(spec{n: 1})
	b.now = b.now.Add(limit)
	if b.append(spec{n: 1}).Rolled {
		t.Fatal("rolled at the limit")
	}
	b.now = b.now.Add(time.Millisecond)
	if !b.append(spec{n: 1}).Rolled {
		t.Fatal("did not roll beyond the limit")
	}
}
