//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kajamq/kaja/chaos/netns"
	"github.com/kajamq/kaja/internal/loopdisk"
)

// Ports of every node, on its own host.
const (
	clientPort     = 9092
	controllerPort = 9093
)

// diskSize is that of a node's disk in bytes; it is in memory, and thin.
const diskSize = 1 << 30

// node is a process on a host of its own, with a disk of its own.
type node struct {
	id     int
	c      *cluster
	disk   *loopdisk.Disk
	binary string

	mu       sync.Mutex
	cmd      *exec.Cmd
	ended    chan struct{} // closed when cmd has
	err      error         // how it did, once ended is closed
	expected bool          // that it ends
	starts   int
}

func addr(id int) string { return fmt.Sprintf("%s:%d", netns.IP(id), clientPort) }

// properties is the name of the node's server.properties.
func (n *node) properties() string {
	return filepath.Join(n.c.o.dir, fmt.Sprintf("node%d.properties", n.id))
}

// prepare writes the settings and makes the disk ready.
func (n *node) prepare() error {
	lines := append(commonSettings(n), n.c.runs.settings(n)...)
	if err := os.WriteFile(n.properties(), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("write the settings of node %d: %w", n.id, err)
	}
	return n.c.runs.format(n)
}

// start starts the process.
func (n *node) start() error {
	out, err := os.OpenFile(n.logName(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of node %d: %w", n.id, err)
	}
	defer func() { _ = out.Close() }() // the process has its own
	cmd := n.c.runs.command(n)
	_, _ = fmt.Fprintf(out, "=== %s start of %v\n", time.Now().UTC().Format(time.RFC3339Nano), cmd.Args)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.c.net.Start(n.id, cmd); err != nil {
		return fmt.Errorf("start node %d: %w", n.id, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cmd, n.ended, n.expected = cmd, make(chan struct{}), false
	n.starts++
	go n.wait(cmd, n.ended)
	return nil
}

func (n *node) logName() string { return filepath.Join(n.c.o.dir, fmt.Sprintf("node%d.log", n.id)) }

func (n *node) wallName() string { return filepath.Join(n.c.o.dir, fmt.Sprintf("node%d.wall", n.id)) }

// clock puts the node's wall clock wrong, if its binary lets that be done.
func (n *node) clock(by time.Duration) error {
	if err := os.WriteFile(n.wallName(), []byte(by.String()), 0o644); err != nil {
		return fmt.Errorf("set the clock of node %d: %w", n.id, err)
	}
	return nil
}

func (n *node) wait(cmd *exec.Cmd, ended chan struct{}) {
	err := cmd.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
	if !n.expected {
		n.c.found("node %d ended by itself: %v", n.id, err)
	}
	close(ended)
}

// signal sends one; ends says that the process will end by it.
func (n *node) signal(s syscall.Signal, ends bool) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = n.expected || ends
	if err := n.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%v to node %d: %w", s, n.id, err)
	}
	return nil
}

// expectEnd says that the process may end by itself from now on.
func (n *node) expectEnd() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.expected = true
}

// kill ends the process as a crash does.
func (n *node) kill() error {
	err := n.signal(syscall.SIGKILL, true)
	<-n.ended
	return err
}

// running reports whether the process is there.
func (n *node) running() bool {
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// stop ends the process cleanly.
func (n *node) stop() error {
	if err := n.signal(syscall.SIGTERM, true); err != nil {
		return err
	}
	select {
	case <-n.ended:
	case <-time.After(45 * time.Second):
		n.c.found("node %d has not stopped 45 s after SIGTERM", n.id)
		_ = n.signal(syscall.SIGQUIT, true)
		<-time.After(time.Second)
		return n.kill()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.c.runs.clean(n.err) {
		n.c.found("a clean stop of node %d: %v", n.id, n.err)
	}
	return nil
}
