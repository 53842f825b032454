package broker

import (
	"sync"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// idKept is how long a node.id that was given out is kept for whoever got it: a node that joins uses it at once.
const idKept = time.Minute

// givenIDs are the node ids that this node, which leads, has given to nodes that are about to join. The zero value has given
// none. Safe for concurrent use.
type givenIDs struct {
	mu   sync.Mutex
	when map[wire.BrokerID]time.Time
}

// next is the lowest node id from 1 on that no node of the cluster has, self among them, and that was given to nobody in the
// last idKept.
func (g *givenIDs) next(img *image.Image, self wire.BrokerID, now time.Time) wire.BrokerID {
	taken := map[wire.BrokerID]bool{self: true}
	for n := range img.Nodes() {
		taken[n.ID] = true
	}
	for b := range img.Brokers() {
		taken[b.ID] = true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, at := range g.when {
		if taken[id] || now.Sub(at) >= idKept {
			delete(g.when, id)
			continue
		}
		taken[id] = true
	}
	id := wire.BrokerID(1)
	for taken[id] {
		id++
	}
	if g.when == nil {
		g.when = map[wire.BrokerID]time.Time{}
	}
	g.when[id] = now
	return id
}
