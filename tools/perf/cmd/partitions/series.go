package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

// series measures a node with many partitions beside one with 100: filling, stops and starts of every kind, and produces to
// random partitions of both in turn, so that both meet the same machine. One line of JSON a step; the data are removed.
func series(o options) error {
	small := o
	small.topics, small.partitions = 1, 100
	few, many := newNode(small, "few", o.port), newNode(o, "many", o.port+1)
	return withNodes(o, []*node{few, many}, func() error {
		for _, n := range []*node{few, many} {
			if err := n.setUp(nil); err != nil {
				return err
			}
		}
		if err := probeBoth("produce, after filling", few, many); err != nil {
			return err
		}
		for _, s := range []struct {
			stop, start string
			sig         syscall.Signal
			before      func() error
		}{
			{"stop, every partition written to", "clean start", syscall.SIGTERM, nil},
			{"stop, one partition written to", "clean start, again", syscall.SIGTERM, nil},
			{"kill", "start after SIGKILL, one partition written to", syscall.SIGKILL, nil},
			{"kill", "start after SIGKILL, every partition written to", syscall.SIGKILL, func() error { return many.fill("fill, again") }},
		} {
			if s.before != nil {
				if err := s.before(); err != nil {
					return err
				}
			}
			if err := many.end(s.stop, s.sig); err != nil {
				return err
			}
			if err := many.start(s.start, true); err != nil {
				return err
			}
		}
		if err := few.end("stop", syscall.SIGTERM); err != nil {
			return err
		}
		if err := few.start("clean start", true); err != nil {
			return err
		}
		return probeBoth("produce, first after a start", few, many)
	})
}

// sealed measures the start after SIGKILL of partitions with a sealed segment each and a half full active one.
func sealed(o options) error {
	const segment, batch = 20 << 20, 1_000_000
	o.size, o.perRequest, o.batches = batch, 8, segment*3/2/batch
	n := newNode(o, "sealed", o.port)
	return withNodes(o, []*node{n}, func() error {
		if err := n.setUp(map[string]string{"segment.bytes": fmt.Sprint(segment)}); err != nil {
			return err
		}
		for range 2 { // the second time nothing was appended but the record that showed the first to be ready
			if err := n.end("kill", syscall.SIGKILL); err != nil {
				return err
			}
			if err := n.start("start after SIGKILL", true); err != nil {
				return err
			}
		}
		return nil
	})
}

// withNodes runs do, and ends the nodes and removes their data then.
func withNodes(o options, nodes []*node, do func() error) (err error) {
	if o.dir == "" || o.kaja == "" {
		return errors.New("-dir and -kaja are needed")
	}
	if err := os.Mkdir(o.dir, 0o755); err != nil { // a fresh one: it is removed
		return err
	}
	defer func() {
		for _, n := range nodes {
			err = errors.Join(err, n.end("kill at the end", syscall.SIGKILL))
		}
		err = errors.Join(err, os.RemoveAll(o.dir))
	}()
	return do()
}

// setUp starts a node on an empty directory, and creates and fills its topics.
func (n *node) setUp(config map[string]string) error {
	if err := n.start("first start", false); err != nil {
		return err
	}
	began := time.Now()
	c, err := kw.Dial(n.addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.C.Close()
	for i := range n.topics {
		if err := c.CreateTopic(n.topic(i), int32(n.partitions), 1, config); err != nil {
			return err
		}
	}
	n.report("create", map[string]any{"seconds": time.Since(began).Seconds()})
	return n.fill("fill")
}

func (n *node) fill(step string) error {
	out, err := fill(n.options)
	if err == nil {
		n.report(step, out)
	}
	return err
}

// probeBoth sends a record to a random partition of each of two nodes in turn.
func probeBoth(step string, nodes ...*node) error {
	rng := rand.New(rand.NewPCG(1, 2))
	conns, took := make([]*kw.Conn, len(nodes)), make([][]time.Duration, len(nodes))
	for i, n := range nodes {
		c, err := kw.Dial(n.addr, 5*time.Second)
		if err != nil {
			return err
		}
		defer c.C.Close()
		conns[i] = c
	}
	batch, _ := kw.Batch(200, 100)
	for range nodes[0].count {
		for i, n := range nodes {
			t := time.Now()
			if err := conns[i].Produce(n.topic(rng.IntN(n.topics)), []int32{rng.Int32N(int32(n.partitions))}, batch, -1, time.Minute); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(t))
		}
	}
	for i, n := range nodes {
		slices.Sort(took[i])
		ms := func(q float64) float64 { return took[i][int(q*float64(len(took[i])-1))].Seconds() * 1e3 }
		n.report(step, map[string]any{"produces": len(took[i]), "p50_ms": ms(0.5), "p99_ms": ms(0.99), "max_ms": ms(1)})
	}
	return nil
}
