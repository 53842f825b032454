package replica

import (
	"errors"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What else happens to a replica while it moves.

// slowly begins a move to two that copies about three batches a second.
func (k *moveKit) slowly() {
	k.rate = 2000
	k.m.mover.configure(k.o.Moves(k.img))
	k.move("two")
	synctest.Wait()
}

// quickly ends it.
func (k *moveKit) quickly() {
	k.t.Helper()
	k.rate = -1
	k.m.mover.configure(k.o.Moves(k.img))
	k.settle()
	k.lies("two")
}

// atOnce begins a move to two and ends it.
func (k *moveKit) atOnce() {
	k.t.Helper()
	k.move("two")
	k.quickly()
}

// future is the log that is filled.
func (k *moveKit) future() *log.Log { return k.m.mover.moves[k.part("t", 0)].to.plog.Load() }

// A follower that is cut to another history takes its copy along, wherever the copy is by then.
func TestMoveMeetsTruncation(t *testing.T) {
	for _, tt := range []struct {
		name   string
		copied time.Duration // before the cut
		cut    wire.Offset
		more   wire.Offset // end after the new leader's records
	}{{"below the copy", 10 * time.Second, 5, 5}, {"below the copy, and written beyond it", 10 * time.Second, 5, 60},
		{"above the copy", time.Second, 30, 40}, {"to nothing", 10 * time.Second, 0, 10}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newMoveKit(t, memfs.New(time.Now), "one", "two")
				p, put := k.following(50)
				k.slowly()
				time.Sleep(tt.copied)
				if end := k.future().EndOffset(); end == 0 || end > 45 {
					t.Fatalf("%d copied", end)
				}
				k.apply(change("t", 3))
				if err := p.truncateTo(1, tt.cut); err != nil {
					t.Fatal(err)
				}
				put(1, tt.more, 0)
				want := held(t, p)
				k.quickly()
				sameHeld(t, "moved", held(t, p), want)
				if e := p.plog().LatestEpoch(); tt.more > tt.cut && e != 1 {
					t.Errorf("latest epoch %d", e)
				}
				k.apply(change("t", 1)) // it leads, and takes records
				if leads, epoch := p.leading(); !leads || epoch != 2 {
					t.Fatalf("leading %v in epoch %d", leads, epoch)
				}
				k.append(p, records(1, 10), 1)
				k.close()
			})
		})
	}
}

// following is a follower of two others that holds n records of epoch 0, and what puts more into it.
func (k *moveKit) following(n wire.Offset) (p *Partition, put func(epoch wire.LeaderEpoch, to, start wire.Offset)) {
	k.t.Helper()
	k.open()
	k.apply(&coordrec.TopicRecord{Name: "t", TopicID: topicID("t")}, &coordrec.PartitionRecord{TopicID: topicID("t"),
		Replicas: []wire.BrokerID{1, 2, 3}, ISR: []wire.BrokerID{1, 2, 3}, Leader: 2, Directories: []wire.UUID{{1}, {}, {}}})
	p = k.part("t", 0)
	put = func(epoch wire.LeaderEpoch, to, start wire.Offset) {
		k.t.Helper()
		for from := p.Offsets().LEO; from < to; from++ {
			b := batch.NewBuilder(batch.Spec{BaseOffset: from, LeaderEpoch: epoch})
			b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: make([]byte, 500)})
			out, _, err := b.Build(nil, nil)
			if err != nil {
				k.t.Fatal(err)
			}
			if _, err := p.appendAsFollower(epoch, fetched{from: from, records: out, logStart: start}); err != nil {
				k.t.Fatal(err)
			}
		}
	}
	put(0, n, 0)
	return p, put
}

// once calls do before the next time that a file of this name is made in a directory.
func once(faults *faultfs.FS, dir, file string, do func()) {
	faults.Before(func(op faultfs.Op, name string) {
		if op == faultfs.OpCreate && strings.HasPrefix(name, dir+"/") && strings.HasPrefix(path.Base(name), file) {
			faults.Before(nil)
			do()
		}
	})
}

// A follower is cut and filled anew between the look at its copy and the next read: nothing of the new history comes to lie
// behind the old one.
func TestMoveMeetsTruncationBeforeARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := faultfs.New(memfs.New(time.Now))
		k := newMoveKit(t, faults, "one", "two")
		p, put := k.following(50)
		k.slowly()
		time.Sleep(5 * time.Second)
		var hit atomic.Bool
		// Written when the copy's start follows: first at the end of a step, then at the beginning of the next one.
		once(faults, "two", "leader-epoch-checkpoint", func() {
			put(0, 52, 6)
			once(faults, "two", "leader-epoch-checkpoint", func() {
				hit.Store(true)
				k.apply(change("t", 3))
				if err := p.truncateTo(1, 8); err != nil {
					t.Error(err)
				}
				put(1, 60, 6)
			})
		})
		put(0, 51, 3)
		time.Sleep(5 * time.Second)
		if !hit.Load() {
			t.Fatal("the copy's start did not follow")
		}
		want := held(t, p)
		k.quickly()
		sameHeld(t, "moved", held(t, p), want)
		k.close()
	})
}

// A follower is cut after the recovery point of its copy was written: the one on disk is taken back before the copy takes
// its place.
func TestMoveMeetsTruncationBeforeTheSwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := faultfs.New(memfs.New(time.Now))
		k := newMoveKit(t, faults, "one", "two")
		p, _ := k.following(50)
		var hit atomic.Bool
		once(faults, "two", movingFile, func() {
			hit.Store(true)
			k.apply(change("t", 3))
			if err := p.truncateTo(1, 30); err != nil {
				t.Error(err)
			}
		})
		k.atOnce()
		point, err := readCheckpoint(faults, "two/"+recoveryPointFile)
		if got := point[p.TP]; !hit.Load() || err != nil || got != 30 || p.rewound || p.Offsets().LEO != 30 {
			t.Fatalf("cut %v; recovery point %d, %v; rewound %v, %+v", hit.Load(), got, err, p.rewound, p.Offsets())
		}
		k.close()
	})
}

// Deleted records and those that retention removes are gone in the new directory too, at once and after a restart, also where
// the copy had them or had not come so far.
func TestMoveMeetsDeletion(t *testing.T) {
	for _, to := range []wire.Offset{3, 7, 30, 60} {
		synctest.Test(t, func(t *testing.T) {
			mem := memfs.New(time.Now)
			k := newMoveKit(t, mem, "one", "two")
			p := k.start(60)
			k.slowly()
			time.Sleep(3 * time.Second)
			if _, err := p.DeleteRecords(to); err != nil {
				t.Fatal(err)
			}
			k.m.house.retain(time.Now())
			k.quickly()
			if got := p.plog().StartOffset(); got != to || p.Offsets().LogStart != to || p.Offsets().LEO != 60 {
				t.Errorf("log of %d: starts at %d, %+v", to, got, p.Offsets())
			}
			crashed := k.restart(mem.Crash(memfs.Lose, 1))
			if o := crashed.part("t", 0).Offsets(); o.LogStart != to || o.LEO != 60 || o.HW != 60 {
				t.Errorf("after a crash: %+v", o)
			}
			crashed.lies("two")
			crashed.close()
			k.close()
		})
	}
}

// What is known of producers goes along, also of those of whom no batch is left, and stays after a crash; so does an open
// transaction, which ends in the new directory.
func TestMoveTakesProducersAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newMoveKit(t, mem, "one", "two")
		p := k.start(0)
		k.committed(p, idempotent(7, 0, 3))
		k.committed(p, records(1, 500))
		if _, err := p.DeleteRecords(3); err != nil {
			t.Fatal(err)
		}
		k.slowly()
		if _, err := p.AppendTxn(k.validate(p, inTxn(9, 0, 0)), Admission{Unchecked: true}, 1); err != nil {
			t.Fatal(err)
		}
		want, err := p.Producers()
		if err != nil || len(want) != 2 {
			t.Fatalf("%v, %v", want, err)
		}
		k.quickly()
		check := func(p *Partition) {
			t.Helper()
			got, err := p.Producers()
			if err != nil || !slices.EqualFunc(got, want, func(a, b log.ProducerState) bool {
				return a.ID == b.ID && a.Epoch == b.Epoch && a.LastSequence == b.LastSequence && a.TxnFirst == b.TxnFirst
			}) {
				t.Fatalf("producers %+v, %v, want %+v", got, err, want)
			}
			if o := p.Offsets(); o.LSO != 4 || o.HW != 5 {
				t.Fatalf("offsets %+v", o)
			}
			if a := k.append(p, idempotent(7, 0, 3), 1); !a.Duplicate || a.First != 0 {
				t.Fatalf("a repeated batch: %+v", a)
			}
		}
		synctest.Wait()
		check(p)
		crashed := k.restart(mem.Crash(memfs.Lose, 1))
		synctest.Wait()
		check(crashed.part("t", 0))
		crashed.close()
		done := make(chan error, 1)
		if err := p.AppendMarker(coord.Marker{ProducerRef: coord.ProducerRef{ID: 9}, Commit: true}, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || p.Offsets().LSO != 6 {
			t.Fatalf("marker: %v, %+v", err, p.Offsets())
		}
		k.close()
	})
}

// With its topic the copy of a replica goes, too; a topic of the same name begins from nothing.
func TestMoveMeetsTopicDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newMoveKit(t, mem, "one", "two")
		k.start(30)
		k.slowly()
		k.apply(remove("t"))
		synctest.Wait()
		if got := append(named(t, mem, "one"), named(t, mem, "two")...); len(got) != 0 || k.m.mover.count() != 0 {
			t.Errorf("left: %v, %d moves", got, k.m.mover.count())
		}
		time.Sleep(5 * time.Minute)
		if got := append(listDirs(t, mem, "one"), listDirs(t, mem, "two")...); len(got) != 0 {
			t.Errorf("not removed: %v", got)
		}
		k.close()
	})
}

// The disk that a replica moves to hangs: its topic is deleted, and what follows is applied.
func TestMoveMeetsTopicDeletionOnAHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		faults := faultfs.New(mem)
		k := newMoveKit(t, faults, "one", "two")
		k.start(30)
		release := make(chan struct{})
		faults.Before(func(_ faultfs.Op, name string) {
			if strings.HasPrefix(name, "two/") {
				<-release
			}
		})
		k.move("two")
		synctest.Wait()
		k.apply(remove("t"))
		k.topic("u", topicID("u"), 1)
		if k.m.Gone(topicID("t")) {
			t.Error("the topic is forgotten while a copy of it is there")
		}
		close(release)
		synctest.Wait()
		if got := append(named(t, mem, "one"), named(t, mem, "two")...); len(got) != 0 || !k.m.Gone(topicID("t")) {
			t.Errorf("left: %v", got)
		}
		k.close()
	})
}

// The log directory of a replica that has just begun to move is taken from the node, or its disk is new: the piece that was
// copied is not taken for the replica.
func TestUnfinishedCopyIsNoReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newMoveKit(t, mem, "one", "two")
		k.start(30)
		k.slowly()
		time.Sleep(3 * time.Second)
		k.close()
		if err := vfs.RemoveAll(mem, "one/t-0"); err != nil {
			t.Fatal(err)
		}
		next := k.restart(mem)
		next.settle()
		if err := next.part("t", 0).Err(); !errors.Is(err, ErrOffline) {
			t.Errorf("served: %v", err)
		}
		if got := named(t, mem, "two"); len(got) != 1 {
			t.Errorf("the copy was touched: %v", got)
		}
		next.close()
	})
}

// The directory that a move goes to fails: the replica serves on where it is. The one that it comes from fails: the
// controller hears that it lies there, and no unfinished copy takes its place, now or after a restart.
func TestMoveMeetsAFailingDirectory(t *testing.T) {
	for _, announced := range []bool{false, true} {
		for i, name := range []string{"one", "two"} {
			synctest.Test(t, func(t *testing.T) {
				mem := memfs.New(time.Now)
				k := newMoveKit(t, mem, "one", "two")
				p := k.start(30)
				if announced {
					k.move("two")
					synctest.Wait() // all is copied, and the controller told
				} else {
					k.slowly()
				}
				k.m.dirs[i].fail(errors.New("broken"))
				k.settle()
				k.lies("one")
				if meta, _ := k.img.Partition("t", 0); meta.Directory(1) != (wire.UUID{1}) || k.m.mover.count() != 0 {
					t.Errorf("%s: the metadata has it in %v, %d moves", name, meta.Directory(1), k.m.mover.count())
				}
				if name == "two" {
					k.committed(p, records(1, 10))
				} else if err := p.Err(); !errors.Is(err, ErrOffline) {
					t.Errorf("its directory has failed, and yet: %v", err)
				}
				_ = k.m.Close(t.Context())
				next := newMoveKit(t, mem, "one", "two")
				next.img, next.pos, next.config = k.img, k.pos, k.config
				next.o.Dirs[i].Err = errors.New("broken")
				next.open()
				next.settle()
				again := next.part("t", 0)
				if err := again.Err(); name == "two" && err != nil || name == "one" && !errors.Is(err, ErrOffline) {
					t.Errorf("%s, after a restart: %v", name, err)
				}
				_ = next.m.Close(t.Context())
				whole := k.restart(mem) // and it works again: the move goes on
				whole.settle()
				whole.lies("two")
				if got := len(held(t, whole.part("t", 0))); got < 30 {
					t.Errorf("%s: %d batches", name, got)
				}
				whole.close()
			})
		}
	}
}

// A log that moves is not compacted, and is afterwards.
func TestMoveMeetsCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMoveKit(t, memfs.New(time.Now), "one", "two")
		cfg := *k.config["t"]
		cfg.Compact, cfg.Delete, cfg.MinCleanableRatio = true, false, 0
		k.config["t"] = &cfg
		k.o.Cleaner = func(*image.Image) CleanerConfig {
			return CleanerConfig{Threads: 1, MapBytes: 1 << 20, MapLoad: 0.9, BufferBytes: 1 << 16, Backoff: time.Second}
		}
		p := k.start(0)
		k.slowly()
		k.fill(p, 40)
		size := p.Size()
		time.Sleep(time.Minute)
		if got := p.Size(); got != size {
			t.Errorf("compacted on its way: %d of %d bytes", got, size)
		}
		k.quickly()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := p.Size(); got >= size/2 {
			t.Errorf("not compacted in the new directory: %d of %d bytes", got, size)
		}
		k.close()
	})
}

// Clients that write and read meet no error while a replica goes from one directory to another and back.
func TestMoveUnderLoad(t *testing.T) {
	k := newMoveKit(t, memfs.New(time.Now), "one", "two")
	k.open()
	defer k.close()
	p := k.begin(0)
	stop, failed := make(chan struct{}), make(chan error, 3)
	var acked int64
	worker := func(do func() error) {
		for {
			select {
			case <-stop:
				failed <- nil
				return
			default:
				if err := do(); err != nil {
					failed <- err
					return
				}
			}
		}
	}
	go worker(func() error {
		a, err := p.AppendAsLeader(k.validate(p, records(1, 500)), wire.NoLeaderEpoch, 1)
		acked = max(acked, int64(a.End))
		return err
	})
	go worker(func() error {
		o := p.Offsets()
		r, err := p.Read(ReadOptions{Offset: o.LogStart, LeaderEpoch: wire.NoLeaderEpoch, LastFetchedEpoch: wire.NoLeaderEpoch, Max: 1 << 16, MinOne: true})
		wire.Release(r.Segments)
		if errors.Is(err, kerr.OffsetOutOfRange) {
			return nil // deleted meanwhile
		}
		return err
	})
	go worker(func() error {
		o := p.Offsets()
		_, err := p.DeleteRecords(max(0, o.HW-50))
		k.m.house.retain(time.Now())
		return err
	})
	for i := range 4 {
		to := []string{"two", "one"}[i%2]
		k.move(to)
		for deadline := time.Now().Add(time.Minute); p.dir().path != to; time.Sleep(time.Millisecond) {
			k.obey()
			if time.Now().After(deadline) {
				t.Fatal("the move does not end")
			}
		}
	}
	close(stop)
	for range 3 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if leo := int64(p.Offsets().LEO); leo != acked {
		t.Errorf("the log ends at %d, %d were acknowledged", leo, acked)
	}
}
