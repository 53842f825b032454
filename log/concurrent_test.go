package log

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// D11, D14: readers against appends, flushes, retention and truncation. A reader gets whole batches with a valid checksum
// that hold what it asked for, unchanged for as long as it holds the range, and never an error but out of range.
func TestReadersAgainstEverything(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 3000; c.RetentionAge = -1; c.RetentionBytes = 12000 })
	var wg sync.WaitGroup
	var stop atomic.Bool
	raw := b.make(spec{n: 2, size: 100})
	v := b.validate(raw)
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				from, end := b.log.StartOffset(), b.log.EndOffset()
				from = (from + 3*end) / 4
				res, err := b.log.Read(from, ReadOptions{Max: 700, End: end, MinOne: true})
				if errors.Is(err, ErrOffsetOutOfRange) {
					continue
				}
				if err != nil {
					t.Errorf("read at %d: %v", from, err)
					return
				}
				for range 2 {
					if err := checkRange(res.Segments, from); err != nil {
						t.Errorf("read at %d: %v", from, err)
						stop.Store(true)
					}
				}
				wire.Release(res.Segments)
				if _, _, err := b.log.OffsetForTimestamp(epochZero.UnixMilli()+1, end); err != nil {
					t.Errorf("lookup: %v", err)
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			b.must(b.log.Flush())
		}
	})
	for i := range 1500 {
		if _, err := b.log.AppendAsLeader(v, wire.LeaderEpoch(i/100)); err != nil {
			t.Error(err)
			break
		}
		if i%100 == 60 {
			_, err := b.log.DeleteOld(b.now, b.log.EndOffset())
			b.must(err)
			b.must(b.log.RemoveDeleted(b.now.Add(time.Hour)))
		}
		if i%37 == 36 {
			b.must(b.log.TruncateTo(max(b.log.EndOffset()-7, b.log.StartOffset()+1)))
		}
	}
	stop.Store(true)
	wg.Wait()
	b.must(b.log.Close())
	b.open(true, b.log.EndOffset())
}

// checkRange verifies that a range begins with the batch that holds from and is made of valid batches.
func checkRange(segs []wire.Segment, from wire.Offset) error {
	for _, seg := range segs {
		buf := make([]byte, seg.Len)
		if _, err := seg.File.ReadAt(buf, seg.Off); err != nil {
			return err
		}
		first := true
		for {
			x, rest, err := batch.Next(buf)
			if errors.Is(err, batch.ErrShort) {
				break
			}
			if err == nil {
				err = x.CheckCRC()
			}
			if err != nil {
				return err
			}
			if first && (x.BaseOffset() > from || x.LastOffset() < from) {
				return errors.New("the first batch does not hold the offset")
			}
			first, buf = false, rest
		}
	}
	return nil
}

func TestRollByAge(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentAge = time.Second; c.TimestampAfterMax = Forever })
	base := epochZero.UnixMilli()
	steps := []struct {
		ts   int64
		roll bool
	}{{0, false}, {1000, false}, {1001, true}, {1500, false}, {500, false}, {2002, true}}
	for _, s := range steps {
		if a := b.append(spec{n: 1, ts: base + s.ts}); a.Rolled != s.roll {
			t.Errorf("timestamp +%d: rolled %v, want %v", s.ts, a.Rolled, s.roll)
		}
	}
	// Without timestamps the clock counts.
	c := newBench(t, nil, func(c *Config) { c.SegmentAge = time.Second })
	c.append(spec{n: 1, ts: -1})
	c.now = c.now.Add(time.Second)
	if a := c.append(spec{n: 1, ts: -1}); a.Rolled {
		t.Error("rolled too early")
	}
	c.now = c.now.Add(time.Millisecond)
	if a := c.append(spec{n: 1, ts: -1}); !a.Rolled {
		t.Error("did not roll")
	}
}

func TestJitterSpreads(t *testing.T) {
	b := newBench(t, nil, nil)
	seen := map[time.Duration]bool{}
	for base := range wire.Offset(50) {
		j := b.log.jitter(base, time.Hour)
		if j < 0 || j >= time.Hour || j != b.log.jitter(base, time.Hour) {
			t.Fatalf("jitter %v", j)
		}
		seen[j] = true
	}
	if len(seen) < 45 || b.log.jitter(1, 0) != 0 {
		t.Fatalf("%d different jitters of 50", len(seen))
	}
}

func TestRollByIndexAndOffsets(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.IndexIntervalBytes = 0; c.SegmentIndexBytes = 48 }) // 6 offset, 4-1 time entries
	for i := range 5 {
		if a := b.append(spec{n: 1, ts: epochZero.UnixMilli() + int64(i)}); a.Rolled != (i == 4) {
			t.Fatalf("append %d: rolled %v", i, a.Rolled)
		}
	}
	far := b.make(spec{n: 1})
	batch.Batch(far).SetBaseOffset(4 + 1<<31)
	batch.Batch(far).SetLeaderEpoch(0)
	a, err := b.log.AppendAsFollower(far)
	if err != nil || !a.Rolled || b.log.SegmentBase(a.First) != 5 {
		t.Fatalf("append far away: %+v, %v", a, err)
	}
}

func TestFollowerAppend(t *testing.T) {
	leader := newBench(t, nil, nil)
	for i := range 5 {
		leader.append(spec{n: 2, size: 50, producer: &batch.Producer{ID: 1, Sequence: int32(2 * i)}})
	}
	data := leader.bytes(0)
	f := newBench(t, nil, nil)
	a, err := f.log.AppendAsFollower(append(data, data[:30]...)) // a trailing piece is normal
	if err != nil || a.First != 0 || a.Last != 9 || string(f.bytes(0)) != string(data) {
		t.Fatalf("%+v, %v", a, err)
	}
	if _, err := f.log.AppendAsFollower(data); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("overlap: %v", err)
	}
	data[len(data)-1] ^= 1
	g := newBench(t, nil, nil)
	if _, err := g.log.AppendAsFollower(data); !errors.Is(err, ErrCorrupt) || g.log.EndOffset() != 0 {
		t.Fatalf("damaged batch: %v, end %d", err, g.log.EndOffset())
	}
	if _, err := f.log.AppendAsLeader(f.validate(f.make(spec{n: 1, producer: &batch.Producer{ID: 1, Sequence: 99}})), 1); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Fatalf("the follower does not know the producer: %v", err)
	}
}

func TestNeedsFlush(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.FlushMessages = 3; c.FlushInterval = time.Minute; c.SegmentBytes = 1000 })
	check := func(want bool, after time.Duration, why string) {
		t.Helper()
		if got := b.log.NeedsFlush(b.now.Add(after)); got != want {
			t.Errorf("%s: %v", why, got)
		}
	}
	check(false, time.Hour, "empty")
	b.append(spec{n: 2})
	check(false, 0, "two records")
	check(true, time.Minute, "flush.ms")
	b.append(spec{n: 1})
	check(true, 0, "flush.messages")
	b.must(b.log.Flush())
	check(false, time.Hour, "flushed")
	b.append(spec{n: 1, size: 700})
	b.append(spec{n: 1, size: 700})
	check(true, 0, "a sealed segment waits")
}

// No record is below the flushed offset before the Sync that covers it.
func TestFlushedOffsetFollowsSync(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, nil)
	for i := range wire.Offset(10) {
		b.append(spec{n: 1})
		if b.log.FlushedOffset() != i {
			t.Fatalf("flushed %d before the sync of %d", b.log.FlushedOffset(), i)
		}
		syncs := mem.Syncs()
		b.must(b.log.Flush())
		size, err := mem.SyncedSize(b.dir + "/" + fileName(0, suffixLog))
		if err != nil || size != b.log.Size() || b.log.FlushedOffset() != i+1 {
			t.Fatalf("synced %d of %d, flushed %d, %v", size, b.log.Size(), b.log.FlushedOffset(), err)
		}
		if i > 0 && mem.Syncs()-syncs != 1 {
			t.Fatalf("a flush made %d syncs", mem.Syncs()-syncs)
		}
		b.must(b.log.Flush())
		if i > 0 && mem.Syncs()-syncs != 1 {
			t.Fatal("a flush without work made a sync")
		}
	}
}

func TestExpireProducers(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.ProducerIDExpiration = time.Hour })
	b.append(spec{n: 1, producer: &batch.Producer{ID: 1}})
	b.append(spec{n: 1, producer: &batch.Producer{ID: 2}, txn: true})
	if n := b.log.ExpireProducers(b.now.Add(time.Hour - time.Millisecond)); n != 0 {
		t.Fatalf("%d expired too early", n)
	}
	if n := b.log.ExpireProducers(b.now.Add(time.Hour)); n != 1 || b.log.Producers()[0].ID != 2 {
		t.Fatalf("%d expired", n)
	}
	// Any first sequence of an expired producer is taken.
	if a := b.append(spec{n: 1, producer: &batch.Producer{ID: 1, Sequence: 77}}); a.Duplicate {
		t.Fatalf("%+v", a)
	}
}
