package replica

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire/coordrec"
)

// A stop is clean for a whole directory or not at all: a log that could not be opened after a crash is still as the crash
// left it, and the next start has to read it again.
func TestNoCleanShutdownOverARefusedLog(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(t *testing.T, fs vfs.FS, k *kit)
	}{
		{"damaged partition.metadata", func(t *testing.T, fs vfs.FS, _ *kit) {
			if err := vfs.WriteAtomic(fs, "data/u-0/partition.metadata", []byte("nonsense")); err != nil {
				t.Fatal(err)
			}
		}},
		{"of another topic", func(t *testing.T, fs vfs.FS, _ *kit) {
			if err := vfs.WriteAtomic(fs, "data/u-0/partition.metadata", []byte("version: 0\ntopic_id: "+topicID("x").String()+"\n")); err != nil {
				t.Fatal(err)
			}
		}},
		{"in two directories", func(t *testing.T, fs vfs.FS, k *kit) {
			if err := fs.MkdirAll("more/u-0"); err != nil {
				t.Fatal(err)
			}
			k.o.Dirs = append(k.o.Dirs, Dir{Path: "more", ID: [16]byte{8}})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memfs.New(time.Now)
				k := newKit(t, mem)
				k.open()
				k.topic("t", topicID("t"), 1)
				k.topic("u", topicID("u"), 1)
				k.committed(k.part("t", 0), records(1, 100))
				k.committed(k.part("u", 0), records(1, 100))
				crashed := mem.Crash(memfs.Keep, 1)
				k.close()

				next := newKit(t, crashed)
				next.img, next.pos = k.img, k.pos
				tt.harm(t, crashed, next)
				next.open()
				if next.part("u", 0).Err() == nil {
					t.Fatal("the damaged log is served")
				}
				next.close()
				for _, d := range next.o.Dirs {
					if _, ok := readCleanShutdown(crashed, d.Path); ok {
						t.Errorf("%s is called cleanly stopped", d.Path)
					}
				}
			})
		})
	}
}

// A deleted topic is gone when none of its directories can come back. One on a disk that is offline can.
func TestGoneTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(memfs.New(time.Now))
		k := newKit(t, fs)
		k.o.Dirs = []Dir{{Path: "a", ID: [16]byte{1, 1}}, {Path: "b", ID: [16]byte{1, 2}}}
		k.open()
		for _, name := range []string{"t", "u", "v"} {
			k.topic(name, topicID(name), 2)
			k.committed(k.part(name, 0), records(1, 100))
			k.committed(k.part(name, 1), records(1, 100))
		}
		gone := func(name string, want bool) {
			t.Helper()
			if got := k.m.Gone(topicID(name)); got != want {
				t.Fatalf("topic %s is gone: %v, want %v", name, got, want)
			}
		}
		k.apply(remove("t"))
		gone("t", true)
		fs.Add(faultfs.Rule{Op: faultfs.OpRename, Path: "u-1", Err: syscall.ENOSPC})
		k.apply(remove("u"))
		gone("t", true)
		gone("u", false)
		fs.Clear()
		k.part("v", 1).dir().fail(syscall.EIO)
		k.apply(remove("v"))
		for _, name := range []string{"t", "u", "v"} {
			gone(name, false)
		}
		_ = k.m.Close(t.Context())
	})
}

// A flush that comes too late for a deleted partition finds its log closed. That is no failure of the disk.
func TestLateFlushOfADeletedPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, memfs.New(time.Now))
		k.open()
		k.topic("t", topicID("t"), 1)
		k.topic("u", topicID("u"), 1)
		p := k.part("t", 0)
		k.committed(p, records(1, 100))
		plog := p.plog()
		k.apply(remove("t"))
		if err := plog.Delete(); err != nil {
			t.Fatal(err)
		}
		if err := p.flush(p.at.Load(), plog); err == nil {
			t.Fatal("a deleted log was flushed")
		}
		if err := p.dir().failed(); err != nil {
			t.Fatalf("the directory went offline: %v", err)
		}
		k.committed(k.part("u", 0), records(1, 100))
		k.close()
	})
}

// Whoever waits for a flush when kaja.fsync is switched off for the topic is not left waiting: the flush that was promised
// is done.
func TestFsyncSwitchedOffWhileAcksWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(memfs.New(time.Now))
		g := newGate(fs)
		k := newKit(t, fs)
		k.open()
		k.topic("t", topicID("t"), 1)
		p := k.part("t", 0)
		first := watch(p, k.append(p, records(1, 100), 1), time.Minute)
		synctest.Wait() // its sync hangs
		second := watch(p, k.append(p, records(1, 100), 1), time.Minute)
		k.fsync = FSyncNever
		value := "never"
		k.apply(&coordrec.ConfigRecord{ResourceType: int8(image.ResourceTopic), ResourceName: "t", Name: "kaja.fsync", Value: &value})
		g.open.Store(true)
		g.pass <- struct{}{}
		synctest.Wait()
		for i, a := range []*ack{first, second} {
			if !a.done.Load() || a.err != nil {
				t.Errorf("append %d: done %v, %v", i, a.done.Load(), a.err)
			}
		}
		k.close()
	})
}
