// coldstart: runs a start command and measures the time from its exec to the first acknowledged Produce (acks=-1). One JSON line on stdout.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:9092", "the broker's address")
	cmd := flag.String("cmd", "", "start command (run by sh -c 'exec ...'; it must stay in the foreground)")
	topic := flag.String("topic", "cold", "topic")
	create := flag.Bool("create", true, "CreateTopics first")
	to := flag.Duration("timeout", 60*time.Second, "bound")
	stop := flag.String("stop", "TERM", "at the end: TERM, KILL or none")
	pidfile := flag.String("pidfile", "", "write the started pid here")
	label := flag.String("label", "", "copied to the output")
	flag.Parse()
	b, _ := kw.Batch(1, 100)
	logf, _ := os.Create(os.DevNull)
	c := exec.Command("sh", "-c", "exec "+*cmd)
	c.Stdout, c.Stderr = logf, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t0 := time.Now()
	if e := c.Start(); e != nil {
		fmt.Fprintln(os.Stderr, e)
		os.Exit(1)
	}
	if *pidfile != "" {
		os.WriteFile(*pidfile, []byte(fmt.Sprint(c.Process.Pid)), 0o644)
	}
	ms := func() float64 { return float64(time.Since(t0).Microseconds()) / 1000 }
	out := map[string]any{"label": *label}
	var acc, created, acked float64
	tries := 0
	for acked == 0 && time.Since(t0) < *to {
		time.Sleep(time.Millisecond)
		tries++
		n, e := net.DialTimeout("tcp", *addr, time.Second)
		if e != nil {
			continue
		}
		n.Close()
		if acc == 0 {
			acc = ms()
		}
		k, e := kw.Dial(*addr, time.Second)
		if e != nil {
			continue
		}
		if *create && created == 0 {
			if e := k.CreateTopic(*topic, 1, 1, nil); e != nil {
				k.C.Close()
				continue
			}
			created = ms()
		}
		f, _ := kw.ProduceFrame(9, *topic, [16]byte{}, 0, -1, b)
		for acked == 0 && time.Since(t0) < *to {
			k.C.SetDeadline(time.Now().Add(5 * time.Second))
			if _, e := k.C.Write(f); e != nil {
				break
			}
			var buf [4096]byte
			m, e := k.C.Read(buf[:])
			if e != nil || m < 24 {
				break
			}
			if _, code, _, e := kw.ProduceErr(buf[4:m], false); e == nil && code == 0 {
				acked = ms()
				break
			}
			time.Sleep(time.Millisecond)
		}
		k.C.Close()
	}
	pids := []int{c.Process.Pid}
	s := kw.Take(pids)
	out["accept_ms"], out["created_ms"], out["first_ack_ms"], out["cpu_s_at_ack"], out["rss_mb_at_ack"], out["tries"] = acc, created, acked, s.CPU, float64(s.RSS)/1e6, tries
	if *stop != "none" {
		sig := syscall.SIGTERM
		if *stop == "KILL" {
			sig = syscall.SIGKILL
		}
		t1 := time.Now()
		c.Process.Signal(sig)
		done := make(chan struct{})
		go func() { c.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(60 * time.Second):
			c.Process.Kill()
		}
		out["stop_ms"] = float64(time.Since(t1).Milliseconds())
	}
	j, _ := json.Marshal(out)
	fmt.Println(string(j))
	if acked == 0 {
		os.Exit(2)
	}
}
