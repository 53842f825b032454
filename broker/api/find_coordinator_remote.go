package api

import (
	"context"
	"sync"
	"time"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// remoteCoordinators waits for coordinators on other nodes. A node may hear of its leadership after this one has, and loads what it
// leads after that: a client that is sent there at once meets NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS. So the node is asked
// the same question first, which it answers once it serves. That is done once for each leadership. Safe for concurrent use.
type remoteCoordinators struct {
	ask NodeCaller // nil: there are no other nodes

	mu     sync.Mutex
	served map[wire.TopicPartition]wire.LeaderEpoch // the newest leadership that was seen to serve
}

func newRemoteCoordinators(ask NodeCaller) *remoteCoordinators {
	return &remoteCoordinators{ask: ask, served: map[wire.TopicPartition]wire.LeaderEpoch{}}
}

// wait returns when the leader of p, another node, coordinates key there, or has not answered in time: then the client looks itself.
// A node that asks for its client is not asked back.
func (r *remoteCoordinators) wait(ctx context.Context, conn *server.Conn, topic string, p *image.Partition, kind int8, key string, atMost time.Duration) {
	if r == nil || r.ask == nil {
		return
	}
	at := wire.TopicPartition{Topic: topic, Partition: p.ID}
	if _, node := conn.Peer(); node || r.seen(at, p.LeaderEpoch) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = kind, []string{key}
	resp, err := r.ask(ctx, p.Leader, req)
	if err != nil {
		return
	}
	c := resp.(*kmsg.FindCoordinatorResponse).Coordinators
	if len(c) == 1 && c[0].ErrorCode == 0 && wire.BrokerID(c[0].NodeID) == p.Leader {
		r.mu.Lock()
		r.served[at] = max(r.served[at], p.LeaderEpoch)
		r.mu.Unlock()
	}
}

func (r *remoteCoordinators) seen(at wire.TopicPartition, epoch wire.LeaderEpoch) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	served, ok := r.served[at]
	return ok && served >= epoch
}
