package groupcoord

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire"
)

// AppendMarker ends a producer's transaction in an offsets partition that is led here: its staged offsets become visible
// or go. done is called once: nil when the marker is committed, else NOT_LEADER_OR_FOLLOWER while the shard is loading
// or not here (the sender of markers knows no coordinator's codes), what the log refused the marker with, or
// REQUEST_TIMED_OUT when it is not known whether the marker will be committed.
func (s *Service) AppendMarker(p wire.PartitionID, m coord.Marker, done func(*kerr.Error)) {
	s.rt.Post(p, func(_ *machine, tok coord.Token, now time.Time) coord.Decision {
		return coord.Decision{
			Batch:   coord.Batch{Marker: &m, Timestamp: now},
			Replies: []coord.Reply{{Token: tok}},
		}
	}, func(_ any, err error) { done(markerCode(err)) })
}

func markerCode(err error) *kerr.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, coord.ErrLoading), errors.Is(err, coord.ErrNotHere), errors.Is(err, coord.ErrFailed), errors.Is(err, coord.ErrBusy):
		return kerr.NotLeaderForPartition
	case errors.Is(err, coord.ErrUnknown):
		return kerr.RequestTimedOut
	}
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		return ke
	}
	return kerr.UnknownServerError
}
