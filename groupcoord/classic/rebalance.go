package classic

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// rebalanceOrComplete starts a join phase, or ends the running one if nobody is missing.
func (c *change) rebalanceOrComplete(reason string) {
	if c.g.canRebalance() {
		c.prepare(reason)
		return
	}
	c.maybeComplete()
}

// prepare starts a join phase: waiting syncs are sent back to join, and a timer bounds the phase.
func (c *change) prepare(reason string) {
	g := c.g
	if g.phase == CompletingRebalance {
		c.failSyncs(kerr.RebalanceInProgress.Code)
	}
	clear(g.pendingSync)
	c.cancelSync()
	initial := g.phase == Empty
	g.enter(PreparingRebalance, c.now)
	c.event("rebalance started", reason)
	if initial {
		delay := c.s.cfg.InitialDelay
		c.initialTimer(delay, max(g.rebalanceTimeout()-delay, 0))
		return
	}
	if g.joined() {
		c.complete()
		return
	}
	c.joinTimer(g.rebalanceTimeout())
}

func (c *change) initialTimer(delay, remaining time.Duration) {
	c.timers = append(c.timers, Timer{
		Kind: InitialJoinTimer, Group: c.g.id, Delay: delay, Remaining: remaining, At: c.now.Add(delay),
	})
}

// maybeComplete ends a join phase in which nobody is missing. The first phase after Empty always runs its delay.
func (c *change) maybeComplete() {
	if c.g.phase == PreparingRebalance && c.g.before != Empty && c.g.joined() {
		c.complete()
	}
}

// complete ends the join phase with those who are there: dynamic members that did not rejoin are removed, static ones
// keep their place, a new generation begins and everyone who waits is answered.
func (c *change) complete() {
	g := c.g
	c.cancelJoin()
	for _, m := range g.sorted() {
		if m.join == 0 && m.instance == nil {
			g.remove(m.id)
			c.cancelHeartbeat(m.id)
		}
	}
	if !c.electLeader() && len(g.members) > 0 {
		c.joinTimer(g.rebalanceTimeout()) // only static members, and none came: wait for another round
		return
	}
	c.nextGeneration()
	if g.phase == Empty {
		c.records = append(c.records, metadataRecord(g))
		c.event("group is empty", "")
		return
	}
	c.event("join phase completed", "")
	for _, m := range g.sorted() {
		if m.join != 0 {
			c.reply(m.join, c.joined(m.id, g.leader == m.id))
		}
		e := g.edit(m.id)
		e.join, e.isNew = 0, false
		c.heartbeat(m.id, m.session)
		g.pendingSync[m.id] = struct{}{}
	}
	c.timers = append(c.timers, Timer{
		Kind: SyncTimer, Group: g.id, Generation: g.generation, At: c.now.Add(g.rebalanceTimeout()),
	})
}

// electLeader makes sure that the leader is one who joined; false if nobody can be.
func (c *change) electLeader() bool {
	g := c.g
	if g.leader == "" {
		return false
	}
	if m, ok := g.members[g.leader]; ok && m.join != 0 {
		return true
	}
	for _, m := range g.sorted() {
		if m.join != 0 {
			g.leader = m.id
			return true
		}
	}
	return false
}

func (c *change) nextGeneration() {
	g := c.g
	g.generation++
	clear(g.pendingSync)
	g.newMember = false
	if len(g.members) == 0 {
		g.protocol = nil
		g.topics = g.subscribe()
		g.enter(Empty, c.now)
		return
	}
	name := g.vote()
	g.protocol = &name
	g.topics = g.subscribe()
	g.enter(CompletingRebalance, c.now)
}

// failSyncs drops the assignments and answers the waiting syncs with an error.
func (c *change) failSyncs(code int16) {
	for _, m := range c.g.sorted() {
		e := c.g.edit(m.id)
		e.assignment = nil
		if m.sync != 0 {
			e.sync = 0
			resp := syncError(nil)
			resp.ErrorCode = code
			c.reply(m.sync, resp)
			c.heartbeat(m.id, m.session)
		}
	}
}

// expireJoin ends a join phase whose time is up.
func (c *change) expireJoin() {
	if c.g.phase == PreparingRebalance {
		c.complete()
	}
}

// expireInitialJoin ends the initial delay, or extends it when members joined during it.
func (c *change) expireInitialJoin(t Timer) {
	g := c.g
	if g.phase != PreparingRebalance {
		return
	}
	if g.newMember && t.Remaining > 0 {
		g.newMember = false
		c.initialTimer(min(c.s.cfg.InitialDelay, t.Remaining), max(t.Remaining-t.Delay, 0))
		return
	}
	c.complete()
}

// expireSync removes the members that did not sync in time.
func (c *change) expireSync(t Timer) {
	g := c.g
	if t.Generation != g.generation || len(g.pendingSync) == 0 || g.phase != CompletingRebalance && g.phase != Stable {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(g.pendingSync)) {
		g.remove(id)
		c.cancelHeartbeat(id)
	}
	c.prepare("members did not sync in time")
}
