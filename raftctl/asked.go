package raftctl

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// asked is how far the members are that send no heartbeats, since no broker is on their nodes: as they have answered the
// autopilot. It belongs to one stint of leading, as the sessions do. Safe for concurrent use; the zero value knows nothing.
type asked struct {
	mu      sync.Mutex
	members map[peer.ID]progress
	busy    map[peer.ID]bool // is being asked by askAside
}

// of is false for a member that has not answered.
func (a *asked) of(id peer.ID) (progress, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.members[id]
	return p, ok
}

// note takes down an answer. A member that does not know how far it is has said nothing.
func (a *asked) note(id peer.ID, committed, applied wire.Offset, now time.Time) {
	if applied == wire.NoOffset {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.members == nil {
		a.members = map[peer.ID]progress{}
	}
	p, ok := a.members[id]
	if !ok {
		p.applied = wire.NoOffset
	}
	p.reported(committed, applied, now)
	a.members[id] = p
}

// keep forgets whoever is no member any more.
func (a *asked) keep(members []candidate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.members, func(id peer.ID, _ progress) bool {
		return !slices.ContainsFunc(members, func(m candidate) bool { return m.ID == id })
	})
}

// begin is false while the member is being asked; after true comes end.
func (a *asked) begin(id peer.ID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy[id] {
		return false
	}
	if a.busy == nil {
		a.busy = map[peer.ID]bool{}
	}
	a.busy[id] = true
	return true
}

func (a *asked) end(id peer.ID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.busy, id)
}

// askAside asks a member how far it is, in a goroutine of its own: nobody waits for the answer. One that is being asked is not
// asked again.
func (c *Controller) askAside(known *asked, id peer.ID) {
	if !known.begin(id) {
		return
	}
	c.wg.Go(func() {
		defer known.end(id)
		ctx, cancel := context.WithTimeout(c.ctx, pilotTick)
		defer cancel()
		if s, err := c.opts.Status(ctx, id); err == nil {
			known.note(id, c.committed().Offset(), s.Offset, time.Now())
		}
	})
}

// silent are the members with the role of a controller that answer raft and say nothing in heartbeats. Those without a
// broker are at once. Where a broker is registered its heartbeats may be on their way, or the node may have died a moment
// ago; once they have been missing for long enough the node has been given another role.
func (p *pilot) silent(members []candidate, now time.Time) []bool {
	c, img := p.c, p.c.committed()
	out, mute := make([]bool, len(members)), map[peer.ID]time.Time{}
	for i, m := range members {
		if m.Leader || !m.Voter && !m.Controller || now.Sub(c.inject.heard.of(m.ID.NodeID)) > contactAge ||
			now.Sub(c.beats.last(m.ID.NodeID)) <= c.opts.sessionTimeout() {
			continue
		}
		since, ok := p.mute[m.ID]
		if !ok {
			since = now
		}
		mute[m.ID] = since
		_, broker := img.Broker(m.ID.NodeID)
		out[i] = !broker || now.Sub(since) >= 2*c.opts.sessionTimeout()+contactAge
	}
	p.mute = mute
	return out
}
