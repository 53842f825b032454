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

// MemberProgress is how far a member is, as it has said in its broker's heartbeats, or to the autopilot that asked it where no
// broker is: hashicorp/raft does not tell.
type MemberProgress struct {
	Member
	End      wire.Offset // exclusive, of what it has applied; NoOffset: unknown
	Heard    time.Time   // when it last said so; zero: unknown
	CaughtUp time.Time   // when it last had everything; zero: unknown
}

// progress is what a member has said of how far it is.
type progress struct {
	heard   time.Time
	applied wire.Offset // NoOffset before it has said anything
	// committed is the newest committed offset when it was last heard; caughtUp is when it had applied everything that was
	// committed, zero before.
	committed wire.Offset
	caughtUp  time.Time
}

// reported takes down what it says. Who has applied everything that was committed when it was last heard was caught up then.
func (p *progress) reported(committed, applied wire.Offset, now time.Time) {
	switch {
	case applied >= committed:
		p.caughtUp = now
	case p.applied != wire.NoOffset && applied >= p.committed:
		p.caughtUp = p.heard
	}
	p.heard, p.applied, p.committed = now, applied, committed
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

// quorum puts the members, the sessions and the answers together. What a member has said last counts.
func (l *liveness) quorum(img *image.Image, self wire.BrokerID, members []Member, now time.Time) Quorum {
	q := Quorum{Leader: self, Epoch: img.ControllerEpoch(), End: img.Offset() + 1}
	for _, m := range members {
		p := MemberProgress{Member: m, End: wire.NoOffset}
		said, ok := l.asked.of(m.ID)
		if s := l.sessions[m.ID.NodeID]; s != nil && s.applied != wire.NoOffset && l.same(img, m, members) && !s.heard.Before(said.heard) {
			said, ok = s.progress, true
		}
		switch {
		case m.ID.NodeID == self:
			p.End, p.Heard, p.CaughtUp = q.End, now, now
		case ok:
			p.End, p.Heard, p.CaughtUp = min(said.applied+1, q.End), said.heard, said.caughtUp
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
