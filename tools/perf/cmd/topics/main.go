// topics: creates many one-partition topics in batches and prints the time; mode "count" counts the topics in Metadata. One JSON line on stdout.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9092", "a broker (single node)")
	from := flag.Int("from", 0, "first number")
	n := flag.Int("n", 9000, "topics")
	size := flag.Int("batch", 500, "topics per request")
	rf := flag.Int("rf", 1, "replication factor")
	prefix := flag.String("prefix", "many-", "name prefix")
	pid := flag.String("pid", "", "broker pids or pid files")
	lw := flag.Duration("leader-wait", 3*time.Minute, "bound of the wait until the last topic has a leader")
	to := flag.Duration("timeout", 5*time.Minute, "bound")
	flag.Parse()
	die := func(e error) {
		if e != nil {
			fmt.Fprintln(os.Stderr, "topics:", e)
			os.Exit(1)
		}
	}
	pids := kw.Pids(*pid)
	c, e := kw.Dial(*addr, 5*time.Second)
	die(e)
	s0 := kw.Take(pids)
	t0 := time.Now()
	var worst time.Duration
	ok := 0
	var reqs []float64
	for i := *from; i < *from+*n && time.Since(t0) < *to; i += *size {
		r := kmsg.NewPtrCreateTopicsRequest()
		r.SetVersion(5)
		r.TimeoutMillis = 60000
		for k := i; k < i+*size && k < *from+*n; k++ {
			t := kmsg.NewCreateTopicsRequestTopic()
			t.Topic, t.NumPartitions, t.ReplicationFactor = fmt.Sprintf("%s%06d", *prefix, k), 1, int16(*rf)
			r.Topics = append(r.Topics, t)
		}
		t1 := time.Now()
		resp, e := c.Do(r, 90*time.Second)
		die(e)
		d := time.Since(t1)
		reqs = append(reqs, d.Seconds())
		worst = max(worst, d)
		for _, t := range resp.(*kmsg.CreateTopicsResponse).Topics {
			if t.ErrorCode == 0 || t.ErrorCode == 36 {
				ok++
			} else {
				fmt.Fprintln(os.Stderr, t.Topic, t.ErrorCode)
			}
		}
	}
	acked := time.Since(t0)
	// all leaders known
	last := fmt.Sprintf("%s%06d", *prefix, *from+*n-1)
	_, _, e = kw.WaitTopic(*addr, last, *lw)
	s1 := kw.Take(pids)
	j, _ := json.Marshal(map[string]any{"topics": ok, "last_visible": e == nil, "acked_s": acked.Seconds(), "last_has_leader_s": time.Since(t0).Seconds(), "worst_request_s": worst.Seconds(), "first_request_s": reqs[0], "last_request_s": reqs[len(reqs)-1], "broker_cpu_s": s1.CPU - s0.CPU, "broker_rss_mb": float64(s1.RSS) / 1e6})
	fmt.Println(string(j))
}
