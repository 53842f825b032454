package replica

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// ticking is a clock that moves with every look at it, as file systems have.
func ticking() func() time.Time {
	now := time.UnixMilli(1_700_000_000_000)
	return func() time.Time {
		now = now.Add(time.Millisecond)
		return now
	}
}

// stoppedKit is a manager that was stopped cleanly with records in every partition.
func stoppedKit(t *testing.T) (*kit, *memfs.FS, [togetherParts]wire.Offset) {
	t.Helper()
	mem := memfs.New(ticking())
	k := newKit(t, mem)
	k.open()
	k.topic("t", topicID("t"), togetherParts)
	for i := range togetherParts {
		k.append(k.part("t", wire.PartitionID(i)), idempotent(7, 0, 2+i), 1)
	}
	ends := k.ends()
	k.close()
	return k, mem, ends
}

// resting is which logs of the topic were not opened.
func (k *kit) resting() (out [togetherParts]bool) {
	for i := range out {
		plog := k.part("t", wire.PartitionID(i)).plog()
		out[i] = plog != nil && plog.Rests()
	}
	return out
}

var allRest = [togetherParts]bool{true, true, true, true}

// A clean start opens no file of a partition; what was not used rests through the next start, too; what was used is opened then and
// rests again after the next stop.
func TestCleanStartOpensNoLog(t *testing.T) {
	k, mem, ends := stoppedKit(t)
	for n := range 3 {
		faults := faultfs.New(mem)
		k = k.another(faults, 1)
		k.open()
		if got := faults.Calls(faultfs.OpList); got != 1 {
			t.Fatalf("start %d: %d directories were listed", n, got)
		}
		if k.resting() != allRest || k.ends() != ends {
			t.Fatalf("start %d: resting %v, ends %v, want %v", n, k.resting(), k.ends(), ends)
		}
		for i := range togetherParts {
			if got := k.part("t", wire.PartitionID(i)).Offsets().HW; got != ends[i] {
				t.Fatalf("start %d: high watermark of %d is %d", n, i, got)
			}
		}
		if n == 1 {
			p := k.part("t", 2)
			if a := k.append(p, idempotent(7, 0, 4), 1); !a.Duplicate {
				t.Fatalf("%+v", a)
			}
			k.append(p, idempotent(7, 4, 1), 1)
			ends[2]++
			if want := [togetherParts]bool{true, true, false, true}; k.resting() != want {
				t.Fatalf("resting %v", k.resting())
			}
			if readable(t, p, 0) == 0 {
				t.Fatal("nothing to read")
			}
		}
		k.close()
	}
}

// How logs were left is believed of the stop that has written it, whole, in its own directory, beside checkpoints and files that say the
// same. Anything else opens the logs in question, and loses nothing.
func TestRestingIsNotBelieved(t *testing.T) {
	all := [togetherParts]bool{}
	name, clean := "data/"+restingFile, "data/"+cleanShutdownFile
	rewrite := func(fs vfs.FS, change func(r *restingLogs)) error {
		data, err := vfs.ReadFile(fs, name)
		if err != nil {
			return err
		}
		r, err := decodeResting(data)
		if err != nil {
			return err
		}
		change(r)
		return vfs.WriteAtomic(fs, name, r.encode())
	}
	checkpoint := func(fs vfs.FS, file string, offset wire.Offset) error {
		offsets, err := readCheckpoint(fs, "data/"+file)
		if err != nil {
			return err
		}
		offsets[wire.TopicPartition{Topic: "t", Partition: 1}] = offset
		return vfs.WriteAtomic(fs, "data/"+file, encodeCheckpoint(offsets))
	}
	one := [togetherParts]bool{true, false, true, true}
	for _, tt := range []struct {
		name string
		do   func(fs vfs.FS) error
		want [togetherParts]bool
	}{
		{"untouched", func(vfs.FS) error { return nil }, allRest},
		{"missing", func(fs vfs.FS) error { return fs.Remove(name) }, all},
		{"no clean-shutdown file", func(fs vfs.FS) error { return fs.Remove(clean) }, all},
		{"another stop", func(fs vfs.FS) error { return rewrite(fs, func(r *restingLogs) { r.epoch++ }) }, all},
		{"another directory", func(fs vfs.FS) error { return rewrite(fs, func(r *restingLogs) { r.dir[3]++ }) }, all},
		{"the copy of a directory, with other times", func(fs vfs.FS) error {
			return rewrite(fs, func(r *restingLogs) {
				for _, l := range r.logs {
					l.Changed++
				}
			})
		}, all},
		{"a partition less", func(fs vfs.FS) error {
			return rewrite(fs, func(r *restingLogs) { delete(r.logs, wire.TopicPartition{Topic: "t", Partition: 1}) })
		}, one},
		{"another recovery point", func(fs vfs.FS) error { return checkpoint(fs, recoveryPointFile, 2) }, one},
		{"another log start", func(fs vfs.FS) error { return checkpoint(fs, logStartFile, 1) }, one},
		{"a file more", func(fs vfs.FS) error { return vfs.WriteAtomic(fs, "data/t-1/0.deleted", nil) }, one},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, mem, ends := stoppedKit(t)
			if err := tt.do(mem); err != nil {
				t.Fatal(err)
			}
			k = k.another(mem, 1)
			k.open()
			defer k.close()
			if k.resting() != tt.want || k.ends() != ends {
				t.Fatalf("resting %v, want %v; ends %v, want %v", k.resting(), tt.want, k.ends(), ends)
			}
		})
	}
}

// What a stop has written is gone, durably, before the next life writes anything. A list that comes back, beside no clean-shutdown file
// or that of a later stop, does not hide what was written since.
func TestStaleRestingIsNotBelieved(t *testing.T) {
	k, mem, _ := stoppedKit(t)
	const name = "data/" + restingFile
	stale, err := vfs.ReadFile(mem, name)
	if err != nil {
		t.Fatal(err)
	}
	k = k.another(mem, 1)
	k.open()
	for _, file := range []string{name, "data/" + cleanShutdownFile} {
		if there, err := vfs.Exists(mem.Crash(memfs.Lose, 0), file); there || err != nil {
			t.Fatalf("%s is there after the start: %v", file, err)
		}
	}
	k.append(k.part("t", 1), idempotent(7, 3, 5), 1)
	if err := k.part("t", 1).plog().Flush(); err != nil {
		t.Fatal(err)
	}
	ends := k.ends()
	killed := mem.Crash(memfs.Keep, 0)
	k.close()
	for _, tt := range []struct {
		name string
		disk *memfs.FS
		want [togetherParts]bool
	}{
		{"killed", killed, [togetherParts]bool{}},
		{"stopped", mem, [togetherParts]bool{true, false, true, true}},
	} {
		if err := vfs.WriteAtomic(tt.disk, name, stale); err != nil {
			t.Fatal(err)
		}
		k := k.another(tt.disk, 1)
		k.open()
		if k.resting() != tt.want || k.ends() != ends {
			t.Fatalf("%s: resting %v, want %v; ends %v, want %v", tt.name, k.resting(), tt.want, k.ends(), ends)
		}
		k.close()
	}
}

// The list is refused whole if a byte of it is missing or another one.
func TestRestingLogsAreWhole(t *testing.T) {
	want := restingLogs{epoch: 5, dir: wire.UUID{9}, logs: map[wire.TopicPartition]*log.Resting{
		{Topic: "a", Partition: 0}: {TopicID: wire.UUID{1}, Changed: 1 << 60, Start: 3, End: 9, Epoch: 4, EpochStart: 5,
			Segments: []log.RestingSegment{{Base: 0, Size: 100, Changed: -5, MaxTime: 77, Dated: true}, {Base: 6, MaxTime: wire.NoTimestamp}}},
		{Topic: "a", Partition: 100000}: {TopicID: wire.UUID{1}, Epoch: wire.NoLeaderEpoch, EpochStart: wire.NoOffset, Segments: []log.RestingSegment{{Base: 1 << 62}}},
		{Topic: "b-c.d", Partition: 7}:  {TopicID: wire.UUID{2}, Segments: []log.RestingSegment{{}}},
	}}
	data := want.encode()
	got, err := decodeResting(data)
	if err != nil || !reflect.DeepEqual(*got, want) || !bytes.Equal(got.encode(), data) {
		t.Fatalf("%+v, %v", got, err)
	}
	for n := range data {
		if _, err := decodeResting(data[:n]); !errors.Is(err, errResting) {
			t.Fatalf("%d bytes: %v", n, err)
		}
		for bit := range 8 {
			flipped := bytes.Clone(data)
			flipped[n] ^= 1 << bit
			if _, err := decodeResting(flipped); !errors.Is(err, errResting) {
				t.Fatalf("bit %d of byte %d: %v", bit, n, err)
			}
		}
	}
	if _, err := decodeResting(append(data, 0)); !errors.Is(err, errResting) {
		t.Fatal(err)
	}
}

// Where the list cannot be written the stop is as clean as without it.
func TestStopWithoutRoomForTheList(t *testing.T) {
	mem := memfs.New(ticking())
	faults := faultfs.New(mem)
	k := newKit(t, faults)
	k.open()
	k.topic("t", topicID("t"), togetherParts)
	k.append(k.part("t", 1), records(3, 10), 1)
	ends := k.ends()
	faults.Add(faultfs.Rule{Op: faultfs.OpCreate, Path: restingFile + "*", Err: errors.New("no room")})
	k.close()
	k = k.another(mem, 1)
	k.open()
	defer k.close()
	if !k.m.dirs[0].clean || k.ends() != ends || k.resting() != ([togetherParts]bool{}) {
		t.Fatalf("clean %v, ends %v", k.m.dirs[0].clean, k.ends())
	}
}

// A log that is found to be another one at its first use takes its partition offline here, nothing else, and the stop is no clean one.
func TestRestingLogThatIsAnotherOneGoesOffline(t *testing.T) {
	k, mem, ends := stoppedKit(t)
	k = k.another(mem, 1)
	var damaged []wire.TopicPartition
	k.o.Damaged = func(p *Partition) { damaged = append(damaged, p.TP) }
	k.open()
	const name = "data/t-1/00000000000000000000.log"
	before, err := vfs.ReadFile(mem, name)
	if err == nil {
		err = vfs.WriteAtomic(mem, name, before[:len(before)-1])
	}
	if err != nil {
		t.Fatal(err)
	}
	p := k.part("t", 1)
	if _, err := p.AppendAsLeader(k.validate(p, records(1, 1)), wire.NoLeaderEpoch, 1); !errors.Is(err, log.ErrNotAsLeft) {
		t.Fatal(err)
	}
	if err := p.Err(); !errors.Is(err, ErrOffline) || len(damaged) != 1 || k.m.dirs[0].failed() != nil {
		t.Fatalf("partition %v, damaged %v, directory %v", err, damaged, k.m.dirs[0].failed())
	}
	k.append(k.part("t", 0), records(1, 1), 1)
	if after, err := vfs.ReadFile(mem, name); err != nil || !bytes.Equal(after, before[:len(before)-1]) {
		t.Fatalf("%d bytes are left of %d, %v", len(after), len(before)-1, err)
	}
	if err := k.m.Close(t.Context()); !errors.Is(err, log.ErrNotAsLeft) {
		t.Fatal(err)
	}
	k = k.another(mem, 1)
	k.open()
	defer k.close()
	if got := k.ends(); k.m.dirs[0].clean || got[0] != ends[0]+1 || got[1] != 0 {
		t.Fatalf("clean %v, ends %v", k.m.dirs[0].clean, got)
	}
}
