package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rf3 measures produce with acks=all to three partitions of three replicas, one led by each node: CPU of the three
// processes for what was produced, and the latency at a fixed rate. Subjects take turns, each freshly started.
func rf3(ctx context.Context, o options) ([]table, error) {
	subjects := with(o, kaja("kaja fsync=never", "kaja.fsync=never"), kaja("kaja fsync=auto", "kaja.fsync=auto"))
	load := table{Title: "Produce, acks=all, three replicas, batches of 64 KiB, three connections with 5 in flight; CPU of all three nodes", Figures: []string{"cpu_s/GB", "GB/s"}}
	latency := table{Title: "Produce at 1,000 requests/s, one 1 KB record each, acks=all, three replicas, from the intended start", Figures: []string{"p50_us", "p99_us", "p99.9_us", "max_us"}}
	for _, s := range subjects {
		load.Rows = append(load.Rows, &kw.Row{Part: "rf3", Subject: s.name})
		latency.Rows = append(latency.Rows, &kw.Row{Part: "rf3 latency", Subject: s.name})
	}
	for round := range o.rounds {
		for k := range subjects {
			if round%2 == 1 {
				k = len(subjects) - 1 - k
			}
			say("rf3: round %d of %d, %s", round+1, o.rounds, subjects[k].name)
			a, b, err := rf3Of(ctx, o, subjects[k])
			if err != nil {
				return nil, err
			}
			load.Rows[k].Samples, latency.Rows[k].Samples = append(load.Rows[k].Samples, a), append(latency.Rows[k].Samples, b)
		}
	}
	return []table{load, latency}, nil
}

func rf3Of(ctx context.Context, o options, s subject) (load, latency kw.Figures, err error) {
	c, err := start(ctx, o, s)
	if err != nil {
		return nil, nil, err
	}
	defer c.stop(&err)
	produce := func(topic string, args ...string) (kw.Line, error) {
		if err := c.create(ctx, topic, nodes); err != nil {
			return nil, err
		}
		if err := c.spread(topic); err != nil {
			return nil, err
		}
		l, err := kw.Loader(ctx, o.bin, "rawproduce", append([]string{"-addr", c.nodes[0].addr, "-pid", c.pids(), "-topic", topic, "-create=false",
			"-partitions", fmt.Sprint(nodes), "-conns", fmt.Sprint(nodes), "-record", "1000", "-acks", "-1", "-time", "120s"}, args...)...)
		if err != nil {
			return nil, err
		}
		return l, c.spread(topic) // who did not replicate, or lost a leadership, took less CPU
	}
	if strings.HasPrefix(s.name, "Kafka") { // lets the JIT settle
		if _, err := produce("warm", "-gb", "3", "-time", "60s"); err != nil {
			return nil, nil, err
		}
	}
	l, err := produce("load", "-batch", fmt.Sprint(64<<10), "-window", "5", "-gb", fmt.Sprint(o.gb))
	if err != nil {
		return nil, nil, err
	}
	if strings.HasPrefix(s.name, "Kafka") {
		if _, err := produce("warm-small", "-batch", "1", "-gb", "0.3", "-time", "60s"); err != nil {
			return nil, nil, err
		}
	}
	if err := pause(ctx, 5*time.Second); err != nil { // what the load has left to be written
		return nil, nil, err
	}
	m, err := produce("latency", "-batch", "1", "-rate", "1000", "-window", "256", "-warmup", "2s", "-time", "10s")
	if err != nil {
		return nil, nil, err
	}
	at := func(q string) float64 { return m.Num("latency_intended", q) }
	return kw.Figures{"cpu_s/GB": l.Num("broker_cpu_s_gb"), "GB/s": l.Num("mb_s") / 1000},
		kw.Figures{"p50_us": at("p50_us"), "p99_us": at("p99_us"), "p99.9_us": at("p999_us"), "max_us": at("max_us")}, nil
}

// spread tells why not each node leads one of a topic's partitions, with all replicas in sync.
func (c *cluster) spread(topic string) error {
	m, err := ask(c.nodes[0], func(k *kw.Conn) (*kmsg.MetadataResponse, error) { return k.Metadata(topic) })
	if err != nil {
		return err
	}
	if err := inSync(m, nodes); err != nil {
		return fmt.Errorf("%s: %w", topic, err)
	}
	var leaders []int32
	for _, p := range m.Topics[0].Partitions {
		if slices.Contains(leaders, p.Leader) {
			return fmt.Errorf("%s: node %d leads two partitions", topic, p.Leader)
		}
		leaders = append(leaders, p.Leader)
	}
	return nil
}
