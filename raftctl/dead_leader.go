package raftctl

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/peer"
)

// A follower of hashicorp/raft looks at random times whether its leader is silent, up to three times its timeout after the
// last word. Two things here make it faster. Neither can make two leaders: both only begin an ordinary election.
//
// A leader whose process ends breaks its streams, and its machine refuses new connections: nobody has to wait for silence
// then. A silent leader is noticed when the timeout has passed, not at a random time after it.

const (
	// standApart is the time between two voters that stand for the same reason, so that they do not take each other's votes.
	standApart = 100 * time.Millisecond
	// silenceTick is how often a node looks whether it has a leader, while it has none.
	silenceTick = electionTimeout / 20
	unledTick   = 10 * electionTimeout // of a node that leads, and is told when it does no more
)

// refusals are the waits before each look at a node whose connection broke: a process that ends may still have had its
// listener when the first connection was made.
func refusals() []time.Duration {
	return []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond}
}

// refused reports whether connect meets a machine on which nobody listens. It looks several times, and waits in between: a process
// that ends may accept a connection, or reset it, before it refuses them.
func refused(ctx context.Context, connect func(ctx context.Context) error) bool {
	for _, wait := range refusals() {
		if !pause(ctx, wait) {
			return false
		}
		if errors.Is(connect(ctx), syscall.ECONNREFUSED) {
			return true
		}
	}
	return false
}

// pause waits; false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// followed is the node that this one, a voter, follows, and how many voters stand before it should that node be dead; false
// if it follows none or does not vote.
func (c *Controller) followed() (leader peer.ID, rank int, ok bool) {
	if c.raft.State() != raft.Follower {
		return peer.ID{}, 0, false
	}
	leader, ok = c.Leader()
	members, err := c.Members()
	if !ok || err != nil {
		return peer.ID{}, 0, false
	}
	var voters []raft.ServerID
	for _, m := range members {
		if m.Voter && serverID(m.ID) != serverID(leader) {
			voters = append(voters, serverID(m.ID))
		}
	}
	slices.Sort(voters)
	rank = slices.Index(voters, serverID(c.self()))
	return leader, rank, rank >= 0
}

// SuspectLeader is called when a stream of another node breaks. If this node follows it and its machine says that nobody
// listens, this node stands for election. It does not wait.
func (c *Controller) SuspectLeader(id peer.ID) {
	if c.opts.ReachNode == nil || c.opts.Streams == nil {
		return
	}
	if leader, ok := c.Leader(); !ok || serverID(leader) != serverID(id) {
		return
	}
	c.probes.run(&c.wg, probed{id: id.NodeID, leader: true}, func() {
		leader, rank, ok := c.followed()
		if !ok || serverID(leader) != serverID(id) {
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, probeTimeout)
		defer cancel()
		if !refused(ctx, func(ctx context.Context) error { return c.opts.ReachNode(ctx, id) }) || !pause(ctx, time.Duration(rank)*standApart) {
			return
		}
		if now, _, ok := c.followed(); !ok || serverID(now) != serverID(id) {
			return // somebody else leads, or this node stands already
		}
		c.opts.Logger.Warn("the node that leads the metadata is dead: nobody listens at its address", "node", id.NodeID)
		c.inject.stand(ctx, serverID(c.self()))
	})
}

// watchLeader makes raft look at its leader as soon as that has been silent for the timeout: by a timeout that gets a
// little smaller, which wakes raft's follower. Which voter looks first is agreed, so that two do not stand at once; that a
// leader is still heard by others, raft's own question before an election finds out.
func (c *Controller) watchLeader() {
	timer := time.NewTimer(silenceTick)
	defer timer.Stop()
	var looked time.Time // the last word after which raft was made to look
	for {
		select {
		case <-timer.C:
		case <-c.unled: // a node that leads has nobody to listen to until then
		case <-c.stop:
			return
		}
		timer.Reset(c.listen(&looked))
	}
}

// listen is one look at the leader of this node. It returns when the next is due: not before the leader can have been silent
// for too long.
func (c *Controller) listen(looked *time.Time) time.Duration {
	if c.raft.State() == raft.Leader {
		return unledTick
	}
	last := c.raft.LastContact()
	if last.IsZero() || last.Equal(*looked) {
		return silenceTick
	}
	if left := electionTimeout - time.Since(last); left > 0 {
		return left
	}
	_, rank, ok := c.followed()
	if !ok {
		return silenceTick
	}
	if left := electionTimeout + time.Duration(rank)*standApart - time.Since(last); left > 0 {
		return left
	}
	*looked = last
	if err := c.wakeFollower(); err != nil {
		c.opts.Logger.Warn("raft's timeouts were not changed", "err", err)
	}
	return silenceTick
}

// wakeFollower makes a follower look at once whether its leader is silent.
func (c *Controller) wakeFollower() error {
	rc := c.raft.ReloadableConfig()
	for _, timeout := range []time.Duration{c.timeout() + time.Millisecond, c.timeout()} {
		rc.HeartbeatTimeout, rc.ElectionTimeout = timeout, timeout
		if err := c.raft.ReloadConfig(rc); err != nil {
			return err
		}
	}
	return nil
}
