package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// moveKit is a node of several log directories and a controller that notes what it is told when the test lets it.
type moveKit struct {
	*kit
	told *[]DirAssignment
	mu   *sync.Mutex
	rate int64
}

func newMoveKit(t *testing.T, fs vfs.FS, dirs ...string) *moveKit {
	k := &moveKit{kit: newKit(t, fs), told: new([]DirAssignment), mu: new(sync.Mutex), rate: -1}
	k.o.Dirs = nil
	for i, d := range dirs {
		k.o.Dirs = append(k.o.Dirs, Dir{Path: d, ID: wire.UUID{byte(i + 1)}})
	}
	k.o.AssignDirs = func(_ context.Context, as []DirAssignment) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		*k.told = append(*k.told, as...)
		return nil
	}
	k.o.Moves = func(*image.Image) MoveConfig { return MoveConfig{BytesPerSecond: k.rate} }
	cfg := log.DefaultConfig()
	cfg.SegmentBytes = 4000
	k.config["t"] = cfg
	return k
}

// restart is the node's next life, on fs.
func (k *moveKit) restart(fs vfs.FS) *moveKit {
	k.t.Helper()
	n := newMoveKit(k.t, fs)
	n.o.Dirs = k.o.Dirs
	n.img, n.pos, n.config, n.fsync = k.img, k.pos, k.config, k.fsync
	n.open()
	return n
}

// obey lets the controller note what it was told; it reports whether there was anything.
func (k *moveKit) obey() bool {
	k.mu.Lock()
	told := *k.told
	*k.told = nil
	k.mu.Unlock()
	for _, a := range told {
		t, ok := k.img.TopicByID(a.TopicID)
		if !ok {
			continue
		}
		p, _ := t.Partition(a.Partition)
		dirs := slices.Clone(p.Directories)
		dirs[slices.Index(p.Replicas, 1)] = a.Directory
		k.apply(&coordrec.PartitionChangeRecord{TopicID: a.TopicID, PartitionID: a.Partition, Leader: coordrec.NoLeaderChange,
			LeaderRecoveryState: coordrec.NoRecoveryChange, Directories: dirs})
	}
	return len(told) > 0
}

// settle lets everything happen that can.
func (k *moveKit) settle() {
	k.t.Helper()
	for range 50 {
		synctest.Wait()
		if !k.obey() {
			time.Sleep(moveBackoffMax)
			synctest.Wait()
			if !k.obey() {
				return
			}
		}
	}
	k.t.Fatal("the moves do not come to rest")
}

// start makes the topic t with its one partition in the first directory and n records in it.
func (k *moveKit) start(n int) *Partition {
	k.t.Helper()
	k.open()
	return k.begin(n)
}

func (k *moveKit) begin(n int) *Partition {
	k.t.Helper()
	k.apply(&coordrec.TopicRecord{Name: "t", TopicID: topicID("t")}, &coordrec.PartitionRecord{TopicID: topicID("t"),
		Replicas: []wire.BrokerID{1}, ISR: []wire.BrokerID{1}, Leader: 1, Directories: []wire.UUID{{1}}})
	p := k.part("t", 0)
	for range n {
		k.committed(p, records(1, 500))
	}
	return p
}

func (k *moveKit) move(to string) {
	k.t.Helper()
	if err := k.m.MoveReplica("t", 0, to); err != nil {
		k.t.Fatal(err)
	}
}

// held is what a replica holds: the base offset, epoch and checksum of every batch.
func held(t *testing.T, p *Partition) []string {
	t.Helper()
	plog := p.plog()
	if plog == nil {
		return nil
	}
	var out []string
	if err := plog.Scan(plog.StartOffset(), plog.EndOffset(), func(b batch.Batch) error {
		out = append(out, fmt.Sprintf("%d/%d/%x", b.BaseOffset(), b.LeaderEpoch(), b.CRC()))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// shown is what DescribeLogDirs shows of t-0: the directory, + for a future replica, the lag.
func (k *moveKit) shown() string {
	var out []string
	for _, d := range k.m.LogDirs() {
		for _, p := range d.Partitions {
			mark := ""
			if p.Future {
				mark = "+"
			}
			out = append(out, fmt.Sprintf("%s%s %d", d.Path, mark, p.OffsetLag))
		}
	}
	return strings.Join(out, ", ")
}

func (k *moveKit) lies(where string) {
	k.t.Helper()
	if got := k.part("t", 0).dir().path; got != where {
		k.t.Fatalf("the replica lies in %s, want %s", got, where)
	}
}

// named are the directories of partitions in a log directory that do not wait for their removal.
func named(t *testing.T, fs vfs.FS, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(listDirs(t, fs, dir), func(n string) bool { return strings.HasSuffix(n, "-delete") })
}

func sameHeld(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %d batches %v, want %d %v", what, len(got), got, len(want), want)
	}
}

// A replica goes to another directory with all that it holds, while it is written to; it changes places only after the
// metadata has named the new directory, and stays there after a restart.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newMoveKit(t, mem, "one", "two")
		p := k.start(40)
		k.move("two")
		synctest.Wait()
		if got := k.shown(); got != "one 0, two+ 0" {
			t.Errorf("before the metadata names the new directory: %s", got)
		}
		future := futureDirName(p.TP, p.TopicID)
		if got := named(t, mem, "two"); !slices.Equal(got, []string{future}) {
			t.Errorf("directories in two: %v", got)
		}
		for range 10 {
			k.committed(p, records(1, 500))
		}
		if got := k.shown(); got != "one 0, two+ 10" {
			t.Errorf("with records that came since: %s", got)
		}
		k.lies("one")
		want := held(t, p)
		k.settle()
		k.lies("two")
		sameHeld(t, "moved", held(t, p), want)
		if got := k.shown(); got != "two 0" {
			t.Errorf("afterwards: %s", got)
		}
		if got := append(named(t, mem, "one"), named(t, mem, "two")...); !slices.Equal(got, []string{"t-0"}) {
			t.Errorf("directories: %v", got)
		}
		k.committed(p, records(1, 500))
		want = held(t, p)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := listDirs(t, mem, "one"); len(got) != 0 {
			t.Errorf("in the old directory: %v", got)
		}
		k.close()
		k = k.restart(mem)
		k.settle()
		k.lies("two")
		sameHeld(t, "after a restart", held(t, k.part("t", 0)), want)
		k.close()
	})
}

// A replica that never held a record moves as well, and its first record goes to the new directory.
func TestMoveOfAnEmptyReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newMoveKit(t, mem, "one", "two")
		p := k.start(0)
		k.move("two")
		k.settle()
		k.lies("two")
		k.committed(p, records(1, 10))
		if got := listDirs(t, mem, "two"); !slices.Equal(got, []string{"t-0"}) {
			t.Errorf("directories %v", got)
		}
		k.close()
	})
}

// The directory in which the replica lies ends its move, another one replaces it; what was copied is removed, and the
// controller hears where the replica is.
func TestMoveCancelledAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := newMoveKit(t, mem, "one", "two", "three")
		p := k.start(20)
		k.move("two")
		synctest.Wait()
		k.move("two") // again: nothing new
		k.move("one")
		k.settle()
		k.lies("one")
		if got := k.shown(); got != "one 0" || len(named(t, mem, "two")) != 0 {
			t.Errorf("cancelled: %s, %v", got, named(t, mem, "two"))
		}
		if meta, _ := k.img.Partition("t", 0); meta.Directory(1) != (wire.UUID{1}) {
			t.Errorf("the metadata has it in %v", meta.Directory(1))
		}
		k.move("two")
		synctest.Wait()
		k.move("three")
		want := held(t, p)
		k.settle()
		k.lies("three")
		sameHeld(t, "moved", held(t, p), want)
		if got := append(named(t, mem, "one"), named(t, mem, "two")...); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
		if k.m.mover.count() != 0 {
			t.Error("a move is left")
		}
		k.move("one") // and back, where its name was once
		k.settle()
		k.lies("one")
		sameHeld(t, "moved back", held(t, p), want)
		k.close()
	})
}

func TestMoveErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMoveKit(t, memfs.New(time.Now), "one", "two", "broken")
		k.start(1)
		k.m.dirs[2].fail(errors.New("broken"))
		long := strings.Repeat("l", 214) // with -0.<32 hex>-future one more than 255
		k.topic("far", topicID("far"), 1, 2)
		for _, tt := range []struct {
			topic string
			path  string
			want  error
		}{
			{"t", "nowhere", kerr.LogDirNotFound}, {"t", "two/", kerr.LogDirNotFound}, {"t", "broken", ErrOffline},
			{long, "two", kerr.InvalidTopicException}, {long, "nowhere", kerr.InvalidTopicException}, {long[1:], "two", kerr.UnknownTopicOrPartition},
			{"far", "two", kerr.ReplicaNotAvailable}, {"unknown", "two", kerr.UnknownTopicOrPartition}, {"unknown", "nowhere", kerr.LogDirNotFound},
			{"t", "one", nil},
		} {
			if err := k.m.MoveReplica(tt.topic, 0, tt.path); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("%s to %s: %v, want %v", tt.topic, tt.path, err, tt.want)
			}
		}
		k.topic("unknown", topicID("unknown"), 1)
		if d := k.part("unknown", 0).dir(); d.path != "two" {
			t.Errorf("a replica that came later lies in %s", d.path)
		}
		_ = k.m.Close(t.Context())
	})
}

// The bound on copied bytes holds, a new one counts at once, and 0 stops everything; appends never wait for it.
func TestMoveThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newMoveKit(t, memfs.New(time.Now), "one", "two")
		k.rate = 1000
		p := k.start(100) // of about 570 bytes
		size := p.Size()
		began := time.Now()
		k.move("two")
		for range 10 {
			time.Sleep(time.Second)
			k.committed(p, records(1, 500))
		}
		copied := k.m.mover.moves[p].to.size()
		if copied < 8000 || copied > 12000 {
			t.Errorf("%d bytes copied in 10 s at 1,000 B/s", copied)
		}
		alter := func(rate int64) {
			k.rate = rate
			value := fmt.Sprint(rate)
			k.apply(&coordrec.ConfigRecord{ResourceType: int8(image.ResourceBroker), ResourceName: "1", Name: "replica.alter.log.dirs.io.max.bytes.per.second", Value: &value})
		}
		alter(0)
		synctest.Wait()
		before := k.m.mover.moves[p].to.size()
		time.Sleep(time.Hour)
		if got := k.m.mover.moves[p].to.size(); got-before > 1200 {
			t.Errorf("%d bytes copied at 0 B/s", got-before)
		}
		alter(size) // the rest within a second
		time.Sleep(2 * time.Second)
		k.settle()
		k.lies("two")
		if took := time.Since(began) - time.Hour; took > 2*time.Minute {
			t.Errorf("took %v", took)
		}
		k.close()
	})
}
