package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

// part is one measurement over several subjects.
type part struct {
	name, title string
	figures     []string
	run         func(ctx context.Context, o options) ([]*kw.Row, error)
}

var parts = []part{
	{"cold", "Process start to first acknowledged produce on an empty directory", []string{"first_ack_ms", "accept_ms", "cpu_s_at_ack", "rss_mb_at_ack", "stop_ms"}, cold},
	{"idle", "Idle with 10 topics", []string{"rss_mb", "cpu_ms"}, idle},
	{"produce", "Produce, acks=1, batches of 1 KB records, one connection, 5 in flight", []string{"64k cpu_s/GB", "64k GB/s", "16k cpu_s/GB", "16k GB/s"}, produce},
	{"requests", "Produce, acks=1, one 1 KB record a request, saturated", []string{"cpu_us/request", "requests/s"}, requests},
	{"fetch", "Fetch from the page cache, 1 MB responses", []string{"cpu_s/GB", "GB/s"}, fetch},
	{"latency", "Produce at 1,000 requests/s, one 1 KB record each, acks=all, from the intended start", []string{"p50_us", "p99_us", "p99.9_us"}, latency},
	{"sync", "Produce, acks=all, one 1 KB record a request, on the disk before it is acknowledged; 1, 16 and 256 producers to one partition", syncFigures(), synced},
}

// interleave runs measure for each subject in turn, A B C then C B A, o.rounds times in all; each measurement gets a
// freshly started subject, so that all write to equally fresh page cache.
func interleave(ctx context.Context, o options, name string, subjects []subject, measure func(*running) (kw.Figures, error)) ([]*kw.Row, error) {
	rows := make([]*kw.Row, len(subjects))
	for i, s := range subjects {
		rows[i] = &kw.Row{Part: name, Subject: s.name}
	}
	for round := range o.rounds {
		for k := range subjects {
			if round%2 == 1 {
				k = len(subjects) - 1 - k
			}
			fmt.Fprintf(os.Stderr, "%s: round %d of %d, %s\n", name, round+1, o.rounds, subjects[k].name)
			r, err := subjects[k].start(ctx, o)
			if err != nil {
				return nil, err
			}
			s, err := measure(r)
			r.stop()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[k].name, err)
			}
			rows[k].Samples = append(rows[k].Samples, s)
		}
	}
	return rows, nil
}

// with gives the subjects, Kafka among them if its jars are there.
func with(o options, subjects ...subject) []subject {
	if o.jars != "" {
		subjects = append(subjects, kafka())
	}
	return subjects
}

// warm lets a JIT settle before the first measured load; the others do not mind.
func warm(ctx context.Context, o options, r *running, args ...string) error {
	if !strings.HasPrefix(r.name, "Kafka") {
		return nil
	}
	_, err := kw.Loader(ctx, o.bin, "rawproduce", append([]string{"-addr", r.addr, "-gb", "3", "-time", "60s", "-topic", "warm"}, args...)...)
	return err
}

func produce(ctx context.Context, o options) ([]*kw.Row, error) {
	return interleave(ctx, o, "produce", with(o, kaja("never"), kaja("auto"), floor("write")), func(r *running) (kw.Figures, error) {
		if err := warm(ctx, o, r); err != nil {
			return nil, err
		}
		s := kw.Figures{}
		for name, size := range map[string]int{"64k": 64 << 10, "16k": 16 << 10} {
			if strings.HasPrefix(r.name, "floor") && name == "16k" {
				// kfloor keeps one batch shape a process
				r.stop()
				again, err := r.subject.start(ctx, o)
				if err != nil {
					return nil, err
				}
				*r = *again
			}
			m, err := kw.Loader(ctx, o.bin, "rawproduce", "-addr", r.addr, "-pid", r.pid(), "-batch", fmt.Sprint(size), "-record", "1000",
				"-window", "5", "-gb", fmt.Sprint(o.gb), "-time", "120s", "-topic", "t"+name)
			if err != nil {
				return nil, err
			}
			s[name+" cpu_s/GB"], s[name+" GB/s"] = m.Num("broker_cpu_s_gb"), m.Num("mb_s")/1000
		}
		return s, nil
	})
}

func requests(ctx context.Context, o options) ([]*kw.Row, error) {
	return interleave(ctx, o, "requests", with(o, kaja("never"), kaja("auto"), floor("write")), func(r *running) (kw.Figures, error) {
		if err := warm(ctx, o, r, "-batch", "1", "-gb", "0.3"); err != nil {
			return nil, err
		}
		m, err := kw.Loader(ctx, o.bin, "rawproduce", "-addr", r.addr, "-pid", r.pid(), "-batch", "1", "-record", "1000", "-window", "64",
			"-gb", fmt.Sprint(o.gb/5), "-time", "120s")
		if err != nil {
			return nil, err
		}
		return kw.Figures{"cpu_us/request": m.Num("broker_cpu_us_req"), "requests/s": m.Num("requests_s")}, nil
	})
}

func fetch(ctx context.Context, o options) ([]*kw.Row, error) {
	return interleave(ctx, o, "fetch", with(o, kaja("never"), floor("write")), func(r *running) (kw.Figures, error) {
		if _, err := kw.Loader(ctx, o.bin, "rawproduce", "-addr", r.addr, "-batch", "65536", "-record", "1000", "-gb", "0.5", "-time", "120s", "-topic", "f"); err != nil {
			return nil, err
		}
		args := []string{"-addr", r.addr, "-pid", r.pid(), "-topic", "f", "-max", "1048576"}
		if _, err := kw.Loader(ctx, o.bin, "rawfetch", append(args, "-gb", fmt.Sprint(2*o.gb))...); err != nil { // warm
			return nil, err
		}
		m, err := kw.Loader(ctx, o.bin, "rawfetch", append(args, "-gb", fmt.Sprint(4*o.gb))...)
		if err != nil {
			return nil, err
		}
		return kw.Figures{"cpu_s/GB": m.Num("broker_cpu_s_gb"), "GB/s": m.Num("gb_s")}, nil
	})
}

func latency(ctx context.Context, o options) ([]*kw.Row, error) {
	return interleave(ctx, o, "latency", with(o, kaja("never"), kaja("auto"), floor("echo")), func(r *running) (kw.Figures, error) {
		if err := warm(ctx, o, r, "-batch", "1", "-gb", "0.3"); err != nil {
			return nil, err
		}
		m, err := kw.Loader(ctx, o.bin, "rawproduce", "-addr", r.addr, "-pid", r.pid(), "-batch", "1", "-record", "1000", "-rate", "1000",
			"-window", "256", "-warmup", "2s", "-time", "10s", "-acks", "-1")
		if err != nil {
			return nil, err
		}
		return kw.Figures{"p50_us": m.Num("latency_intended", "p50_us"), "p99_us": m.Num("latency_intended", "p99_us"), "p99.9_us": m.Num("latency_intended", "p999_us")}, nil
	})
}

func cold(ctx context.Context, o options) ([]*kw.Row, error) {
	var rows []*kw.Row
	for _, s := range with(o, kaja("auto")) {
		n := o.coldStarts
		if s.name == "Kafka 4.4" {
			n = max(1, n/5)
		}
		r := &kw.Row{Part: "cold", Subject: s.name}
		rows = append(rows, r)
		for i := range n {
			fmt.Fprintf(os.Stderr, "cold: start %d of %d, %s\n", i+1, n, s.name)
			dir, err := os.MkdirTemp(o.dir, "compare-")
			if err != nil {
				return nil, err
			}
			c, err := s.cmd(o, s.port, dir)
			if err != nil {
				return nil, err
			}
			m, err := kw.Loader(ctx, o.bin, "coldstart", "-addr", fmt.Sprintf("127.0.0.1:%d", s.port), "-cmd", quote(c.Args))
			if err != nil {
				return nil, err
			}
			if err := os.RemoveAll(dir); err != nil {
				return nil, err
			}
			got := kw.Figures{}
			for _, f := range []string{"first_ack_ms", "accept_ms", "cpu_s_at_ack", "rss_mb_at_ack", "stop_ms"} {
				got[f] = m.Num(f)
			}
			r.Samples = append(r.Samples, got)
		}
	}
	return rows, nil
}

// quote makes a shell command of args.
func quote(args []string) string {
	q := make([]string, len(args))
	for i, a := range args {
		q[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(q, " ")
}

func idle(ctx context.Context, o options) ([]*kw.Row, error) {
	var rows []*kw.Row
	for _, s := range with(o, kaja("auto")) {
		r, err := s.start(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range 10 {
			if _, err := kw.Loader(ctx, o.bin, "rawproduce", "-addr", r.addr, "-topic", fmt.Sprintf("idle-%d", i), "-batch", "1", "-gb", "0.00001"); err != nil {
				r.stop()
				return nil, err
			}
		}
		time.Sleep(2 * time.Second) // let the load's own work end
		c0, _ := r.usage()
		fmt.Fprintf(os.Stderr, "idle: %s, %s\n", s.name, o.idle)
		select {
		case <-time.After(o.idle):
		case <-ctx.Done():
		}
		c1, rss := r.usage()
		r.stop()
		rows = append(rows, &kw.Row{Part: "idle", Subject: s.name, Samples: []kw.Figures{{"rss_mb": rss, "cpu_ms": (c1 - c0) * 1000}}})
	}
	return rows, nil
}
