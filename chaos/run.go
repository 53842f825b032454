//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"
)

// warmUp is how long the load runs before it counts, and how long it is counted at least before the first fault.
const warmUp = 3 * time.Second

// perform does a whole run. An error says that it could not be made; what the cluster did wrong is in the result.
func perform(ctx context.Context, o options, w *world) (*result, error) {
	c, err := newCluster(o, w)
	if err != nil {
		return nil, err
	}
	r := newResult(o, c.runs.name())
	c.say("seed %d, %d nodes, faults: %v; logs in %s", o.seed, o.nodes, o.kinds, o.dir)
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	c.say("the cluster is whole and under load")
	s := newSchedule(o)
	until := time.Now().Add(o.duration)
	rest(ctx, warmUp) // the load gets going
	for n := 0; ctx.Err() == nil && !c.broken(); n++ {
		if o.count > 0 && n >= o.count || o.count == 0 && time.Now().After(until) {
			break
		}
		e := s.next()
		quiet := o.quiet + e.wait
		if n == 0 {
			quiet += warmUp
		}
		if !c.calm(ctx, r, quiet) || c.broken() {
			break
		}
		if err := c.disturb(ctx, r, e); err != nil {
			return nil, err
		}
	}
	if !c.broken() {
		c.calm(ctx, r, o.quiet)
	}
	if err := c.judge(r); err != nil {
		return nil, err
	}
	return r, nil
}

// calm lets a time without faults pass. Before the first fault enough has to be acknowledged in it; later ones are reported.
func (c *cluster) calm(ctx context.Context, r *result, d time.Duration) bool {
	began, before := time.Now(), c.load.Acked()
	if !rest(ctx, d) {
		return false
	}
	rate := float64(c.load.Acked()-before) / time.Since(began).Seconds()
	r.calm(rate)
	if len(r.Strikes) == 0 && rate < float64(c.o.least) {
		c.found("only %.0f records a second are acknowledged before the first fault; the machine's load: %s", rate, machineLoad())
	}
	return true
}

// rest lets a time pass; false when ctx ends first.
func rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// disturb makes one fault, heals it, and waits until the cluster is whole.
func (c *cluster) disturb(ctx context.Context, r *result, e event) error {
	k, _ := find(kinds(), e.kind)
	ctl := c.controller(ctx)
	for c.o.series && ctl == 0 && ctx.Err() == nil { // who is to be hit has to be known
		ctl = c.controller(ctx)
	}
	e = e.aim(ctl, c.o.series)
	struck := strike{Kind: e.kind, Node: e.node, Controller: ctl == e.node && !k.all, At: time.Since(c.began).Seconds()}
	on := ""
	if struck.Controller {
		on = ", the controller's"
	}
	c.say("%s of node %d%s, for %.1f s: %s", e.kind, e.node, on, e.hold.Seconds(), k.what)
	began := time.Now()
	healed, err := c.hit(ctx, k, e)
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !c.load.Probes.Back(limit, healed) && ctx.Err() == nil {
		c.found("%s of node %d: some partition takes nothing %v after it was healed", e.kind, e.node, patience)
	}
	if why := c.whole(limit); why != "" && ctx.Err() == nil {
		c.found("%s of node %d: the cluster is not whole %v after it was healed: %s", e.kind, e.node, patience, why)
	}
	whole := time.Now()
	mine := []int32{int32(e.node - 1)}
	if k.all {
		mine = mine[:0]
		for i := range c.nodes {
			mine = append(mine, int32(i))
		}
	}
	struck.Held = healed.Sub(began).Seconds()
	struck.Gap = ms(c.load.Probes.Gap(mine, began, healed))
	struck.GapAfter = ms(c.load.Probes.Gap(mine, healed, whole))
	struck.Longest = max(struck.Gap, struck.GapAfter)
	struck.Whole = whole.Sub(healed).Seconds()
	r.Strikes = append(r.Strikes, struck)
	c.say("%s healed: gap %.0f ms, after it %.0f ms; whole after %.1f s", e.kind, struck.Gap, struck.GapAfter, struck.Whole)
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// hit makes a fault and takes it away again; healed is when that began.
func (c *cluster) hit(ctx context.Context, k kind, e event) (healed time.Time, err error) {
	if k.rolling != nil {
		err := k.rolling(ctx, c, e)
		if err != nil {
			c.found("%s: %v", k.name, err)
		}
		return time.Now(), nil
	}
	if err := k.strike(c, e); err != nil {
		return time.Time{}, fmt.Errorf("%s of node %d: %w", k.name, e.node, err)
	}
	rest(ctx, e.hold)
	healed = time.Now()
	if err := k.heal(c, e); err != nil {
		return healed, fmt.Errorf("heal %s of node %d: %w", k.name, e.node, err)
	}
	return healed, nil
}

// judge ends the load, then the nodes, and compares everything.
func (c *cluster) judge(r *result) error {
	if err := c.net.Heal(); err != nil {
		return err
	}
	c.say("the load ends; now everything is read and compared")
	if err := c.load.Stop(3 * time.Minute); err != nil {
		c.found("%v", err)
	} else {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		if err := c.load.Check(ctx); err != nil {
			c.found("%v", err)
		} else if why := c.whole(ctx); why != "" {
			c.found("the cluster is not whole in the end: %s", why)
		}
	}
	r.Counts = c.load.Counts()
	c.ad.Close()
	c.endAll()
	if !c.broken() {
		for _, topic := range c.load.Topics() {
			if err := c.sameLogs(topic); err != nil {
				c.found("%v", err)
			}
		}
	}
	for _, n := range c.nodes {
		c.panics(n)
	}
	r.Findings, r.Seconds, r.Load = append(r.Findings, c.findings...), time.Since(c.began).Seconds(), machineLoad()
	if len(r.Findings) == 0 {
		for _, n := range c.nodes {
			_ = os.Remove(n.logName())
		}
	}
	return nil
}

// machineLoad is the machine's load average, of the last minute first.
func machineLoad() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}
