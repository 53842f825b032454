package sim

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/sim/eos"
	"github.com/twmb/franz-go/pkg/kgo"
)

// eosSettings make segments roll, sweeps run and coordinators' topics small.
var eosSettings = []string{"transaction.state.log.num.partitions=3", "offsets.topic.num.partitions=3",
	"transaction.abort.timed.out.transaction.cleanup.interval.ms=200"}

// eosSync is how long a sync takes at most.
const eosSync = 4 * time.Millisecond

// eosRecords is how many records a run sends: a few thousand, or KAJA_EOS_RECORDS.
func eosRecords(t *testing.T, few int) int {
	t.Helper()
	text := os.Getenv("KAJA_EOS_RECORDS")
	if text == "" {
		return few
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KAJA_EOS_RECORDS: %v", err)
	}
	return n
}

func eosLoad(c *Cluster, seed uint64, records int) *eos.Load {
	segment := "65536"
	l := &eos.Load{
		Dial: c.Net.Host("eos").Boot().Dial, Seed: seed, Records: records, Producers: 6, Readers: 2, Batch: 20, Patience: time.Minute,
		Topics: map[string]int32{"eos-a": 3, "eos-b": 2}, Replication: 1, Configs: map[string]*string{"internal.segment.bytes": &segment},
		Client: func(opts ...kgo.Opt) (*kgo.Client, error) { return c.Client("eos-admin", opts...) },
	}
	for _, n := range c.brokers() {
		l.Seeds = append(l.Seeds, n.Addr())
	}
	return l
}

// Transactions of both versions on a lone node that loses power, is killed and is stopped under load: what was told is
// what is there, and nobody ever sees anything else (T3, T4, T6, T11, T14, T15).
func TestTransactionsOnALoneNode(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		h, err := runEOS(t, seed, eosRecords(t, 5_000), 2*time.Second)
		if err != nil {
			t.Error(err)
		}
		t.Logf("%+v", h.Counts())
	})
}

// runEOS runs the load on a lone node, which is ended and started again each time that it has run for so long at most.
func runEOS(t *testing.T, seed uint64, records int, life time.Duration) (*eos.History, error) {
	t.Helper()
	c := NewCluster(t, seed)
	node := c.Node("n1", eosSettings...)
	node.SlowDisk(eosSync)
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	load := eosLoad(c, seed, records)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := load.Create(ctx); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	restarts := 0
	wg.Go(func() { restarts = disturb(t, node, seed, life, done) })
	h := load.Run(ctx)
	close(done)
	wg.Wait()
	err := load.Check(ctx, h)
	t.Logf("%d restarts", restarts)
	return h, err
}

// disturb ends the node and starts it again until done, and leaves it running.
func disturb(t *testing.T, node *Node, seed uint64, life time.Duration, done <-chan struct{}) (restarts int) {
	rng := rand.New(rand.NewPCG(seed, 0x656f73))
	for {
		timer := time.NewTimer(life/20 + time.Duration(rng.Int64N(int64(life))))
		select {
		case <-done:
			timer.Stop()
			return restarts
		case <-timer.C:
		}
		interrupt(t, node, rng)
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		if err := node.Start(context.Background()); err != nil {
			t.Errorf("start: %v", err)
			return restarts
		}
		restarts++
	}
}
