package log

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// D1: a tail cut at every byte of the last three batches, and zeros instead of the rest: exactly the whole valid batches
// remain, and the log goes on from there.
func TestTornTailAtEveryByte(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, nil)
	var ends []int64 // file position after each batch
	for i := range 6 {
		b.append(spec{n: 1 + i%3, size: 10 * i, producer: &batch.Producer{ID: 3, Sequence: int32(b.log.EndOffset())}})
		ends = append(ends, b.log.Size())
	}
	offsets := b.offsets()
	b.must(b.log.Flush())
	whole, err := vfs.ReadFile(mem, b.dir+"/00000000000000000000.log")
	b.must(err)
	for cut := ends[2]; cut < ends[5]; cut++ {
		keep := 0
		for keep < len(ends) && ends[keep] <= cut {
			keep++
		}
		for _, zero := range []bool{false, true} {
			c := b.on(t, mem.Crash(memfs.Keep, 0))
			data := append(slices.Clone(whole[:cut]), make([]byte, len(whole)-int(cut))...)
			if !zero {
				data = data[:cut]
			}
			want := keep
			for zero && want < len(ends) && bytes.Equal(data[ends[max(want-1, 0)]:ends[want]], whole[ends[max(want-1, 0)]:ends[want]]) {
				want++ // what was cut off was zeros anyway
			}
			f, err := c.fs.Create(c.dir + "/00000000000000000000.log")
			c.must(err)
			_, err = f.WriteAt(data, 0)
			c.must(err)
			c.must(f.Close())
			c.open(false, 0)
			if got := c.offsets(); !slices.Equal(got, offsets[:want]) {
				t.Fatalf("cut at %d, zeros %v: batches %v, want %v", cut, zero, got, offsets[:want])
			}
			if c.rec.BytesRead > int64(len(data))+headerSize*2 || c.rec.BytesTruncated != int64(len(data))-ends[want-1] {
				t.Fatalf("cut at %d, zeros %v: %+v", cut, zero, c.rec)
			}
			if a := c.append(spec{n: 1}); a.First != offsets[want-1][1]+1 {
				t.Fatalf("cut at %d: append went to %d", cut, a.First)
			}
		}
	}
}

// Recovery reads only what may lie beyond the recovery point.
func TestRecoveryReadsAboveTheRecoveryPoint(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, func(c *Config) { c.SegmentBytes = 1000 })
	for range 40 {
		b.append(spec{n: 2, size: 100})
	}
	b.must(b.log.Flush())
	c := b.on(t, mem.Crash(memfs.Lose, 0))
	c.open(false, b.log.FlushedOffset())
	if c.rec.BytesRead > 1000 || c.rec.BytesTruncated != 0 || c.log.EndOffset() != 80 {
		t.Fatalf("%+v, end %d", c.rec, c.log.EndOffset())
	}
	if !bytes.Equal(b.bytes(0), c.bytes(0)) {
		t.Fatal("bytes differ")
	}
}

// model is what a crash may leave: at least the flushed prefix, at most everything, always a prefix of one history.
type model struct {
	batches [][]byte // as stored
	ends    []wire.Offset
	flushed int // so many batches are durable
	start   wire.Offset
}

func (m *model) check(t *testing.T, where string, c *bench, alsoLonger ...[]byte) {
	t.Helper()
	history := append(slices.Clone(m.batches), alsoLonger...)
	got := 0
	var prev wire.Offset
	err := c.log.Scan(c.log.StartOffset(), c.log.EndOffset(), func(x batch.Batch) error {
		for got < len(history) && batch.Batch(history[got]).BaseOffset() < x.BaseOffset() {
			if batch.Batch(history[got]).LastOffset() >= c.log.StartOffset() {
				return fmt.Errorf("batch at %d is missing", batch.Batch(history[got]).BaseOffset())
			}
			got++
		}
		if got == len(history) || !bytes.Equal(history[got], x) {
			return fmt.Errorf("batch at %d was never written so", x.BaseOffset())
		}
		prev = x.LastOffset()
		got++
		return nil
	})
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if m.flushed > 0 && c.log.EndOffset() < m.ends[m.flushed-1] {
		t.Fatalf("%s: the log ends at %d (batch %d), %d was flushed", where, c.log.EndOffset(), prev, m.ends[m.flushed-1])
	}
}

// D8: a crash between every two calls of the file system while the log appends, rolls, flushes, deletes, truncates and
// checkpoints. Whatever the crash keeps of what was not synced, the log opens, holds a prefix of what was written that
// covers what was flushed, and goes on.
func TestCrashBetweenEveryTwoCalls(t *testing.T) {
	mem := memfs.New(func() time.Time { return epochZero })
	faults := faultfs.New(mem)
	b := newBench(t, faults, func(c *Config) { c.SegmentBytes = 700; c.RetentionAge = -1 })
	m := &model{}
	var inFlight []byte
	points := 0
	faults.Before(func(op faultfs.Op, name string) {
		points++
		for seed := range uint64(4) {
			for _, fate := range []memfs.Fate{memfs.Coin, memfs.Lose, memfs.Keep}[:1+2*min(seed^1, 1)] {
				where := fmt.Sprintf("point %d (%s %s), fate %d, seed %d", points, op, name, fate, seed)
				c := b.on(t, mem.Crash(fate, seed))
				flushed := wire.Offset(0)
				if m.flushed > 0 {
					flushed = m.ends[m.flushed-1]
				}
				o := c.options(false, flushed)
				o.LogStartOffset = m.start
				l, _, err := Open(context.Background(), o)
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				c.log = l
				var more [][]byte
				if inFlight != nil {
					more = append(more, inFlight)
				}
				m.check(t, where, c, more...)
				end := c.log.EndOffset()
				if a := c.append(spec{n: 1}); a.First != end {
					t.Fatalf("%s: append went to %d, want %d", where, a.First, end)
				}
				c.must(c.log.Close())
			}
		}
	})
	step := func(i int) {
		raw := b.make(spec{n: 2, size: 60, producer: &batch.Producer{ID: 8, Sequence: int32(2 * i)}})
		inFlight = slices.Clone(raw)
		batch.Batch(inFlight).SetBaseOffset(b.log.EndOffset())
		batch.Batch(inFlight).SetLeaderEpoch(wire.LeaderEpoch(i / 5))
		_, err := b.log.AppendAsLeader(b.validate(raw), wire.LeaderEpoch(i/5))
		b.must(err)
		m.batches, m.ends = append(m.batches, inFlight), append(m.ends, b.log.EndOffset())
		inFlight = nil
	}
	for i := range 18 {
		step(i)
		if i%4 == 3 {
			b.must(b.log.Flush())
			m.flushed = len(m.batches)
		}
		if i == 11 {
			b.must(b.log.IncrementStart(9))
			m.start = 9
			_, err := b.log.DeleteOld(b.now, b.log.EndOffset())
			b.must(err)
			b.must(b.log.RemoveDeleted(b.now.Add(time.Hour)))
		}
	}
	// While it truncates, either state may be found; what was flushed below the cut stays.
	cut := len(m.batches) - 4
	m.flushed = min(m.flushed, cut)
	b.must(b.log.TruncateTo(m.ends[cut-1]))
	b.must(b.log.Flush())
	m.batches, m.ends, m.flushed = m.batches[:cut], m.ends[:cut], cut
	step(cut)
	b.must(b.log.Close())
	if points < 100 {
		t.Fatalf("only %d crash points", points)
	}
	t.Logf("%d crash points", points)
}
