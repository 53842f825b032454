//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kajamq/kaja/chaos/netns"
)

// kind is a kind of fault. strike returns when the fault is there; heal when it was taken away, not when the cluster is
// whole again.
type kind struct {
	name        string
	what        string
	least, most time.Duration // how long it lasts
	strike      func(*cluster, event) error
	heal        func(*cluster, event) error
	rolling     func(context.Context, *cluster, event) error // instead, with an end of its own
	all         bool                                         // every node is hit
	special     bool                                         // only where it is asked for by name
	needsOld    bool
}

// kinds are all faults. N-numbers are those of the scenarios (docs/scenarios.md).
func kinds() []kind {
	const s = time.Second
	up := func(c *cluster, e event) error { return c.nodes[e.node-1].start() }
	healNet := func(c *cluster, _ event) error { return c.net.Heal() }
	return []kind{
		{name: "kill", what: "SIGKILL, started again (N7)", least: s / 2, most: 5 * s, strike: kill, heal: up},
		{name: "stop", what: "SIGSTOP, SIGCONT (N9)", least: s / 2, most: 8 * s, strike: sig(syscall.SIGSTOP), heal: sig(syscall.SIGCONT)},
		{name: "mute", what: "nothing that it sends arrives (N2)", least: 2 * s, most: 6 * s,
			strike: func(c *cluster, e event) error { return c.net.Mute(e.node) }, heal: healNet},
		{name: "deaf", what: "nothing arrives at it (N2)", least: 2 * s, most: 6 * s,
			strike: func(c *cluster, e event) error { return c.net.Deafen(e.node) }, heal: healNet},
		{name: "cut", what: "cut off in both directions (N1)", least: 2 * s, most: 6 * s,
			strike: func(c *cluster, e event) error {
				return errors.Join(c.net.Mute(e.node), c.net.Deafen(e.node))
			}, heal: healNet},
		{name: "unplug", what: "its cable is out (N1)", least: 2 * s, most: 6 * s,
			strike: func(c *cluster, e event) error { return c.net.Unplug(e.node) }, heal: healNet},
		{name: "partial", what: "two nodes do not hear each other (N1)", least: 2 * s, most: 6 * s, all: true,
			strike: func(c *cluster, e event) error {
				return errors.Join(c.net.Cut(e.node, e.other), c.net.Cut(e.other, e.node))
			}, heal: healNet},
		{name: "loss", what: "1 to 30 % of packets to it are lost (N4)", least: 3 * s, most: 8 * s,
			strike: func(c *cluster, e event) error { return c.net.Lose(e.node, 10+int(e.dice%291)) }, heal: healNet},
		{name: "slow", what: "its link does 3 Mbit/s (N3)", least: 3 * s, most: 8 * s,
			strike: func(c *cluster, e event) error { return c.net.Slow(e.node, 3000) }, heal: healNet},
		{name: "reorder", what: "packets to and from it come out of order and twice (N5)", least: 3 * s, most: 8 * s, strike: reorder, heal: unreorder},
		{name: "reset", what: "its connections are reset (N6)", least: s / 4, most: s,
			strike: func(c *cluster, e event) error { return c.net.Reset(e.node) }, heal: healNet},
		{name: "full", what: "its disk is full (N12)", least: 3 * s, most: 6 * s, strike: fill, heal: unfill},
		{name: "hang", what: "its disk hangs: what writes does not come back (N12, D16)", least: 12 * s, most: 18 * s,
			strike: func(c *cluster, e event) error { c.nodes[e.node-1].disk.Freeze(); return nil },
			heal:   func(c *cluster, e event) error { c.nodes[e.node-1].disk.Thaw(); return nil }},
		{name: "power", what: "loses power (N10)", least: s / 2, most: 5 * s, strike: powerCut, heal: remount},
		{name: "choke", what: "gets a tenth of a CPU (N13)", least: 3 * s, most: 8 * s, rolling: choke},
		{name: "clock", what: "its wall clock is wrong by hours or years (N14); wants a binary with the tag planted", least: 2 * s, most: 6 * s,
			strike: func(c *cluster, e event) error { return c.nodes[e.node-1].clock(wrongBy[e.dice%uint64(len(wrongBy))]) },
			heal:   func(c *cluster, e event) error { return c.nodes[e.node-1].clock(0) }, special: true},
		{name: "flip", what: "killed, a bit of a closed file flips, runs so for a while, and copies that partition anew (N11)", rolling: flip, special: true},
		{name: "blackout", what: "all nodes lose power at once (R10); wants -fsync always", least: s / 2, most: 3 * s, strike: blackout, heal: lightsOn, all: true, special: true},
		{name: "restart", what: "clean restart of one node (N8)", least: s / 10, most: s, strike: func(c *cluster, e event) error { return c.nodes[e.node-1].stop() }, heal: up},
		{name: "roll", what: "clean restart of each node in turn (N8)", rolling: roll, all: true},
		{name: "upgrade", what: "from the older binary to the one under test, node after node, and back before that (N16)", rolling: upgrade, all: true, needsOld: true},
		{name: "none", what: "nothing (N18)", least: s, most: 3 * s,
			strike: func(*cluster, event) error { return nil }, heal: func(*cluster, event) error { return nil }},
	}
}

func names(all []kind) []string {
	var n []string
	for _, k := range all {
		n = append(n, k.name)
	}
	return n
}

func find(all []kind, name string) (kind, bool) {
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return kind{}, false
	}
	return all[i], true
}

func kill(c *cluster, e event) error { return c.nodes[e.node-1].kill() }

func sig(s syscall.Signal) func(*cluster, event) error {
	return func(c *cluster, e event) error { return c.nodes[e.node-1].signal(s, false) }
}

// reorder holds 2 to 31 % of a node's packets for up to 30 ms, and sends 1 to 10 % of them twice.
func reorder(c *cluster, e event) error {
	return c.net.Reorder(e.node, netns.Shuffle{Late: 20 + int(e.dice%291), Twice: 10 + int(e.dice>>32%91), Hold: 30 * time.Millisecond}, e.dice)
}

func unreorder(c *cluster, e event) error {
	did := c.net.Shuffled(e.node)
	c.say("of %d packets %d were late and %d came twice", did.Passed, did.Late, did.Twice)
	return c.net.Heal()
}

func fill(c *cluster, e event) error {
	n := c.nodes[e.node-1]
	n.expectEnd() // where the metadata's own disk is full, the process ends
	n.disk.Fill()
	return nil
}

func unfill(c *cluster, e event) error {
	n := c.nodes[e.node-1]
	n.disk.Unfill()
	if n.running() {
		n.mu.Lock()
		n.expected = false
		n.mu.Unlock()
		return nil
	}
	c.say("node %d had ended: its disk was full", n.id)
	return n.start()
}

func powerCut(c *cluster, e event) error {
	n := c.nodes[e.node-1]
	n.expectEnd()
	n.disk.Shutdown()
	return n.kill()
}

func remount(c *cluster, e event) error {
	n := c.nodes[e.node-1]
	n.disk.Remount()
	return n.start()
}

func blackout(c *cluster, _ event) error {
	for _, n := range c.nodes {
		n.expectEnd()
	}
	for _, n := range c.nodes {
		n.disk.Shutdown()
	}
	for _, n := range c.nodes {
		if err := n.kill(); err != nil {
			return err
		}
	}
	return nil
}

func lightsOn(c *cluster, _ event) error {
	for _, n := range c.nodes {
		n.disk.Remount()
		if err := n.start(); err != nil {
			return err
		}
	}
	return nil
}

// flip kills a node, flips a bit of a closed segment of its, and lets it run for some seconds. Then the replica is thrown
// away: the node copies it from its leader. Nothing of the damage may have reached another node.
func flip(ctx context.Context, c *cluster, e event) error {
	n := c.nodes[e.node-1]
	if err := n.kill(); err != nil {
		return err
	}
	name, at, err := flipBit(n.disk.Mount, rand.New(rand.NewPCG(e.dice, 1)))
	if errors.Is(err, errNothingClosed) {
		c.say("node %d: %v", n.id, err)
		return n.start()
	}
	if err != nil {
		return err
	}
	c.say("node %d: a bit at %d of %s is flipped", n.id, at, strings.TrimPrefix(name, n.disk.Mount))
	if err := n.start(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(4 * time.Second):
	}
	if err := n.kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Dir(name)); err != nil {
		return err
	}
	return n.start()
}

// wrongBy is how far off a clock may be.
var wrongBy = []time.Duration{3 * time.Hour, -3 * time.Hour, 365 * 24 * time.Hour, -365 * 24 * time.Hour}

// choke lets a node run for 10 ms of each 100.
func choke(ctx context.Context, c *cluster, e event) error {
	n := c.nodes[e.node-1]
	for end := time.Now().Add(e.hold); time.Now().Before(end) && ctx.Err() == nil; {
		if err := n.signal(syscall.SIGSTOP, false); err != nil {
			return err
		}
		<-time.After(90 * time.Millisecond)
		if err := n.signal(syscall.SIGCONT, false); err != nil {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
	return nil
}

// roll restarts each node, once the cluster is whole.
func roll(ctx context.Context, c *cluster, e event) error {
	for i := range c.nodes {
		n := c.nodes[(e.node-1+i)%len(c.nodes)]
		if err := c.restart(ctx, n, n.binary); err != nil {
			return err
		}
	}
	return nil
}

// upgrade takes each node back to the older binary, then each to the newer one.
func upgrade(ctx context.Context, c *cluster, e event) error {
	for _, binary := range []string{c.o.old, c.o.binary} {
		for i := range c.nodes {
			if err := c.restart(ctx, c.nodes[(e.node-1+i)%len(c.nodes)], binary); err != nil {
				return err
			}
		}
	}
	return nil
}

// restart stops a node, starts it with a binary, and waits until the cluster is whole.
func (c *cluster) restart(ctx context.Context, n *node, binary string) error {
	if err := n.stop(); err != nil {
		return err
	}
	n.binary = binary
	if err := n.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if why := c.whole(ctx); why != "" && ctx.Err() != nil {
		return fmt.Errorf("not whole %v after node %d was restarted: %s", patience, n.id, why)
	}
	return nil
}
