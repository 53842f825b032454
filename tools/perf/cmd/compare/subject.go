package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

// subject is something that can be measured: how to start it, and what it is called in the table.
type subject struct {
	name string
	port int
	cmd  func(o options, port int, dir string) (*exec.Cmd, error)
}

// kaja with an fsync mode and more settings, each name=value.
func kaja(fsync string, more ...string) subject {
	return subject{name: "kaja fsync=" + fsync, port: 21092, cmd: func(o options, port int, dir string) (*exec.Cmd, error) {
		args := []string{"start"}
		for _, s := range append([]string{fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d", port), "log.dirs=" + filepath.Join(dir, "data"),
			"kaja.http.listener=", "kaja.fsync=" + fsync}, more...) {
			args = append(args, "--set", s)
		}
		return exec.Command(o.kaja, args...), nil
	}}
}

func kafka() subject {
	return subject{name: "Kafka 4.4", port: 21192, cmd: func(o options, port int, dir string) (*exec.Cmd, error) {
		props := filepath.Join(dir, "server.properties")
		text := fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
`, port, port+1, filepath.Join(dir, "data"))
		if err := os.WriteFile(props, []byte(text), 0o644); err != nil {
			return nil, err
		}
		if err := kw.KafkaFormat(o.jars, props, "--standalone"); err != nil {
			return nil, err
		}
		return kw.KafkaServer(o.jars, props), nil
	}}
}

// floor is kfloor: a server that does only what no broker can leave out.
func floor(mode string) subject {
	return subject{name: "floor (" + mode + ")", port: 21292, cmd: func(o options, port int, dir string) (*exec.Cmd, error) {
		return exec.Command(filepath.Join(o.bin, "kfloor"), "-mode", mode, "-addr", fmt.Sprintf("127.0.0.1:%d", port),
			"-dir", dir, "-roll", "100000000000"), nil
	}}
}

// running is a started subject.
type running struct {
	subject
	addr string
	dir  string
	proc *exec.Cmd
}

func (r *running) pid() string { return strconv.Itoa(r.proc.Process.Pid) }

// start runs the subject in a fresh directory and waits until it answers.
func (s subject) start(ctx context.Context, o options) (*running, error) {
	dir, err := os.MkdirTemp(o.dir, "compare-")
	if err != nil {
		return nil, err
	}
	c, err := s.cmd(o, s.port, dir)
	if err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "output.txt"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	r := &running{subject: s, addr: fmt.Sprintf("127.0.0.1:%d", s.port), dir: dir, proc: c}
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); {
		if ctx.Err() != nil {
			break
		}
		if conn, err := net.DialTimeout("tcp", r.addr, time.Second); err == nil {
			conn.Close()
			return r, nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.stop()
	return nil, fmt.Errorf("%s does not listen on %s after 60 s (output in %s)", s.name, r.addr, dir)
}

// stop ends the process and removes its data.
func (r *running) stop() {
	_ = r.proc.Process.Signal(syscall.SIGTERM) // it may have ended already
	done := make(chan struct{})
	go func() { _ = r.proc.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = r.proc.Process.Kill()
		<-done
	}
	_ = os.RemoveAll(r.dir) // scratch
}

// usage is the CPU seconds so far and the resident megabytes.
func (r *running) usage() (cpu, rssMB float64) {
	s := kw.Take([]int{r.proc.Process.Pid})
	return s.CPU, float64(s.RSS) / 1e6
}
