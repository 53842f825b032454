package raftctl

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// Who votes is looked after here and not by hashicorp/raft-autopilot, which promotes one server at a time and asks for
// statistics of its own kind: going from one voter to two would make the cluster weaker for a while, so both promotions of
// the step to three wait for each other.

// NodeStatus is how far a member is, as it says itself.
type NodeStatus struct {
	Applied uint64      // index of the last entry of the metadata log that it has applied
	Offset  wire.Offset // of its image; NoOffset: it has none, or does not tell (older releases)
}

// Status is this node's own.
func (c *Controller) Status() NodeStatus {
	return NodeStatus{Applied: c.raft.AppliedIndex(), Offset: c.committed().Offset()}
}

// candidate is a member as the choice of voters sees it.
type candidate struct {
	Member
	Controller bool // its roles let it vote
	Stable     bool // it has been there and caught up for long enough
	Leader     bool
}

// voterChange is one change of the voters; zero for none.
type voterChange struct {
	Promote, Demote []peer.ID
}

// targetVoters is how many voters a cluster with so many controllers has.
func targetVoters(controllers int) int {
	switch {
	case controllers < 3:
		return 1
	case controllers < 5:
		return 3
	}
	return 5
}

// TargetVoters cuts the founders of a cluster, by node id, to as many as shall vote.
func TargetVoters(founders []peer.ID) []peer.ID {
	sorted := slices.SortedFunc(slices.Values(founders), func(a, b peer.ID) int { return cmp.Compare(a.NodeID, b.NodeID) })
	return sorted[:min(len(sorted), targetVoters(len(sorted)))]
}

// planVoters says what to change about the voters of members, at most one step at once.
func planVoters(members []candidate) voterChange {
	slices.SortFunc(members, func(a, b candidate) int { return cmp.Compare(a.ID.NodeID, b.ID.NodeID) })
	nodes, voters := map[wire.BrokerID]bool{}, map[wire.BrokerID]bool{}
	for _, m := range members {
		if m.Controller || m.Voter {
			nodes[m.ID.NodeID] = true
		}
		if m.Voter {
			voters[m.ID.NodeID] = true
		}
	}
	var ready []peer.ID
	for _, m := range members {
		if m.Voter || !m.Controller || !m.Stable {
			continue
		}
		if voters[m.ID.NodeID] { // what it was before its disk was wiped still has a vote
			return voterChange{Promote: []peer.ID{m.ID}}
		}
		ready = append(ready, m.ID)
	}
	switch target, now := targetVoters(len(nodes)), len(voters); {
	case now < target && now == 1 && (len(ready) >= 2 || len(ready) == 1 && planted.On(planted.PromotedAlone)):
		return voterChange{Promote: ready[:min(2, len(ready))]}
	case now < target && now > 1 && len(ready) >= 1:
		return voterChange{Promote: ready[:1]}
	case now > target:
		for _, m := range slices.Backward(members) {
			if m.Voter && !m.Leader {
				return voterChange{Demote: []peer.ID{m.ID}}
			}
		}
	}
	return voterChange{}
}

// watchVoters is the goroutine that looks after the voters while this node leads.
func (c *Controller) watchVoters() {
	ticker := time.NewTicker(pilotTick)
	defer ticker.Stop()
	p := newPilot(c)
	for {
		select {
		case <-ticker.C:
		case <-c.stop:
			return
		}
		if !c.Leading() {
			clear(p.since)
			clear(p.mute)
			continue
		}
		if err := p.adjust(); err != nil && c.Leading() {
			c.opts.Logger.Warn("the voters of the metadata quorum were not changed", "err", err)
		}
	}
}

// pilot is what the goroutine remembers.
type pilot struct {
	c      *Controller
	since  map[peer.ID]time.Time // from when on a member was seen caught up without a break
	mute   map[peer.ID]time.Time // from when on a member was seen alive and without heartbeats
	before uint64                // what was committed when the members were asked last
}

func newPilot(c *Controller) *pilot {
	return &pilot{c: c, since: map[peer.ID]time.Time{}, mute: map[peer.ID]time.Time{}}
}

func (p *pilot) adjust() error {
	c := p.c
	members, err := c.Members()
	if err != nil {
		return err
	}
	img, leader := c.committed(), c.self()
	candidates := make([]candidate, len(members))
	for i, m := range members {
		n, known := img.Node(m.ID.NodeID, m.ID.DirectoryID)
		candidates[i] = candidate{Member: m, Controller: known && n.Controller,
			Leader: m.ID.NodeID == leader.NodeID && m.ID.DirectoryID == leader.DirectoryID}
	}
	p.look(candidates)
	plan := planVoters(candidates)
	ctx, cancel := context.WithTimeout(c.ctx, stopTimeout)
	defer cancel()
	for _, id := range plan.Promote {
		if err := c.Promote(ctx, id); err != nil {
			return err
		}
		c.opts.Logger.Info("node votes in the metadata quorum", "node", id.NodeID, "directory", id.DirectoryID)
	}
	for _, id := range plan.Demote {
		if err := c.memberChange(ctx, c.raft.DemoteVoter(serverID(id), 0, rpcTimeout)); err != nil {
			return err
		}
		c.opts.Logger.Info("node no longer votes in the metadata quorum", "node", id.NodeID, "directory", id.DirectoryID)
	}
	return nil
}

// look asks those who may be promoted how far they are, all at once, and marks the stable ones. Caught up is who has what
// was committed when the question before this one was asked. Voters that nobody else asks are asked on the side.
func (p *pilot) look(members []candidate) {
	c, before := p.c, p.before
	p.before = c.raft.CommitIndex()
	ctx, cancel := context.WithTimeout(c.ctx, pilotTick)
	defer cancel()
	caughtUp := make([]bool, len(members))
	var wg sync.WaitGroup
	known, silent := c.asked.Load(), p.silent(members, time.Now())
	known.keep(members)
	for i, m := range members {
		if m.Voter || !m.Controller {
			if silent[i] {
				c.askAside(known, m.ID)
			}
			continue
		}
		wg.Go(func() {
			s, err := c.opts.Status(ctx, m.ID)
			if err == nil && silent[i] {
				known.note(m.ID, c.committed().Offset(), s.Offset, time.Now())
			}
			caughtUp[i] = err == nil && before > 0 && (s.Applied >= before || planted.On(planted.PromotedBehind))
		})
	}
	wg.Wait()
	stable, now := c.opts.Stable, time.Now()
	if stable == 0 {
		stable = defaultStable
	}
	seen := map[peer.ID]bool{}
	for i := range members {
		id := members[i].ID
		if !caughtUp[i] {
			continue
		}
		seen[id] = true
		if _, ok := p.since[id]; !ok {
			p.since[id] = now
		}
		members[i].Stable = now.Sub(p.since[id]) >= stable || planted.On(planted.PromotedAtOnce)
	}
	for id := range p.since {
		if !seen[id] {
			delete(p.since, id)
		}
	}
}

// soleVoter reports whether this node is the only one that votes.
func (c *Controller) soleVoter() bool {
	members, err := c.Members()
	var voters []peer.ID
	for _, m := range members {
		if m.Voter {
			voters = append(voters, m.ID)
		}
	}
	self := c.self()
	return err == nil && len(voters) == 1 && voters[0].NodeID == self.NodeID && voters[0].DirectoryID == self.DirectoryID
}
