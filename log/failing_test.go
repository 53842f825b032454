package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// cleanable fills a log with what a round of compaction has to deal with: keys written again, a tombstone, an aborted and a
// committed transaction, small segments that are joined.
func cleanable(t *testing.T, faults *faultfs.FS) *bench {
	t.Helper()
	b := newBench(t, faults, compacted)
	for i := range 24 {
		b.put(&batch.Producer{ID: 1, Sequence: int32(i)}, false, 0, pair(fmt.Sprint(i%5), fmt.Sprint("value ", i)))
	}
	b.put(&batch.Producer{ID: 7}, true, 0, pair("0", "aborted"))
	b.marker(7, 0, false)
	b.put(&batch.Producer{ID: 8}, true, 0, pair("1", "committed"), kv{key: "2"})
	b.marker(8, 0, true)
	b.must(b.log.Roll())
	b.put(nil, false, 0, pair("tail", "t"))
	b.must(b.log.Flush())
	b.config.SegmentBytes = 1300
	return b
}

// Each file call of a compaction fails once, for every n and whatever it is: nothing is lost for readers, at once and after
// a restart, and a log that is not out of service is compacted by the next round.
func TestCleanWhenAnyCallFails(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC, syscall.EMFILE} {
		t.Run(cause.Error(), func(t *testing.T) {
			sites, broken := map[faultfs.Op]int{}, 0
			for n := 1; ; n++ {
				mem := memfs.New(nil)
				faults := faultfs.New(mem)
				b := cleanable(t, faults)
				b.log.Replicated(b.log.EndOffset())
				want, producers, end := lasts(b.committed()), b.log.Producers(), b.log.EndOffset()
				plan, err := b.log.PlanClean(wire.NoOffset, b.stable(), b.now)
				b.must(err)
				rule := faults.Add(faultfs.Rule{Nth: n, Times: 1, Err: cause})
				_, err = b.log.Clean(context.Background(), plan, CleanOptions{Now: b.now, MapBytes: 1 << 20, BufferBytes: 4096})
				faults.Clear()
				hit := rule.Last()
				if rule.Hits() == 0 {
					b.must(err)
					if n < 40 || broken == 0 && errors.Is(cause, syscall.EIO) {
						t.Fatalf("only %d calls, %d of them final", n-1, broken)
					}
					t.Logf("%d calls: %v; %d took the log out of service", n-1, sites, broken)
					return
				}
				sites[hit]++
				where := fmt.Sprintf("call %d (%s)", n, hit)
				if err == nil && hit != faultfs.OpClose && hit != faultfs.OpStat {
					t.Fatalf("%s: the failure was passed over", where)
				}
				if got := lasts(b.committed()); !maps.Equal(got, want) {
					t.Fatalf("%s: table %v, want %v", where, got, want)
				}
				for seed, fate := range []memfs.Fate{memfs.Keep, memfs.Lose, memfs.Coin, memfs.Coin, memfs.Coin} {
					c := b.on(t, mem.Crash(fate, uint64(seed)))
					c.open(false, b.log.FlushedOffset())
					c.log.Replicated(c.log.EndOffset())
					if got := lasts(c.committed()); !maps.Equal(got, want) || c.log.EndOffset() != end {
						t.Fatalf("%s, crash %d: table %v, want %v; end %d", where, fate, got, want, c.log.EndOffset())
					}
					if ps := c.log.Producers(); !slices.EqualFunc(ps, producers, func(a, b ProducerState) bool {
						return a.ID == b.ID && a.LastSequence == b.LastSequence && a.TxnFirst == b.TxnFirst
					}) {
						t.Fatalf("%s: producers %v, want %v", where, ps, producers)
					}
				}
				if err := b.log.Err(); err != nil {
					if broken++; !final(cause, hit) {
						t.Fatalf("%s took the log out of service: %v", where, err)
					}
					continue
				}
				b.clean(wire.NoOffset)
				if got := lasts(b.committed()); !maps.Equal(got, want) {
					t.Fatalf("%s: compacted again: table %v, want %v", where, got, want)
				}
				b.put(nil, false, 0, pair("more", "m"))
				b.must(b.log.Close())
				b.open(true, b.log.EndOffset())
			}
		})
	}
}

// Each file call of a log's life fails once, for every n: an append that failed is not there, or was told to be unknown by
// taking the log out of service; what was flushed is there after a restart, reads go on meanwhile.
func TestLogWhenAnyCallFails(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC, syscall.EMFILE} {
		t.Run(cause.Error(), func(t *testing.T) {
			sites, broken := map[faultfs.Op]int{}, 0
			for n := 1; ; n++ {
				mem := memfs.New(nil)
				faults := faultfs.New(mem)
				l := &failingLife{bench: newBench(t, faults, func(c *Config) { c.SegmentBytes, c.RetentionAge = 600, -1 })}
				rule := faults.Add(faultfs.Rule{Nth: n, Times: 1, Err: cause})
				failed := l.run()
				faults.Clear()
				hit := rule.Last()
				if rule.Hits() == 0 {
					b := errors.Join(failed...)
					l.must(b)
					if n < 100 {
						t.Fatalf("only %d calls", n-1)
					}
					t.Logf("%d calls: %v; %d took the log out of service", n-1, sites, broken)
					return
				}
				sites[hit]++
				where := fmt.Sprintf("call %d (%s)", n, hit)
				l.check(where, l.bench, l.acked)
				if err := l.log.Err(); err != nil {
					if broken++; !final(cause, hit) {
						t.Fatalf("%s took the log out of service: %v", where, err)
					}
				}
				for _, fate := range []memfs.Fate{memfs.Keep, memfs.Lose} {
					c := l.on(t, mem.Crash(fate, 0))
					o := c.options(false, l.recoveryPoint)
					o.LogStartOffset = l.start
					var err error
					if c.log, c.rec, err = Open(context.Background(), o); err != nil {
						t.Fatalf("%s, crash %d: %v", where, fate, err)
					}
					l.check(where+fmt.Sprint(", crash ", fate), c, l.durable)
				}
			}
		})
	}
}

// failingLife appends, rolls, flushes, deletes, truncates and closes, and knows what must be there.
type failingLife struct {
	*bench
	acked, durable [][2]wire.Offset
	recoveryPoint  wire.Offset
	start          wire.Offset
}

func (l *failingLife) run() (failed []error) {
	note := func(err error) bool {
		if err != nil {
			failed = append(failed, err)
		}
		return err == nil
	}
	flush := func() {
		if note(l.log.Flush()) {
			l.durable, l.recoveryPoint = slices.Clone(l.acked), l.log.FlushedOffset()
		}
	}
	for i := range 20 {
		a, err := l.log.AppendAsLeader(l.validate(l.make(spec{n: 2, size: 60})), wire.LeaderEpoch(i/4))
		if note(err) {
			l.acked = append(l.acked, [2]wire.Offset{a.First, a.Last})
		}
		switch {
		case i%5 == 4:
			flush()
		case i == 12 && l.log.EndOffset() > 10:
			if note(l.log.IncrementStart(8)) {
				l.start = 8
			}
			_, err := l.log.DeleteOld(l.now, l.log.EndOffset())
			note(err)
			note(l.log.RemoveDeleted(l.now.Add(time.Hour)))
		case i == 17 && l.log.EndOffset() > 30:
			to := l.log.EndOffset() - 3
			note(l.log.TruncateTo(to))
			whole := func(o [2]wire.Offset) bool { return o[1] >= to }
			l.acked, l.durable = slices.DeleteFunc(l.acked, whole), slices.DeleteFunc(l.durable, whole)
			l.recoveryPoint = min(l.recoveryPoint, to-1)
		}
	}
	flush()
	return failed
}

// check wants every batch of want that the start has not passed, in order, and nothing that failed between them.
func (l *failingLife) check(where string, b *bench, want [][2]wire.Offset) {
	l.t.Helper()
	got := b.offsets()
	for _, w := range want {
		if w[1] >= max(l.start, b.log.StartOffset()) && !slices.Contains(got, w) {
			l.t.Fatal(fmt.Sprintf("%s: batch %v is missing from %v", where, w, got))
		}
	}
}
