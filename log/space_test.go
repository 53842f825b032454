package log

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// D7: the disk fills up at every possible byte of appends, rolls, flushes; then space comes back. Nothing that was
// refused is ever there, nothing acknowledged is lost, and the log goes on without being opened again.
func TestDiskFullAtEveryByte(t *testing.T) {
	for space := int64(0); space < 3200; space += 23 {
		mem := memfs.New(nil)
		faults := faultfs.New(mem)
		b := newBench(t, faults, func(c *Config) { c.SegmentBytes = 500 })
		var want []byte
		refused := 0
		step := func(epoch int) {
			v := b.validate(b.make(spec{n: 2, size: 60, producer: &batch.Producer{ID: 8, Sequence: int32(b.log.EndOffset())}}))
			end := b.log.EndOffset()
			a, err := b.log.AppendAsLeader(v, wire.LeaderEpoch(epoch))
			switch {
			case err == nil && a.First == end:
				want = append(want, v.Batch...)
			case errors.Is(err, ErrDiskFull):
				refused++
			default:
				t.Fatalf("space %d: %+v, %v", space, a, err)
			}
			if err := b.log.Flush(); err != nil && !errors.Is(err, ErrDiskFull) {
				t.Fatalf("space %d: flush: %v", space, err)
			}
		}
		step(0)
		faults.SetSpace(space)
		for i := range 12 {
			step(i / 4)
		}
		faults.SetSpace(-1)
		for range 5 {
			step(4)
		}
		if refused == 0 && space < 1000 {
			t.Fatalf("space %d: nothing was refused", space)
		}
		if got := b.bytes(0); !bytes.Equal(got, want) || b.log.Err() != nil {
			t.Fatalf("space %d: other bytes, or %v", space, b.log.Err())
		}
		for _, clean := range []bool{false, true} {
			c := b
			if clean {
				b.must(b.log.Close())
			} else {
				c = b.on(t, mem.Crash(memfs.Lose, 0))
			}
			c.open(clean, b.log.FlushedOffset())
			if got := c.bytes(0); !bytes.Equal(got, want) {
				t.Fatalf("space %d, clean %v: other bytes after a start", space, clean)
			}
		}
	}
}

// A window file of another snapshot, or a damaged one, means what Kafka knows: the newest batch alone.
func TestWindowIsBoundToItsSnapshot(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(window []byte) []byte
		dup    bool
	}{
		{"untouched", func(w []byte) []byte { return w }, true},
		{"damaged", func(w []byte) []byte { w[40] ^= 1; return w }, false},
		{"cut short", func(w []byte) []byte { return w[:len(w)-3] }, false},
		{"empty", func([]byte) []byte { return nil }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			mem := memfs.New(nil)
			b := newBench(t, mem, nil)
			for i := range 6 {
				b.append(spec{n: 1, producer: &batch.Producer{ID: 5, Sequence: int32(i)}})
			}
			b.must(b.log.Close())
			name := b.dir + "/" + fileName(6, suffixWindow)
			window, err := vfs.ReadFile(mem, name)
			b.must(err)
			b.must(vfs.WriteAtomic(mem, name, c.change(window)))
			b.open(true, 6)
			if a := b.append(spec{n: 1, producer: &batch.Producer{ID: 5, Sequence: 5}}); !a.Duplicate || a.First != 5 {
				t.Fatalf("retry of the newest batch: %+v", a)
			}
			a, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 1, producer: &batch.Producer{ID: 5, Sequence: 2}})), 0)
			if (err == nil && a.Duplicate) != c.dup {
				t.Fatalf("retry of an older batch: %+v, %v", a, err)
			}
		})
	}
	t.Run("of another snapshot", func(t *testing.T) {
		ps, other := newProducers(6), newProducers(6)
		for i := range wire.Offset(6) {
			ps.add(&header{base: i, last: i, producerID: 5, baseSequence: int32(i)})
			other.add(&header{base: i, last: i, producerID: 5, baseSequence: int32(i), maxTime: 9})
		}
		snapshot := encodeSnapshot(ps)
		loaded, err := decodeSnapshot("x", snapshot, 6)
		if err != nil {
			t.Fatal(err)
		}
		if applyWindow(loaded, encodeWindow(other, encodeSnapshot(other)), snapshot) {
			t.Fatal("the window of another snapshot was used")
		}
		if !applyWindow(loaded, encodeWindow(ps, snapshot), snapshot) || loaded.byID[5].n != windowSize {
			t.Fatal("its own window was not used")
		}
	})
}

// X6: a flush that cannot open a file for want of descriptors, whichever file it is, leaves all its work to the next one.
func TestFlushWithoutDescriptors(t *testing.T) {
	run := func(nth int) (hits, syncs int) {
		mem := memfs.New(nil)
		faults := faultfs.New(mem)
		b := newBench(t, faults, func(c *Config) { c.SegmentBytes = 500 })
		var want []byte
		for i := range 12 {
			v := b.validate(b.make(spec{n: 2, size: 60, producer: &batch.Producer{ID: 8, Sequence: int32(2 * i)}}))
			if _, err := b.log.AppendAsLeader(v, wire.LeaderEpoch(i/4)); err != nil {
				t.Fatal(err)
			}
			want = append(want, v.Batch...)
		}
		rule := faults.Add(faultfs.Rule{Op: faultfs.OpOpen, Nth: max(nth, 1), Times: 1, Err: syscall.EMFILE})
		before := faults.Calls(faultfs.OpSync) + faults.Calls(faultfs.OpSyncDir)
		if nth == 0 {
			faults.Clear()
		} else if err := b.log.Flush(); rule.Hits() > 0 {
			if !errors.Is(err, ErrExhausted) || b.log.Err() != nil || b.log.FlushedOffset() == b.log.EndOffset() {
				t.Fatalf("open %d: %v, log %v, flushed to %d", nth, err, b.log.Err(), b.log.FlushedOffset())
			}
			faults.Clear()
		}
		b.must(b.log.Flush())
		syncs = faults.Calls(faultfs.OpSync) + faults.Calls(faultfs.OpSyncDir) - before
		c := b.on(t, mem.Crash(memfs.Lose, 0))
		c.open(false, b.log.FlushedOffset())
		if got := c.bytes(0); !bytes.Equal(got, want) {
			t.Fatalf("open %d: %d bytes after a crash, want %d", nth, len(got), len(want))
		}
		return rule.Hits(), syncs
	}
	_, all := run(0)
	for nth := 1; ; nth++ {
		hits, syncs := run(nth)
		if hits == 0 {
			if nth < 3 {
				t.Fatalf("the flush opened %d files", nth-1)
			}
			return
		}
		if syncs < all {
			t.Errorf("open %d: %d syncs in both flushes, an undisturbed one does %d", nth, syncs, all)
		}
	}
}
