package replica

import (
	"errors"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// D12: a log start that a full disk has kept from being written down is written before DeleteRecords is answered, also where the
// start is there already, as for a client that asks again.
func TestDeleteRecordsAgainIsDurable(t *testing.T) {
	mem := memfs.New(ticking())
	faults := faultfs.New(mem)
	k := newKit(t, faults)
	k.open()
	k.topic("t", topicID("t"), 1)
	p := k.part("t", 0)
	k.append(p, records(20, 10), 1)
	if err := p.flush(p.at.Load(), p.plog()); err != nil {
		t.Fatal(err)
	}
	faults.Add(faultfs.Rule{Op: faultfs.OpCreate, Path: logStartFile + "*", Err: syscall.ENOSPC, Times: 1})
	if _, err := p.DeleteRecords(13); !errors.Is(err, log.ErrDiskFull) {
		t.Fatal(err)
	}
	for _, to := range []wire.Offset{13, 5} {
		if d, err := p.DeleteRecords(to); err != nil || d.To != to {
			t.Fatalf("%+v, %v", d, err)
		}
		n := k.another(mem.Crash(memfs.Lose, 1), 1)
		n.open()
		if got := n.part("t", 0).Offsets().LogStart; got != 13 {
			t.Errorf("records up to %d were deleted, and after a power loss the log starts at %d", to, got)
		}
		n.close()
	}
	k.close()
}
