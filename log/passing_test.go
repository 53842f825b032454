package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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

// A lack of space or of descriptors is not final, whatever call it hits and whatever stands beside it; a sync that finds no
// space, and anything else, is.
func TestPassing(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{storageErr("write", "f", syscall.ENOSPC), true},
		{storageErr("rename", "f", fmt.Errorf("wrapped: %w", syscall.EDQUOT)), true},
		{storageErr("open", "f", syscall.EMFILE), true},
		{storageErr("sync", "f", syscall.ENFILE), true},
		{storageErr("sync", "f", syscall.ENOSPC), false},
		{storageErr("sync directory of", "f", syscall.EDQUOT), false},
		{storageErr("write", "f", errors.Join(syscall.ENOSPC, vfs.Synced(syscall.ENOSPC))), false},
		{storageErr("write", "f", vfs.Synced(syscall.EMFILE)), true},
		{storageErr("write", "f", syscall.EIO), false},
		{storageErr("write", "f", syscall.EROFS), false},
		{errors.Join(storageErr("write", "f", syscall.ENOSPC), storageErr("truncate", "f", syscall.EIO)), false},
		{errors.Join(storageErr("write", "f", syscall.ENOSPC), storageErr("truncate", "f", syscall.EMFILE)), true},
		{fmt.Errorf("%w: %w", ErrClosed, storageErr("write", "f", syscall.ENOSPC)), false},
		{&CorruptError{File: "f"}, false},
	} {
		if got := Passing(c.err); got != c.want {
			t.Errorf("Passing(%v) = %v", c.err, got)
		}
	}
}

// final reports whether an error of a call may take a log out of service.
func final(cause error, op faultfs.Op) bool {
	return errors.Is(cause, syscall.EIO) || errors.Is(cause, syscall.ENOSPC) && (op == faultfs.OpSync || op == faultfs.OpSyncDir)
}

// D6, D7: each file call of a log's life with transactions, epochs, rolls, compaction, retention and a truncation finds no space,
// or no descriptor, once, for every n. Nothing that was refused is ever there, nothing acknowledged is lost, and but for a
// failed sync the log takes records again without being opened anew, and is compacted.
func TestLogGoesOnWhenSpaceIsBack(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE} {
		t.Run(cause.Error(), func(t *testing.T) {
			sites := map[faultfs.Op]int{}
			for n := 1; ; n++ {
				mem := memfs.New(func() time.Time { return epochZero })
				faults := faultfs.New(mem)
				l := newPassingLife(t, mem, faults)
				rule := faults.Add(faultfs.Rule{Nth: n, Times: 1, Err: cause})
				failed := l.run()
				faults.Clear()
				hit := rule.Last()
				sites[hit]++
				where := fmt.Sprintf("call %d (%s)", n, hit)
				foul := slices.ContainsFunc(failed, func(err error) bool { return rule.Hits() == 0 || !Passing(err) })
				if foul != final(cause, hit) || l.log.Err() != nil && !foul {
					t.Fatalf("%s: %v; the log: %v", where, errors.Join(failed...), l.log.Err())
				}
				if foul { // the broker takes the directory out of service
					continue
				}
				l.goesOn(where)
				if rule.Hits() == 0 {
					if n < 150 {
						t.Fatalf("only %d calls", n-1)
					}
					t.Logf("%d calls: %v", n-1, sites)
					return
				}
			}
		})
	}
}

// passingLife is a log that is used in every way, and what must be in it.
type passingLife struct {
	*bench
	mem     *memfs.FS
	records []seen // committed ones
	failed  []error
}

func newPassingLife(t *testing.T, mem *memfs.FS, faults *faultfs.FS) *passingLife {
	return &passingLife{mem: mem, bench: newBench(t, faults, func(c *Config) {
		c.Compact, c.Delete, c.SegmentBytes = true, true, 700
		c.RetentionAge, c.RetentionBytes = -1, -1
	})}
}

// note keeps an error; it reports whether there was none.
func (l *passingLife) note(err error) bool {
	if err != nil {
		l.failed = append(l.failed, err)
	}
	return err == nil
}

// produce appends one record of an idempotent producer; what is refused is sent again as the next one, under its sequence.
func (l *passingLife) produce(i int) bool {
	r := pair(fmt.Sprint("k", i%7), fmt.Sprint("value ", i))
	seq := int32(len(slices.DeleteFunc(slices.Clone(l.records), func(s seen) bool { return strings.HasPrefix(s.key, "t") })))
	a, err := l.tryPut(&batch.Producer{ID: 1, Sequence: seq}, false, 0, wire.LeaderEpoch(i/5), r)
	if err == nil && a.Duplicate {
		l.t.Fatal("a refused record is there")
	}
	if l.note(err) {
		l.records = append(l.records, seen{offset: a.First, key: r.key, value: string(r.value)})
	}
	return err == nil
}

// transact appends a transaction; its marker is sent until it is taken, as a coordinator does.
func (l *passingLife) transact(i int, commit bool) {
	id := wire.ProducerID(100 + i)
	r := pair(fmt.Sprint("t", i%3), fmt.Sprint("value ", i))
	a, err := l.tryPut(&batch.Producer{ID: id}, true, 0, wire.LeaderEpoch(i/5), r)
	if !l.note(err) {
		return
	}
	for range 2 {
		if _, err = l.tryMarker(id, 0, commit); l.note(err) {
			break
		}
	}
	if err == nil && commit {
		l.records = append(l.records, seen{offset: a.First, key: r.key, value: string(r.value)})
	}
	l.log.Replicated(l.log.EndOffset())
}

func (l *passingLife) compact() {
	p, err := l.log.PlanClean(wire.NoOffset, l.stable(), l.now)
	if l.note(err) {
		_, err = l.log.Clean(context.Background(), p, CleanOptions{Now: l.now, MapBytes: 1 << 20, MapLoad: 0.9, BufferBytes: 4096})
		l.note(err)
	}
}

func (l *passingLife) retain(start wire.Offset) {
	l.note(l.log.IncrementStart(start))
	_, err := l.log.DeleteOld(l.now, l.log.EndOffset())
	l.note(err)
	l.note(l.log.RemoveDeleted(l.now.Add(time.Hour)))
}

// truncate takes the newest record, which is durable, away again, as often as it needs, with a reader that was promised it. When
// that has succeeded, no crash brings the record back.
func (l *passingLife) truncate() {
	l.note(l.log.Flush())
	to := l.records[len(l.records)-1].offset
	promised, err := l.log.Read(to, ReadOptions{Max: 1 << 20, End: l.log.EndOffset(), MinOne: true})
	if l.note(err) {
		defer wire.Release(promised.Segments)
	}
	for range 2 {
		if !l.note(l.log.TruncateTo(to)) {
			continue
		}
		c := l.on(l.t, l.mem.Crash(memfs.Lose, 0))
		c.open(false, l.log.FlushedOffset())
		if end := c.log.EndOffset(); end > to {
			l.t.Fatal("truncated to ", to, ", and after a crash the log ends at ", end)
		}
		break
	}
	if l.log.EndOffset() == to {
		l.records = l.records[:len(l.records)-1]
	}
}

func (l *passingLife) run() []error {
	for i := range 48 {
		l.produce(i)
		switch {
		case i%9 == 4:
			l.transact(i, i%2 == 0)
		case i%10 == 6:
			l.note(l.log.Flush())
		case i == 19 || i == 41:
			l.compact()
		case i == 25:
			l.retain(12)
		case i == 30 || i == 35:
			if l.produce(i) {
				l.truncate()
			}
		}
	}
	return l.failed
}

// goesOn uses the log when nothing fails any more, and compares it with what must be there, also after restarts.
func (l *passingLife) goesOn(where string) {
	l.t.Helper()
	l.failed = nil
	l.compare(where, l.bench)
	for i := range 4 {
		l.produce(100 + i)
	}
	l.transact(200, true)
	l.transact(201, false)
	l.must(l.log.Roll())
	l.compact()
	l.retain(l.log.StartOffset())
	l.must(l.log.Flush())
	l.must(errors.Join(l.failed...))
	l.compare(where+", healed", l.bench)
	names, err := l.mem.List(l.dir)
	l.must(err)
	if !tidy(names) {
		l.t.Fatal(fmt.Sprintf("%s leaves %v", where, names))
	}
	for seed, fate := range []memfs.Fate{memfs.Lose, memfs.Coin} {
		c := l.on(l.t, l.mem.Crash(fate, uint64(seed)))
		o := c.options(false, l.log.FlushedOffset())
		o.LogStartOffset = l.log.StartOffset()
		c.log, c.rec, err = Open(context.Background(), o)
		l.must(err)
		c.log.Replicated(c.log.EndOffset())
		l.compare(where+", after a crash", c)
	}
	l.must(l.log.Close())
	l.open(true, l.log.EndOffset())
	if l.rec.BytesRead != 0 {
		l.t.Fatal(fmt.Sprintf("%s: a clean start read %d bytes", where, l.rec.BytesRead))
	}
	l.log.Replicated(l.log.EndOffset())
	l.compare(where+", after a stop", l.bench)
}

func (l *passingLife) compare(where string, b *bench) {
	l.t.Helper()
	want := slices.DeleteFunc(slices.Clone(l.records), func(s seen) bool { return s.offset < b.log.StartOffset() })
	got := b.committed()
	byOffset := func(a, b seen) int { return cmp.Compare(a.offset, b.offset) }
	if !maps.Equal(lasts(got), lasts(want)) || !slices.IsSortedFunc(got, byOffset) {
		l.t.Fatal(fmt.Sprintf("%s: %v, want %v", where, lasts(got), lasts(want)))
	}
	for _, s := range got {
		if at, ok := slices.BinarySearchFunc(want, s, byOffset); !ok || want[at].value != s.value {
			l.t.Fatal(fmt.Sprintf("%s: %+v was not acknowledged", where, s))
		}
	}
}
