package replica

import (
	"slices"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// FSync is kaja.fsync: what has to be on the disk before a record counts as stored by the replica that holds it.
type FSync uint8

const (
	// FSyncAuto makes a broker that is alone in sync count only what it has flushed; with two or more in sync the
	// page cache counts, as in Kafka.
	FSyncAuto FSync = iota
	// FSyncAlways makes every replica count only what it has flushed.
	FSyncAlways
	// FSyncNever trusts the page cache.
	FSyncNever
)

// Assignment is what the metadata says of one partition.
type Assignment struct {
	Leader         wire.BrokerID // NoBroker while there is none
	LeaderEpoch    wire.LeaderEpoch
	PartitionEpoch wire.PartitionEpoch
	Replicas, ISR  []wire.BrokerID
}

// Change says what an input moved, so that the shell knows whom to tell.
type Change struct {
	HW, LSO, LEO bool
}

// and is what two inputs moved together.
func (c Change) and(o Change) Change { return Change{c.HW || o.HW, c.LSO || o.LSO, c.LEO || o.LEO} }

func (c Change) any() bool { return c.HW || c.LSO || c.LEO }

// State is the replication of one partition as one of its replicas sees it: pure, not safe for concurrent use.
//
// Invariants: flushed <= leo, hw <= leo, LSO <= hw; hw never goes back within a leader epoch; pending is nil or
// differs from isr by what one proposal adds or removes, or equals it to withdraw stray.
type State struct {
	self  wire.BrokerID
	fsync FSync
	lag   time.Duration // replica.lag.time.max.ms
	min   int           // min.insync.replicas as configured

	assignment Assignment
	known      bool // an assignment was given
	// epochStart is the LEO at which this replica's current leadership began.
	epochStart wire.Offset
	// logEpoch is the newest leader epoch that the log held when the current leadership began.
	logEpoch wire.LeaderEpoch
	// pending is the ISR that was proposed to the controller and not answered yet; unanswered: of one of its copies nobody
	// knows what has become.
	pending    []wire.BrokerID
	unanswered bool
	// stray is what was proposed from this partition epoch and refused, while an earlier copy may still reach the controller.
	stray []wire.BrokerID

	// mayJoin says whether a replica, in the life in which it fetched, could be taken into the ISR; nil: every one could.
	mayJoin func(id wire.BrokerID, epoch wire.BrokerEpoch) bool

	logStart, leo, flushed, hw wire.Offset
	unstable                   wire.Offset // first offset of an open transaction; NoOffset: none
	followers                  []follower  // of a leader, all replicas but self, in the order of the assignment
}

// follower is what a leader knows of another replica.
type follower struct {
	id          wire.BrokerID
	brokerEpoch wire.BrokerEpoch
	leo         wire.Offset // NoOffset until it fetched in this leader epoch
	logStart    wire.Offset
	fetchedAt   time.Time   // of its last fetch
	leaderLEO   wire.Offset // at its last fetch
	caughtUpAt  time.Time   // the last time at which it had everything; zero: never
}

// NewState makes the state of a replica whose log holds [logStart, leo), of which the part below flushed is on the
// disk and the part below hw is known to be committed. min is min.insync.replicas.
func NewState(self wire.BrokerID, fsync FSync, lag time.Duration, min int, logStart, leo, flushed, hw wire.Offset) *State {
	s := &State{self: self, fsync: fsync, lag: lag, min: min, logStart: logStart, leo: leo, unstable: wire.NoOffset, logEpoch: wire.NoLeaderEpoch}
	s.assignment.Leader = wire.NoBroker
	s.assignment.LeaderEpoch = wire.NoLeaderEpoch
	s.flushed = clamp(flushed, logStart, leo)
	s.hw = clamp(hw, logStart, leo)
	return s
}

// JudgeBy makes mayJoin say which replicas, in the life in which they fetched, could be taken into the ISR. It is asked
// with every change and must not block.
func (s *State) JudgeBy(mayJoin func(id wire.BrokerID, epoch wire.BrokerEpoch) bool) {
	s.mayJoin = mayJoin
}

func clamp(o, lo, hi wire.Offset) wire.Offset { return min(max(o, lo), hi) }

// Leading reports whether this replica is the leader.
func (s *State) Leading() bool { return s.known && s.assignment.Leader == s.self }

// HW is the high watermark: every record below it is committed.
func (s *State) HW() wire.Offset { return s.hw }

// LSO is the last stable offset: below it no transaction is open.
func (s *State) LSO() wire.Offset {
	if s.unstable != wire.NoOffset && s.unstable < s.hw {
		return s.unstable
	}
	return s.hw
}

// MinISR is min.insync.replicas, but never more than there are replicas.
func (s *State) MinISR() int { return max(1, min(s.min, len(s.assignment.Replicas))) }

// UnderMinISR reports whether fewer replicas are in sync than MinISR. The high watermark then stands still
// (KIP-966), and acks=all is refused.
func (s *State) UnderMinISR() bool { return len(s.assignment.ISR) < s.MinISR() }

// MaximalISR is the number of replicas that are in sync or would be if the controller accepted what was proposed.
func (s *State) MaximalISR() int {
	n := 0
	for _, id := range s.assignment.Replicas {
		if slices.Contains(s.assignment.ISR, id) || slices.Contains(s.pending, id) || slices.Contains(s.stray, id) {
			n++
		}
	}
	return n
}

func (s *State) inMaximalISR(id wire.BrokerID) bool {
	if planted.On(planted.CommitsProposedISR) && s.pending != nil {
		return slices.Contains(s.pending, id)
	}
	return slices.Contains(s.assignment.ISR, id) || slices.Contains(s.pending, id) || slices.Contains(s.stray, id)
}

// CountsFlushed reports whether this leader counts only what it has flushed. Under FSyncAuto that is so while it is,
// or may turn out to be, alone in sync: a proposed shrink counts, a proposed growth does not lift it.
func (s *State) CountsFlushed() bool {
	switch s.fsync {
	case FSyncAlways:
		return true
	case FSyncNever:
		return false
	}
	alone := func(proposed []wire.BrokerID) bool { return proposed != nil && len(proposed) <= 1 }
	return len(s.assignment.ISR) <= 1 || alone(s.pending) || alone(s.stray)
}

// AckWaitsForFlush reports whether acks=1 waits for this replica's own flush: always under FSyncAlways, and under
// FSyncAuto where there is no second replica that could have the record.
func (s *State) AckWaitsForFlush() bool {
	return s.fsync == FSyncAlways || (s.fsync == FSyncAuto && len(s.assignment.Replicas) <= 1)
}

// Held is the exclusive end of what this follower may tell its leader that it has, its next fetch offset: under FSyncAlways
// only what it has flushed.
func (s *State) Held() wire.Offset {
	if s.fsync == FSyncAlways && !planted.On(planted.TellsUnflushed) {
		return s.flushed
	}
	return s.leo
}

// NeedsFlush reports whether something waits for a flush of this replica.
func (s *State) NeedsFlush() bool {
	if s.flushed >= s.leo || !s.known {
		return false
	}
	if !s.Leading() {
		return s.fsync == FSyncAlways
	}
	return s.CountsFlushed() || s.AckWaitsForFlush()
}

// Apply takes what the metadata says. It reports whether the leader epoch is new, in which case the caller fails
// whatever waits for the old one. An assignment older than what is known is ignored: the answer to a proposal may
// arrive before the image that holds it.
func (s *State) Apply(a Assignment, now time.Time) (newEpoch bool, c Change) {
	if s.known && (a.LeaderEpoch < s.assignment.LeaderEpoch || a.PartitionEpoch < s.assignment.PartitionEpoch) && !planted.On(planted.OldImageWins) {
		return false, Change{}
	}
	newEpoch = !s.known || a.LeaderEpoch > s.assignment.LeaderEpoch
	led := s.Leading()
	if !s.known || newEpoch || a.PartitionEpoch > s.assignment.PartitionEpoch {
		s.pending, s.unanswered, s.stray = nil, false, nil
	}
	s.assignment, s.known = a, true
	if !s.Leading() {
		s.followers = nil
		return newEpoch, Change{}
	}
	if newEpoch || !led {
		s.epochStart = s.leo
		s.followers = nil
	}
	s.keepFollowers(now)
	return newEpoch, s.advance(now)
}

// keepFollowers makes the list of followers that of the assignment; who was there keeps its progress.
func (s *State) keepFollowers(now time.Time) {
	old := s.followers
	s.followers = make([]follower, 0, len(s.assignment.Replicas))
	for _, id := range s.assignment.Replicas {
		if id == s.self {
			continue
		}
		i := slices.IndexFunc(old, func(f follower) bool { return f.id == id })
		if i >= 0 {
			s.followers = append(s.followers, old[i])
			continue
		}
		f := follower{id: id, brokerEpoch: wire.NoBrokerEpoch, leo: wire.NoOffset, logStart: wire.NoOffset, leaderLEO: wire.NoOffset}
		if slices.Contains(s.assignment.ISR, id) {
			f.caughtUpAt = now // it has the lag time to show itself
		}
		s.followers = append(s.followers, f)
	}
}

// OnLogEpoch says which is the newest leader epoch in the local log.
func (s *State) OnLogEpoch(e wire.LeaderEpoch) { s.logEpoch = e }

// Outdated reports whether this leader was given an epoch below one that its log holds, as files that were brought from another
// cluster do. Until the controller has given it a leadership above (Proposal) it is none: what it wrote would lie under a lower epoch
// than what is there, and what it told followers of epochs would have them cut that off.
func (s *State) Outdated() bool { return s.Leading() && s.logEpoch > s.assignment.LeaderEpoch }

// SetMinISR takes a new min.insync.replicas.
func (s *State) SetMinISR(min int, now time.Time) Change {
	s.min = min
	return s.advance(now)
}

// OnAppend says that the local log now ends at leo and that its first unstable offset is unstable.
func (s *State) OnAppend(leo, unstable wire.Offset, now time.Time) Change {
	c := Change{LEO: leo > s.leo}
	lso := s.LSO()
	s.leo, s.unstable = max(s.leo, leo), unstable
	if s.Leading() {
		c.HW = s.advance(now).HW
	}
	c.LSO = s.LSO() != lso
	return c
}

// OnFlushed says that everything below flushed is on this replica's disk.
func (s *State) OnFlushed(flushed wire.Offset, now time.Time) Change {
	s.flushed = max(s.flushed, min(flushed, s.leo))
	return s.advance(now)
}

// OnTruncate says that the local log was cut back, or started anew at leo.
func (s *State) OnTruncate(logStart, leo, unstable wire.Offset) Change {
	s.leo, s.unstable, s.logStart = leo, unstable, logStart
	s.flushed = min(s.flushed, leo)
	s.hw = clamp(s.hw, logStart, leo)
	return Change{HW: true, LSO: true, LEO: true}
}

// OnLogStart says that the local log now starts at logStart. A follower that learns of a start above its high
// watermark knows that everything below it is committed.
func (s *State) OnLogStart(logStart wire.Offset) Change {
	s.logStart = max(s.logStart, logStart)
	if s.logStart <= s.hw {
		return Change{}
	}
	s.hw = min(s.logStart, s.leo)
	return Change{HW: true, LSO: true}
}

// OnLeaderHW takes the high watermark that a leader told this follower.
func (s *State) OnLeaderHW(hw wire.Offset) Change {
	if s.Leading() {
		return Change{}
	}
	lso := s.LSO()
	hw = clamp(hw, s.logStart, s.leo)
	if hw <= s.hw {
		return Change{}
	}
	s.hw = hw
	return Change{HW: true, LSO: s.LSO() != lso}
}

// end is what this leader's own replica counts for.
func (s *State) end() wire.Offset {
	if s.CountsFlushed() && !planted.On(planted.CommitsUnflushed) {
		return s.flushed
	}
	return s.leo
}

// advance moves the high watermark to the least end among the maximal ISR, and among replicas outside of it that have
// caught up and are about to join (Kafka: Partition.maybeIncrementLeaderHW): a replica that the controller may have
// taken in must not miss what was acknowledged.
func (s *State) advance(now time.Time) Change {
	if !s.Leading() || s.UnderMinISR() && !planted.On(planted.CommitsUnderMinISR) {
		return Change{}
	}
	hw := s.end()
	if hw <= s.hw {
		return Change{}
	}
	for i := range s.followers {
		f := &s.followers[i]
		if f.leo < hw && (s.inMaximalISR(f.id) || s.joining(f, now)) && !planted.On(planted.CommitsAlone) {
			hw = f.leo
		}
	}
	if hw <= s.hw {
		return Change{}
	}
	lso := s.LSO()
	s.hw = hw
	return Change{HW: true, LSO: s.LSO() != lso}
}

// joining reports whether f, outside the ISR, has kept up within the lag time and could be taken in: for one that is fenced
// or stopping nobody waits (Kafka: Partition.shouldWaitForReplicaToJoinIsr).
func (s *State) joining(f *follower, now time.Time) bool {
	return f.leo >= s.epochStart && f.leo >= s.hw && !f.caughtUpAt.IsZero() && now.Sub(f.caughtUpAt) <= s.lag &&
		(s.mayJoin == nil || s.mayJoin(f.id, f.brokerEpoch))
}

// CheckLeader answers the leader epoch that a request names (KIP-320): NoLeaderEpoch is not compared.
func (s *State) CheckLeader(epoch wire.LeaderEpoch) error {
	if err := s.CheckEpoch(epoch); err != nil {
		return err
	}
	if !s.Leading() && !planted.On(planted.StaleLeaderAppends) || s.Outdated() {
		return kerr.NotLeaderForPartition
	}
	return nil
}

// CheckEpoch is CheckLeader for requests that a follower may answer, too.
func (s *State) CheckEpoch(epoch wire.LeaderEpoch) error {
	switch {
	case !s.known:
		return kerr.NotLeaderForPartition
	case epoch == wire.NoLeaderEpoch || epoch == s.assignment.LeaderEpoch:
		return nil
	case epoch < s.assignment.LeaderEpoch && planted.On(planted.OldEpochFetches):
		return nil
	case epoch < s.assignment.LeaderEpoch:
		return kerr.FencedLeaderEpoch
	}
	return kerr.UnknownLeaderEpoch
}
