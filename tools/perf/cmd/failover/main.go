// failover: an acks=all producer on one partition of an RF 3 topic; signals the leader's process, measures the longest gap between acks,
// restarts the node, repeats, and at the end consumes everything and looks for lost and duplicated records. One JSON line per event, one summary.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"

	"github.com/twmb/franz-go/pkg/kgo"
)

type ack struct{ at, seq int64 }

func main() {
	nodes := flag.String("nodes", "", "id=addr=pidfile,id=addr=pidfile,...")
	topic := flag.String("topic", "failover", "topic (created with RF = number of nodes, 1 partition)")
	sigs := flag.String("signals", "KILL,KILL,KILL,KILL,KILL", "KILL, STOP, TERM: one event each")
	restart := flag.String("restart", "", "shell command that restarts a node; {id} is replaced; must return and write the pid file")
	rate := flag.Float64("rate", 500, "records/s")
	window := flag.Duration("window", 40*time.Second, "longest wait for acks to come back after an event")
	settle := flag.Duration("settle", 3*time.Second, "quiet time before each event, after the ISR is whole")
	isrTO := flag.Duration("isr-timeout", 60*time.Second, "bound of the wait for a whole ISR")
	label := flag.String("label", "", "copied to the output")
	flag.Parse()
	addrs, files := map[string]string{}, map[string]string{} // address -> id; id -> pid file
	var seeds []string
	for _, n := range strings.Split(*nodes, ",") {
		f := strings.Split(n, "=")
		addrs[f[1]], files[f[0]] = f[0], f[2]
		seeds = append(seeds, f[1])
	}
	die := func(a ...any) { fmt.Fprintln(os.Stderr, append([]any{"failover:"}, a...)...); os.Exit(1) }
	var e error
	for i := 0; i < 20; i++ {
		var c *kw.Conn
		if c, e = kw.Dial(seeds[0], time.Second); e == nil {
			if e = c.CreateTopic(*topic, 1, int16(len(seeds)), nil); e == nil {
				break
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	if e != nil {
		die(e)
	}
	// leader and ISR size, from any node that answers
	look := func(not string) (id string, isr int) {
		for _, s := range seeds {
			if addrs[s] == not {
				continue
			}
			c, e := kw.Dial(s, 500*time.Millisecond)
			if e != nil {
				continue
			}
			m, e := c.Metadata(*topic)
			c.C.Close()
			if e != nil || len(m.Topics) != 1 || len(m.Topics[0].Partitions) != 1 {
				continue
			}
			p := m.Topics[0].Partitions[0]
			if p.Leader >= 0 {
				return strconv.Itoa(int(p.Leader)), len(p.ISR)
			}
		}
		return "", 0
	}
	// controller is the node that leads the metadata quorum, "" if nobody says
	controller := func() string {
		for _, s := range seeds {
			c, e := kw.Dial(s, 500*time.Millisecond)
			if e != nil {
				continue
			}
			q, e := c.Quorum(time.Second)
			c.C.Close()
			if e == nil {
				return strconv.Itoa(int(q.LeaderID))
			}
		}
		return ""
	}
	whole := func() (string, bool) {
		end := time.Now().Add(*isrTO)
		for time.Now().Before(end) {
			if id, n := look(""); n == len(seeds) {
				return id, true
			}
			time.Sleep(100 * time.Millisecond)
		}
		return "", false
	}
	if _, ok := whole(); !ok {
		die("ISR is not whole")
	}
	cl, e := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(*topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(200000),
		kgo.RetryBackoffFn(func(n int) time.Duration { return time.Duration(min(10*n, 50)) * time.Millisecond }),
		kgo.MetadataMinAge(20*time.Millisecond), kgo.MetadataMaxAge(time.Second), kgo.RequestRetries(100000), kgo.RecordRetries(1<<30),
		kgo.DialTimeout(500*time.Millisecond), kgo.RequestTimeoutOverhead(500*time.Millisecond), kgo.ProduceRequestTimeout(time.Second),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	if e != nil {
		die(e)
	}
	var mu sync.Mutex
	var acks []ack
	var failed int64
	stop := make(chan struct{})
	stopped := make(chan int64)
	go func() {
		t0 := time.Now()
		var seq int64
		for {
			select {
			case <-stop:
				stopped <- seq
				return
			default:
			}
			time.Sleep(time.Until(t0.Add(time.Duration(float64(seq) * 1e9 / *rate))))
			v := make([]byte, 100)
			s := seq
			binary.BigEndian.PutUint64(v, uint64(s))
			seq++
			cl.TryProduce(context.Background(), &kgo.Record{Partition: 0, Value: v}, func(_ *kgo.Record, e error) {
				mu.Lock()
				if e != nil {
					failed++
				} else {
					acks = append(acks, ack{kw.Now(), s})
				}
				mu.Unlock()
			})
		}
	}()
	gap := func(from, to int64) (g int64) { // longest interval between acks within [from, to]
		mu.Lock()
		defer mu.Unlock()
		prev := from
		i := sort.Search(len(acks), func(i int) bool { return acks[i].at >= from })
		if i > 0 {
			prev = acks[i-1].at
		}
		for ; i < len(acks) && acks[i].at <= to; i++ {
			g = max(g, acks[i].at-prev)
			prev = acks[i].at
		}
		return max(g, to-prev)
	}
	time.Sleep(*settle)
	b := gap(kw.Now()-int64(*settle)/2, kw.Now())
	fmt.Fprintf(os.Stderr, "undisturbed gap %.1f ms\n", float64(b)/1e6)
	names := map[string]syscall.Signal{"KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "TERM": syscall.SIGTERM}
	all := map[string][]float64{}
	for _, sg := range strings.Split(*sigs, ",") {
		ev := map[string]any{"label": *label, "signal": sg}
		id, ok := whole()
		if !ok {
			ev["error"] = "ISR not whole"
			j, _ := json.Marshal(ev)
			fmt.Println(string(j))
			break
		}
		time.Sleep(*settle)
		if i, _ := look(""); i != "" {
			id = i
		}
		ctl := controller()
		ev["controller"] = ctl
		pids := kw.Pids(files[id])
		if len(pids) != 1 {
			die("no pid of node", id)
		}
		pid := pids[0]
		t0 := kw.Now()
		syscall.Kill(pid, names[sg])
		// acks are back when one second long more than half of the rate was acked
		var back bool
		for kw.Now()-t0 < int64(*window) {
			time.Sleep(50 * time.Millisecond)
			now := kw.Now()
			mu.Lock()
			n := 0
			for i := len(acks) - 1; i >= 0 && acks[i].at > now-1e9; i-- {
				n++
			}
			mu.Unlock()
			lid, _ := look(id)
			if float64(n) > *rate/2 && lid != id && now-t0 > 15e8 {
				back = true
				break
			}
		}
		g := gap(t0, kw.Now())
		ev["node"], ev["gap_ms"], ev["acks_back"] = id, float64(g)/1e6, back
		if sg == "STOP" {
			syscall.Kill(pid, syscall.SIGCONT)
		} else {
			for i := 0; i < 300 && syscall.Kill(pid, 0) == nil; i++ { // TERM: wait for the end, at most 30 s
				if st, e := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); e != nil || strings.Contains(string(st), ") Z ") {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			o, e := exec.Command("sh", "-c", strings.ReplaceAll(*restart, "{id}", id)).CombinedOutput()
			if e != nil {
				die("restart:", e, string(o))
			}
		}
		t1 := kw.Now()
		if _, ok := whole(); ok {
			ev["isr_whole_s"] = float64(kw.Now()-t1) / 1e9
		}
		ev["gap_in_rejoin_ms"] = float64(gap(t1, kw.Now())) / 1e6
		if ctl == id {
			sg += "_controller"
		}
		all[sg] = append(all[sg], float64(g)/1e6)
		j, _ := json.Marshal(ev)
		fmt.Println(string(j))
	}
	close(stop)
	sent := <-stopped
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	cl.Flush(ctx)
	cancel()
	cl.Close()
	// check
	seen := map[int64]int{}
	var order, last int64 = 0, -1
	c2, e := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{*topic: {0: kgo.NewOffset().AtStart()}}))
	if e != nil {
		die(e)
	}
	end := time.Now().Add(60 * time.Second)
	idle := time.Now()
	for time.Now().Before(end) && time.Since(idle) < 5*time.Second {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		fs := c2.PollFetches(ctx)
		cancel()
		fs.EachRecord(func(r *kgo.Record) {
			s := int64(binary.BigEndian.Uint64(r.Value))
			if seen[s]++; seen[s] == 1 {
				if s < last {
					order++
				}
				last = s
			}
			idle = time.Now()
		})
	}
	c2.Close()
	lost, dup := 0, 0
	mu.Lock()
	for _, a := range acks {
		if seen[a.seq] == 0 {
			lost++
		}
	}
	for _, n := range seen {
		if n > 1 {
			dup++
		}
	}
	sum := map[string]any{"label": *label, "sent": sent, "acked": len(acks), "failed": failed, "consumed": len(seen), "lost": lost, "duplicated": dup, "reordered": order, "undisturbed_gap_ms": float64(b) / 1e6}
	mu.Unlock()
	for k, v := range all {
		sort.Float64s(v)
		sum["gap_ms_"+k] = v
	}
	j, _ := json.Marshal(sum)
	fmt.Println(string(j))
}
