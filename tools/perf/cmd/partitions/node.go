package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

// startBound is how long a node may take to start.
const startBound = 20 * time.Minute

// node is a broker that is started and ended again and again on the same data.
type node struct {
	options
	name, dir string
	proc      *exec.Cmd
	output    string // of the present process
	starts    int
	exited    chan error

	mu   sync.Mutex
	most int // descriptors that the present process was seen to have
	quit chan struct{}
	wg   sync.WaitGroup
}

func newNode(o options, name string, port int) *node {
	o.addr = fmt.Sprintf("127.0.0.1:%d", port)
	return &node{options: o, name: name, dir: filepath.Join(o.dir, name)}
}

// report prints one measurement as a line of JSON, with the load of the machine.
func (n *node) report(step string, out map[string]any) {
	out["step"], out["node"], out["partitions"], out["load"] = step, n.name, n.topics*n.partitions, load()
	if n.proc != nil {
		s := kw.Take([]int{n.pid()})
		out["rss_mb"], out["cpu_s"] = float64(s.RSS)/1e6, s.CPU
		n.mu.Lock()
		out["descriptors_most"] = n.most
		n.mu.Unlock()
		out["descriptors_limit"] = limitOf(n.pid())
	}
	line, _ := json.Marshal(out)
	fmt.Println(string(line))
}

func (n *node) pid() int { return n.proc.Process.Pid }

// load is the load average of the last minute.
func load() float64 {
	v, _ := strconv.ParseFloat(kw.LoadAverage(), 64)
	return v
}

// limitOf is the soft limit of descriptors of a process.
func limitOf(pid int) int {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	for _, line := range strings.Split(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, "Max open files"); ok {
			v, _ := strconv.Atoi(strings.Fields(rest)[0])
			return v
		}
	}
	return -1
}

// start starts the node and waits until it takes connections, or with produces until the last partition has taken a record.
func (n *node) start(step string, produces bool) error {
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return err
	}
	n.starts++
	n.output = filepath.Join(n.dir, fmt.Sprintf("output-%d.txt", n.starts))
	out, err := os.Create(n.output)
	if err != nil {
		return err
	}
	defer out.Close()
	args := []string{"start", "--set", "listeners=PLAINTEXT://" + n.addr, "--set", "log.dirs=" + filepath.Join(n.dir, "data"),
		"--set", "kaja.log.format=json"}
	for _, s := range strings.Fields(n.set) {
		args = append(args, "--set", s)
	}
	n.proc = exec.Command(n.kaja, args...)
	n.proc.Stdout, n.proc.Stderr = out, out
	n.proc.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	began := time.Now()
	if err := n.proc.Start(); err != nil {
		return err
	}
	n.exited = make(chan error, 1)
	go func(p *exec.Cmd) { n.exited <- p.Wait() }(n.proc)
	n.watch()
	batch, _ := kw.Batch(200, 100)
	for time.Since(began) < startBound {
		if c, err := kw.Dial(n.addr, time.Second); err == nil {
			if produces {
				err = c.Produce(n.topic(n.topics-1), []int32{int32(n.partitions - 1)}, batch, -1, time.Minute)
			}
			c.C.Close()
			if err == nil {
				m := map[string]any{"ready_s": time.Since(began).Seconds()}
				n.opened(m)
				n.report(step, m)
				return nil
			}
		}
		select {
		case err := <-n.exited:
			n.exited <- err
			return fmt.Errorf("%s has ended: %w (output in %s)", n.name, err, n.output)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s is not ready after %v (output in %s)", n.name, time.Since(began), n.output)
}

// opened adds what the node has logged of opening its partitions.
func (n *node) opened(m map[string]any) {
	f, err := os.Open(n.output)
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct {
			Msg   string
			Logs  int
			Bytes int64 `json:"bytes_recovered"`
			Took  int64 // nanoseconds
		}
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "partitions opened" {
			m["logs"], m["bytes_recovered"], m["opened_s"] = line.Logs, line.Bytes, float64(line.Took)/1e9
		}
	}
}

// watch looks at the number of descriptors four times a second.
func (n *node) watch() {
	n.most, n.quit = 0, make(chan struct{})
	pid, quit := n.pid(), n.quit
	n.wg.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			now := descriptors(pid)
			n.mu.Lock()
			n.most = max(n.most, now)
			n.mu.Unlock()
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	})
}

// end ends the process by a signal and waits until it is gone.
func (n *node) end(step string, sig syscall.Signal) error {
	if n.proc == nil {
		return nil
	}
	before, began := kw.Take([]int{n.pid()}).CPU, time.Now()
	_ = n.proc.Process.Signal(sig) // it may have ended by itself, which Wait tells
	err := <-n.exited
	took := time.Since(began)
	close(n.quit)
	n.wg.Wait()
	cpu := (n.proc.ProcessState.UserTime() + n.proc.ProcessState.SystemTime()).Seconds()
	n.proc = nil
	out := map[string]any{"stop_s": took.Seconds(), "stop_cpu_s": cpu - before}
	if sig == syscall.SIGTERM && err != nil {
		out["exit"] = err.Error()
	}
	n.report(step, out)
	return nil
}
