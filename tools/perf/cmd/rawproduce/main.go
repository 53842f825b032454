// rawproduce: pre-encoded Produce load against any Kafka-wire broker, without a client library. One JSON line on stdout.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

func die(a ...any) { fmt.Fprintln(os.Stderr, a...); os.Exit(1) }
func must(e error) {
	if e != nil {
		die(e)
	}
}

func main() {
	addr := flag.String("addr", "127.0.0.1:9092", "a broker")
	topic := flag.String("topic", "raw", "topic")
	create := flag.Bool("create", true, "create the topic when it is not there")
	parts := flag.Int("partitions", 1, "partitions (round robin per request)")
	rf := flag.Int("rf", 1, "replication factor for -create")
	cfg := flag.String("config", "", "topic config k=v (one) for -create")
	batch := flag.Int("batch", 64<<10, "batch size, bytes")
	rec := flag.Int("record", 1000, "record value size, bytes")
	win := flag.Int("window", 5, "requests in flight per connection")
	conns := flag.Int("conns", 1, "connections")
	rate := flag.Float64("rate", 0, "requests/s in all, open loop; 0 = closed loop")
	acks := flag.Int("acks", 1, "0, 1 or -1")
	ver := flag.Int("version", 9, "Produce version, 9..12 (13: topic ids)")
	total := flag.Float64("gb", 0, "stop after this many 10^9 batch bytes")
	dur := flag.Duration("time", 10*time.Second, "stop after this time (bound in every mode)")
	warm := flag.Duration("warmup", 0, "not counted, before the measured part (open loop: same rate)")
	pid := flag.String("pid", "", "broker pids or pid files, comma separated")
	label := flag.String("label", "", "copied to the output")
	flag.Parse()

	if *create {
		c, err := kw.Dial(*addr, 2*time.Second)
		must(err)
		m := map[string]string{}
		if *cfg != "" {
			for i := range *cfg {
				if (*cfg)[i] == '=' {
					m[(*cfg)[:i]] = (*cfg)[i+1:]
					break
				}
			}
		}
		must(c.CreateTopic(*topic, int32(*parts), int16(*rf), m))
		c.C.Close()
	}
	leaders, id, err := kw.WaitTopic(*addr, *topic, 20*time.Second)
	must(err)
	b, nrec := kw.Batch(*batch, *rec)
	pids := kw.Pids(*pid)
	var frames [][]byte
	for p := 0; p < *parts && p < len(leaders); p++ {
		f, _ := kw.ProduceFrame(int16(*ver), *topic, id, int32(p), int16(*acks), b)
		frames = append(frames, f)
	}
	maxReq := int64(1) << 62
	if *total > 0 {
		maxReq = int64(*total * 1e9 / float64(len(b)))
	}
	var sent, acked, errs, lastAck atomic.Int64
	var lastErr atomic.Int32
	var mu sync.Mutex
	hi, hs := kw.NewHist(), kw.NewHist()

	phase := func(d time.Duration, maxReq int64, record bool) float64 {
		sent.Store(0)
		acked.Store(0)
		var wg sync.WaitGroup
		var budget atomic.Int64
		budget.Store(maxReq)
		start := kw.Now()
		end := start + int64(d)
		for ci := 0; ci < *conns; ci++ {
			// connection ci serves the partitions p with the same leader as its first one
			p0 := ci % len(frames)
			var mine [][]byte
			for k := 0; k < len(frames); k++ {
				p := (p0 + k) % len(frames)
				if leaders[p] == leaders[p0] {
					mine = append(mine, append([]byte(nil), frames[p]...))
				}
			}
			c, err := net.DialTimeout("tcp", leaders[p0], 2*time.Second)
			must(err)
			const R = 1 << 16
			intended := make([]int64, R)
			actual := make([]int64, R)
			sem := make(chan struct{}, *win)
			wdone := make(chan int64, 1)
			wg.Add(2)
			go func(ci int) { // writer
				defer wg.Done()
				var n int64
				var p *kw.Pacer
				if *rate > 0 {
					p = kw.NewPacer()
				}
				step := 0.0
				if *rate > 0 {
					step = 1e9 * float64(*conns) / *rate
				}
				for ; ; n++ {
					if budget.Add(-1) < 0 {
						break
					}
					at := start + int64(step*(float64(n)+float64(ci)/float64(*conns)))
					if p != nil {
						if at >= end {
							break
						}
						p.Until(at)
					}
					if *acks != 0 {
						sem <- struct{}{}
					}
					now := kw.Now()
					if now >= end {
						if *acks != 0 {
							<-sem
						}
						break
					}
					if p == nil {
						at = now
					}
					atomic.StoreInt64(&intended[n&(R-1)], at)
					atomic.StoreInt64(&actual[n&(R-1)], now)
					f := mine[int(n)%len(mine)]
					binary.BigEndian.PutUint32(f[8:], uint32(n))
					if _, err := c.Write(f); err != nil {
						errs.Add(1)
						break
					}
					sent.Add(1)
				}
				wdone <- n
				if *acks == 0 {
					c.(*net.TCPConn).CloseWrite()
				}
			}(ci)
			go func() { // reader
				defer wg.Done()
				defer c.Close()
				if *acks == 0 {
					c.SetReadDeadline(time.Now().Add(d + 30*time.Second))
					io.Copy(io.Discard, c)
					return
				}
				l1, l2 := kw.NewHist(), kw.NewHist()
				br := bufio.NewReaderSize(c, 64<<10)
				buf := make([]byte, 4096)
				var got, want int64 = 0, -1
				for want < 0 || got < want {
					select {
					case want = <-wdone:
						if got >= want {
							continue
						}
					default:
					}
					if br.Buffered() < 4 {
						c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
						if _, err := br.Peek(4); err != nil {
							if ne, ok := err.(net.Error); ok && ne.Timeout() && kw.Now() < end+int64(30*time.Second) {
								continue
							}
							die("read:", err)
						}
						c.SetReadDeadline(time.Now().Add(10 * time.Second))
					}
					io.ReadFull(br, buf[:4])
					n := int(binary.BigEndian.Uint32(buf))
					if n > len(buf) {
						die("response size", n)
					}
					if _, err := io.ReadFull(br, buf[:n]); err != nil {
						die("read:", err)
					}
					now := kw.Now()
					corr, code, _, err := kw.ProduceErr(buf[:n], *ver >= 13)
					if err != nil || code != 0 || corr != int32(got) {
						errs.Add(1)
						lastErr.Store(int32(code))
					}
					l1.RecordValue(now - atomic.LoadInt64(&intended[got&(R-1)]))
					l2.RecordValue(now - atomic.LoadInt64(&actual[got&(R-1)]))
					got++
					acked.Add(1)
					lastAck.Store(now)
					<-sem
				}
				if record {
					mu.Lock()
					hi.Merge(l1)
					hs.Merge(l2)
					mu.Unlock()
				}
			}()
		}
		wg.Wait()
		if *acks != 0 {
			return float64(lastAck.Load()-start) / 1e9
		}
		return float64(kw.Now()-start) / 1e9
	}
	if *warm > 0 {
		phase(*warm, 1<<62, false)
		hi, hs = kw.NewHist(), kw.NewHist()
	}
	s0, o0, m0 := kw.Take(pids), kw.OwnCPU(), kw.BusyCPU()
	w := phase(*dur, maxReq, true)
	s1, o1, m1 := kw.Take(pids), kw.OwnCPU(), kw.BusyCPU()
	n := sent.Load()
	if *acks == 0 { // a synchronous request at the end, so that the broker has handled all
		time.Sleep(200 * time.Millisecond)
		s1 = kw.Take(pids)
	} else {
		n = acked.Load()
	}
	gb := float64(n) * float64(len(b)) / 1e9
	out := map[string]any{
		"label": *label, "requests": n, "errors": errs.Load(), "last_error_code": lastErr.Load(), "seconds": r3(w),
		"requests_s": r3(float64(n) / w), "records_s": r3(float64(n) * float64(nrec) / w), "mb_s": r3(gb * 1000 / w), "gb": r3(gb),
		"batch_bytes": len(b), "batch_records": nrec, "acks": *acks, "conns": *conns, "window": *win, "partitions": len(frames), "rate": *rate,
		"own_cpu_s": r3(o1 - o0), "own_cpu_s_gb": r3((o1 - o0) / gb), "machine_busy_s": r3(m1 - m0),
		"latency_intended": lat(hi), "latency_from_send": lat(hs),
	}
	if len(pids) > 0 {
		c := s1.CPU - s0.CPU
		out["broker_cpu_s"], out["broker_cpu_s_gb"], out["broker_cpu_us_req"] = r3(c), r3(c/gb), r3(c*1e6/float64(n))
		out["broker_rss_mb"], out["foreign_s"] = r3(float64(s1.RSS)/1e6), r3(m1-m0-c-(o1-o0))
	}
	j, _ := json.Marshal(out)
	fmt.Println(string(j))
	if errs.Load() > 0 {
		os.Exit(2)
	}
}
func lat(h *hdr.Histogram) map[string]float64 { return kw.Lat(h) }
func r3(x float64) float64 {
	if x > 1000 || x < -1000 {
		return float64(int64(x + .5))
	}
	return float64(int64(x*10000+.5)) / 10000
}
