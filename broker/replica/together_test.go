package replica

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

const togetherParts = 4

// another is a manager over another disk with the same metadata.
func (k *kit) another(fs vfs.FS, together int) *kit {
	c := newKit(k.t, fs)
	c.img, c.pos, c.config, c.fsync = k.img, k.pos, k.config, k.fsync
	c.o.SyncTogether = together
	return c
}

// ends are the log ends of the topic's partitions.
func (k *kit) ends() (out [togetherParts]wire.Offset) {
	for i := range out {
		if plog := k.part("t", wire.PartitionID(i)).plog(); plog != nil {
			out[i] = plog.EndOffset()
		}
	}
	return out
}

// holds fails unless every record below want can be read.
func (k *kit) holds(want [togetherParts]wire.Offset, when string) {
	k.t.Helper()
	got := k.ends()
	for i := range want {
		p := k.part("t", wire.PartitionID(i))
		if err := p.Err(); err != nil || got[i] < want[i] {
			k.t.Fatalf("%s: partition %d ends at %d, %d was durable: %v", when, i, got[i], want[i], err)
		}
	}
}

// Logs that are made durable together are as durable as those that are synced one by one: a start after a crash, some
// records more and a clean stop, with a crash at every call of them that changes the disk, lose nothing that was durable
// before, nor anything that the recovery points on the disk cover.
func TestSyncedTogetherThroughCrashes(t *testing.T) {
	for _, first := range []memfs.Fate{memfs.Keep, memfs.Coin, memfs.Lose} {
		for seed := range uint64(3) {
			mem := memfs.New(nil)
			k := newKit(t, mem)
			k.fsync = FSyncNever
			k.o.SyncTogether = -1
			c := *log.DefaultConfig()
			c.SegmentBytes = 400
			k.config["t"] = &c
			k.open()
			k.topic("t", topicID("t"), togetherParts)
			var durable [togetherParts]wire.Offset
			for i := range togetherParts {
				p := k.part("t", wire.PartitionID(i))
				for n := range 4 {
					end := k.append(p, idempotent(7, int32(2*n), 2), 1).End
					if n == i {
						if err := p.plog().Flush(); err != nil {
							t.Fatal(err)
						}
						durable[i] = end
					}
				}
			}
			throughStartAndStop(k, mem.Crash(first, seed), durable, fmt.Sprintf("first crash %d, seed %d", first, seed))
			k.close()
		}
	}
}

// throughStartAndStop starts on disk, appends and stops, crashing at every call.
func throughStartAndStop(k *kit, disk *memfs.FS, durable [togetherParts]wire.Offset, when string) {
	k.t.Helper()
	faults, points := faultfs.New(disk), 0
	var mu sync.Mutex // logs are opened side by side
	crash := func() {
		mu.Lock()
		defer mu.Unlock()
		points++
		for seed := range uint64(3) {
			left := disk.Crash(memfs.Coin, seed+uint64(points)<<8)
			after := k.another(left, []int{-1, 1}[(points+int(seed))%2])
			// A recovery point that reached the disk promises that everything below it did before.
			promised, err := readCheckpoint(left, "data/"+recoveryPointFile)
			if err != nil {
				k.t.Fatal(err)
			}
			want := durable
			for i := range want {
				want[i] = max(want[i], promised[wire.TopicPartition{Topic: "t", Partition: wire.PartitionID(i)}])
			}
			after.open()
			after.holds(want, fmt.Sprintf("%s, crash at call %d, seed %d", when, points, seed))
			after.close()
		}
	}
	second := k.another(faults, 1)
	faults.Before(func(faultfs.Op, string) { crash() })
	second.open()
	durable = second.ends()
	if n := disk.VolumeSyncs(); n != 1 {
		k.t.Fatalf("%s: %d syncs of the whole at the start", when, n)
	}
	for i := range togetherParts {
		p := second.part("t", wire.PartitionID(i))
		if plog := p.plog(); plog != nil && plog.FlushedOffset() != plog.EndOffset() {
			k.t.Fatalf("%s: flushed to %d of %d", when, plog.FlushedOffset(), plog.EndOffset())
		}
	}
	faults.Before(nil)
	for i := range togetherParts {
		second.append(second.part("t", wire.PartitionID(i)), records(1, 20), 1)
	}
	faults.Before(func(faultfs.Op, string) { crash() })
	want := second.ends()
	second.close()
	faults.Before(nil)
	durable = want
	crash()
	if n := disk.VolumeSyncs(); n != 2 || points < 20 {
		k.t.Fatalf("%s: %d syncs of the whole after the stop, %d calls", when, n, points)
	}
	third := k.another(disk.Crash(memfs.Lose, 0), 1)
	third.open()
	if !third.m.dirs[0].clean || third.ends() != want {
		k.t.Fatalf("%s: clean %v, ends %v, want %v", when, third.m.dirs[0].clean, third.ends(), want)
	}
	third.close()
}

// Many logs cost one sync of the whole and none of their own; few ones, and a disk that can't be synced as a whole, are
// synced one by one; a sync that fails takes the directory offline.
func TestWhatIsSyncedTogether(t *testing.T) {
	for _, tt := range []struct {
		name     string
		together int
		fault    *faultfs.Rule
		volumes  int
		own      bool // logs are synced by themselves
		offline  bool
		gone     bool // no log directory is left
	}{
		{name: "many", together: togetherParts, volumes: 1},
		{name: "few", together: togetherParts + 1, own: true},
		{name: "never", together: -1, own: true},
		{name: "not supported", together: 1, own: true, fault: &faultfs.Rule{Op: faultfs.OpVolume, Err: errors.ErrUnsupported}},
		{name: "sync fails", together: 1, offline: true, fault: &faultfs.Rule{Op: faultfs.OpSyncAll, Err: errors.New("input/output error")}},
		{name: "cannot be opened", together: 1, gone: true, fault: &faultfs.Rule{Op: faultfs.OpVolume, Err: errors.New("input/output error")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mem := memfs.New(nil)
			k := newKit(t, mem)
			k.open()
			k.topic("t", topicID("t"), togetherParts)
			for i := range togetherParts {
				k.append(k.part("t", wire.PartitionID(i)), records(3, 10), 1)
			}
			ends := k.ends()
			disk := mem.Crash(memfs.Keep, 0)
			k.close()
			faults := faultfs.New(disk)
			if tt.fault != nil {
				faults.Add(*tt.fault)
			}
			var own atomic.Int64
			faults.Before(func(op faultfs.Op, name string) {
				if tp, _, ok := parseDirName(baseDir(name)); ok && tp.Topic == "t" && op == faultfs.OpSync {
					own.Add(1)
				}
			})
			c := k.another(faults, tt.together)
			if tt.gone {
				if err := NewManager(c.o).Open(t.Context(), c.img); err == nil || own.Load() > 0 {
					t.Fatalf("%d syncs of logs, %v", own.Load(), err)
				}
				return
			}
			c.open()
			if got := disk.VolumeSyncs(); got != tt.volumes || (own.Load() > 0) != tt.own || (c.m.dirs[0].failed() != nil) != tt.offline {
				t.Fatalf("%d syncs of the whole, %d of logs, directory: %v", got, own.Load(), c.m.dirs[0].failed())
			}
			if c.ends() != ends {
				t.Fatalf("logs end at %v, want %v", c.ends(), ends)
			}
			if err := c.m.Close(t.Context()); (err != nil) != tt.offline {
				t.Fatal(err)
			}
		})
	}
}

// A log that can't be completed at the stop keeps no other one from being durable, and the stop is not clean.
func TestStopTogetherWhenOneFails(t *testing.T) {
	mem := memfs.New(nil)
	faults := faultfs.New(mem)
	k := newKit(t, faults)
	k.fsync = FSyncNever
	k.o.SyncTogether = 1
	k.open()
	k.topic("t", topicID("t"), togetherParts)
	for i := range togetherParts {
		k.append(k.part("t", wire.PartitionID(i)), idempotent(7, 0, 3), 1)
	}
	ends := k.ends()
	faults.Add(faultfs.Rule{Op: faultfs.OpCreate, Path: "*.snapshot.tmp", Times: 1, Err: errors.New("input/output error")})
	if err := k.m.Close(t.Context()); err == nil {
		t.Fatal("the stop is said to be clean")
	}
	left := mem.Crash(memfs.Lose, 0)
	if clean, err := vfs.Exists(left, "data/"+cleanShutdownFile); clean || err != nil {
		t.Fatalf("clean-shutdown file: %v, %v", clean, err)
	}
	after := k.another(left, 1)
	after.open()
	whole := 0
	for i, end := range after.ends() {
		if end == ends[i] {
			whole++
		}
	}
	if whole < togetherParts-1 {
		t.Fatalf("logs end at %v, want %v but for one", after.ends(), ends)
	}
	after.close()
}

// What is durable need not be read again: a stop that took longer than it may is a clean one when it is over.
func TestLateStopIsClean(t *testing.T) {
	mem := memfs.New(nil)
	k := newKit(t, mem)
	k.open()
	k.topic("t", topicID("t"), togetherParts)
	k.append(k.part("t", 0), records(3, 10), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	c := k.another(mem.Crash(memfs.Lose, 0), 1)
	c.open()
	defer c.close()
	if !c.m.dirs[0].clean || c.ends()[0] != 3 {
		t.Fatalf("clean %v, ends at %d", c.m.dirs[0].clean, c.ends()[0])
	}
}

// baseDir is the name of the directory that a file lies in.
func baseDir(name string) string { return path.Base(path.Dir(name)) }
