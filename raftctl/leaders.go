package raftctl

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// leaders is who is waiting for another leader of the metadata log.
type leaders struct {
	mu     sync.Mutex
	ctx    context.Context
	cancel context.CancelFunc
}

// LeaderContext ends when another node leads than the one that Leader has given since, or when nobody does any more, or
// with the controller.
func (c *Controller) LeaderContext() context.Context {
	c.leader.mu.Lock()
	defer c.leader.mu.Unlock()
	if c.leader.ctx == nil {
		c.leader.ctx, c.leader.cancel = context.WithCancel(c.ctx)
	}
	return c.leader.ctx
}

// changed ends what LeaderContext has given.
func (l *leaders) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel != nil {
		l.cancel()
		l.ctx, l.cancel = nil, nil
	}
}

// observe follows raft's word on who leads.
func (c *Controller) observe() {
	seen := make(chan raft.Observation, 1)
	o := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	})
	c.raft.RegisterObserver(o)
	defer c.raft.DeregisterObserver(o)
	for {
		select {
		case <-seen:
			c.leader.changed()
		case <-c.stop:
			return
		}
	}
}

// MetadataAge is how long ago this node has last heard of the node that leads the metadata log: so old its image may be.
// 0 where it leads, or has no peers.
func (c *Controller) MetadataAge() time.Duration {
	if c.opts.Streams == nil || c.raft.State() == raft.Leader {
		return 0
	}
	last := c.raft.LastContact()
	if last.IsZero() {
		last = c.began
	}
	return time.Since(last)
}
