package replica

import (
	"errors"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// A follower that has begun its log anew below its end, and then could not store what it did that for, tells so to who waits with
// nothing to read: its state ends where its log does. So at every file call.
func TestReaderIsToldOfAFailedRestart(t *testing.T) {
	restarted := 0
	for n := 1; ; n++ {
		faults := faultfs.New(memfs.New(nil))
		k := newKit(t, faults)
		k.open()
		k.topic("t", topicID("t"), 1, 2, 1)
		p := k.part("t", 0)
		if err := p.startOver(0, 5); err != nil {
			t.Fatal(err)
		}
		o := ReadOptions{Offset: 5, LeaderEpoch: wire.NoLeaderEpoch, LastFetchedEpoch: wire.NoLeaderEpoch, Max: 1 << 20}
		waiting, err := p.ReadReplica(o)
		if err != nil || !p.StillEnd(&waiting) {
			t.Fatalf("nothing to read at the end: %+v, %v", waiting, err)
		}
		raw := records(5, 10)
		batch.Batch(raw).SetBaseOffset(3)
		batch.Batch(raw).SetLeaderEpoch(0)
		hit := faults.Add(faultfs.Rule{Nth: n, Times: 1, Err: syscall.ENOSPC})
		_, err = p.appendAsFollower(0, fetched{from: 5, records: raw, logStart: 5})
		faults.Clear()
		if hit.Hits() == 0 {
			k.close()
			break
		}
		if got, end := p.Offsets(), p.plog().EndOffset(); got.LEO != end || got.HW > end {
			t.Errorf("call %d, %v: %+v, the log ends at %d", n, err, got, end)
		}
		again, errAgain := p.ReadReplica(o)
		if err != nil && errAgain != nil {
			restarted++
		}
		if (errAgain != nil || again.HW != waiting.HW || again.LogStart != waiting.LogStart) && p.StillEnd(&waiting) {
			t.Errorf("call %d, %v: left as it was: %+v; read again: %+v, %v", n, err, waiting, again, errAgain)
		}
		_ = k.m.Close(t.Context())
	}
	if restarted == 0 {
		t.Error("nothing failed after the log had begun anew")
	}
}

// What can't be what the log is begun anew for, because it is damaged, leaves the state where the log is: as it was.
func TestDamagedBatchRestartsNothing(t *testing.T) {
	k := newKit(t, memfs.New(nil))
	defer k.close()
	k.open()
	k.topic("t", topicID("t"), 1, 2, 1)
	p := k.part("t", 0)
	if err := p.startOver(0, 5); err != nil {
		t.Fatal(err)
	}
	before := p.Offsets()
	raw := records(5, 10)
	batch.Batch(raw).SetBaseOffset(3)
	batch.Batch(raw).SetLeaderEpoch(0)
	raw[len(raw)-1] ^= 1
	if _, err := p.appendAsFollower(0, fetched{from: 5, records: raw, logStart: 5}); !errors.Is(err, log.ErrCorrupt) {
		t.Fatalf("a damaged batch: %v", err)
	}
	if got, end := p.Offsets(), p.plog().EndOffset(); got != before || end != before.LEO {
		t.Errorf("%+v, the log ends at %d, before %+v", got, end, before)
	}
}
