package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// formNode is one node while a cluster forms; what it has adopted outlives its process.
type formNode struct {
	id      peer.ID
	host    *Host
	listed  []string
	adopted []string // cluster ids that were written down, in order
	founder string
	plan    *peer.Plan
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

// start runs the node's process until it has a plan, and answers for ever after.
func (n *formNode) start(t *testing.T) {
	t.Helper()
	p := n.host.Boot()
	l, err := p.Listen("tcp", quorumPort)
	if err != nil {
		t.Fatal(err)
	}
	self := peer.Candidate{ID: n.id, Controller: true, Founded: n.plan != nil, Founder: n.founder}
	if len(n.adopted) > 0 {
		self.ID.ClusterID = n.adopted[0]
	}
	f := peer.NewFormer(peer.FormerOptions{
		Self: self, Listed: n.listed, Credentials: peer.Credentials{Secret: []byte(quorumSecret)}, Dial: p.Dial, Retry: 500 * time.Millisecond,
		NewClusterID: func() string { return fmt.Sprintf("cluster-of-%d", n.id.NodeID) },
		Adopt:        n.adopt,
		Logger:       slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	n.cancel = func() {
		cancel()
		_ = l.Close()
	}
	n.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.wg.Go(func() {
				defer conn.Close() // the answer has left or has not
				identity, err := peer.NewIdentity(f.Self().ID, []byte(quorumSecret))
				if err != nil {
					return
				}
				if _, by, err := identity.Accept(conn, func(peer.Kind, peer.ID) error { return nil }); err == nil {
					_ = f.Answer(conn, by)
				}
			})
		}
	})
	if n.plan == nil {
		n.wg.Go(func() {
			if plan, err := f.Run(ctx); err == nil {
				n.plan = &plan
			}
		})
	}
}

func (n *formNode) adopt(id, founder string) error {
	if len(n.adopted) == 0 || n.adopted[len(n.adopted)-1] != id {
		n.adopted = append(n.adopted, id)
	}
	n.founder = founder
	return nil
}

func (n *formNode) stop() {
	n.cancel()
	n.host.Kill()
	n.wg.Wait()
}

// Three nodes are started at any times, killed, started again and cut off from each other while they form a cluster: in
// the end it is one, and whatever the moment it was never two (C12). In every second seed the nodes have lists that
// differ but overlap, in every third they were formatted with one cluster id, which must not make two clusters either.
func TestFormingMakesOneClusterOrNone(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		if err := form(t, seed); err != nil {
			t.Error(err)
		}
	})
}

// form has three nodes form a cluster, and says what is wrong with it.
func form(t *testing.T, seed uint64) error {
	t.Helper()
	net := NewNetwork(seed, DefaultLatency)
	defer net.Close()
	rng := rand.New(rand.NewPCG(seed, 0x666f726d))
	all := []string{"n1" + quorumPort, "n2" + quorumPort, "n3" + quorumPort}
	odd := seed%2 == 0
	var nodes []*formNode
	for i := 1; i <= 3; i++ {
		n := &formNode{id: peer.ID{NodeID: wire.BrokerID(i), DirectoryID: wire.UUID{0: 7, 15: byte(i)}}, host: net.Host(fmt.Sprintf("n%d", i)), listed: all}
		if odd {
			n.listed = [][]string{all[:2], all[1:], all}[i-1]
		}
		if seed%3 == 0 {
			n.adopted = []string{"formatted"}
		}
		nodes = append(nodes, n)
	}
	started := map[*formNode]bool{}
	for range 12 {
		n := nodes[rng.IntN(3)]
		switch {
		case !started[n]:
			n.start(t)
			started[n] = true
		case rng.IntN(2) == 0:
			n.stop()
			started[n] = false
		default:
			other := nodes[rng.IntN(3)].host.name
			net.Cut(n.host.name, other)
			time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
			net.Heal(n.host.name, other)
		}
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
	}
	for _, n := range nodes {
		if !started[n] {
			n.start(t)
		}
	}
	time.Sleep(30 * time.Second)
	for _, n := range nodes {
		n.stop()
	}
	return checkFormed(nodes, odd)
}

// checkFormed wants one founder at most, and everybody who has a plan in its cluster.
func checkFormed(nodes []*formNode, odd bool) error {
	cluster, founders := "", 0
	var errs []error
	for _, n := range nodes {
		switch {
		case len(n.adopted) > 1:
			errs = append(errs, fmt.Errorf("node %d adopted %v", n.id.NodeID, n.adopted))
		case n.plan == nil && !odd:
			errs = append(errs, fmt.Errorf("node %d has no cluster in the end", n.id.NodeID))
		}
		if n.plan == nil {
			continue
		}
		if cluster == "" {
			cluster = n.plan.ClusterID
		}
		if n.plan.ClusterID != cluster || n.adopted[0] != cluster {
			errs = append(errs, fmt.Errorf("node %d is in cluster %s (adopted %v), another in %s", n.id.NodeID, n.plan.ClusterID, n.adopted, cluster))
		}
		if n.plan.Step == peer.Found {
			founders++
		}
	}
	if founders > 1 || founders == 0 && !odd {
		errs = append(errs, fmt.Errorf("%d nodes have founded a cluster", founders))
	}
	return errors.Join(errs...)
}
