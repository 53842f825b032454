package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker whose only log directory has failed is taken for dead when its session ends, though it still runs: the others
// lead its partitions, and what is written goes on. It stops as fast as any other.
func TestBrokerWithoutADirectoryLosesItsLeaderships(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3, "kaja.fsync=always")
		disks := make([]atomic.Pointer[faultfs.FS], len(nodes))
		for i, n := range nodes {
			n.FaultyDisk(func(fs *faultfs.FS) { disks[i].Store(fs) })
		}
		if err := c.StartAll(t.Context(), nodes...); err != nil {
			t.Fatal(err)
		}
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", time.Minute)
		cl, err := c.Client("client", kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		write := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			for p := range int32(3) {
				if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
					return fmt.Errorf("partition %d: %w", p, err)
				}
			}
			return nil
		}
		if err := write(time.Minute); err != nil {
			t.Fatal(err)
		}
		i := 0
		if c.Controller(time.Minute) == nodes[i] {
			i = 1
		}
		id := wire.BrokerID(i + 1)
		if !leadsAny(nodes[i], "t", id) {
			t.Fatalf("broker %d leads nothing", id)
		}
		disks[i].Load().Add(faultfs.Rule{Op: faultfs.OpSync, Path: "*.log", Err: errors.New("the disk is broken")})
		const session = time.Second
		written := make(chan error, 1)
		go func() { written <- write(5 * session) }() // its first sync fails
		c.awaitFenced(t, id, true, session+session/2)
		if leadsAny(c.Controller(time.Minute), "t", id) {
			t.Errorf("broker %d leads, and is fenced", id)
		}
		if err := <-written; err != nil {
			t.Errorf("what was under way when the disk failed: %v", err)
		}
		if err := write(session); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		began := time.Now()
		if err := nodes[i].Stop(); err == nil {
			t.Error("a stop says nothing of the directory")
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

// leadsAny reports whether a broker leads a partition of the topic, as the node knows it.
func leadsAny(n *Node, topic string, id wire.BrokerID) bool {
	top, ok := n.controller().Image().Topic(topic)
	if !ok {
		return false
	}
	for _, p := range top.Partitions {
		if p.Leader == id {
			return true
		}
	}
	return false
}
