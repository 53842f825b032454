package replica

import "github.com/kajamq/kaja/wire"

// moveStep is what a replica that moves to another log directory does next.
type moveStep uint8

const (
	stepCopy     moveStep = iota // copy what the present log has and the future one lacks
	stepAnnounce                 // tell the controller where the replica is about to lie, and go on copying
	stepWait                     // until the metadata says so
	stepSwap                     // put the future log in the place of the present one
)

// moveState is a replica's way from one log directory into another: pure, not safe for concurrent use. The future log is
// filled; once it has caught up, the controller is told, so that it knows of every failing directory whom it concerns
// (KIP-858; Kafka: ReplicaAlterLogDirsThread); when the metadata names the new directory, the logs change places.
type moveState struct {
	from, to wire.UUID // ids of the directories
	// said is where the metadata says that the replica lies.
	said wire.UUID
	// untold: nobody is to be told, because there is no controller or the directories have no ids.
	untold bool
	// announced: the controller is to know of the new directory, or knows of it from before a restart.
	announced bool
}

// next is what to do, given whether the future log has all that the present one had a moment ago.
func (s *moveState) next(caughtUp bool) moveStep {
	switch {
	case !caughtUp:
		return stepCopy
	case s.untold || s.announced && s.said == s.to:
		return stepSwap
	case s.announced:
		return stepWait
	}
	s.announced = true
	return stepAnnounce
}

// declared is the directory that the metadata is to name.
func (s *moveState) declared() wire.UUID {
	if s.announced {
		return s.to
	}
	return s.from
}

// copied is a log as a copy of another, or the other: what decides where the two part. *log.Log is one.
type copied interface {
	History
	StartOffset() wire.Offset
	LatestEpoch() wire.LeaderEpoch
}

// alignment is what has to be done to a copy before more is appended to it.
type alignment struct {
	cut     wire.Offset // to be truncated to; NoOffset: it stands
	restart wire.Offset // to be begun anew, empty; NoOffset: it stands
}

// align compares a copy with its original, which may have been truncated or have lost its oldest records since, or, after
// a crash, its newest. A cut may have to be followed by another one.
func align(original, replica copied) alignment {
	a := alignment{cut: wire.NoOffset, restart: wire.NoOffset}
	end, last := replica.EndOffset(), replica.LatestEpoch()
	start := original.StartOffset()
	switch {
	case end < start:
		a.restart = start
		return a
	case last == wire.NoLeaderEpoch: // there is no record in it
		if end > original.EndOffset() {
			a.restart = start
		}
		return a
	}
	epoch, epochEnd, known := original.EndOffsetForEpoch(min(last, original.LatestEpoch()))
	switch {
	case !known:
		if end > start {
			a.restart = start
		}
	case epoch != last || epochEnd < end:
		if a.cut = TruncationOffset(replica, EpochEnd{epoch, epochEnd}); a.cut <= start {
			a.cut, a.restart = wire.NoOffset, start
		}
	}
	return a
}
