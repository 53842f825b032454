package replica

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// reopen makes a kit with the same image over another file system, as a restart is.
func (k *kit) reopen(fs vfs.FS) *kit {
	k.t.Helper()
	n := newKit(k.t, fs)
	n.img, n.pos, n.config, n.fsync = k.img, k.pos, k.config, k.fsync
	n.open()
	return n
}

func (k *kit) committed(p *Partition, data []byte) Appended {
	k.t.Helper()
	a := k.append(p, data, -1)
	w := watch(p, a, time.Minute)
	synctest.Wait()
	if !w.done.Load() || w.err != nil {
		k.t.Fatalf("append is not committed: %v", w.err)
	}
	return a
}

func listDirs(t *testing.T, fs vfs.FS, dir string) []string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		if info, err := fs.Stat(dir + "/" + n); err == nil && info.Dir {
			out = append(out, n)
		}
	}
	return out
}

// A partition costs nothing on disk before its first record; then its topic id is durable before the record is.
func TestNothingOnDiskBeforeTheFirstRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		k.open()
		syncs, dirs := mem.Syncs(), mem.DirSyncs()
		k.topic("t", topicID("t"), 50)
		if got := listDirs(t, mem, "data"); len(got) != 0 || mem.Syncs() != syncs || mem.DirSyncs() != dirs {
			t.Fatalf("50 new partitions: directories %v, %d syncs", got, mem.Syncs()-syncs)
		}
		p := k.part("t", 7)
		if o, err := p.Latest(wire.NoLeaderEpoch, ReadUncommitted); err != nil || o.Offset != 0 {
			t.Fatalf("end of an empty partition: %+v, %v", o, err)
		}
		k.committed(p, records(3, 10))
		if got := listDirs(t, mem, "data"); !slices.Equal(got, []string{"t-7"}) {
			t.Fatalf("directories %v", got)
		}
		crashed := mem.Crash(memfs.Lose, 1)
		if id, err := log.ReadTopicID(crashed, "data/t-7"); err != nil || id != topicID("t") {
			t.Fatalf("topic id after a power loss: %v, %v", id, err)
		}
		after := k.reopen(crashed)
		if o := after.part("t", 7).Offsets(); o.LEO != 3 {
			t.Fatalf("acknowledged records after a power loss: %+v", o)
		}
		k.close()
		after.close()
	})
}

// R9: the clean-shutdown file is written after everything else is durable, is gone durably before the first write of
// the next life, and is believed only if it is of this node's last registration.
func TestCleanShutdownFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		fs := faultfs.New(mem)
		k := newKit(t, fs)
		k.fsync = FSyncNever
		k.open()
		k.topic("t", topicID("t"), 3)
		for i := range 3 {
			k.append(k.part("t", wire.PartitionID(i)), records(5, 100), 1)
		}
		// At every step of the stop: if a power loss leaves the file, it leaves everything.
		var steps atomic.Uint64 // logs are closed side by side
		fs.Before(func(op faultfs.Op, name string) {
			crashed := mem.Crash(memfs.Lose, steps.Add(1))
			if _, ok := readCleanShutdown(crashed, "data"); !ok {
				return
			}
			if op != faultfs.OpClose {
				t.Errorf("%s %s comes after the clean-shutdown file", op, name)
			}
		})
		k.close()
		fs.Before(nil)
		if steps.Load() == 0 {
			t.Fatal("no step seen")
		}
		crashed := mem.Crash(memfs.Lose, 1)
		if got := PreviousBrokerEpoch(crashed, k.o.Dirs); got != 5 {
			t.Fatalf("broker epoch in the file: %d", got)
		}
		// The next life: gone before anything is written.
		next := faultfs.New(crashed)
		next.Before(func(op faultfs.Op, name string) {
			_, there := readCleanShutdown(crashed.Crash(memfs.Keep, 1), "data")
			if _, durable := readCleanShutdown(crashed.Crash(memfs.Lose, 1), "data"); durable && !there && op != faultfs.OpSyncDir {
				t.Errorf("%s %s before the removal of the clean-shutdown file is durable", op, name)
			}
		})
		n := k.reopen(next)
		next.Before(nil)
		if !n.m.dirs[0].clean {
			t.Fatal("a clean stop was not seen")
		}
		for i := range 3 {
			if o := n.part("t", wire.PartitionID(i)).Offsets(); o.LEO != 5 {
				t.Fatalf("partition %d after a clean restart: %+v", i, o)
			}
		}
		// A crash now is no clean stop.
		killed := crashed.Crash(memfs.Keep, 1)
		if got := PreviousBrokerEpoch(killed, k.o.Dirs); got != wire.NoBrokerEpoch {
			t.Fatalf("after a kill: epoch %d", got)
		}
		n.close()
		// A file of another incarnation, restored from a backup, is not believed.
		old := newKit(t, crashed.Crash(memfs.Keep, 1))
		old.img, old.pos = k.img, k.pos
		old.o.PreviousBrokerEpoch = 6
		old.open()
		if old.m.dirs[0].clean {
			t.Fatal("a clean-shutdown file of another incarnation was believed")
		}
		old.close()
	})
}

// D12: what DeleteRecords has deleted stays deleted after a power loss right after the answer.
func TestDeleteRecordsIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		k.open()
		k.topic("t", topicID("t"), 1)
		p := k.part("t", 0)
		k.committed(p, records(10, 10))
		k.committed(p, records(10, 10))
		d, err := p.DeleteRecords(13)
		if err != nil || d.Low != 13 {
			t.Fatalf("low watermark %d, %v", d.Low, err)
		}
		n := k.reopen(mem.Crash(memfs.Lose, 1))
		if o := n.part("t", 0).Offsets(); o.LogStart != 13 || o.LEO != 20 {
			t.Fatalf("after a power loss: %+v", o)
		}
		for _, tt := range []struct {
			to   wire.Offset
			low  wire.Offset
			code error
		}{{5, 13, nil}, {21, -1, kerr.OffsetOutOfRange}, {-2, -1, kerr.OffsetOutOfRange}, {-1, 20, nil}} {
			d, err := n.part("t", 0).DeleteRecords(tt.to)
			if d.Low != tt.low || d.Waits() || !errors.Is(err, tt.code) {
				t.Fatalf("delete to %d: %d, %v", tt.to, d.Low, err)
			}
		}
		compact := log.DefaultConfig()
		compact.Delete, compact.Compact = false, true
		n.part("t", 0).setConfig(compact, FSyncAuto)
		if _, err := n.part("t", 0).DeleteRecords(-1); !errors.Is(err, kerr.PolicyViolation) {
			t.Fatalf("delete from a compacted topic: %v", err)
		}
		n.close()
		k.close()
	})
}

// P1 at partition level: the last five batches of a producer are known as duplicates, with their first offsets, after a
// kill and after a clean stop; the sixth last is not taken again.
func TestDuplicatesAfterRestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memfs.New(time.Now)
				k := newKit(t, mem)
				k.open()
				k.topic("t", topicID("t"), 1)
				for i := range 8 {
					k.committed(k.part("t", 0), idempotent(7, int32(5*i), 5))
				}
				if clean {
					k.close()
				}
				n := k.reopen(mem.Crash(memfs.Lose, 1))
				p := n.part("t", 0)
				for i := 3; i < 8; i++ {
					a := n.append(p, idempotent(7, int32(5*i), 5), -1)
					if !a.Duplicate || a.First != wire.Offset(5*i) {
						t.Fatalf("repeat of batch %d: %+v", i, a)
					}
				}
				for _, seq := range []int32{10, 45} {
					if _, err := p.AppendAsLeader(n.validate(p, idempotent(7, seq, 5)), wire.NoLeaderEpoch, -1); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
						t.Fatalf("sequence %d: %v", seq, err)
					}
				}
				if o := p.Offsets(); o.LEO != 40 {
					t.Fatalf("end offset %d", o.LEO)
				}
				n.close()
				if !clean {
					k.close()
				}
			})
		})
	}
}

// A deleted topic's directory is renamed durably at once and removed after file.delete.delay.ms; a new topic of the same
// name has nothing of it.
func TestDeleteTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		k.open()
		k.topic("t", topicID("t"), 1)
		old := k.part("t", 0)
		k.committed(old, records(4, 10))
		k.apply(remove("t"))
		if _, ok := k.m.ByName("t", 0); ok {
			t.Fatal("the deleted partition is still served")
		}
		if _, err := old.Read(ReadOptions{LeaderEpoch: -1, LastFetchedEpoch: -1}); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Fatalf("read of a deleted partition: %v", err)
		}
		want := deletedDirName(old.TP, topicID("t"))
		if got := listDirs(t, mem.Crash(memfs.Lose, 1), "data"); !slices.Equal(got, []string{want}) {
			t.Fatalf("directories after a power loss: %v", got)
		}
		k.topic("t", topicID("t2"), 1)
		if o := k.part("t", 0).Offsets(); o.LEO != 0 {
			t.Fatalf("the new topic begins at %+v", o)
		}
		k.committed(k.part("t", 0), records(1, 10))
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if got := listDirs(t, mem, "data"); len(got) != 2 {
			t.Fatalf("directories before the delay: %v", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := listDirs(t, mem, "data"); !slices.Equal(got, []string{"t-0"}) {
			t.Fatalf("directories after the delay: %v", got)
		}
		k.close()
	})
}

// R21: a topic that was deleted and created again while the broker was down. The deletion is finished at the start.
func TestDeletedWhileDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		k.open()
		k.topic("t", topicID("t"), 1)
		k.topic("u", topicID("u"), 1)
		k.committed(k.part("t", 0), records(4, 10))
		k.committed(k.part("u", 0), records(4, 10))
		k.close()
		k.m = nil
		k.apply(remove("t"), remove("u"))
		k.topic("t", topicID("t2"), 1)
		n := k.reopen(mem)
		if o, err := n.part("t", 0).Offsets(), n.part("t", 0).Err(); o.LEO != 0 || err != nil {
			t.Fatalf("the new topic begins at %+v, %v", o, err)
		}
		n.committed(n.part("t", 0), records(1, 10))
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if got := listDirs(t, mem, "data"); !slices.Equal(got, []string{"t-0"}) {
			t.Fatalf("directories: %v", got)
		}
		n.close()
	})
}

// What the checkpoints hold of a deleted partition counts for nothing of the one that took its name: not its log start,
// which would cut acknowledged records off after a kill, nor its recovery point or high watermark.
func TestNamesakeInheritsNoCheckpoint(t *testing.T) {
	for name, between := range map[string]func(k *kit, mem *memfs.FS) (*kit, *memfs.FS){
		"deleted in the same life": func(k *kit, mem *memfs.FS) (*kit, *memfs.FS) { k.apply(remove("t")); return k, mem },
		"deleted in the next life": func(k *kit, mem *memfs.FS) (*kit, *memfs.FS) {
			k.close()
			k = k.reopen(mem)
			k.apply(remove("t"))
			return k, mem
		},
		"deleted while down": func(k *kit, mem *memfs.FS) (*kit, *memfs.FS) {
			k.close()
			k.m = nil
			k.apply(remove("t"))
			return k, mem
		},
		"killed right after it was deleted": func(k *kit, mem *memfs.FS) (*kit, *memfs.FS) {
			k.apply(remove("t"))
			mem = mem.Crash(memfs.Lose, 1)
			defer k.close()
			return k.reopen(mem), mem
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memfs.New(time.Now)
				k := newKit(t, mem)
				k.open()
				k.topic("t", topicID("t"), 1)
				for range 2 {
					k.committed(k.part("t", 0), records(10, 10))
				}
				if _, err := k.part("t", 0).DeleteRecords(13); err != nil {
					t.Fatal(err)
				}
				time.Sleep(61 * time.Second)
				synctest.Wait()
				k, mem = between(k, mem)
				k.topic("t", topicID("t2"), 1)
				if k.m == nil {
					k = k.reopen(mem)
				}
				k.committed(k.part("t", 0), records(10, 10))
				for _, file := range []string{recoveryPointFile, logStartFile, hwFile} {
					if got, err := readCheckpoint(mem, "data/"+file); err != nil || got[wire.TopicPartition{Topic: "t"}] > 10 {
						t.Errorf("%s: %v, %v", file, got, err)
					}
				}
				n := k.reopen(mem.Crash(memfs.Lose, 1))
				if o := n.part("t", 0).Offsets(); o.LogStart != 0 || o.LEO != 10 {
					t.Errorf("after a power loss: %+v, want 0 to 10", o)
				}
				n.close()
				k.close()
			})
		})
	}
}

// Directories that the metadata does not know, or knows under another topic id, are left byte for byte as they are, and
// nothing else suffers.
func TestForeignDirectoriesAreLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		k.open()
		for _, name := range []string{"lost", "other", "good"} {
			k.topic(name, topicID(name), 1)
			k.committed(k.part(name, 0), records(4, 10))
		}
		k.close()
		before := snapshotDir(t, mem, "data/lost-0", "data/other-0")
		n := newKit(t, mem)
		n.topic("other", topicID("another"), 1)
		n.topic("good", topicID("good"), 1)
		n.open()
		if _, ok := n.m.ByName("lost", 0); ok {
			t.Fatal("a partition that the metadata does not know is served")
		}
		if err := n.part("other", 0).CheckProduce(1); !errors.Is(err, kerr.InconsistentTopicID) {
			t.Fatalf("partition over another topic's directory: %v", err)
		}
		n.committed(n.part("good", 0), records(1, 10))
		// The same found out while running.
		n.topic("lost", topicID("new"), 1)
		if err := n.part("lost", 0).CheckProduce(1); !errors.Is(err, kerr.InconsistentTopicID) {
			t.Fatalf("new partition over another topic's directory: %v", err)
		}
		n.apply(remove("new")) // the topic goes, the directory stays
		time.Sleep(time.Hour)
		n.close()
		if after := snapshotDir(t, mem, "data/lost-0", "data/other-0"); after != before {
			t.Fatalf("foreign directories changed:\n%s\n%s", before, after)
		}
	})
}

func snapshotDir(t *testing.T, fs vfs.FS, dirs ...string) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range dirs {
		names, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			data, err := vfs.ReadFile(fs, dir+"/"+n)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&b, "%s/%s %x\n", dir, n, data)
		}
	}
	return b.String()
}

// The checkpoints are written at Kafka's intervals, only when something has changed, and hold what Kafka would read.
func TestCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		k.open()
		k.topic("t", topicID("t"), 2)
		k.committed(k.part("t", 1), records(4, 10))
		if _, err := mem.Stat("data/" + hwFile); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("checkpoint before its time: %v", err)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		if got, err := vfs.ReadFile(mem, "data/"+hwFile); err != nil || string(got) != "0\n1\nt 1 4\n" {
			t.Fatalf("high watermarks: %q, %v", got, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		// The first record of an epoch within the active segment is what a start reads again.
		if got, err := vfs.ReadFile(mem, "data/"+recoveryPointFile); err != nil || string(got) != "0\n1\nt 1 0\n" {
			t.Fatalf("recovery points: %q, %v", got, err)
		}
		syncs := mem.Syncs()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := mem.Syncs() - syncs; got != 0 {
			t.Fatalf("%d syncs in an idle hour", got)
		}
		k.close()
	})
}

// Retention deletes by size at its interval, the log start follows, and the files go after their delay.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newKit(t, mem)
		c := log.DefaultConfig()
		c.SegmentBytes, c.RetentionBytes = 1000, 2500
		k.config["t"] = c
		k.open()
		k.topic("t", topicID("t"), 1)
		p := k.part("t", 0)
		for range 10 {
			k.committed(p, records(1, 900))
		}
		time.Sleep(31 * time.Second)
		synctest.Wait()
		o := p.Offsets()
		if o.LogStart < 7 || o.LogStart > 8 || p.Size() > 3500 {
			t.Fatalf("after retention: %+v, %d bytes", o, p.Size())
		}
		if _, err := p.Read(ReadOptions{Offset: 0, LeaderEpoch: -1, LastFetchedEpoch: -1, Max: 1}); !errors.Is(err, kerr.OffsetOutOfRange) {
			t.Fatalf("read below the log start: %v", err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		names, err := mem.List("data/t-0")
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			if strings.HasSuffix(n, ".deleted") {
				t.Fatalf("%s is still there", n)
			}
		}
		k.close()
	})
}

// Several log directories: the metadata's choice, else the one with the fewest partitions; what is found stays where it
// is. With one of them offline the other's partitions go on.
func TestSeveralDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(memfs.New(time.Now))
		k := newKit(t, fs)
		k.o.Dirs = []Dir{{Path: "a", ID: wire.UUID{1, 1}}, {Path: "b", ID: wire.UUID{1, 2}}}
		k.open()
		k.topic("t", topicID("t"), 4)
		for i := range 4 {
			k.committed(k.part("t", wire.PartitionID(i)), records(1, 10))
		}
		infos := k.m.LogDirs()
		if len(infos[0].Partitions) != 2 || len(infos[1].Partitions) != 2 {
			t.Fatalf("partitions by directory: %+v", infos)
		}
		broken := infos[0].Partitions[0].TP.Partition
		whole := infos[1].Partitions[0].TP.Partition
		fs.Add(faultfs.Rule{Op: faultfs.OpSync, Path: "*.log", Times: 1, Err: errors.New("disk gone")})
		w := watch(k.part("t", broken), k.append(k.part("t", broken), records(1, 10), -1), time.Minute)
		synctest.Wait()
		if !errors.Is(w.err, ErrOffline) {
			t.Fatalf("append to the broken directory: %v", w.err)
		}
		k.committed(k.part("t", whole), records(1, 10))
		k.topic("u", topicID("u"), 2)
		for i := range 2 {
			if got := k.part("u", wire.PartitionID(i)).dir().path; got != "b" {
				t.Fatalf("new partition in the offline directory %s", got)
			}
		}
		if err := k.m.Close(t.Context()); !errors.Is(err, ErrOffline) {
			t.Fatalf("close: %v", err)
		}
	})
}
