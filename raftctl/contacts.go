package raftctl

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// contacts is when each node has last answered raft of this one. Safe for concurrent use.
type contacts struct {
	mu sync.Mutex
	at map[wire.BrokerID]time.Time
}

func (c *contacts) note(id raft.ServerID, now time.Time) {
	node, err := peer.ParseID(string(id))
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[wire.BrokerID]time.Time{}
	}
	c.at[node.NodeID] = now
}

// of is the zero time for a node that has never answered.
func (c *contacts) of(id wire.BrokerID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[id]
}
