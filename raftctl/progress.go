package raftctl

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Quorum is the state of the metadata quorum, as the active controller knows it.
type Quorum struct {
	Leader wire.BrokerID
	Epoch  wire.ControllerEpoch
	// End is the end of what is committed, exclusive.
	End     wire.Offset
	Members []MemberProgress
}

// MemberProgress is how far a member is, as it has said in its heartbeats: hashicorp/raft does not tell.
type MemberProgress struct {
	Member
	End      wire.Offset // exclusive, of what it has applied; NoOffset: unknown
	Heard    time.Time   // when it last said so; zero: unknown
	CaughtUp time.Time   // when it last had everything; zero: unknown
}

// Quorum describes the quorum. The answer is given by a leader that was still one after the request had come. Errors are
// *Error.
func (c *Controller) Quorum(ctx context.Context) (Quorum, error) {
	if err := c.VerifyLeader(ctx); err != nil {
		return Quorum{}, err
	}
	members, err := c.Members()
	if err != nil {
		return Quorum{}, errNotController()
	}
	return ask(ctx, c, false, func(*image.Image) ([]coordrec.MetadataRecord, Quorum, error) {
		img := c.committed()
		return nil, c.sessions.quorum(img, c.opts.NodeID, members, time.Now()), nil
	})
}

// quorum puts the members and the sessions together.
func (l *liveness) quorum(img *image.Image, self wire.BrokerID, members []Member, now time.Time) Quorum {
	q := Quorum{Leader: self, Epoch: img.ControllerEpoch(), End: img.Offset() + 1}
	for _, m := range members {
		p := MemberProgress{Member: m, End: wire.NoOffset}
		switch s := l.sessions[m.ID.NodeID]; {
		case m.ID.NodeID == self:
			p.End, p.Heard, p.CaughtUp = q.End, now, now
		case s == nil || s.applied == wire.NoOffset || !l.same(img, m, members):
		default:
			p.End, p.Heard, p.CaughtUp = min(s.applied+1, q.End), s.heard, s.caughtUp
		}
		q.Members = append(q.Members, p)
	}
	return q
}

// same reports whether the broker that sends heartbeats under the member's node id has the member's directory: a node
// whose disk was wiped is two members for a while.
func (*liveness) same(img *image.Image, m Member, members []Member) bool {
	alone := !slices.ContainsFunc(members, func(o Member) bool { return o.ID.NodeID == m.ID.NodeID && o.ID != m.ID })
	b, ok := img.Broker(m.ID.NodeID)
	return alone || ok && slices.Contains(b.LogDirs, m.ID.DirectoryID)
}

// VerifyLeader returns nil if this node still leads the quorum now: a majority has said so since the call. Errors are
// *Error.
func (c *Controller) VerifyLeader(ctx context.Context) error {
	if c.opts.Streams == nil {
		return nil // there is nobody else
	}
	err := c.waitFuture(ctx, c.raft.VerifyLeader())
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		return errNotController()
	}
	return errUnknown("The controller could not make sure that it still leads.")
}
