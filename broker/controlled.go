package broker

import (
	"context"
	"sync"

	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// newAccess is the way to the active controller; lanes lead to the other nodes, nil without any.
func (b *Broker) newAccess(lanes *control.Lanes) *control.Access {
	return control.New(control.Options{
		Local: b.controller, NodeID: b.nodeID(), ClusterID: b.identity.ClusterID, Lanes: lanes, Await: b.awaitImage,
		Usable: func() int {
			n := 0
			for r := range b.Image().Brokers() {
				if r.Active() {
					n++
				}
			}
			return n
		},
		Logger: b.logger,
	})
}

// newProducerIDs takes producer ids from the active controller. A node that is its own controller waits for a block, which
// takes as long as a write to its disk; others have the next one at hand, or say that it is not there yet.
func (b *Broker) newProducerIDs() *raftctl.ProducerIDAllocator {
	o := raftctl.ProducerIDOptions{Allocate: func(ctx context.Context) (raftctl.ProducerIDs, error) {
		return b.active.AllocateProducerIDs(ctx, b.nodeID(), b.brokerEpoch())
	}}
	if b.active.Alone() {
		o.Wait = b.cfg.Duration("request.timeout.ms")
	}
	return raftctl.NewProducerIDAllocator(o)
}

// quorumEndpoint says where a member of the quorum takes requests: as it has said itself when it joined, or, of this node
// alone, by its settings. The name of a member's listener is that of this node's: the metadata know none.
func (b *Broker) quorumEndpoint(node wire.BrokerID) (image.Endpoint, bool) {
	hostname, _ := b.env.Hostname() // unknown: a listener that is bound to every address has no host
	own, ok := b.addresses.Quorum(b.cfg.InterBrokerListener(), hostname)
	for n := range b.Image().Nodes() {
		if n.ID == node && ok {
			return image.Endpoint{Listener: own.Listener, Host: n.Host, Port: n.Port}, true
		}
	}
	return own, ok && node == b.nodeID()
}

// arrivals are those who wait for the image to reach an offset.
type arrivals struct {
	mu      sync.Mutex
	waiting map[chan struct{}]wire.Offset
}

// awaitImage returns once this node answers from an image that has reached offset.
func (b *Broker) awaitImage(ctx context.Context, offset wire.Offset) error {
	done := make(chan struct{})
	b.arrivals.mu.Lock()
	if b.Image().Offset() >= offset {
		b.arrivals.mu.Unlock()
		return nil
	}
	if b.arrivals.waiting == nil {
		b.arrivals.waiting = map[chan struct{}]wire.Offset{}
	}
	b.arrivals.waiting[done] = offset
	b.arrivals.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		b.arrivals.mu.Lock()
		delete(b.arrivals.waiting, done)
		b.arrivals.mu.Unlock()
		return ctx.Err()
	}
}

// reached lets those go who wait for an offset up to that of the image.
func (a *arrivals) reached(offset wire.Offset) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for done, at := range a.waiting {
		if at <= offset {
			close(done)
			delete(a.waiting, done)
		}
	}
}
