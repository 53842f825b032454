package replica

import (
	"errors"
	"syscall"
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

// putThere copies a partition's directory with one segment to where another one's is to be.
func putThere(t *testing.T, from vfs.FS, source string, to vfs.FS, name string) {
	t.Helper()
	if err := to.MkdirAll(name); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"partition.metadata", "00000000000000000000.log"} {
		data, err := vfs.ReadFile(from, source+"/"+file)
		if err == nil {
			err = vfs.WriteAtomic(to, name+"/"+file, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// recordWithoutDescriptors appends a record whose nth file call lacks a descriptor; met says that there was such a call.
func (k *kit) recordWithoutDescriptors(faults *faultfs.FS, p *Partition, nth int) (met bool, err error) {
	hit := faults.Add(faultfs.Rule{Nth: nth, Times: 1, Err: syscall.EMFILE})
	_, err = p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, 1)
	met = hit.Hits() > 0
	faults.Clear()
	return met, err
}

// A directory that is put in a new partition's place while the broker runs is found before the first record goes there, by a leader
// and by a follower, and left byte for byte as it is. The partition is refused, another one is not.
func TestDirectoryPutThereIsLeftAlone(t *testing.T) {
	mem := memfs.New(time.Now)
	k := newKit(t, mem)
	k.open()
	k.topic("old", topicID("old"), 1)
	k.append(k.part("old", 0), records(4, 10), 1)
	k.close()
	for _, leads := range []wire.BrokerID{1, 2} {
		n := k.another(mem, 0)
		n.open()
		n.topic("t", topicID("t"), 2, leads, 3-leads)
		putThere(t, mem, "data/old-0", mem, "data/t-0")
		before := snapshotDir(t, mem, "data/t-0")
		write := func(p *Partition) error {
			if leads == 1 {
				_, err := p.AppendAsLeader(n.validate(p, records(1, 10)), wire.NoLeaderEpoch, 1)
				return err
			}
			p.appendMu.Lock()
			defer p.appendMu.Unlock()
			_, err := p.writable(p.plog(), 0)
			return err
		}
		for range 2 {
			if err := write(n.part("t", 0)); !errors.Is(err, kerr.InconsistentTopicID) {
				t.Errorf("led by %d: the first record: %v", leads, err)
			}
		}
		if err := n.part("t", 0).Err(); !errors.Is(err, kerr.InconsistentTopicID) {
			t.Errorf("led by %d: %v", leads, err)
		}
		if err := write(n.part("t", 1)); err != nil {
			t.Errorf("led by %d: the other partition: %v", leads, err)
		}
		n.apply(remove("t"))
		n.topic("t", topicID("again"), 1)
		if err := n.part("t", 0).Err(); !errors.Is(err, kerr.InconsistentTopicID) {
			t.Errorf("led by %d: the next one of its name: %v", leads, err)
		}
		n.close()
		if after := snapshotDir(t, mem, "data/t-0"); after != before {
			t.Errorf("led by %d: the directory has changed:\n%s\n%s", leads, before, after)
		}
		if err := vfs.RemoveAll(mem, "data/t-0"); err != nil {
			t.Fatal(err)
		}
	}
}

// A directory that a full disk or a lack of descriptors has left half made is the partition's own: the next record finds it so. If the
// partition is deleted before, it does not stand in the way of the next one of its name.
func TestHalfMadeDirectoryIsItsOwn(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		for n := 1; ; n++ {
			mem := memfs.New(nil)
			faults := faultfs.New(mem)
			k := newKit(t, faults)
			k.open()
			k.topic("t", topicID("t"), 1)
			met, err := k.recordWithoutDescriptors(faults, k.part("t", 0), n)
			if !met {
				k.close()
				if n < 3 {
					t.Errorf("only %d calls", n-1)
				}
				break
			}
			if err != nil && !log.Passing(err) {
				t.Fatalf("call %d: %v", n, err)
			}
			if deleted {
				named, merr := vfs.Exists(mem, "data/t-0/partition.metadata")
				there, derr := vfs.Exists(mem, "data/t-0")
				k.apply(remove("t"))
				k.topic("t", topicID("again"), 1)
				if refused := k.part("t", 0).Err() != nil; merr != nil || derr != nil || refused != (there && !named) {
					t.Errorf("call %d: refused %v, directory there %v, with its topic %v, %v, %v", n, refused, there, named, merr, derr)
				}
				if k.part("t", 0).Err() != nil {
					k.close()
					continue
				}
			}
			k.append(k.part("t", 0), records(1, 10), 1)
			k.close()
		}
	}
}

// A deleted partition's directory that could not be set aside is set aside for the next one of its name.
func TestDirectoryThatStayedMakesWay(t *testing.T) {
	faults := faultfs.New(memfs.New(nil))
	k := newKit(t, faults)
	k.open()
	k.topic("t", topicID("t"), 1)
	k.append(k.part("t", 0), records(4, 10), 1)
	hit := faults.Add(faultfs.Rule{Op: faultfs.OpRename, Path: "t-0", Times: 1, Err: syscall.ENOSPC})
	k.apply(remove("t"))
	if hit.Hits() != 1 {
		t.Fatal("the directory was set aside")
	}
	k.topic("t", topicID("again"), 1)
	if a := k.append(k.part("t", 0), records(1, 10), 1); a.First != 0 {
		t.Errorf("the first record has offset %d", a.First)
	}
	k.close()
}

// A directory that is put in a partition's place after a try to make its own has failed is no more its own than one that was there
// before: it is neither written to nor set aside, by a record or by a move, also where it is of the same topic.
func TestDirectoryPutThereAfterAFailure(t *testing.T) {
	for _, then := range []string{"a record", "a move"} {
		for _, source := range []string{"old", "t"} {
			failures := 0
			for n := 1; n < 12; n++ {
				synctest.Test(t, func(t *testing.T) {
					mem, elsewhere := memfs.New(time.Now), memfs.New(time.Now)
					faults := faultfs.New(mem)
					other := newMoveKit(t, elsewhere, "one", "two")
					other.start(0)
					if source != "t" {
						other.topic(source, topicID(source), 1)
					}
					other.append(other.part(source, 0), records(4, 10), 1)
					from := other.part(source, 0).pathIn(other.part(source, 0).dir())
					other.close()
					k := newMoveKit(t, faults, "one", "two")
					p := k.start(0)
					_, err := k.recordWithoutDescriptors(faults, p, n)
					if there, _ := vfs.Exists(mem, "one/t-0"); err == nil || there {
						k.close()
						return
					}
					failures++
					putThere(t, elsewhere, from, mem, "one/t-0")
					before := snapshotDir(t, mem, "one/t-0")
					if then == "a move" {
						k.move("two")
						k.settle()
						time.Sleep(10 * time.Minute)
					} else if _, err := p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, 1); !errors.Is(err, kerr.InconsistentTopicID) {
						t.Errorf("call %d, a directory of %s: %v", n, source, err)
					}
					if after := snapshotDir(t, mem, "one/t-0"); after != before {
						t.Errorf("call %d, a directory of %s: after %s it has changed:\n%s\n%s", n, source, then, before, after)
					}
					k.close()
				})
			}
			if failures == 0 {
				t.Error("no call failed before there was a directory")
			}
		}
	}
}

// A coordinator is not kept by a partition whose directory is found taken.
func TestTakenDirectoryEndsTheCoordinator(t *testing.T) {
	mem := memfs.New(nil)
	k := newKit(t, mem)
	elected, resigned, damaged := 0, 0, make(chan struct{}, 1)
	k.o.Elected = func(*Partition, wire.LeaderEpoch) { elected++ }
	k.o.Resigned = func(*Partition, wire.LeaderEpoch) { resigned++ }
	k.o.Damaged = func(*Partition) { damaged <- struct{}{} }
	k.open()
	if err := mem.MkdirAll("data/__consumer_offsets-0"); err != nil {
		t.Fatal(err)
	}
	k.topic("__consumer_offsets", topicID("c"), 1)
	p := k.part("__consumer_offsets", 0)
	if _, err := p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, 1); !errors.Is(err, kerr.InconsistentTopicID) {
		t.Fatal(err)
	}
	<-damaged
	k.m.ResignOffline()
	if elected != 1 || resigned != 1 {
		t.Errorf("elected %d times, resigned %d times", elected, resigned)
	}
	k.close()
}
