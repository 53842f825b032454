package api

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// slowCoordinator is a coordinator on node 2 that answers a question once it is told to.
type slowCoordinator struct {
	asked  atomic.Int32
	answer chan struct{}
	remote *remoteCoordinators
}

func newSlowCoordinator() *slowCoordinator {
	e := &slowCoordinator{answer: make(chan struct{})}
	e.remote = newRemoteCoordinators(func(ctx context.Context, node wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
		e.asked.Add(1)
		select {
		case <-e.answer:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		resp := kmsg.NewPtrFindCoordinatorResponse()
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID = req.(*kmsg.FindCoordinatorRequest).CoordinatorKeys[0], int32(node)
		resp.Coordinators = append(resp.Coordinators, c)
		return resp, nil
	})
	return e
}

// wait is what a client's FindCoordinator does about partition p under a leader epoch.
func (e *slowCoordinator) wait(ctx context.Context, p wire.PartitionID, epoch wire.LeaderEpoch, key string) {
	led := &image.Partition{ID: p, Leader: 2, LeaderEpoch: epoch}
	e.remote.wait(ctx, clientConn(), image.OffsetsTopic, led, coordinatorGroup, key, loadingWait)
}

func clientConn() *server.Conn {
	return server.NewConn(1, "PLAINTEXT", &net.TCPAddr{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000})
}

// However many clients look for coordinators that load on another node, that node is asked once for each leadership, and all get
// the outcome.
func TestRemoteCoordinatorIsAskedOnceForAllClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSlowCoordinator()
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 500 {
			for p, epoch := range map[wire.PartitionID]wire.LeaderEpoch{3: 7, 4: 7} {
				wg.Go(func() { e.wait(t.Context(), p, epoch, fmt.Sprint(i)) })
			}
			wg.Go(func() { e.wait(t.Context(), 3, 8, fmt.Sprint(i)) })
		}
		time.Sleep(loadingWait / 2)
		close(e.answer)
		wg.Wait()
		if n := e.asked.Load(); n != 3 {
			t.Errorf("1500 clients of three leaderships sent %d requests", n)
		}
		if took := time.Since(began); took != loadingWait/2 {
			t.Errorf("they waited for %v, and the coordinators served after %v", took, loadingWait/2)
		}
		e.wait(t.Context(), 3, 8, "later")
		if n := e.asked.Load(); n != 3 {
			t.Errorf("a coordinator that serves was asked again")
		}
	})
}

// A client waits no longer than it may, and one that goes away takes the answer from nobody.
func TestRemoteCoordinatorWaitEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newSlowCoordinator()
		began := time.Now()
		took := make([]time.Duration, 3)
		var wg sync.WaitGroup
		start := func(i int, ctx context.Context) {
			wg.Go(func() {
				e.wait(ctx, 3, 7, fmt.Sprint(i))
				took[i] = time.Since(began)
			})
			synctest.Wait()
		}
		gone, leave := context.WithCancel(t.Context())
		start(0, gone) // it is the first, so that it begins the request
		start(1, t.Context())
		time.Sleep(loadingWait / 4)
		leave()
		synctest.Wait()
		time.Sleep(loadingWait / 2)
		start(2, t.Context())
		time.Sleep(loadingWait / 2) // the second has left, the third has not
		close(e.answer)
		wg.Wait()
		if want := []time.Duration{loadingWait / 4, loadingWait, loadingWait * 5 / 4}; fmt.Sprint(took) != fmt.Sprint(want) {
			t.Errorf("the clients waited for %v, want %v", took, want)
		}
		if n := e.asked.Load(); n != 1 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

// The questions of another node about coordinators that load wait side by side, though they come on one connection: none of them,
// and none about a coordinator that serves, waits for the sum.
func TestNodesQuestionsAboutCoordinatorsWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNode(t)
		defer n.service.Close()
		n.addTopic(image.OffsetsTopic, wire.UUID{1, 1}, 50)
		keys := map[wire.PartitionID]string{}
		for i := 0; len(keys) < 50; i++ {
			key := fmt.Sprint(i)
			keys[groupcoord.PartitionFor(key, 50)] = key
		}
		for p := range wire.PartitionID(50) {
			n.logs[p] = &memoryLog{load: time.Second}
			if p == 49 {
				n.logs[p].load = 0
			}
			n.service.Elected(p, 0, n.logs[p])
		}
		synctest.Wait()
		conn := clientConn()
		conn.SetPeer(peer.ID{NodeID: 2})
		began := time.Now()
		answers := make([]reply, 50)
		for p := range answers {
			answers[p] = make(reply, 1)
			req := findRequest(coordinatorGroup, keys[wire.PartitionID(p)])
			req.Version = 6
			n.handle[10](t.Context(), &server.Request{Key: 10, Version: 6, Msg: req, Conn: conn}, answers[p])
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the connection was not read for %v", took)
		}
		<-answers[49]
		if took := time.Since(began); took != 0 {
			t.Errorf("the coordinator that serves was named after %v", took)
		}
		for _, a := range answers[:49] {
			<-a
		}
		if took := time.Since(began); took > loadingWait {
			t.Errorf("the last of 50 answers came after %v, each may wait for %v", took, loadingWait)
		}
	})
}
