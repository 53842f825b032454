package replica

import (
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// History is what a log knows of its leader epochs; *log.Log is one.
type History interface {
	// EndOffset is the exclusive end of the log.
	EndOffset() wire.Offset
	// EndOffsetForEpoch gives the largest known epoch at or below e and its exclusive end; false if none is known or e is
	// beyond the newest.
	EndOffsetForEpoch(e wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset, bool)
}

// EpochEnd is the end offset (exclusive) of a leader epoch.
type EpochEnd struct {
	Epoch wire.LeaderEpoch
	End   wire.Offset
}

// epochEnd is the largest known epoch of a leader up to epoch, and where it ends. The leader is in epoch current and its
// log, h, nil for none, ends at leo.
func epochEnd(h History, current wire.LeaderEpoch, leo wire.Offset, epoch wire.LeaderEpoch) (EpochEnd, bool) {
	if epoch == current {
		return EpochEnd{epoch, leo}, true
	}
	if h == nil || epoch > current {
		return EpochEnd{wire.NoLeaderEpoch, wire.NoOffset}, false
	}
	e, end, ok := h.EndOffsetForEpoch(epoch)
	return EpochEnd{e, end}, ok
}

// Divergence compares a reader that has everything below offset, the newest of it of epoch last, with a leader's
// history (KIP-595; Kafka: Partition.readRecords). If the histories differ it gives where the leader's part of them
// ends, which is what the reader is told.
//
// Errors: kerr.OffsetOutOfRange when the leader knows no epoch at or below last, or none as new as last.
func Divergence(h History, current wire.LeaderEpoch, leo, offset wire.Offset, last wire.LeaderEpoch) (EpochEnd, bool, error) {
	e, ok := epochEnd(h, current, leo, last)
	if !ok {
		return EpochEnd{}, false, kerr.OffsetOutOfRange
	}
	return e, (e.Epoch < last || e.End < offset) && !planted.On(planted.DivergenceUnseen), nil
}

// TruncationOffset is where a follower with history h cuts its log after its leader has answered that their histories
// differ and what it knows of the epoch (KIP-279; Kafka: AbstractFetcherThread.getOffsetTruncationState). Where the
// follower does not know the leader's epoch it cuts to the end of its own next smaller one and asks again, so that it
// takes at most one round for each of its epochs.
func TruncationOffset(h History, d EpochEnd) wire.Offset {
	leo := h.EndOffset()
	own, end, ok := h.EndOffsetForEpoch(d.Epoch)
	switch {
	case !ok:
		return min(d.End, leo)
	case own != d.Epoch && !planted.On(planted.CutsToLeadersEnd):
		return min(end, leo)
	}
	return min(end, d.End, leo)
}

// OutOfRange is what a follower whose log ends at leo does when its leader, whose log is [leaderStart, leaderEnd), has
// refused its offset: cut its log to the given offset, or start over there with an empty log (Kafka:
// AbstractFetcherThread.fetchOffsetAndTruncate). A cut at or beyond leo cuts nothing: the leader's start has moved on
// within what the follower holds.
func OutOfRange(leo, leaderStart, leaderEnd wire.Offset) (to wire.Offset, startOver bool) {
	switch {
	case leaderEnd < leo:
		return leaderEnd, false // only after an unclean election
	case leaderStart > leo:
		return leaderStart, true
	}
	return leo, false
}
