package raftctl

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// contacts is when each node has last answered raft of this one. Safe for concurrent use.
type contacts struct {
	mu sync.Mutex
	at map[wire.BrokerID]contact
}

// contact is a question of raft's that was answered.
type contact struct{ asked, answered time.Time }

func (c *contacts) note(id raft.ServerID, asked, answered time.Time) {
	node, err := peer.ParseID(string(id))
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[wire.BrokerID]contact{}
	}
	if before := c.at[node.NodeID]; before.asked.After(asked) { // two may be under way
		asked = before.asked
	}
	c.at[node.NodeID] = contact{asked, answered}
}

// of is when the node has answered; the zero time for one that never has.
func (c *contacts) of(id wire.BrokerID) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[id].answered
}

// majority is when this node asked what so many voters have answered since that with it they are most of them: none of these has voted
// for anybody else before. voters are the others. Alone it is now.
func (c *contacts) majority(voters []wire.BrokerID, now time.Time) time.Time {
	needed := (len(voters) + 1) / 2
	if needed == 0 {
		return now
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := make([]time.Time, len(voters))
	for i, id := range voters {
		asked[i] = c.at[id].asked
	}
	slices.SortFunc(asked, func(a, b time.Time) int { return b.Compare(a) })
	return asked[needed-1]
}
