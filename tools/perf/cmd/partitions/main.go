// partitions: a node with very many partitions. Modes: create (topics of -partitions each), fill (one batch of -size bytes
// to every partition, -batches times), probe (latency of acks=all produces to random partitions), metadata (time of a
// Metadata request for one topic and for all), restart (kill or stop a started node and measure the time to the first
// answer of its last partition). One JSON line on stdout.
//
// Two modes start the nodes themselves, with -kaja below -dir, which must not exist and is removed at the end, and print one
// JSON line a step: series (everything above, beside a node with 100 partitions) and sealed (the start after SIGKILL of
// partitions with a sealed segment of 20 MiB and a half full active one).
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

type options struct {
	addr, prefix, start, signal, pid string
	topics, partitions, perRequest   int
	batches, size, count             int
	kaja, dir, set                   string
	port                             int
}

func main() {
	var o options
	mode := flag.String("mode", "create", "create, fill, probe, metadata or restart; series or sealed")
	flag.StringVar(&o.addr, "addr", "127.0.0.1:9092", "the broker (single node)")
	flag.StringVar(&o.prefix, "prefix", "many-", "topic name prefix")
	flag.IntVar(&o.topics, "topics", 100, "topics")
	flag.IntVar(&o.partitions, "partitions", 1000, "partitions of each")
	flag.IntVar(&o.perRequest, "per-request", 500, "partitions in one Produce request of fill")
	flag.IntVar(&o.batches, "batches", 1, "batches for each partition")
	flag.IntVar(&o.size, "size", 200, "bytes of a batch, about")
	flag.IntVar(&o.count, "count", 2000, "produces of probe")
	flag.StringVar(&o.start, "start", "", "restart: command line that starts the node")
	flag.StringVar(&o.signal, "signal", "kill", "restart: kill or term")
	flag.StringVar(&o.pid, "pid", "", "pid or pid file of the broker, for its RSS")
	flag.StringVar(&o.kaja, "kaja", "", "series, sealed: the binary")
	flag.StringVar(&o.dir, "dir", "", "series, sealed: a directory to be made, and removed at the end")
	flag.StringVar(&o.set, "set", "", "series, sealed: further settings of the nodes, separated by blanks")
	flag.IntVar(&o.port, "port", 21392, "series, sealed: the first port of the nodes")
	flag.Parse()
	if whole := map[string]func(options) error{"series": series, "sealed": sealed}[*mode]; whole != nil {
		if err := whole(o); err != nil {
			fmt.Fprintln(os.Stderr, "partitions:", err)
			os.Exit(1)
		}
		return
	}
	modes := map[string]func(options) (map[string]any, error){
		"create": create, "fill": fill, "probe": probe, "metadata": metadata, "restart": restart,
	}
	do := modes[*mode]
	if do == nil {
		fmt.Fprintln(os.Stderr, "partitions: no such mode:", *mode)
		os.Exit(2)
	}
	out, err := do(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "partitions:", err)
		os.Exit(1)
	}
	out["mode"] = *mode
	if pids := kw.Pids(o.pid); len(pids) > 0 {
		out["rss_mb"] = float64(kw.Take(pids).RSS) / 1e6
		out["descriptors"] = descriptors(pids[0])
	}
	line, _ := json.Marshal(out)
	fmt.Println(string(line))
}

func descriptors(pid int) int {
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return -1
	}
	return len(names)
}

func (o options) topic(i int) string { return fmt.Sprintf("%s%05d", o.prefix, i) }

func create(o options) (map[string]any, error) {
	c, err := kw.Dial(o.addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	began, worst := time.Now(), time.Duration(0)
	for i := range o.topics {
		t := time.Now()
		if err := c.CreateTopic(o.topic(i), int32(o.partitions), 1, nil); err != nil {
			return nil, err
		}
		worst = max(worst, time.Since(t))
	}
	return map[string]any{"partitions": o.topics * o.partitions, "seconds": time.Since(began).Seconds(), "worst_request_s": worst.Seconds()}, nil
}

func fill(o options) (map[string]any, error) {
	c, err := kw.Dial(o.addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	batch, _ := kw.Batch(o.size, max(o.size-100, 1))
	began := time.Now()
	for range o.batches {
		for i := range o.topics {
			for from := 0; from < o.partitions; from += o.perRequest {
				var parts []int32
				for p := from; p < min(from+o.perRequest, o.partitions); p++ {
					parts = append(parts, int32(p))
				}
				if err := c.Produce(o.topic(i), parts, batch, -1, time.Minute); err != nil {
					return nil, err
				}
			}
		}
	}
	return map[string]any{"batches": o.topics * o.partitions * o.batches, "batch_bytes": len(batch), "seconds": time.Since(began).Seconds()}, nil
}

func probe(o options) (map[string]any, error) {
	c, err := kw.Dial(o.addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	batch, _ := kw.Batch(o.size, max(o.size-100, 1))
	rng := rand.New(rand.NewPCG(1, 2))
	took := make([]time.Duration, o.count)
	for i := range took {
		t := time.Now()
		if err := c.Produce(o.topic(rng.IntN(o.topics)), []int32{rng.Int32N(int32(o.partitions))}, batch, -1, time.Minute); err != nil {
			return nil, err
		}
		took[i] = time.Since(t)
	}
	slices.Sort(took)
	ms := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1e3 }
	return map[string]any{"partitions": o.topics * o.partitions, "produces": o.count, "p50_ms": ms(0.5), "p99_ms": ms(0.99), "max_ms": ms(1)}, nil
}

func metadata(o options) (map[string]any, error) {
	c, err := kw.Dial(o.addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	t := time.Now()
	if _, err := c.Metadata(o.topic(o.topics - 1)); err != nil {
		return nil, err
	}
	one := time.Since(t)
	t = time.Now()
	all, err := c.MetadataAll(time.Minute)
	if err != nil {
		return nil, err
	}
	n := 0
	for _, mt := range all.Topics {
		n += len(mt.Partitions)
	}
	return map[string]any{"one_topic_ms": one.Seconds() * 1e3, "all_ms": time.Since(t).Seconds() * 1e3, "partitions": n}, nil
}

// restart ends the node of -pid, starts it with -start and waits until the last partition takes a record.
func restart(o options) (map[string]any, error) {
	sig := syscall.SIGKILL
	if o.signal == "term" {
		sig = syscall.SIGTERM
	}
	out := map[string]any{"signal": o.signal}
	for _, pid := range kw.Pids(o.pid) {
		t := time.Now()
		if err := syscall.Kill(pid, sig); err != nil {
			return nil, err
		}
		for syscall.Kill(pid, 0) == nil {
			time.Sleep(5 * time.Millisecond)
		}
		out["stop_s"] = time.Since(t).Seconds()
	}
	words := strings.Fields(o.start)
	cmd := exec.Command(words[0], words[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	batch, _ := kw.Batch(200, 100)
	for time.Since(began) < 5*time.Minute {
		if c, err := kw.Dial(o.addr, time.Second); err == nil {
			err = c.Produce(o.topic(o.topics-1), []int32{int32(o.partitions - 1)}, batch, -1, time.Minute)
			c.C.Close()
			if err == nil {
				out["ready_s"] = time.Since(began).Seconds()
				s := kw.Take([]int{cmd.Process.Pid})
				out["pid"], out["rss_mb"], out["cpu_s"], out["descriptors"] = cmd.Process.Pid, float64(s.RSS)/1e6, s.CPU, descriptors(cmd.Process.Pid)
				return out, nil
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("not ready after %v", time.Since(began))
}
