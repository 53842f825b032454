package log

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

func TestLeftovers(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, func(c *Config) { c.SegmentBytes = 600 })
	for range 12 {
		b.append(spec{n: 2, size: 60})
	}
	want := b.bytes(0)
	segments := b.log.Segments()
	b.must(b.log.Close())
	for _, name := range []string{
		"00000000000000000000.log.deleted", "00000000000000000000.index.cleaned", "leader-epoch-checkpoint.tmp",
		"00000000000000000099.index", "00000000000000000099.kaja-window", "00000000000000000099.snapshot",
	} {
		b.must(vfs.WriteAtomic(mem, b.dir+"/"+name, []byte("junk")))
	}
	b.open(true, 24)
	if !bytes.Equal(b.bytes(0), want) || b.log.Segments() != segments {
		t.Fatalf("%d segments, want %d", b.log.Segments(), segments)
	}
	names, err := mem.List(b.dir)
	b.must(err)
	if i := slices.IndexFunc(names, func(n string) bool { return strings.Contains(n, "99") || strings.Count(n, ".") > 1 }); i >= 0 {
		t.Fatalf("%s is still there", names[i])
	}
}

// A swap that a crash interrupted at any rename is finished: the merged segment replaces both originals.
func TestSwapIsFinished(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, func(c *Config) { c.SegmentBytes = 600 })
	for range 12 {
		b.append(spec{n: 2, size: 60})
	}
	want := b.bytes(0)
	second := b.log.view.Load().segments[1].base
	b.must(b.log.Close())
	var merged []byte
	for _, base := range []wire.Offset{0, second} {
		data, err := vfs.ReadFile(mem, b.dir+"/"+fileName(base, suffixLog))
		b.must(err)
		merged = append(merged, data...)
	}
	b.must(vfs.WriteAtomic(mem, b.dir+"/"+fileName(0, suffixLog+suffixSwap), merged))
	faults := faultfs.New(mem)
	points := 0
	check := func() {
		points++
		for seed := range uint64(8) {
			c := b.on(t, mem.Crash(memfs.Coin, seed))
			c.open(true, 24)
			if got := c.bytes(0); !bytes.Equal(got, want) {
				t.Fatalf("point %d, seed %d: other bytes", points, seed)
			}
		}
	}
	faults.Before(func(faultfs.Op, string) { check() })
	c := b.on(t, faults)
	c.open(true, 24)
	check()
	if got := c.bytes(0); !bytes.Equal(got, want) || points < 3 {
		t.Fatalf("other bytes, or only %d points", points)
	}
}

// D6: every call that a busy log makes fails once, one after the other. No ack for what failed, no panic, reads go on,
// and a start after it finds every acknowledged and flushed batch.
func TestEveryCallFailsOnce(t *testing.T) {
	sites := map[faultfs.Op]int{}
	for nth := 1; ; nth++ {
		mem := memfs.New(func() time.Time { return epochZero })
		faults := faultfs.New(mem)
		b := newBench(t, faults, func(c *Config) { c.SegmentBytes = 700; c.RetentionAge = -1 })
		calls := 0
		var hit faultfs.Op
		faults.Before(func(op faultfs.Op, _ string) {
			calls++
			if calls == nth-1 { // the next call that changes the disk fails
				for _, op := range []faultfs.Op{faultfs.OpCreate, faultfs.OpRename, faultfs.OpRemove, faultfs.OpWrite, faultfs.OpSync, faultfs.OpSyncDir, faultfs.OpTruncate} {
					faults.Add(faultfs.Rule{Op: op, Times: 1, Err: syscall.EIO})
				}
			}
			if calls == nth {
				hit = op
				faults.Clear()
			}
		})
		acked, flushed := b.busy(t)
		faults.Before(nil)
		faults.Clear()
		if hit == "" {
			break
		}
		sites[hit]++
		c := b.on(t, mem.Crash(memfs.Lose, 0))
		l, _, err := Open(t.Context(), c.options(false, 0))
		if err != nil {
			t.Fatalf("call %d (%s): %v", nth, hit, err)
		}
		c.log = l
		if l.EndOffset() < flushed || l.EndOffset() > acked+2 {
			t.Fatalf("call %d (%s): the log ends at %d; %d were flushed, %d acknowledged", nth, hit, l.EndOffset(), flushed, acked)
		}
	}
	for _, op := range []faultfs.Op{faultfs.OpCreate, faultfs.OpRename, faultfs.OpWrite, faultfs.OpSync, faultfs.OpSyncDir} {
		if sites[op] == 0 {
			t.Errorf("no %s was hit: %v", op, sites)
		}
	}
}

// busy appends, flushes and rolls until something fails, and gives the ends of what was acknowledged and flushed.
func (b *bench) busy(t *testing.T) (acked, flushed wire.Offset) {
	t.Helper()
	for i := range 14 {
		v := b.validate(b.make(spec{n: 2, size: 60, producer: &batch.Producer{ID: 8, Sequence: int32(2 * i)}}))
		a, err := b.log.AppendAsLeader(v, wire.LeaderEpoch(i/5))
		if err == nil {
			acked = a.Last + 1
		} else if !errors.Is(err, ErrStorage) {
			t.Fatal(err)
		} else {
			break
		}
		if i%3 == 2 {
			if err := b.log.Flush(); err != nil {
				break
			}
			flushed = acked
		}
	}
	if b.log.EndOffset() != acked {
		t.Fatalf("log ends at %d, %d were acknowledged", b.log.EndOffset(), acked)
	}
	if n := len(b.offsets()); wire.Offset(2*n) != acked {
		t.Fatalf("%d batches can be read, %d records were acknowledged", n, acked)
	}
	return acked, flushed
}
