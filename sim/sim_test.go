//go:debug randseednop=0

package sim

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/sim/history"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// seeds are the seeds that this run tries: a fixed few, or KAJA_SIM_N from KAJA_SIM_SEED on (`make sim SEED= N=`).
func seeds(t *testing.T) []uint64 {
	first, n := uint64(1), 3
	if text := os.Getenv("KAJA_SIM_SEED"); text != "" {
		v, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("KAJA_SIM_SEED: %v", err)
		}
		first, n = v, 1
	}
	if text := os.Getenv("KAJA_SIM_N"); text != "" {
		v, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("KAJA_SIM_N: %v", err)
		}
		n = v
	}
	var out []uint64
	for i := range n {
		out = append(out, first+uint64(i))
	}
	return out
}

// eachSeed runs f in a bubble for every seed, with all randomness of libraries seeded.
func eachSeed(t *testing.T, f func(t *testing.T, seed uint64)) {
	for _, seed := range seeds(t) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			mrand.Seed(int64(seed)) //nolint:staticcheck // hashicorp/raft draws its election timeouts from it
			synctest.Test(t, func(t *testing.T) { f(t, seed) })
			if t.Failed() {
				t.Logf("again: make sim SEED=%d", seed)
			}
		})
	}
}

// A lone node loses power, is killed and is stopped under load, again and again. What it acknowledged is there once, in
// order, where it said: under kaja.fsync=auto no acknowledgement may rest on what a power loss takes (R10, B of D).
func TestLoneNodeLosesNothing(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		node := c.Node("n1", "log.segment.bytes=1048576")
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		history := history.New()
		stop := startProducers(t, c, history, 3)
		rng := rand.New(rand.NewPCG(seed, 0x73696d))
		for range 6 {
			time.Sleep(time.Duration(500+rng.IntN(2500)) * time.Millisecond)
			interrupt(t, node, rng)
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			if err := node.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		stop()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		log, err := ReadTopic(ctx, c, "reader", "t")
		if err != nil {
			t.Fatal(err)
		}
		if err := history.Check(log); err != nil {
			t.Error(err)
		}
		if history.Acked() < 500 || history.Failed() > 0 {
			t.Errorf("acknowledged %d records, given up %d; want 500 and more, and 0", history.Acked(), history.Failed())
		}
		packets, digest := c.Net.Trace()
		t.Logf("%d records acknowledged, %d packets, digest %016x", history.Acked(), packets, digest)
	})
}

// A test that cannot fail proves nothing: without fsync the same workload loses acknowledged records to a power loss, and
// the checker says so.
func TestCheckerFindsLoss(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		node := c.Node("n1", "kaja.fsync=never")
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		history := history.New()
		stop := startProducers(t, c, history, 1)
		time.Sleep(time.Second)
		node.PowerOff(memfs.Lose, seed)
		if err := node.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		stop()
		log, err := ReadTopic(t.Context(), c, "reader", "t")
		if err != nil {
			t.Fatal(err)
		}
		if err := history.Check(log); err == nil {
			t.Error("records were lost for certain, and the checker found nothing")
		}
	})
}

// interrupt ends a node in one of the ways in which nodes end.
func interrupt(t *testing.T, n *Node, rng *rand.Rand) {
	t.Helper()
	switch rng.IntN(4) {
	case 0:
		if err := n.Stop(); err != nil {
			t.Errorf("clean stop: %v", err)
		}
	case 1:
		n.Kill()
	case 2:
		n.PowerOff(memfs.Lose, rng.Uint64())
	default:
		n.PowerOff(memfs.Coin, rng.Uint64())
	}
}

// startProducers makes topic t and lets idempotent producers write to it; the returned function ends and joins them.
func startProducers(t *testing.T, c *Cluster, h *history.History, n int) (stop func()) {
	t.Helper()
	admin, err := c.Client("admin")
	if err != nil {
		t.Fatal(err)
	}
	_, err = kadm.NewClient(admin).CreateTopic(t.Context(), 3, 1, nil, "t")
	admin.Close()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		name := fmt.Sprintf("p%d", i)
		cl, err := c.Client(name, kgo.ProducerLinger(0), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.UnknownTopicRetries(-1))
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer cl.Close()
			errs[i] = h.Produce(ctx, cl, "t", name, 10*time.Millisecond)
		})
	}
	return func() {
		cancel()
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
	}
}
