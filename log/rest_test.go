package log

import (
	"bytes"
	"errors"
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

// ticking is a clock that moves with every look at it, as file systems have.
func ticking() func() time.Time {
	now := epochZero
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

// stopped is a bench whose log was closed cleanly, with several segments, epochs and producers, and how it rests.
func stopped(t *testing.T, fs vfs.FS) (*bench, *Resting) {
	t.Helper()
	b := newBench(t, fs, func(c *Config) { c.SegmentBytes = 1200 })
	for i := range 12 {
		p := &batch.Producer{ID: wire.ProducerID(3 + i%2), Sequence: int32(i / 2 * 2)}
		if _, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 2, size: 100, producer: p})), wire.LeaderEpoch(i/4)); err != nil {
			t.Fatal(err)
		}
	}
	b.must(b.log.IncrementStart(3))
	b.must(b.log.Close())
	r := b.log.Resting()
	if r == nil || len(r.Segments) < 2 || !r.Unchanged(b.fs, b.dir) {
		t.Fatalf("%+v", r)
	}
	return b, r
}

// rest opens the log as it rests.
func (b *bench) rest(r *Resting) {
	b.log, b.rec = Rest(b.options(true, r.End), r), Recovery{}
}

// A log that rests answers what a broker asks of every log at a start, while it idles and at a stop, without a file, and
// exactly as one that was opened does. Its first use opens it.
func TestRestingLogTouchesNoFile(t *testing.T) {
	faults := faultfs.New(memfs.New(ticking()))
	b, r := stopped(t, faults)
	o := b.options(true, r.End)
	o.LogStartOffset = r.Start
	opened, _, err := Open(t.Context(), o)
	b.must(err)
	b.rest(r)
	l := b.log
	for _, led := range []bool{false, true} {
		if led {
			b.must(opened.AssignEpochStart(7, 24))
			b.must(l.AssignEpochStart(5, 24))
			b.must(l.AssignEpochStart(7, 24))
		}
		for _, e := range []wire.LeaderEpoch{2, 3, 6, 7, 8} {
			b.must(l.WakeForEpoch(e))
			ge, go_, gok := l.EndOffsetForEpoch(e)
			if we, wo, wok := opened.EndOffsetForEpoch(e); ge != we || go_ != wo || gok != wok {
				t.Fatalf("epoch %d is %d, ends at %d, %v, want %d, %d, %v", e, ge, go_, gok, we, wo, wok)
			}
		}
		for _, q := range []struct {
			what string
			ask  func(l *Log) any
		}{
			{"start", func(l *Log) any { return l.StartOffset() }},
			{"end", func(l *Log) any { return l.EndOffset() }},
			{"flushed", func(l *Log) any { return l.FlushedOffset() }},
			{"size", func(l *Log) any { return l.Size() }},
			{"sealed size", func(l *Log) any { return l.SealedSize() }},
			{"segments", func(l *Log) any { return l.Segments() }},
			{"segment of 9", func(l *Log) any { return l.SegmentBase(9) }},
			{"segment of the end", func(l *Log) any { return l.SegmentBase(24) }},
			{"latest epoch", func(l *Log) any { return l.LatestEpoch() }},
			{"epoch at 20", func(l *Log) any { return l.EpochAt(20) }},
			{"transaction", func(l *Log) any { return l.InTransaction(3, 0) }},
			{"oldest transaction", func(l *Log) any { _, ok := l.OldestTransaction(); return ok }},
			{"unstable", func(l *Log) any { _, ok := l.FirstUnstableOffset(); return ok }},
			{"ends pending", func(l *Log) any { return l.EndsPending(24) }},
			{"idle", func(l *Log) any { return l.Idle() }},
			{"flush wanted", func(l *Log) any { return l.NeedsFlush(b.now.Add(time.Hour)) }},
			{"error", func(l *Log) any { return l.Err() }},
		} {
			before := faults.Calls("")
			got := q.ask(l)
			if n := faults.Calls("") - before; n > 0 {
				t.Fatalf("%s: %d calls", q.what, n)
			}
			if want := q.ask(opened); got != want {
				t.Fatalf("led %v: %s is %v, want %v", led, q.what, got, want)
			}
		}
	}
	calls := faults.Calls("")
	b.must(l.Flush())
	l.Replicated(24)
	if n, err := l.DeleteOld(b.now.Add(time.Minute), 24); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n := l.ExpireProducers(b.now); n != 0 {
		t.Fatal(n)
	}
	b.must(l.Complete())
	l.Durable()
	b.must(l.Close())
	if l.Resting() != r {
		t.Fatal("a log that was not used does not rest as it did")
	}
	if n := faults.Calls("") - calls; n > 0 {
		t.Fatalf("%d calls", n)
	}
	if _, err := l.Read(9, ReadOptions{Max: 1, End: 24, MinOne: true}); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}

	want := opened
	b.rest(r)
	b.must(b.log.AssignEpochStart(7, 24))
	got, woken := b.bytes(3), b.log
	b.log = want
	if !bytes.Equal(got, b.bytes(3)) {
		t.Fatal("other bytes")
	}
	b.log = woken
	b.wantEpochs("awake", "0\n3\n0 3\n1 8\n2 16\n", epochEntry{0, 3}, epochEntry{1, 8}, epochEntry{2, 16}, epochEntry{7, 24})
	if n := len(b.log.Producers()); n != 2 {
		t.Fatalf("%d producers", n)
	}
	p := &batch.Producer{ID: 3, Sequence: 10} // the newest of producer 3 again
	if a := b.append(spec{n: 2, size: 100, producer: p}); !a.Duplicate {
		t.Fatalf("%+v", a)
	}
	if a := b.append(spec{n: 1}); a.First != 24 {
		t.Fatalf("%+v", a)
	}
	b.must(b.log.Close())
	if again := b.log.Resting(); again == r || r.Unchanged(b.fs, b.dir) || !again.Unchanged(b.fs, b.dir) || again.End != 25 {
		t.Fatalf("%+v", again)
	}
}

// Retention finds what is due in a log that rests, and opens no other one.
func TestRetentionOfRestingLogs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(c *Config)
		later  time.Duration
		goes   bool
	}{
		{"nothing", func(*Config) {}, 0, false},
		{"young", func(c *Config) { c.RetentionAge = time.Hour }, time.Minute, false},
		{"old", func(c *Config) { c.RetentionAge = time.Hour }, 2 * time.Hour, true},
		{"old, compacted only", func(c *Config) { c.RetentionAge, c.Delete = time.Hour, false }, 2 * time.Hour, false},
		{"small", func(c *Config) { c.RetentionBytes = 1 << 20 }, 0, false},
		{"large", func(c *Config) { c.RetentionBytes = 1000 }, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, r := stopped(t, memfs.New(ticking()))
			tt.change(&b.config)
			b.rest(r)
			n, err := b.log.DeleteOld(b.now.Add(time.Minute+tt.later), r.End)
			if err != nil || n > 0 != tt.goes || b.log.resting.Load() == nil != tt.goes {
				t.Fatalf("%d segments, %v", n, err)
			}
		})
	}
}

// What was done to a directory by hand is noticed before a log of it is taken as it rested.
func TestChangedDirectoryDoesNotRest(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench, r *Resting) error
	}{
		{"a leftover", func(b *bench, _ *Resting) error { return writeUnsynced(b.fs, b.dir+"/x.swap", nil) }},
		{"an index removed", func(b *bench, _ *Resting) error { return b.fs.Remove(b.dir + "/00000000000000000000.index") }},
		{"the epochs replaced", func(b *bench, _ *Resting) error { return writeUnsynced(b.fs, b.dir+"/"+epochFile, []byte("0\n0\n")) }},
		{"a segment removed", func(b *bench, _ *Resting) error { return b.fs.Remove(b.dir + "/00000000000000000000.log") }},
		{"the directory renamed away", func(b *bench, _ *Resting) error { return b.fs.Rename(b.dir, b.dir+"x") }},
		{"a segment cut", func(b *bench, r *Resting) error { return b.overwrite(r.active().Base, -1) }},
		{"a segment written to in place", func(b *bench, r *Resting) error { return b.overwrite(r.Segments[0].Base, 0) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, r := stopped(t, memfs.New(ticking()))
			b.must(tt.do(b, r))
			if r.Unchanged(b.fs, b.dir) {
				t.Fatal("not noticed")
			}
		})
	}
}

// overwrite writes the first byte of a segment again, and cuts its file by so many bytes.
func (b *bench) overwrite(base wire.Offset, by int64) error {
	name := b.dir + "/" + fileName(base, suffixLog)
	f, err := b.fs.OpenRW(name)
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		_, err = f.WriteAt([]byte{0}, 0)
	}
	if err == nil && by != 0 {
		err = f.Truncate(size + by)
	}
	return errors.Join(err, f.Close())
}

// A log that was served as it rested, and is found to be another one when it is first used, refuses everything: what its
// readers were told is not cut off, and nothing on the disk is changed. Its stop is no clean one.
func TestRestingLogThatIsAnotherOne(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench, r *Resting) error
		want error
	}{
		{"shorter", func(b *bench, r *Resting) error { return b.overwrite(r.active().Base, -1) }, ErrCorrupt},
		{"a segment is gone", func(b *bench, r *Resting) error {
			return b.fs.Remove(b.dir + "/" + fileName(r.active().Base, suffixLog))
		}, ErrCorrupt},
		{"damaged, and its snapshot is gone", func(b *bench, r *Resting) error {
			return errors.Join(b.fs.Remove(b.dir+"/"+fileName(r.End, suffixSnapshot)), b.fs.Remove(b.dir+"/"+fileName(r.End, suffixWindow)),
				b.overwrite(r.active().Base, -400), b.overwrite(r.active().Base, 400))
		}, ErrCorrupt},
		{"of another topic", func(b *bench, _ *Resting) error {
			return writeUnsynced(b.fs, b.dir+"/"+metadataFile, encodeMetadata(wire.UUID{1}))
		}, ErrTopicID},
		{"of no topic", func(b *bench, _ *Resting) error { return writeUnsynced(b.fs, b.dir+"/"+metadataFile, []byte("x")) }, ErrCorrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, r := stopped(t, memfs.New(ticking()))
			b.rest(r)
			b.must(tt.do(b, r))
			seen := b.changes()
			l := Rest(b.options(true, r.End), r)
			if _, err := l.Read(9, ReadOptions{Max: 100, End: r.End, MinOne: true}); !errors.Is(err, tt.want) {
				t.Fatalf("read: %v", err)
			}
			if _, err := l.AppendAsLeader(b.validate(b.make(spec{n: 1})), 3); !errors.Is(err, tt.want) {
				t.Fatalf("append: %v", err)
			}
			if err := l.WakeForEpoch(0); !errors.Is(err, tt.want) || !errors.Is(err, ErrNotAsLeft) {
				t.Fatalf("epoch: %v", err)
			}
			if err := l.Close(); !errors.Is(err, tt.want) || l.Resting() != nil {
				t.Fatalf("close: %v", err)
			}
			for _, call := range *seen {
				if !strings.HasSuffix(call, suffixIndex) && !strings.HasSuffix(call, suffixTimeIndex) { // which are made from what is there
					t.Fatalf("the disk was changed: %v", *seen)
				}
			}
		})
	}
}

// A lack of descriptors at the first use passes, and leaves the log to rest.
func TestWakingPasses(t *testing.T) {
	b, r := stopped(t, memfs.New(ticking()))
	faults := faultfs.New(b.fs)
	b.fs = faults
	b.rest(r)
	faults.Add(faultfs.Rule{Op: faultfs.OpOpen, Err: syscall.EMFILE})
	if err := b.log.Wake(); !Passing(err) {
		t.Fatal(err)
	}
	if _, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 1})), 3); !Passing(err) {
		t.Fatal(err)
	}
	faults.Clear()
	if a := b.append(spec{n: 1}); a.First != r.End {
		t.Fatalf("%+v", a)
	}
}

// A log with an open transaction, or with one whose end the high watermark has not passed, does not rest: the LSO rests on it.
func TestTransactionsDoNotRest(t *testing.T) {
	b := newBench(t, memfs.New(ticking()), nil)
	b.append(spec{n: 1, txn: true, producer: &batch.Producer{ID: 3, Epoch: 1}})
	b.must(b.log.Close())
	if b.log.Resting() != nil {
		t.Fatal("it rests")
	}
	b.open(true, 1)
	b.marker(3, 1, false)
	b.log.Replicated(2)
	b.must(b.log.Close())
	r := b.log.Resting()
	b.rest(r)
	if got := b.log.AbortedTransactions(0, 2); len(got) != 1 || got[0].ProducerID != 3 {
		t.Fatalf("%+v", got)
	}
}
