//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/chaos/load"
	"github.com/kajamq/kaja/chaos/netns"
	"github.com/kajamq/kaja/internal/loopdisk"
)

// patience is how long the cluster has to become whole, and take load, once a fault is over.
const patience = 90 * time.Second

// forming is how long it may take until there is a cluster, all of it new: three JVMs that start at once need minutes of a busy machine.
const forming = 5 * time.Minute

// cluster is all nodes, and what was found.
type cluster struct {
	o     options
	runs  product
	net   *netns.Net
	nodes []*node
	began time.Time
	load  *load.Load
	ad    *kadm.Client

	mu       sync.Mutex
	findings []string
}

// newCluster makes hosts and disks. Nodes with an even number have XFS, the others ext4.
func newCluster(o options, w *world) (*cluster, error) {
	c := &cluster{o: o, runs: kaja{}, began: time.Now()}
	if o.jars != "" {
		c.runs = kafka{o.jars}
	}
	var err error
	for _, program := range []*string{&c.o.binary, &c.o.old} {
		if o.jars != "" || *program == "" {
			continue
		}
		if *program, err = w.own(*program); err != nil {
			return nil, err
		}
	}
	if c.net, err = netns.New(o.nodes); err != nil {
		return nil, err
	}
	for i := range o.nodes {
		kind := []string{"ext4", "xfs"}[i%2]
		n := &node{id: i + 1, c: c, disk: loopdisk.New(w, kind, diskSize), binary: c.o.binary}
		c.nodes = append(c.nodes, n)
		_ = os.Remove(n.logName())
		if err := n.clock(0); err != nil {
			return nil, err
		}
	}
	w.Cleanup(c.killAll)
	return c, nil
}

func (c *cluster) killAll() {
	for _, n := range c.nodes {
		if n.cmd != nil {
			_ = n.kill()
		}
	}
}

func (c *cluster) say(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// found notes something that must not be.
func (c *cluster) found(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	c.say("FOUND: %s", text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings = append(c.findings, fmt.Sprintf("at %.1f s: %s", time.Since(c.began).Seconds(), text))
}

func (c *cluster) broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.findings) > 0
}

// start starts every node and the load.
func (c *cluster) start(ctx context.Context) error {
	var seeds []string
	for _, n := range c.nodes { // all are ready before the first one starts to wait for the others
		if err := n.prepare(); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := n.start(); err != nil {
			return err
		}
		seeds = append(seeds, addr(n.id))
	}
	ctx, cancel := context.WithTimeout(ctx, forming)
	defer cancel()
	l, err := load.Start(context.WithoutCancel(ctx), load.Config{
		Seeds: seeds, Nodes: c.o.nodes, Seed: c.o.seed, Partitions: int32(c.o.partitions), Rate: c.o.rate,
		ProbeEvery: 5 * time.Millisecond, Extras: !c.o.series,
	})
	if err != nil {
		return err
	}
	c.load = l
	if c.ad, err = l.Admin(); err != nil {
		return err
	}
	if why := c.whole(ctx); why != "" {
		return fmt.Errorf("the cluster is not whole after %v: %s", forming, why)
	}
	return nil
}

// whole waits until every replica is in sync and preferred leaders lead; it gives what is missing when ctx ends.
func (c *cluster) whole(ctx context.Context) (missing string) {
	for {
		missing, err := load.Whole(ctx, c.ad)
		if err == nil && missing == "" {
			if missing = c.balance(ctx); missing == "" {
				return ""
			}
		}
		if err != nil {
			missing = err.Error()
		}
		select {
		case <-ctx.Done():
			return missing
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// balance gives the probes' partitions back to their first replicas.
func (c *cluster) balance(ctx context.Context) (missing string) {
	m, err := c.ad.Metadata(ctx, load.Probe)
	if err != nil {
		return err.Error()
	}
	for _, p := range m.Topics[load.Probe].Partitions.Sorted() {
		if p.Leader != p.Partition+1 {
			_, err := c.ad.ElectLeaders(ctx, kadm.ElectPreferredReplica, nil)
			return fmt.Sprintf("%s/%d is led by %d (%v)", load.Probe, p.Partition, p.Leader, err)
		}
	}
	return ""
}

// controller is the node that leads the quorum; 0: nobody says.
func (c *cluster) controller(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic, t.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
	req.Topics = append(req.Topics, t)
	cl, err := c.load.Asker()
	if err != nil {
		return 0
	}
	defer cl.Close()
	got, err := req.RequestWith(ctx, cl)
	if err != nil || len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		return 0
	}
	return int(max(got.Topics[0].Partitions[0].LeaderID, 0))
}
