package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

// idle measures three nodes with ten topics, one record in each, to whom nobody speaks.
func idle(ctx context.Context, o options) ([]table, error) {
	t := table{Title: fmt.Sprintf("Three idle nodes with 10 topics of three replicas, %v", o.idle), Figures: []string{"cpu_% of a core", "rss_mb"}}
	for _, s := range with(o, kaja("kaja")) {
		rows, err := idleOf(ctx, o, s)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, rows...)
	}
	return []table{t}, nil
}

func idleOf(ctx context.Context, o options, s subject) (rows []*kw.Row, err error) {
	c, err := start(ctx, o, s)
	if err != nil {
		return nil, err
	}
	defer c.stop(&err)
	for i := range 10 {
		topic := fmt.Sprint("idle-", i)
		if err := c.create(ctx, topic, 1); err != nil {
			return nil, err
		}
		if _, err := kw.Loader(ctx, o.bin, "rawproduce", "-addr", c.nodes[0].addr, "-topic", topic, "-create=false", "-acks", "-1", "-batch", "1", "-gb", "0.000002"); err != nil {
			return nil, err
		}
	}
	controller, _, err := c.roles(ctx, c.nodes[0])
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, 5*time.Second); err != nil { // let the load's own work end
		return nil, err
	}
	say("idle: %s, %v", s.name, o.idle)
	var before []kw.Sample
	for _, n := range c.nodes {
		before = append(before, n.usage())
	}
	began := time.Now()
	if err := pause(ctx, o.idle); err != nil {
		return nil, err
	}
	took := time.Since(began).Seconds()
	for i, n := range c.nodes {
		u, name := n.usage(), fmt.Sprintf("%s, node %d", s.name, n.id)
		if n == controller {
			name += " (controller)"
		}
		rows = append(rows, &kw.Row{Part: "idle", Subject: name, Samples: []kw.Figures{
			{"cpu_% of a core": 100 * (u.CPU - before[i].CPU) / took, "rss_mb": float64(u.RSS) / 1e6}}})
	}
	return rows, nil
}
