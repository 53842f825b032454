package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/sim/history"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// nemesis makes one fault in a cluster of three at a time, and ends it.
type nemesis struct {
	t     *testing.T
	c     *Cluster
	nodes []*Node
	rng   *rand.Rand
}

// strike makes a fault for a while.
func (f *nemesis) strike() string {
	n := f.nodes[f.rng.IntN(len(f.nodes))]
	o := f.nodes[f.rng.IntN(len(f.nodes))]
	last := time.Duration(200+f.rng.IntN(4000)) * time.Millisecond
	name := ""
	switch f.rng.IntN(7) {
	case 0:
		name = "kill (N7)"
		n.Kill()
		f.restart(n, last)
	case 1:
		name = "power loss (N10)"
		n.PowerOff(memfs.Coin, f.rng.Uint64())
		f.restart(n, last)
	case 2:
		name = "stop (N8)"
		if err := n.Stop(); err != nil {
			f.t.Errorf("clean stop: %v", err)
		}
		f.restart(n, last)
	case 3:
		name = "isolated (N1)"
		f.between(n, f.c.Net.Cut)
		time.Sleep(last)
		f.between(n, f.c.Net.Heal)
	case 4:
		name = "one way (N2)"
		if n != o {
			f.c.Net.Cut(n.Name(), o.Name())
			time.Sleep(last)
			f.c.Net.Heal(n.Name(), o.Name())
		}
	case 5:
		name = "slow (N3)"
		slow := func(d time.Duration) {
			f.between(n, func(from, to string) { f.c.Net.Slow(from, to, d) })
		}
		slow(100 * time.Millisecond)
		time.Sleep(last)
		slow(0)
	default:
		name = "resets (N6)"
		for range 10 {
			f.between(n, f.c.Net.Reset)
			time.Sleep(last / 10)
		}
	}
	return fmt.Sprintf("%s of %s for %v", name, n.Name(), last)
}

// between does something to every link between n and the other nodes, in both directions; clients still reach n.
func (f *nemesis) between(n *Node, do func(from, to string)) {
	for _, o := range f.nodes {
		if o != n {
			do(n.Name(), o.Name())
			do(o.Name(), n.Name())
		}
	}
}

func (f *nemesis) restart(n *Node, after time.Duration) {
	time.Sleep(after)
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*time.Minute)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		f.t.Fatalf("start %s again: %v", n.Name(), err)
	}
}

// commits are the offsets that a group's client was told are committed. Each is greater than the one before.
func (f *nemesis) commits(ctx context.Context, group string) (highest int64) {
	cl, err := f.c.Client(group)
	if err != nil {
		f.t.Error(err)
		return 0
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for n := int64(1); ctx.Err() == nil; n++ {
		try, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: n, LeaderEpoch: -1})
		resp, err := adm.CommitOffsets(try, group, offsets)
		if err == nil && resp.Error() == nil {
			highest = n
			got, err := adm.FetchOffsets(try, group)
			if o, ok := got.Lookup("t", 0); err == nil && got.Error() == nil && (!ok || o.At < highest) {
				f.t.Errorf("group %s: offset %d is told, %d was committed", group, o.At, highest)
			}
		}
		cancel()
		time.Sleep(50 * time.Millisecond)
	}
	return highest
}

// Three nodes under faults of every kind, one at a time, with idempotent producers, a group that commits, and a client
// that wants the leader's answer alone: nothing acknowledged by all is lost, doubled or moved, no committed offset goes
// back, and in the end all replicas hold the same bytes.
func TestThreeNodesUnderNemeses(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		if seed > 1 && os.Getenv("KAJA_SIM_SEED") == "" {
			t.Skip("one seed is enough here: make sim SEED= N= runs more")
		}
		c := NewCluster(t, seed)
		nodes := startThree(t, c, "log.segment.bytes=1048576", "min.insync.replicas=2")
		replicated(t, c, "t", 3, nil)
		replicated(t, c, "one", 1, nil)
		whole(t, c, "t", 30*time.Second)
		history := history.New()
		stop := load(t, c, history, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := &nemesis{t: t, c: c, nodes: nodes, rng: rand.New(rand.NewPCG(seed, 0x6e656d65))}
		var wg sync.WaitGroup
		committed := int64(0)
		wg.Go(func() { committed = f.commits(ctx, "g") })
		wg.Go(func() { unsafeLoad(ctx, t, c) })
		var faults []string
		for range 6 {
			time.Sleep(time.Duration(500+f.rng.IntN(2000)) * time.Millisecond)
			faults = append(faults, f.strike())
			whole(t, c, "t", 2*time.Minute)
		}
		cancel()
		wg.Wait()
		stop()
		whole(t, c, "t", time.Minute)
		whole(t, c, "one", time.Minute)
		time.Sleep(2 * time.Second)
		sameLogs(t, nodes, "t", 3)
		sameLogs(t, nodes, "one", 1)
		checkHistory(t, c, history, "t")
		if history.Acked() < 500 || history.Failed() > 0 || committed < 10 {
			t.Errorf("acknowledged %d records, given up %d, committed %d times; want 500 and more, 0, 10 and more", history.Acked(), history.Failed(), committed)
		}
		t.Logf("%d records acknowledged, %d offsets committed, faults: %q", history.Acked(), committed, slices.Clip(faults))
	})
}

// unsafeLoad writes with acks=1 and without a producer id: what it is told may be lost with its leader.
func unsafeLoad(ctx context.Context, t *testing.T, c *Cluster) {
	cl, err := c.Client("unsafe", kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite(), kgo.ProducerLinger(0),
		kgo.RecordRetries(3), kgo.RecordDeliveryTimeout(5*time.Second))
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	for ctx.Err() == nil {
		cl.Produce(context.Background(), &kgo.Record{Topic: "one", Value: []byte("v")}, func(*kgo.Record, error) {})
		time.Sleep(20 * time.Millisecond)
	}
	end, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.Flush(end); err != nil {
		t.Errorf("flush: %v", err)
	}
}
