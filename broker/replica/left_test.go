package replica

import (
	"syscall"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// A log that a start can't open, or does not know, is there for the next one: the checkpoints keep what they say of it, so that
// nothing that was deleted comes back and no more is read again than has to be.
func TestCheckpointsKeepWhatIsLeftAlone(t *testing.T) {
	const metadata = "data/t-0/partition.metadata"
	for _, known := range []bool{true, false} {
		mem := memfs.New(ticking())
		k := newKit(t, mem)
		k.open()
		k.topic("t", topicID("t"), 1)
		k.topic("u", topicID("u"), 1)
		for _, topic := range []string{"t", "u"} {
			p := k.part(topic, 0)
			k.append(p, records(20, 10), 1)
			if err := p.flush(p.at.Load(), p.plog()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := k.part("t", 0).DeleteRecords(13); err != nil {
			t.Fatal(err)
		}
		k.close()
		whole, err := vfs.ReadFile(mem, metadata)
		if err != nil {
			t.Fatal(err)
		}
		next := k.another(mem, 1)
		if known {
			err = vfs.WriteAtomic(mem, metadata, []byte("nonsense"))
		} else {
			next = newKit(t, mem)
			next.topic("u", topicID("u"), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		next.open()
		if _, err := next.part("u", 0).DeleteRecords(5); err != nil {
			t.Fatal(err)
		}
		next.close()
		if err := vfs.WriteAtomic(mem, metadata, whole); err != nil {
			t.Fatal(err)
		}
		last := k.another(mem, 1)
		last.open()
		tp := wire.TopicPartition{Topic: "t"}
		if o := last.part("t", 0).Offsets(); o.LogStart != 13 || o.LEO != 20 || o.HW != 20 || last.m.dirs[0].recoveryPoints[tp] != 20 {
			t.Errorf("known %v: %+v, recovery point %d", known, o, last.m.dirs[0].recoveryPoints[tp])
		}
		last.close()
	}
}

// A topic of which a log could not be opened is deleted as any other: its directory is set aside, or the topic is not said to be gone.
func TestDeleteTopicOfAnUnopenedLog(t *testing.T) {
	for _, stays := range []bool{false, true} {
		mem := memfs.New(ticking())
		k := newKit(t, mem)
		k.open()
		k.topic("t", topicID("t"), 1)
		k.append(k.part("t", 0), records(1, 10), 1)
		killed := mem.Crash(memfs.Keep, 0)
		k.close()
		faults := faultfs.New(killed)
		k = k.another(faults, -1)
		faults.Add(faultfs.Rule{Op: faultfs.OpList, Path: "t-0", Times: 1, Err: syscall.EMFILE})
		k.open()
		if k.part("t", 0).Err() == nil {
			t.Fatal("the log was opened")
		}
		if stays {
			faults.Add(faultfs.Rule{Op: faultfs.OpRename, Path: "t-0", Err: syscall.ENOSPC})
		}
		k.apply(remove("t"))
		there, err := vfs.Exists(killed, "data/t-0")
		if gone := k.m.Gone(topicID("t")); err != nil || there != stays || gone == stays {
			t.Errorf("directory is there: %v, gone: %v, want %v, %v, %v", there, gone, stays, !stays, err)
		}
		k.topic("t", topicID("again"), 1) // nothing of it stands in the way of the next one of its name
		if p := k.part("t", 0); !stays {
			k.append(p, records(1, 10), 1)
		}
		k.close()
	}
}
