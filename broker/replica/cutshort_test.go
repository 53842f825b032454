package replica

import (
	"errors"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// A truncation that a lack of descriptors interrupts has happened for the replica's state, too: elected alone, it neither takes
// what it has cut off for committed nor answers for records that are not below its high watermark. So at every file call of
// the truncation, for a cut within the log, to its start and beyond its end; and where the lack lasts, nothing is led.
func TestInterruptedTruncationAndThenLeading(t *testing.T) {
	cuts := map[string]struct {
		do  func(p *Partition) error
		end wire.Offset
	}{
		"within":   {func(p *Partition) error { return p.truncateTo(1, 10) }, 10},
		"to start": {func(p *Partition) error { return p.truncateTo(1, 0) }, 0},
		"anew":     {func(p *Partition) error { return p.startOver(1, 30) }, 30},
	}
	for name, cut := range cuts {
		for _, lasts := range []bool{false, true} {
			interrupted := 0
			for n := 1; ; n++ {
				faults := faultfs.New(memfs.New(nil))
				k := newKit(t, faults)
				k.open()
				k.topic("t", topicID("t"), 1, 1, 2)
				p := k.part("t", 0)
				for range 20 {
					k.append(p, records(1, 10), 1)
				}
				if err := p.plog().Flush(); err != nil {
					t.Fatal(err)
				}
				elect := func(leader wire.BrokerID, isr ...wire.BrokerID) {
					k.apply(&coordrec.PartitionChangeRecord{TopicID: topicID("t"), Leader: leader, ISR: isr, LeaderRecoveryState: coordrec.NoRecoveryChange})
				}
				elect(2, 1, 2)
				rule := faultfs.Rule{Nth: n, Times: 1, Err: syscall.EMFILE}
				if lasts {
					rule.Times = 0
				}
				hit := faults.Add(rule)
				err := cut.do(p)
				if hit.Hits() == 0 {
					faults.Clear()
					k.close()
					break
				}
				end := p.plog().EndOffset()
				if err != nil && !log.Passing(err) || err == nil && end != cut.end {
					t.Fatalf("%s, call %d: %v, the log ends at %d", name, n, err, end)
				}
				if err != nil && end == cut.end {
					interrupted++
				}
				if got := p.Offsets(); got.LEO != end || got.HW > end {
					t.Fatalf("%s, call %d: %+v, the log ends at %d", name, n, got, end)
				}
				elect(1, 1)
				faults.Clear()
				a, err := p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, -1)
				switch got := p.Offsets(); {
				case lasts && errors.Is(err, log.ErrStorage):
				case err != nil:
					t.Fatalf("%s, call %d: append: %v", name, n, err)
				case a.First != end || got.LEO != end+1 || p.plog().EndOffset() != got.LEO || got.HW > p.plog().FlushedOffset():
					t.Fatalf("%s, call %d: appended at %d, %+v, the log ends at %d and is flushed to %d", name, n, a.First, got,
						p.plog().EndOffset(), p.plog().FlushedOffset())
				}
				_ = k.m.Close(t.Context())
			}
			if interrupted == 0 {
				t.Errorf("%s: nothing was interrupted", name)
			}
		}
	}
}
