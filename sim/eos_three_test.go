package sim

import (
	"context"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/sim/eos"
)

// Transactions of both versions on three nodes, of which one at a time is killed, stopped or without power: coordinators,
// leaders and the markers between them move, and what was told is what is there (T2, T4, T6, T13).
func TestTransactionsOnThreeNodes(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		var link time.Duration
		if os.Getenv("KAJA_EOS_RECORDS") != "" { // the long runs
			link = eosLink
		}
		h, faults, err := runEOSOnThree(t, seed, eosRecords(t, 2_000), link)
		if err != nil {
			t.Error(err)
		}
		t.Logf("%d faults, %+v", faults, h.Counts())
	})
}

// eosLink is how long a message between two nodes takes in the long runs, besides what all messages take: so there are
// markers, answers and fetches under way when a node ends.
const eosLink = 4 * time.Millisecond

func runEOSOnThree(t *testing.T, seed uint64, records int, link time.Duration) (h *eos.History, faults int, err error) {
	t.Helper()
	c := NewCluster(t, seed)
	nodes := startThree(t, c, append([]string{"transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=2",
		"offsets.topic.replication.factor=3", "min.insync.replicas=2"}, eosSettings...)...)
	for _, from := range nodes {
		for _, to := range nodes {
			if from != to {
				c.Net.Slow(from.Name(), to.Name(), link)
			}
		}
	}
	load := eosLoad(c, seed, records)
	load.Replication, load.Patience = 3, 3*time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	until := time.Now().Add(time.Minute)
	for err := load.Create(ctx); err != nil; err = load.Create(ctx) { // until every node can be placed on
		if time.Now().After(until) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { faults = disturbOne(t, c, nodes, seed, done) })
	h = load.Run(ctx)
	close(done)
	wg.Wait()
	return h, faults, load.Check(ctx, h)
}

// disturbOne ends one node after another, and starts it again, until done; before the next one every replica is in sync.
func disturbOne(t *testing.T, c *Cluster, nodes []*Node, seed uint64, done <-chan struct{}) (faults int) {
	rng := rand.New(rand.NewPCG(seed, 0x656f7333))
	for {
		timer := time.NewTimer(time.Duration(50+rng.IntN(1500)) * time.Millisecond)
		select {
		case <-done:
			timer.Stop()
			return faults
		case <-timer.C:
		}
		for _, topic := range []string{"eos-a", "eos-b"} {
			whole(t, c, topic, 2*time.Minute)
		}
		node := nodes[rng.IntN(len(nodes))]
		interrupt(t, node, rng)
		time.Sleep(time.Duration(rng.IntN(3000)) * time.Millisecond)
		if err := node.Start(context.Background()); err != nil {
			t.Errorf("start: %v", err)
			return faults
		}
		faults++
	}
}
