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
// the same question first, which it answers once it serves. That is done once for each leadership, for all the clients that wait for
// it. Safe for concurrent use; one goroutine for each question under way, which ends with the answer or after firstUseWait.
type remoteCoordinators struct {
	ask NodeCaller // nil: there are no other nodes

	mu     sync.Mutex
	served map[wire.TopicPartition]wire.LeaderEpoch // the newest leadership that was seen to serve
	asked  map[leadership]chan struct{}             // the questions under way; closed when one has ended
}

// leadership is a partition under one of its leaders.
type leadership struct {
	of    wire.TopicPartition
	epoch wire.LeaderEpoch
}

func newRemoteCoordinators(ask NodeCaller) *remoteCoordinators {
	return &remoteCoordinators{ask: ask, served: map[wire.TopicPartition]wire.LeaderEpoch{}, asked: map[leadership]chan struct{}{}}
}

// wait returns when the leader of p, another node, coordinates key there, or has not answered in time: then the client looks itself.
// A node that asks for its client is not asked back.
func (r *remoteCoordinators) wait(ctx context.Context, conn *server.Conn, topic string, p *image.Partition, kind int8, key string, atMost time.Duration) {
	if r == nil || r.ask == nil {
		return
	}
	if _, node := conn.Peer(); node {
		return
	}
	ended := r.question(leadership{wire.TopicPartition{Topic: topic, Partition: p.ID}, p.LeaderEpoch}, p.Leader, kind, key)
	if ended == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// question is the one under way about l, which it begins if there is none; nil if l was seen to serve.
func (r *remoteCoordinators) question(l leadership, leader wire.BrokerID, kind int8, key string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if served, ok := r.served[l.of]; ok && served >= l.epoch {
		return nil
	}
	ended, ok := r.asked[l]
	if !ok {
		ended = make(chan struct{})
		r.asked[l] = ended
		go func() {
			serves := r.serves(leader, kind, key)
			r.mu.Lock()
			defer r.mu.Unlock()
			if serves {
				r.served[l.of] = max(r.served[l.of], l.epoch)
			}
			delete(r.asked, l)
			close(ended)
		}()
	}
	return ended
}

// serves asks leader. It gives the time in which leader answers in any case: a request without an answer costs the connection, and
// with it the questions about other partitions.
func (r *remoteCoordinators) serves(leader wire.BrokerID, kind int8, key string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), firstUseWait)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = kind, []string{key}
	resp, err := r.ask(ctx, leader, req)
	if err != nil {
		return false
	}
	c := resp.(*kmsg.FindCoordinatorResponse).Coordinators
	return len(c) == 1 && c[0].ErrorCode == 0 && wire.BrokerID(c[0].NodeID) == leader
}
