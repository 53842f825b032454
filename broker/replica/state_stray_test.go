package replica

import (
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"pgregory.net/rapid"
)

// desk is the controller of one partition that replica 1 leads, and the way to it.
type desk struct {
	isr    []wire.BrokerID
	epoch  wire.PartitionEpoch
	fenced map[wire.BrokerID]bool
	late   []ISRChange // copies whose sender has given up
}

type verdict int

const (
	accepted verdict = iota
	ineligible
	outdated
)

func (d *desk) decide(c ISRChange) verdict {
	if c.PartitionEpoch != d.epoch {
		return outdated
	}
	isr := members(c)
	if slices.ContainsFunc(isr, func(id wire.BrokerID) bool { return d.fenced[id] }) {
		return ineligible
	}
	d.isr = isr
	d.epoch++
	return accepted
}

// fence takes a broker out of service, and so out of the ISR.
func (d *desk) fence(id wire.BrokerID) {
	d.fenced[id] = true
	if i := slices.Index(d.isr, id); i >= 0 {
		d.isr = slices.Delete(slices.Clone(d.isr), i, i+1)
		d.epoch++
	}
}

func members(c ISRChange) []wire.BrokerID {
	var out []wire.BrokerID
	for _, m := range c.ISR {
		out = append(out, m.ID)
	}
	return out
}

// answer brings a proposal to the controller, and its answer to the leader.
func (d *desk) answer(s *State, c ISRChange, now time.Time) {
	switch d.decide(c) {
	case accepted:
		s.Accepted(d.isr, d.epoch, now)
	case ineligible:
		s.Rejected(c.PartitionEpoch, now)
	case outdated: // an image will tell
	}
}

func (d *desk) image(s *State, now time.Time) {
	s.Apply(Assignment{Leader: 1, PartitionEpoch: d.epoch, Replicas: []wire.BrokerID{1, 2, 3}, ISR: d.isr}, now)
}

// Whatever becomes of requests, answers, images and brokers: the high watermark waits for every member of the ISR that the
// controller has, and of one that it may have in the next moment because of a copy that lies on the way (R11). Once all
// are heard it waits for nobody else.
func TestHWWaitsForWhoeverMayBeInSync(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		d := &desk{isr: []wire.BrokerID{1, 2}, fenced: map[wire.BrokerID]bool{}}
		s := NewState(1, FSyncNever, time.Minute, 1, 0, 10, 10, 10)
		d.image(s, now)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			c, asks := s.Proposal(7)
			switch rapid.SampledFrom([]string{"propose", "ask", "lose the answer", "straggle", "straggle", "arrive", "fence", "unfence", "image"}).Draw(t, "op") {
			case "propose":
				if asks {
					break
				}
				id := wire.BrokerID(rapid.IntRange(2, 3).Draw(t, "who"))
				if i := slices.Index(s.assignment.ISR, id); i >= 0 {
					s.Propose(slices.Delete(slices.Clone(s.assignment.ISR), i, i+1))
				} else {
					s.Propose(append(slices.Clone(s.assignment.ISR), id))
				}
			case "ask":
				if asks {
					d.answer(s, c, now)
				}
			case "lose the answer":
				if asks {
					d.decide(c)
					s.Unanswered(c.PartitionEpoch)
				}
			case "straggle":
				if asks {
					d.late = append(d.late, c)
					s.Unanswered(c.PartitionEpoch)
				}
			case "arrive":
				if len(d.late) > 0 {
					i := rapid.IntRange(0, len(d.late)-1).Draw(t, "copy")
					d.decide(d.late[i])
					d.late = slices.Delete(d.late, i, i+1)
				}
			case "fence":
				d.fence(wire.BrokerID(rapid.IntRange(2, 3).Draw(t, "who")))
			case "unfence":
				delete(d.fenced, wire.BrokerID(rapid.IntRange(2, 3).Draw(t, "who")))
			case "image":
				d.image(s, now)
			}
			possible := [][]wire.BrokerID{d.isr}
			for _, c := range d.late {
				if c.PartitionEpoch == d.epoch {
					possible = append(possible, members(c))
				}
			}
			for _, isr := range possible {
				for _, id := range isr {
					if !s.inMaximalISR(id) {
						t.Fatalf("the ISR may be %v and the high watermark does not wait for %d: %v at partition epoch %d, proposed %v, stray %v",
							isr, id, s.assignment.ISR, s.assignment.PartitionEpoch, s.pending, s.stray)
					}
				}
			}
		}
		for range 3 {
			d.image(s, now)
			if c, ok := s.Proposal(7); ok {
				d.answer(s, c, now)
			}
		}
		if s.pending != nil || s.stray != nil || s.MaximalISR() != len(d.isr) {
			t.Fatalf("in the end: %v of %v, proposed %v, stray %v", s.assignment.ISR, d.isr, s.pending, s.stray)
		}
	})
}

// A proposal to shrink to the leader alone that was refused while a copy of it is on its way: until that is void the leader
// counts what it has flushed, as if it were alone.
func TestStrayShrinkCountsFlushed(t *testing.T) {
	now := time.Unix(1000, 0)
	s := NewState(1, FSyncAuto, time.Second, 1, 0, 10, 10, 10)
	s.Apply(Assignment{Leader: 1, PartitionEpoch: 4, Replicas: []wire.BrokerID{1, 2}, ISR: []wire.BrokerID{1, 2}}, now)
	s.OnAppend(15, wire.NoOffset, now)
	s.Propose([]wire.BrokerID{1})
	s.Unanswered(4)
	s.Rejected(4, now)
	fetch := FollowerFetch{Replica: 2, BrokerEpoch: 5, Offset: 15}
	if _, err := s.OnFollowerFetch(fetch, now); err != nil || s.HW() != 10 || !s.NeedsFlush() {
		t.Fatalf("the high watermark is %d, a flush is wanted: %v, %v", s.HW(), s.NeedsFlush(), err)
	}
	if c, ok := s.Proposal(7); !ok || c.PartitionEpoch != 4 || !slices.Equal(members(c), []wire.BrokerID{1, 2}) {
		t.Fatalf("it asks for %+v, %v", c, ok)
	}
	s.Accepted([]wire.BrokerID{1, 2}, 5, now)
	if s.HW() != 15 || s.NeedsFlush() {
		t.Errorf("after the withdrawal the high watermark is %d, a flush is wanted: %v", s.HW(), s.NeedsFlush())
	}
}
