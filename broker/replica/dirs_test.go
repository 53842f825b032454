package replica

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// The controller is told where a replica lies unless it has said so itself, again until it answers, and no more after that.
func TestControllerLearnsOfDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, memfs.New(time.Now))
		k.o.Dirs = []Dir{{Path: "one", ID: wire.UUID{1}}, {Path: "two", ID: wire.UUID{2}}}
		var mu sync.Mutex
		var told []DirAssignment
		silent := true
		calls := 0
		k.o.AssignDirs = func(_ context.Context, as []DirAssignment) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			if silent {
				return errors.New("no controller")
			}
			told = append(told, as...)
			return nil
		}
		heard := func() []DirAssignment {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(told)
		}
		k.open()
		k.topic("t", topicID("t"), 2)
		time.Sleep(10 * time.Second)
		mu.Lock()
		if len(told) != 0 || calls < 5 || calls > 30 {
			t.Errorf("told %v in %d calls", told, calls)
		}
		silent = false
		mu.Unlock()
		time.Sleep(2 * time.Second)
		var want []DirAssignment
		for i := range wire.PartitionID(2) {
			want = append(want, DirAssignment{k.part("t", i).dir().id, topicID("t"), i})
		}
		if got := heard(); !slices.Equal(got, want) || want[0].Directory == want[1].Directory {
			t.Fatalf("told %v, want %v", got, want)
		}
		k.apply(change("t", 1)) // still says nothing of directories
		k.apply(&coordrec.PartitionChangeRecord{TopicID: topicID("t"), PartitionID: 1, Leader: coordrec.NoLeaderChange,
			LeaderRecoveryState: coordrec.NoRecoveryChange, Directories: []wire.UUID{want[1].Directory}})
		time.Sleep(2 * time.Second)
		if got := heard(); len(got) != 2 {
			t.Errorf("told again: %v", got)
		}
		// A replica that the metadata places lies there, and nobody is told.
		k.apply(&coordrec.TopicRecord{Name: "u", TopicID: topicID("u")}, &coordrec.PartitionRecord{TopicID: topicID("u"),
			Replicas: []wire.BrokerID{1}, ISR: []wire.BrokerID{1}, Leader: 1, Directories: []wire.UUID{{2}}})
		time.Sleep(2 * time.Second)
		if d := k.part("u", 0).dir().id; d != (wire.UUID{2}) || len(heard()) != 2 {
			t.Errorf("placed in %v, told %v", d, heard())
		}
		k.close()
	})
}

// An append that was let in just before its directory failed is answered with that, not with the client's timeout.
func TestAppendThatMeetsTheFailureOfItsDirectory(t *testing.T) {
	for _, acks := range []int16{-1, 1} {
		synctest.Test(t, func(t *testing.T) {
			fs := faultfs.New(memfs.New(time.Now))
			k := newKit(t, fs)
			k.open()
			k.topic("t", topicID("t"), 1)
			p := k.part("t", 0)
			k.append(p, records(1, 10), 1)
			fs.Before(func(op faultfs.Op, name string) {
				if op == faultfs.OpWrite && strings.HasSuffix(name, ".log") {
					p.dir().fail(errors.New("noticed elsewhere"))
				}
			})
			if a, err := p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, acks); !errors.Is(err, ErrOffline) {
				t.Fatalf("acks %d: %+v, %v", acks, a, err)
			}
			if err := k.m.Close(t.Context()); !errors.Is(err, ErrOffline) {
				t.Fatalf("close: %v", err)
			}
		})
	}
}

// The coordinators of internal partitions in a directory that failed are told to end, once.
func TestCoordinatorsResignWithTheirDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, memfs.New(time.Now))
		k.o.Dirs = []Dir{{Path: "one", ID: wire.UUID{1}}, {Path: "two", ID: wire.UUID{2}}}
		var said []string
		k.o.Elected = func(p *Partition, e wire.LeaderEpoch) { said = append(said, "elected "+p.TP.String()) }
		k.o.Resigned = func(p *Partition, e wire.LeaderEpoch) { said = append(said, "resigned "+p.TP.String()) }
		k.open()
		k.topic(image.OffsetsTopic, topicID(image.OffsetsTopic), 2)
		p := k.part(image.OffsetsTopic, 0)
		said = nil
		p.dir().fail(errors.New("broken"))
		if got := k.m.OfflineDirs(); !slices.Equal(got, []wire.UUID{p.dir().id}) {
			t.Errorf("offline directories %v", got)
		}
		k.m.ResignOffline()
		k.m.ResignOffline()
		k.apply(change(image.OffsetsTopic, 2)) // the controller moves the leadership
		if want := []string{"resigned " + p.TP.String()}; !slices.Equal(said, want) {
			t.Errorf("said %v, want %v", said, want)
		}
		if err := k.m.AllOffline(); err != nil {
			t.Errorf("one directory works, and yet: %v", err)
		}
		for _, d := range k.m.dirs {
			d.fail(errors.New("broken"))
		}
		if err := k.m.AllOffline(); !errors.Is(err, ErrOffline) {
			t.Errorf("no directory works, and yet: %v", err)
		}
		if err := k.m.Close(t.Context()); !errors.Is(err, ErrOffline) {
			t.Fatalf("close: %v", err)
		}
	})
}
