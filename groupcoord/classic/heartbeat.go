package classic

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
)

// HeartbeatRequest is a Heartbeat with a non-empty group id.
type HeartbeatRequest struct {
	Group      string
	MemberID   string
	InstanceID *string
	Generation int32
}

// Heartbeat restarts the member's session; the reply's body is the error code, an int16.
func (s *State) Heartbeat(tok coord.Token, now time.Time, r HeartbeatRequest) coord.Decision {
	g, ok := s.view(r.Group)
	if !ok {
		return only(tok, kerr.UnknownMemberID.Code)
	}
	if err := g.validateMember(r.MemberID, r.InstanceID); err != nil {
		return only(tok, err.Code)
	}
	if r.Generation != g.generation {
		return only(tok, kerr.IllegalGeneration.Code)
	}
	var code int16
	if g.phase == PreparingRebalance {
		code = kerr.RebalanceInProgress.Code
	}
	d := only(tok, code)
	t := heartbeatTimer(g.id, r.MemberID, now.Add(g.members[r.MemberID].session))
	d.Soft = func(error) ([]coord.Reply, []coord.Effect) { return nil, []coord.Effect{t} }
	return d
}

// Expire carries out a timer that fired. It re-checks the state, so a timer that is out of date does nothing.
func (s *State) Expire(now time.Time, t Timer) coord.Decision {
	g, ok := s.view(t.Group)
	if !ok {
		return coord.Decision{}
	}
	c := s.begin(g, now)
	c.refused = func(error) ([]coord.Reply, []coord.Effect) {
		t.At = now.Add(RetryDelay)
		return nil, []coord.Effect{t}
	}
	switch t.Kind {
	case HeartbeatTimer:
		c.expireHeartbeat(t.Member)
	case JoinTimer:
		c.expireJoin()
	case InitialJoinTimer:
		c.expireInitialJoin(t)
	case SyncTimer:
		c.expireSync(t)
	}
	return c.decision()
}

// expireHeartbeat removes a member whose session ended, or forgets a pending id.
func (c *change) expireHeartbeat(id string) {
	g := c.g
	if _, pending := g.pendingJoin[id]; pending {
		g.remove(id)
		if g.phase == PreparingRebalance && g.joined() {
			c.complete()
		}
		return
	}
	m, ok := g.members[id]
	if !ok || m.heartbeatSatisfied() {
		return
	}
	if m.join != 0 {
		c.reply(m.join, joinError("", kerr.UnknownMemberID))
	}
	g.remove(id)
	switch {
	case g.phase == Stable || g.phase == CompletingRebalance:
		c.rebalanceOrComplete("session of member " + id + " expired")
	case g.phase == PreparingRebalance && g.joined():
		c.complete()
	}
}

// Loaded builds the running groups after a load: every member gets a full session from now, in which its next
// heartbeat continues as if nothing had happened. Groups that are larger than the limit now are told to rejoin.
func (s *State) Loaded(now time.Time) coord.Decision {
	var changes []*change
	for _, id := range s.Groups() {
		if len(s.hard[id].value.Members) == 0 {
			continue
		}
		c := s.begin(s.hard[id].group(id), now)
		for _, m := range c.g.sorted() {
			c.heartbeat(m.id, m.session)
		}
		if len(c.g.members) > s.cfg.MaxSize {
			c.prepare("loaded group is larger than group.max.size")
		}
		changes = append(changes, c)
	}
	var d coord.Decision
	d.Soft = func(error) ([]coord.Reply, []coord.Effect) {
		var effects []coord.Effect
		for _, c := range changes {
			s.install(c.g)
			effects = append(effects, c.effects()...)
		}
		return nil, effects
	}
	return d
}
