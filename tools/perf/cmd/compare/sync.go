package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

// syncProducers is how many producers the part sync has at once: each has one request in flight, all write to one partition.
var syncProducers = []int{1, 16, 256}

const (
	syncRequest = 1100 // bytes of a batch of one record of 1 KB, about
	syncMetrics = "127.0.0.1:21093"
)

func syncFigures() []string {
	var out []string
	for _, n := range syncProducers {
		out = append(out, fmt.Sprint(n, " records/s"), fmt.Sprint(n, " p99_ms"), fmt.Sprint(n, " syncs/ack"))
	}
	return out
}

// synced measures producers whose records are on the disk when they are acknowledged: kaja with fsync=always, Kafka with
// flush.messages=1, and the disk's own rate of a write and an fdatasync one after the other. How often Kafka syncs is not counted.
func synced(ctx context.Context, o options) ([]*kw.Row, error) {
	subjects := with(o, kaja("always", "kaja.http.listener="+syncMetrics))
	rows, err := interleave(ctx, o, "sync", subjects, func(r *running) (kw.Figures, error) {
		args := []string{"-batch", "1", "-record", "1000", "-window", "1", "-acks", "-1"}
		isKafka := strings.HasPrefix(r.name, "Kafka")
		if isKafka {
			args = append(args, "-config", "flush.messages=1")
		}
		if err := warm(ctx, o, r, "-batch", "1", "-gb", "0.1"); err != nil {
			return nil, err
		}
		s := kw.Figures{}
		for _, n := range syncProducers {
			before, err := flushes(isKafka)
			if err != nil {
				return nil, err
			}
			m, err := kw.Loader(ctx, o.bin, "rawproduce", append(args, "-addr", r.addr, "-conns", fmt.Sprint(n), "-warmup", "2s", "-time", "8s",
				"-topic", fmt.Sprint("sync-", n))...)
			if err != nil {
				return nil, err
			}
			after, err := flushes(isKafka)
			if err != nil {
				return nil, err
			}
			s[fmt.Sprint(n, " records/s")], s[fmt.Sprint(n, " p99_ms")] = m.Num("records_s"), m.Num("latency_from_send", "p99_us")/1000
			if !isKafka {
				// The warm-up of two seconds is in the count of flushes and not in that of requests: it goes by the same rate.
				s[fmt.Sprint(n, " syncs/ack")] = (after - before) / (m.Num("requests") * 10 / 8)
			}
		}
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	disk := &kw.Row{Part: "sync", Subject: "the disk's fdatasync"}
	for range o.rounds {
		s, err := fdatasync(o.dir, 4*time.Second)
		if err != nil {
			return nil, err
		}
		disk.Samples = append(disk.Samples, s)
	}
	return append(rows, disk), nil
}

// flushes is how many flushes kaja has done so far.
func flushes(isKafka bool) (float64, error) {
	if isKafka {
		return 0, nil
	}
	m, err := kw.Metrics(syncMetrics)
	return m["kaja_replica_flush_seconds_count"], err // not there before the first log directory is open
}

// fdatasync appends to a file and syncs it, again and again.
func fdatasync(dir string, d time.Duration) (kw.Figures, error) {
	name := filepath.Join(dir, "fdatasync")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer os.Remove(name)
	defer f.Close()
	buf := make([]byte, syncRequest)
	var took []time.Duration
	for began := time.Now(); time.Since(began) < d; {
		at := time.Now()
		if _, err := f.Write(buf); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return kw.Figures{"1 records/s": float64(len(took)) / d.Seconds(), "1 p99_ms": took[len(took)*99/100].Seconds() * 1000, "1 syncs/ack": 1}, nil
}
