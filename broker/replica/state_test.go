package replica

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/kajamq/kaja/wire"
	"pgregory.net/rapid"
)

// TestStateScripts runs testdata/state/*. Every command prints what changed and the state after it.
func TestStateScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/state", func(t *testing.T, path string) {
		var s *State
		clock := time.Unix(0, 0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			num := func(name string, def int64) int64 {
				if !d.HasArg(name) {
					return def
				}
				var v int64
				d.ScanArgs(t, name, &v)
				return v
			}
			ids := func(name string) []wire.BrokerID {
				var out []wire.BrokerID
				for i := range d.CmdArgs {
					if d.CmdArgs[i].Key == name {
						for _, v := range d.CmdArgs[i].Vals {
							var id wire.BrokerID
							fmt.Sscan(v, &id)
							out = append(out, id)
						}
					}
				}
				return out
			}
			clock = clock.Add(time.Duration(num("after", 0)) * time.Second)
			var c Change
			var err error
			note := ""
			switch d.Cmd {
			case "state":
				mode := FSync(num("fsync", int64(FSyncAuto)))
				s = NewState(1, mode, 10*time.Second, int(num("min", 1)), wire.Offset(num("start", 0)),
					wire.Offset(num("leo", 0)), wire.Offset(num("flushed", 0)), wire.Offset(num("hw", 0)))
			case "apply":
				var fresh bool
				fresh, c = s.Apply(Assignment{Leader: wire.BrokerID(num("leader", 1)), LeaderEpoch: wire.LeaderEpoch(num("epoch", 0)),
					PartitionEpoch: wire.PartitionEpoch(num("pepoch", 0)), Replicas: ids("replicas"), ISR: ids("isr")}, clock)
				if fresh {
					note = "new epoch; "
				}
			case "append":
				c = s.OnAppend(wire.Offset(num("to", 0)), wire.Offset(num("unstable", -1)), clock)
			case "flush":
				c = s.OnFlushed(wire.Offset(num("to", int64(s.leo))), clock)
			case "truncate":
				c = s.OnTruncate(wire.Offset(num("start", int64(s.logStart))), wire.Offset(num("to", 0)), wire.NoOffset)
			case "leader-hw":
				c = s.OnLeaderHW(wire.Offset(num("hw", 0)))
			case "fetch":
				c, err = s.OnFollowerFetch(FollowerFetch{Replica: wire.BrokerID(num("from", 2)), BrokerEpoch: wire.BrokerEpoch(num("life", -1)),
					LeaderEpoch: wire.LeaderEpoch(num("epoch", int64(s.assignment.LeaderEpoch))), Offset: wire.Offset(num("at", 0))}, clock)
			case "expand":
				isr := s.Expansion(wire.BrokerID(num("who", 2)))
				note = fmt.Sprintf("propose %v; ", isr)
				if isr != nil {
					s.Propose(isr)
				}
			case "shrink":
				isr := s.Shrunk(clock)
				note = fmt.Sprintf("propose %v; ", isr)
				if isr != nil {
					s.Propose(isr)
				}
			case "accepted":
				c = s.Accepted(ids("isr"), wire.PartitionEpoch(num("pepoch", 0)), clock)
			case "rejected":
				c = s.Rejected(wire.PartitionEpoch(num("pepoch", int64(s.assignment.PartitionEpoch))), clock)
			default:
				t.Fatalf("unknown command %s", d.Cmd)
			}
			if err != nil {
				return fmt.Sprintf("error %v\n", err)
			}
			var moved []string
			for name, m := range map[string]bool{"HW": c.HW, "LSO": c.LSO, "LEO": c.LEO} {
				if m {
					moved = append(moved, name)
				}
			}
			slices.Sort(moved)
			return fmt.Sprintf("%smoved %v leo=%d flushed=%d hw=%d lso=%d isr=%v pending=%v needs-flush=%v under-min=%v\n",
				note, moved, s.leo, s.flushed, s.hw, s.LSO(), s.assignment.ISR, s.pending, s.NeedsFlush(), s.UnderMinISR())
		})
	})
}

// Whatever happens to a leader and its followers: the high watermark never goes back within an epoch, never passes what
// a member of the maximal ISR has, nor, where the leader is alone, what is flushed.
func TestStateInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := time.Unix(0, 0)
		mode := FSync(rapid.IntRange(0, 2).Draw(t, "fsync"))
		s := NewState(1, mode, 10*time.Second, rapid.IntRange(1, 3).Draw(t, "min"), 0, 0, 0, 0)
		replicas := []wire.BrokerID{1, 2, 3}[:rapid.IntRange(1, 3).Draw(t, "rf")]
		epoch, pepoch := wire.LeaderEpoch(0), wire.PartitionEpoch(0)
		s.Apply(Assignment{Leader: 1, Replicas: replicas, ISR: replicas}, clock)
		var script []string
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.IntRange(0, 6000).Draw(t, "ms")) * time.Millisecond)
			hw, before := s.hw, s.assignment.LeaderEpoch
			op := rapid.SampledFrom([]string{"append", "flush", "fetch", "stale", "expand", "shrink", "accept", "reject", "elect"}).Draw(t, "op")
			script = append(script, op)
			switch op {
			case "append":
				s.OnAppend(s.leo+wire.Offset(rapid.IntRange(1, 5).Draw(t, "n")), wire.NoOffset, clock)
			case "flush":
				s.OnFlushed(s.flushed+wire.Offset(rapid.IntRange(0, 5).Draw(t, "n")), clock)
			case "fetch", "stale":
				e := epoch
				if op == "stale" {
					e--
				}
				who := wire.BrokerID(rapid.IntRange(2, 3).Draw(t, "who"))
				_, err := s.OnFollowerFetch(FollowerFetch{Replica: who, BrokerEpoch: wire.NoBrokerEpoch, LeaderEpoch: e,
					Offset: wire.Offset(rapid.IntRange(0, int(s.leo)).Draw(t, "at"))}, clock)
				if op == "stale" && epoch > 0 && err == nil {
					t.Fatalf("a fetch of an older epoch was taken")
				}
			case "expand":
				if isr := s.Expansion(wire.BrokerID(rapid.IntRange(2, 3).Draw(t, "who"))); isr != nil {
					s.Propose(isr)
				}
			case "shrink":
				if isr := s.Shrunk(clock); isr != nil {
					s.Propose(isr)
				}
			case "accept":
				if s.pending != nil {
					pepoch++
					s.Accepted(s.pending, pepoch, clock)
				}
			case "reject":
				if s.pending != nil {
					s.Rejected(pepoch, clock)
				}
			case "elect":
				epoch++
				pepoch++
				s.Apply(Assignment{Leader: 1, LeaderEpoch: epoch, PartitionEpoch: pepoch, Replicas: replicas, ISR: s.assignment.ISR}, clock)
			}
			check(t, s, strings.Join(script, " "))
			if s.hw < hw {
				t.Fatalf("%v: hw went from %d to %d", script, hw, s.hw)
			}
			if s.hw > hw && before == s.assignment.LeaderEpoch {
				if s.CountsFlushed() && s.hw > s.flushed {
					t.Fatalf("%v: hw %d was raised beyond flushed %d", script, s.hw, s.flushed)
				}
				for _, f := range s.followers {
					if s.inMaximalISR(f.id) && f.leo < s.hw {
						t.Fatalf("%v: hw %d was raised beyond replica %d at %d", script, s.hw, f.id, f.leo)
					}
				}
			}
		}
	})
}

func check(t *rapid.T, s *State, script string) {
	if s.hw > s.leo || s.flushed > s.leo || s.LSO() > s.hw {
		t.Fatalf("%s: leo %d flushed %d hw %d lso %d", script, s.leo, s.flushed, s.hw, s.LSO())
	}
	if s.UnderMinISR() != (len(s.assignment.ISR) < min(s.min, len(s.assignment.Replicas))) {
		t.Fatalf("%s: min isr", script)
	}
}
