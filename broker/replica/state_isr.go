package replica

import (
	"slices"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// FollowerFetch is the fetch of another replica as its leader sees it. It must have been read without divergence.
type FollowerFetch struct {
	Replica     wire.BrokerID
	BrokerEpoch wire.BrokerEpoch // of the life that fetches (KIP-903); NoBrokerEpoch: not told
	LeaderEpoch wire.LeaderEpoch // must be the current one
	Offset      wire.Offset      // everything below it is in the follower's log
	LogStart    wire.Offset
}

// OnFollowerFetch takes a follower's progress. A fetch of an earlier leader epoch or of an earlier life of the
// follower is refused, and one that was overtaken by a later one moves nothing back (R13).
func (s *State) OnFollowerFetch(f FollowerFetch, now time.Time) (Change, error) {
	if err := s.CheckLeader(f.LeaderEpoch); err != nil {
		return Change{}, err
	}
	i := slices.IndexFunc(s.followers, func(k follower) bool { return k.id == f.Replica })
	if i < 0 {
		return Change{}, kerr.UnknownLeaderEpoch // an assignment that this leader has not heard of
	}
	k := &s.followers[i]
	if f.BrokerEpoch != wire.NoBrokerEpoch && !planted.On(planted.OldLifeFetches) {
		if f.BrokerEpoch < k.brokerEpoch {
			return Change{}, kerr.NotLeaderForPartition
		}
		if f.BrokerEpoch > k.brokerEpoch && k.brokerEpoch != wire.NoBrokerEpoch {
			// A new life may have lost what the old one had. Until it has fetched it has nothing.
			k.leo, k.logStart, k.caughtUpAt, k.leaderLEO = wire.NoOffset, wire.NoOffset, time.Time{}, wire.NoOffset
		}
		k.brokerEpoch = f.BrokerEpoch
	}
	if f.Offset < k.leo {
		return Change{}, nil
	}
	switch {
	case f.Offset >= s.leo:
		k.caughtUpAt = now
	case k.leaderLEO != wire.NoOffset && f.Offset >= k.leaderLEO:
		k.caughtUpAt = k.fetchedAt // it has all that there was when it asked last
	}
	k.leo, k.logStart = f.Offset, max(k.logStart, f.LogStart)
	k.fetchedAt, k.leaderLEO = now, s.leo
	return s.advance(now), nil
}

// LowWatermark is the least log start among this leader and its live followers: up to there records are deleted
// everywhere. live says which followers count.
func (s *State) LowWatermark(live func(wire.BrokerID) bool) wire.Offset {
	low := s.logStart
	for i := range s.followers {
		if f := &s.followers[i]; live(f.id) {
			low = min(low, f.logStart)
		}
	}
	return low
}

// Expansion is the ISR that this leader would propose because replica id has caught up, or nil. It takes the follower's
// position at or above the high watermark and the start of this leader's epoch, and a fetch in this epoch (R12). One
// proposal is in flight at a time.
func (s *State) Expansion(id wire.BrokerID) []wire.BrokerID {
	if !s.Leading() || s.pending != nil || s.inMaximalISR(id) {
		return nil
	}
	i := slices.IndexFunc(s.followers, func(f follower) bool { return f.id == id })
	if i < 0 {
		return nil
	}
	unseen, behind := s.followers[i].leo == wire.NoOffset, s.followers[i].leo < max(s.hw, s.epochStart)
	if unseen && !planted.On(planted.JoinsUnseen) || behind && !planted.On(planted.JoinsUnseen) && !planted.On(planted.JoinsBehindStart) {
		return nil
	}
	return append(slices.Clone(s.assignment.ISR), id)
}

// Shrunk is the ISR that this leader would propose because members have lagged for longer than the lag time, or nil.
func (s *State) Shrunk(now time.Time) []wire.BrokerID {
	if !s.Leading() || s.pending != nil {
		return nil
	}
	var isr []wire.BrokerID
	for _, id := range s.assignment.ISR {
		i := slices.IndexFunc(s.followers, func(f follower) bool { return f.id == id })
		if i >= 0 && s.followers[i].leo != s.leo && now.Sub(s.followers[i].caughtUpAt) > s.lag {
			continue
		}
		isr = append(isr, id)
	}
	if len(isr) == len(s.assignment.ISR) {
		return nil
	}
	return isr
}

// Renewal is the ISR as it is, with which a leader that is Outdated asks for another leadership, or nil.
func (s *State) Renewal() []wire.BrokerID {
	if !s.Outdated() || s.pending != nil {
		return nil
	}
	return s.assignment.ISR
}

// Propose notes that isr is going to the controller; nothing else may be. From here to Accepted, Rejected or a newer Apply
// the high watermark waits for the union of both (R11).
func (s *State) Propose(isr []wire.BrokerID) { s.pending, s.unanswered = slices.Clone(isr), false }

// Proposing reports whether what was proposed from the given partition epoch is not settled.
func (s *State) Proposing(epoch wire.PartitionEpoch) bool {
	return s.pending != nil && epoch == s.assignment.PartitionEpoch
}

// Unanswered says that nobody knows what became of a copy of what was proposed from the given partition epoch. The
// controller may read it at any time, until the partition epoch has moved.
func (s *State) Unanswered(epoch wire.PartitionEpoch) {
	s.unanswered = s.unanswered || s.Proposing(epoch)
}

// ISRChange is what a leader asks of the controller for one partition.
type ISRChange struct {
	TopicID        wire.UUID
	Partition      wire.PartitionID
	LeaderEpoch    wire.LeaderEpoch
	PartitionEpoch wire.PartitionEpoch // of the state that the leader knows
	ISR            []ISRMember
	LogEpoch       wire.LeaderEpoch // the newest in the leader's log, above LeaderEpoch where the leadership must begin anew
}

// ISRMember is a replica in a proposed ISR with the broker epoch under which it fetched (KIP-903); NoBrokerEpoch where it
// has not fetched in this leader epoch, or did not tell.
type ISRMember struct {
	ID    wire.BrokerID
	Epoch wire.BrokerEpoch
}

// Proposal is what was proposed and not answered yet; false if nothing is. self is this leader's own broker epoch. The
// caller fills the names in.
func (s *State) Proposal(self wire.BrokerEpoch) (ISRChange, bool) {
	if !s.Leading() || s.pending == nil {
		return ISRChange{}, false
	}
	c := ISRChange{LeaderEpoch: s.assignment.LeaderEpoch, PartitionEpoch: s.assignment.PartitionEpoch, LogEpoch: s.logEpoch,
		ISR: make([]ISRMember, len(s.pending))}
	for i, id := range s.pending {
		c.ISR[i] = ISRMember{id, s.brokerEpoch(id, self)}
	}
	return c, true
}

// brokerEpoch is the broker epoch of a replica as far as this leader knows it.
func (s *State) brokerEpoch(id wire.BrokerID, self wire.BrokerEpoch) wire.BrokerEpoch {
	if id == s.self {
		return self
	}
	if i := slices.IndexFunc(s.followers, func(f follower) bool { return f.id == id }); i >= 0 {
		return s.followers[i].brokerEpoch
	}
	return wire.NoBrokerEpoch
}

// Accepted takes the controller's answer: the ISR and the partition epoch that it committed. The higher partition epoch
// wins against an image that came first or comes later.
func (s *State) Accepted(isr []wire.BrokerID, epoch wire.PartitionEpoch, now time.Time) Change {
	if epoch <= s.assignment.PartitionEpoch {
		return Change{}
	}
	s.assignment.ISR, s.assignment.PartitionEpoch = slices.Clone(isr), epoch
	s.pending, s.unanswered, s.stray = nil, false, nil
	return s.advance(now)
}

// Rejected says that the controller has refused what was proposed from the given partition epoch. An answer that leaves it
// open is no rejection.
//
// Where a copy of it went unanswered that is not the end: the reason may be gone when the controller reads that one. Only a
// higher partition epoch makes it void. So the present ISR is proposed instead, which moves the partition epoch, again
// after each refusal, and until then the high watermark waits for whom the stray copy could bring in.
func (s *State) Rejected(epoch wire.PartitionEpoch, now time.Time) Change {
	switch {
	case !s.Proposing(epoch) || s.stray != nil:
		return Change{}
	case s.unanswered:
		s.stray = s.pending
		s.Propose(s.assignment.ISR)
		return Change{}
	}
	s.pending = nil
	return s.advance(now)
}

// standing is where the ISR of a partition stands and what its leader wants it to be. The slices are the state's: it
// replaces them, and never writes into them.
type standing struct {
	leading        bool
	leaderEpoch    wire.LeaderEpoch
	partitionEpoch wire.PartitionEpoch
	isr, pending   []wire.BrokerID
	stray          []wire.BrokerID
}

func (s *State) standing() standing {
	return standing{s.Leading(), s.assignment.LeaderEpoch, s.assignment.PartitionEpoch, s.assignment.ISR, s.pending, s.stray}
}

// settles reports whether a is b once the controller has done what the leader had proposed, or what had strayed of that.
func (a standing) settles(b standing) bool {
	proposed := func(isr []wire.BrokerID) bool { return isr != nil && sameMembers(a.isr, isr) }
	return a.leading && a.leaderEpoch == b.leaderEpoch && a.partitionEpoch > b.partitionEpoch && (proposed(b.pending) || proposed(b.stray))
}

// sameMembers reports whether two ISRs hold the same replicas, in whatever order.
func sameMembers(a, b []wire.BrokerID) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(id wire.BrokerID) bool { return !slices.Contains(b, id) })
}
