package log

import (
	"slices"
	"strings"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// changes gives the log a file system that notes every call which changes the disk, from the next opening on.
func (b *bench) changes() *[]string {
	faults, seen := faultfs.New(b.fs), new([]string)
	faults.Before(func(op faultfs.Op, name string) {
		if op != faultfs.OpMkdir { // of a directory that is there
			*seen = append(*seen, string(op)+" "+name)
		}
	})
	b.fs = faults
	return seen
}

func (b *bench) lead(epoch wire.LeaderEpoch) {
	b.t.Helper()
	b.must(b.log.AssignEpochStart(epoch, b.log.EndOffset()))
}

func (b *bench) appendIn(epoch wire.LeaderEpoch) {
	b.t.Helper()
	if _, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 3})), epoch); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) wantEpochs(when string, file string, want ...epochEntry) {
	b.t.Helper()
	for i, e := range want {
		end := b.log.EndOffset()
		if i+1 < len(want) {
			end = want[i+1].start
		}
		if got, at, ok := b.log.EndOffsetForEpoch(e.epoch); !ok || got != e.epoch || at != end {
			b.t.Fatal(when, ": epoch ", e.epoch, " is ", got, " and ends at ", at, ", want ", end)
		}
	}
	if got := b.log.LatestEpoch(); got != want[len(want)-1].epoch {
		b.t.Fatal(when, ": latest epoch ", got)
	}
	data, err := vfs.ReadFile(b.fs, b.dir+"/"+epochFile)
	if err != nil || string(data) != file {
		b.t.Fatal(when, ": the checkpoint holds ", strings.ReplaceAll(string(data), "\n", "|"), err)
	}
}

// A leader knows its epoch before it has appended anything, and the checkpoint file from the first record on: what it holds
// of an epoch without records, a start drops. So an idle partition that is led anew after each start writes nothing.
func TestEpochWithoutRecordsIsNotWritten(t *testing.T) {
	b := newBench(t, memfs.New(nil), nil)
	b.appendIn(4)
	b.must(b.log.Close())
	seen := b.changes()
	for epoch := wire.LeaderEpoch(5); epoch < 8; epoch++ {
		b.open(true, 3)
		b.wantEpochs("after a start", "0\n1\n4 0\n", epochEntry{4, 0})
		b.lead(epoch)
		b.wantEpochs("with a leader", "0\n1\n4 0\n", epochEntry{4, 0}, epochEntry{epoch, 3})
		if !b.log.Idle() {
			t.Fatal("a log to which nothing was appended has something to write")
		}
		b.must(b.log.Close())
	}
	if len(*seen) > 0 {
		t.Fatalf("three starts and stops without a record changed the disk: %v", *seen)
	}
	b.open(true, 3)
	b.lead(8)
	b.appendIn(8)
	b.wantEpochs("with records that are not flushed", "0\n1\n4 0\n", epochEntry{4, 0}, epochEntry{8, 3})
	b.must(b.log.Flush())
	b.wantEpochs("with records", "0\n2\n4 0\n8 3\n", epochEntry{4, 0}, epochEntry{8, 3})
	b.lead(9)
	b.lead(10)
	b.must(b.log.TruncateTo(6))
	b.wantEpochs("cut at the end", "0\n2\n4 0\n8 3\n", epochEntry{4, 0}, epochEntry{8, 3})
	b.lead(11)
	b.must(b.log.TruncateTo(3))
	b.wantEpochs("cut", "0\n1\n4 0\n", epochEntry{4, 0})
	b.lead(12)
	b.must(b.log.IncrementStart(3)) // what is left of the epochs is where the log ends, as in Kafka
	b.wantEpochs("emptied", "0\n1\n12 3\n", epochEntry{12, 3})
	b.lead(13)
	b.wantEpochs("emptied and led", "0\n1\n12 3\n", epochEntry{13, 3})
	b.must(b.log.TruncateTo(3)) // by a follower that goes on in an older epoch: the file must not lie about what follows
	b.appendIn(1)
	b.must(b.log.Flush())
	b.wantEpochs("filled again", "0\n1\n1 3\n", epochEntry{1, 3})
	b.must(b.log.Close())
	o := b.options(true, 6)
	o.LogStartOffset = 3
	l, _, err := Open(t.Context(), o)
	b.must(err)
	b.log = l
	b.wantEpochs("in the end", "0\n1\n1 3\n", epochEntry{1, 3})
}

// The first record of a leader epoch costs no other call than the next one: the epoch is in its batch, and the recovery point stays
// there until the checkpoint file holds it, durably, after the next roll. Whatever a crash leaves of the file, the epochs are the same.
func TestFirstRecordOfAnEpochWaitsForNoCheckpoint(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, nil)
	b.appendIn(4)
	b.must(b.log.Close())
	seen := b.changes()
	b.open(true, 3)
	segment := b.dir + "/00000000000000000000.log"
	for _, epoch := range []wire.LeaderEpoch{5, 5, 6} {
		*seen = nil
		if epoch > b.log.LatestEpoch() {
			b.lead(epoch)
		}
		b.appendIn(epoch)
		b.must(b.log.FlushRecords())
		if want := []string{"write " + segment, "sync " + segment}; !slices.Equal(*seen, want) {
			t.Fatalf("epoch %d: %v, want %v", epoch, *seen, want)
		}
	}
	check := func(when string, point wire.Offset) {
		t.Helper()
		if b.log.FlushedOffset() != b.log.EndOffset() || b.log.RecoveryPoint() != point {
			t.Fatalf("%s: flushed to %d of %d, recovery point %d, want %d", when, b.log.FlushedOffset(), b.log.EndOffset(), b.log.RecoveryPoint(), point)
		}
		for _, fate := range []memfs.Fate{memfs.Lose, memfs.Keep, memfs.Coin} {
			c := b.on(t, mem.Crash(fate, 1))
			c.open(false, point)
			if c.log.EndOffset() != b.log.EndOffset() || c.log.RecoveryPoint() != c.log.EndOffset() {
				t.Fatalf("%s: fate %d: end %d, recovery point %d", when, fate, c.log.EndOffset(), c.log.RecoveryPoint())
			}
			c.wantEpochs(when, "0\n3\n4 0\n5 3\n6 9\n", epochEntry{4, 0}, epochEntry{5, 3}, epochEntry{6, 9})
		}
	}
	check("flushed", 3)
	for _, whole := range []bool{true, false} { // of which the file system is synced as a whole, or not
		disk := mem.Crash(memfs.Keep, 1)
		c := b.on(t, disk)
		seen := c.changes()
		o := c.options(false, 3)
		o.DeferSync = true
		l, _, err := Open(t.Context(), o)
		b.must(err)
		c.log = l
		for _, call := range *seen {
			if strings.Contains(call, epochFile) {
				t.Fatalf("a start wrote the checkpoint: %v", *seen)
			}
		}
		if whole {
			v, err := disk.Volume(c.dir)
			b.must(err)
			b.must(v.Sync())
			l.Durable()
		} else {
			b.must(l.Flush())
		}
		want := map[bool]wire.Offset{true: 3, false: 12}[whole]
		if l.FlushedOffset() != 12 || l.RecoveryPoint() != want {
			t.Fatalf("whole %v: flushed to %d, recovery point %d, want %d", whole, l.FlushedOffset(), l.RecoveryPoint(), want)
		}
		again := b.on(t, disk.Crash(memfs.Lose, 1))
		again.open(false, l.RecoveryPoint())
		again.wantEpochs("crashed again", "0\n3\n4 0\n5 3\n6 9\n", epochEntry{4, 0}, epochEntry{5, 3}, epochEntry{6, 9})
		b.must(l.Close())
		c.open(true, 12)
		c.wantEpochs("stopped", "0\n3\n4 0\n5 3\n6 9\n", epochEntry{4, 0}, epochEntry{5, 3}, epochEntry{6, 9})
	}
	b.must(b.log.Roll())
	if got := b.log.RecoveryPoint(); got != 3 {
		t.Fatalf("rolled: recovery point %d", got)
	}
	b.appendIn(6)
	b.must(b.log.FlushRecords())
	check("flushed after a roll", 15)
}

// A start after a crash reads everything above the recovery point again, and writes nothing of it that is there already.
func TestRecoveryLeavesWhatIsRight(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, nil)
	for range 40 {
		b.append(spec{n: 2, size: 100})
	}
	b.must(b.log.Close())
	b.open(true, 80) // and is killed
	for _, damaged := range []bool{false, true} {
		disk := mem.Crash(memfs.Keep, 1)
		if damaged {
			for _, name := range []string{"/00000000000000000000.index", "/00000000000000000000.timeindex"} {
				data, err := vfs.ReadFile(disk, b.dir+name)
				b.must(err)
				data[len(data)/2] ^= 1
				b.must(vfs.WriteAtomic(disk, b.dir+name, append(data, data...)))
			}
		}
		c := b.on(t, disk)
		seen := c.changes()
		o := c.options(false, 80)
		o.DeferSync = true
		l, rec, err := Open(t.Context(), o)
		if err != nil || rec.BytesRead == 0 {
			t.Fatal(rec, err)
		}
		if !damaged && len(*seen) > 0 {
			t.Fatalf("the disk was changed: %v", *seen)
		}
		want, err := vfs.ReadFile(mem, b.dir+"/00000000000000000000.index")
		b.must(err)
		got, err := vfs.ReadFile(disk, b.dir+"/00000000000000000000.index")
		b.must(err)
		if string(got) != string(want) {
			t.Fatalf("damaged %v: the index was not rebuilt as it was", damaged)
		}
		if s := l.view.Load().active(); !s.offsets.unsynced() || !s.times.unsynced() || !s.dirty || len(l.snapshots) != 1 {
			t.Fatal("what was perhaps never durable counts as durable")
		}
		l.Durable()
		if !l.Idle() {
			t.Fatal("a log to which nothing was appended has something to write")
		}
		b.must(l.Close())
	}
}
