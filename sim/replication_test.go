package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/sim/history"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// startThree forms a cluster of three nodes.
func startThree(t *testing.T, c *Cluster, settings ...string) []*Node {
	t.Helper()
	nodes := c.Form(3, settings...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.StartAll(ctx, nodes...); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// replicated creates a topic with three replicas of each partition; it tries until every node can be placed on.
func replicated(t *testing.T, c *Cluster, topic string, partitions int32, configs map[string]*string) {
	t.Helper()
	cl, err := c.Client("creator-of-" + topic)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err = kadm.NewClient(cl).CreateTopic(ctx, partitions, 3, configs, topic)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("create %s: %v", topic, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// whole waits until every partition of the topic has all its replicas in sync.
func whole(t *testing.T, c *Cluster, topic string, d time.Duration) {
	t.Helper()
	cl, err := c.Client("watcher")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	last := ""
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		m, err := adm.Metadata(ctx, topic)
		cancel()
		if err != nil {
			last = err.Error()
			continue
		}
		short := []string{}
		for _, p := range m.Topics[topic].Partitions.Sorted() {
			if len(p.ISR) < len(p.Replicas) || p.Leader < 0 {
				short = append(short, fmt.Sprintf("%d led by %d: %v of %v", p.Partition, p.Leader, p.ISR, p.Replicas))
			}
		}
		if last = strings.Join(short, ", "); last == "" && len(m.Topics[topic].Partitions) > 0 {
			return
		}
	}
	t.Fatalf("not all replicas are in sync after %v: %s", d, last)
}

// logOf is a partition's log on a disk, batch by batch.
func logOf(t *testing.T, fs *memfs.FS, topic string, p int) []byte {
	t.Helper()
	dir := fmt.Sprintf("/data/%s-%d", topic, p)
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		data, err := vfs.ReadFile(fs, dir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, rest, err := batch.Next(data)
			if err != nil {
				break
			}
			out = append(out, b...)
			data = rest
		}
	}
	return out
}

// sameLogs wants the logs of every replica equal, byte for byte.
func sameLogs(t *testing.T, nodes []*Node, topic string, partitions int) {
	t.Helper()
	for p := range partitions {
		first := logOf(t, nodes[0].Disk(), topic, p)
		for _, n := range nodes[1:] {
			if got := logOf(t, n.Disk(), topic, p); !bytes.Equal(got, first) {
				t.Errorf("%s-%d: %s has %d bytes, %s %d, and they differ", topic, p, nodes[0].Name(), len(first), n.Name(), len(got))
			}
		}
	}
}

// load runs idempotent producers against topic t; stop ends and joins them.
func load(t *testing.T, c *Cluster, h *history.History, n int) (stop func()) {
	t.Helper()
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

// Any one of three nodes is killed, loses power or is stopped, again and again, under load: what was acknowledged is there
// once, in order, where it was said to be, and in the end every replica holds the same bytes.
func TestAnyOfThreeNodesMayDie(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := startThree(t, c, "log.segment.bytes=1048576", "min.insync.replicas=2")
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", 30*time.Second)
		history := history.New()
		stop := load(t, c, history, 3)
		rng := rand.New(rand.NewPCG(seed, 0x7265706c))
		for range 5 {
			time.Sleep(time.Duration(500+rng.IntN(2500)) * time.Millisecond)
			n := nodes[rng.IntN(3)]
			interrupt(t, n, rng)
			time.Sleep(time.Duration(rng.IntN(8000)) * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := n.Start(ctx)
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			whole(t, c, "t", time.Minute)
		}
		time.Sleep(2 * time.Second)
		stop()
		whole(t, c, "t", time.Minute)
		time.Sleep(2 * time.Second)
		sameLogs(t, nodes, "t", 3)
		checkHistory(t, c, history, "t")
		if history.Acked() < 500 || history.Failed() > 0 {
			t.Errorf("acknowledged %d records, given up %d; want 500 and more, and 0", history.Acked(), history.Failed())
		}
		packets, digest := c.Net.Trace()
		t.Logf("%d records acknowledged, %d packets, digest %016x", history.Acked(), packets, digest)
	})
}

// The node that leads a partition is killed: how long nobody could write to it.
func TestGapAfterALeaderIsKilled(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := startThree(t, c)
		replicated(t, c, "t", 1, nil)
		whole(t, c, "t", 30*time.Second)
		cl, err := c.Client("probe", kgo.ProducerLinger(0), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.MetadataMinAge(10*time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 5 * time.Millisecond }))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		var mu sync.Mutex
		var last time.Time
		var gap time.Duration
		acked := 0
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				cl.Produce(context.Background(), &kgo.Record{Topic: "t", Value: []byte("v")}, func(_ *kgo.Record, err error) {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
					now := time.Now()
					if acked++; !last.IsZero() {
						gap = max(gap, now.Sub(last))
					}
					last = now
				})
				time.Sleep(5 * time.Millisecond)
			}
		})
		time.Sleep(3 * time.Second)
		quiet := func() time.Duration {
			mu.Lock()
			defer mu.Unlock()
			g := gap
			gap = 0
			return g
		}
		before := quiet()
		meta, err := kadm.NewClient(cl).Metadata(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		leader := nodes[meta.Topics["t"].Partitions[0].Leader-1]
		controller := c.Controller(time.Second) == leader
		leader.Kill()
		time.Sleep(15 * time.Second)
		cancel()
		wg.Wait()
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		killed := quiet()
		t.Logf("gap %v (before the kill %v), the leader was the controller: %v, %d acknowledged", killed, before, controller, acked)
		if killed > 3*time.Second {
			t.Errorf("nobody could write for %v", killed)
		}
		if before > 200*time.Millisecond {
			t.Errorf("without a fault nobody could write for %v", before)
		}
	})
}
