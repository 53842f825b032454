package replica

import (
	"strings"
	"sync"
	"testing"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/filepool"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// A partition to which nothing is written costs a start and a stop no write, although each start gives it a new leader epoch:
// with very many of them that is what either would take its time for.
func TestIdlePartitionsAreNotWrittenTo(t *testing.T) {
	mem := memfs.New(nil)
	k := newKit(t, mem)
	k.open()
	k.topic("t", topicID("t"), togetherParts)
	for i := range togetherParts {
		k.append(k.part("t", wire.PartitionID(i)), idempotent(7, 0, 2), 1)
	}
	k.close()
	for n, killed := range []bool{false, false, true, true, false} {
		var mu sync.Mutex
		var seen []string
		faults := faultfs.New(mem)
		faults.Before(func(op faultfs.Op, name string) {
			if strings.HasPrefix(name, "data/t-") {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, string(op)+" "+name)
			}
		})
		k = k.another(faults, 1)
		k.open()
		for i := range togetherParts {
			k.apply(&coordrec.PartitionChangeRecord{TopicID: topicID("t"), PartitionID: wire.PartitionID(i), Leader: 1, LeaderRecoveryState: coordrec.NoRecoveryChange})
			plog := k.part("t", wire.PartitionID(i)).plog()
			if e := plog.LatestEpoch(); e != k.leaderEpoch("t", i) {
				t.Fatalf("start %d: latest epoch %d, want %d", n, e, k.leaderEpoch("t", i))
			}
		}
		if killed {
			mem = mem.Crash(memfs.Keep, 1)
		}
		k.close()
		if len(seen) > 0 {
			t.Fatalf("start %d: %v", n, seen)
		}
	}
}

// A stop that syncs the file system as a whole syncs no file of a log besides, also where descriptors are scarce.
func TestStopTogetherSyncsNoFile(t *testing.T) {
	faults := faultfs.New(memfs.New(nil))
	k := newKit(t, filepool.New(faults, 12))
	k.o.SyncTogether, k.fsync = 1, FSyncNever
	k.open()
	k.topic("t", topicID("t"), 20)
	for i := range 20 {
		p := k.part("t", wire.PartitionID(i))
		k.append(p, records(3, 50), 1)
		if err := p.plog().Flush(); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	var seen []string
	faults.Before(func(op faultfs.Op, name string) {
		if strings.HasPrefix(name, "data/t-") && (op == faultfs.OpSync || op == faultfs.OpSyncDir) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, string(op)+" "+name)
		}
	})
	k.close()
	if len(seen) > 0 {
		t.Fatalf("%d syncs: %v", len(seen), seen)
	}
}

func (k *kit) leaderEpoch(topic string, p int) wire.LeaderEpoch {
	k.t.Helper()
	part, ok := k.img.Partition(topic, wire.PartitionID(p))
	if !ok {
		k.t.Fatal("no such partition")
	}
	return part.LeaderEpoch
}
