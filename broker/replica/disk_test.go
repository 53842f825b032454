package replica

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// A directory that failed takes no writes; what its partitions hold below the high watermark is still read. The other
// directories go on, and the failed one is shown as such.
func TestOneOfTwoDirectoriesFails(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.EROFS} {
		for _, op := range []faultfs.Op{faultfs.OpWrite, faultfs.OpSync} {
			t.Run(cause.Error()+" of "+string(op), func(t *testing.T) { oneOfTwoFails(t, op, cause) })
		}
	}
}

func oneOfTwoFails(t *testing.T, op faultfs.Op, cause error) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(memfs.New(time.Now))
		k := newKit(t, fs)
		k.o.Dirs = []Dir{{Path: "one", ID: wire.UUID{1}}, {Path: "two", ID: wire.UUID{2}}}
		k.open()
		k.topic("t", topicID("t"), 2)
		bad, good := k.part("t", 0), k.part("t", 1)
		if bad.dir() == good.dir() {
			t.Fatal("both partitions are in one directory")
		}
		for _, p := range []*Partition{bad, good} {
			a := watch(p, k.append(p, records(3, 50), -1), time.Minute)
			synctest.Wait()
			if !a.done.Load() || a.err != nil {
				t.Fatalf("append to %s: %v", p.TP, a.err)
			}
		}
		fs.Add(faultfs.Rule{Op: op, Path: "*.log", Times: 1, Err: cause})
		a, err := bad.AppendAsLeader(k.validate(bad, records(1, 10)), wire.NoLeaderEpoch, -1)
		if err == nil {
			w := watch(bad, a, time.Minute)
			synctest.Wait()
			err = w.err
		}
		if !errors.Is(err, ErrOffline) && !errors.Is(err, log.ErrStorage) {
			t.Fatalf("append while the disk fails: %v", err)
		}
		if _, err := bad.AppendAsLeader(k.validate(bad, records(1, 10)), wire.NoLeaderEpoch, 1); !errors.Is(err, ErrOffline) {
			t.Fatalf("append after the failure: %v", err)
		}
		if _, err := bad.DeleteRecords(1); !errors.Is(err, ErrOffline) {
			t.Fatalf("delete records after the failure: %v", err)
		}
		if n := readable(t, bad, 0); n == 0 {
			t.Fatal("nothing can be read any more")
		}
		if o := bad.Offsets(); o.HW != 3 || !o.Leading {
			t.Fatalf("after the failure: %+v", o)
		}
		w := watch(good, k.append(good, records(1, 10), -1), time.Minute)
		synctest.Wait()
		if !w.done.Load() || w.err != nil {
			t.Fatalf("append to the other directory: %v", w.err)
		}
		if d := k.m.LogDirs(); d[0].Err == nil && d[1].Err == nil || d[0].Err != nil && d[1].Err != nil {
			t.Fatalf("directories are shown as %v and %v", d[0].Err, d[1].Err)
		}
		k.topic("new", topicID("new"), 3)
		for i := range 3 {
			if p := k.part("new", wire.PartitionID(i)); p.dir() != good.dir() {
				t.Fatal("a new partition was put into the failed directory")
			}
		}
		_ = k.m.Close(t.Context())
		k.m = nil
		k.open() // what failed once has recovered: everything is read again
		bad = k.part("t", 0)
		if n := readable(t, bad, 0); n == 0 || bad.Err() != nil {
			t.Fatalf("after a restart %d bytes are readable, %v", n, bad.Err())
		}
		k.append(bad, records(1, 10), 1)
		k.close()
	})
}

// D7: on a full disk records of clients are refused before the last bytes are used; offsets and deletions still find
// room, reads go on, and writing goes on by itself when space is back.
func TestReserveKeepsOffsetsWritable(t *testing.T) {
	for _, full := range []struct {
		name  string
		space int64
	}{{"within the reserve", 20000}, {"far below", 3000}} {
		t.Run(full.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := faultfs.New(memfs.New(time.Now))
				k := newKit(t, fs)
				k.o.SpaceReserve = 30000
				k.open()
				k.topic("t", topicID("t"), 1)
				k.topic(image.OffsetsTopic, topicID(image.OffsetsTopic), 1)
				p, offsets := k.part("t", 0), k.part(image.OffsetsTopic, 0)
				k.append(p, records(5, 100), -1)
				synctest.Wait()
				fs.SetSpace(full.space)
				time.Sleep(time.Second)
				p.dir().space.left.Store(0)
				for range 3 {
					if _, err := p.AppendAsLeader(k.validate(p, records(1, 100)), wire.NoLeaderEpoch, -1); !errors.Is(err, log.ErrDiskFull) {
						t.Fatalf("append to a full disk: %v", err)
					}
				}
				w := watch(offsets, k.append(offsets, records(1, 100), -1), time.Minute)
				synctest.Wait()
				if !w.done.Load() || w.err != nil {
					t.Fatalf("offsets: %v", w.err)
				}
				if n := readable(t, p, 0); n == 0 {
					t.Fatal("nothing can be read")
				}
				if low, err := p.DeleteRecords(2); low.Low != 2 || err != nil {
					t.Fatalf("delete records: %d, %v", low, err)
				}
				k.topic("other", topicID("other"), 1)
				k.apply(remove("other"))
				fs.SetSpace(-1)
				time.Sleep(spaceLook)
				w = watch(p, k.append(p, records(1, 100), -1), time.Minute)
				synctest.Wait()
				if !w.done.Load() || w.err != nil || p.Err() != nil {
					t.Fatalf("append after space is back: %v, %v", w.err, p.Err())
				}
				k.close()
			})
		})
	}
}

// Without a reserve the disk fills up under the log itself: the same codes, and nothing needs a restart.
func TestFullDiskIsNotFinal(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		for _, file := range []string{"*.log", "leader-epoch-checkpoint.tmp"} {
			t.Run(cause.Error()+" "+file, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fs := faultfs.New(memfs.New(time.Now))
					k := newKit(t, fs)
					k.open()
					k.topic("t", topicID("t"), 1)
					p := k.part("t", 0)
					k.append(p, records(1, 100), -1)
					synctest.Wait()
					k.apply(change("t", 1))
					if err := p.plog().Roll(); err != nil { // so that the next flush has to write the epochs
						t.Fatal(err)
					}
					rule := fs.Add(faultfs.Rule{Op: faultfs.OpWrite, Path: file, Err: cause})
					a, err := p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, -1)
					if err == nil {
						w := watch(p, a, time.Minute)
						synctest.Wait()
						err = w.err
					}
					if !errors.Is(err, log.ErrDiskFull) || rule.Hits() == 0 {
						t.Fatalf("append: %v, %d hits", err, rule.Hits())
					}
					if p.Err() != nil || readable(t, p, 0) == 0 {
						t.Fatalf("the partition is out of service: %v", p.Err())
					}
					fs.Clear()
					time.Sleep(2 * fullDiskRetry)
					w := watch(p, k.append(p, records(1, 10), -1), time.Minute)
					synctest.Wait()
					if !w.done.Load() || w.err != nil {
						t.Fatalf("append after space is back: %v", w.err)
					}
					k.close()
				})
			})
		}
	}
}

// D16: while the disk hangs without an error, a produce ends with its timeout, reads go on, and so does everything in
// another directory.
func TestHangingDiskHoldsUpNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(memfs.New(time.Now))
		k := newKit(t, fs)
		k.o.Dirs = []Dir{{Path: "one", ID: wire.UUID{1}}, {Path: "two", ID: wire.UUID{2}}}
		k.open()
		k.topic("t", topicID("t"), 2)
		stuck, free := k.part("t", 0), k.part("t", 1)
		k.append(stuck, records(1, 10), -1)
		k.append(free, records(1, 10), -1)
		synctest.Wait()
		release := make(chan struct{})
		hung := stuck.pathIn(stuck.dir()) + "/00000000000000000000.log"
		fs.Before(func(op faultfs.Op, name string) {
			if op == faultfs.OpSync && name == hung {
				<-release
			}
		})
		began := time.Now()
		w := watch(stuck, k.append(stuck, records(1, 10), -1), 5*time.Second)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !w.done.Load() || w.err == nil {
			t.Fatal("the produce did not end with its timeout")
		}
		for range 10 {
			other := watch(free, k.append(free, records(1, 10), -1), time.Second)
			synctest.Wait()
			if !other.done.Load() || other.err != nil {
				t.Fatalf("the other directory waits too: %v", other.err)
			}
		}
		if readable(t, stuck, 0) == 0 || time.Since(began) > 6*time.Second {
			t.Fatal("reads wait for the disk")
		}
		close(release)
		synctest.Wait()
		if o := stuck.Offsets(); o.HW != 2 {
			t.Fatalf("when the disk is back: %+v", o)
		}
		k.close()
	})
}
