package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	nodes      = 3
	readyBound = 4 * time.Minute  // until a cluster is whole, on a busy machine
	askBound   = 10 * time.Second // for one answer
)

// node is a process that is started and ended on the same data.
type node struct {
	id                     int32
	addr, controller, http string
	dir                    string
	proc                   *exec.Cmd
	ended                  chan struct{} // closed when proc has
}

func (n *node) properties() string { return filepath.Join(n.dir, "server.properties") }
func (n *node) output() string     { return filepath.Join(n.dir, "output.txt") }
func (n *node) pid() int           { return n.proc.Process.Pid }
func (n *node) usage() kw.Sample   { return kw.Take([]int{n.pid()}) }

// metric is one that kaja exports; an unlabelled one by its name, the sum of a labelled one's by its name and "{".
func (n *node) metric(name string) (float64, error) {
	all, err := kw.Metrics(n.http)
	if err != nil {
		return 0, fmt.Errorf("metrics of node %d: %w", n.id, err)
	}
	sum, found := 0.0, false
	for k, v := range all {
		if k == name || strings.HasSuffix(name, "{") && strings.HasPrefix(k, name) {
			sum, found = sum+v, true
		}
	}
	if !found && !strings.HasSuffix(name, "{") { // a counter with labels is not there before it has counted
		return 0, fmt.Errorf("node %d has no metric %s", n.id, name)
	}
	return sum, nil
}

// cluster is three nodes of one subject.
type cluster struct {
	subject
	o     options
	dir   string
	nodes []*node
}

// start makes a cluster in a fresh directory and waits until it is whole.
func start(ctx context.Context, o options, s subject) (*cluster, error) {
	dir, err := os.MkdirTemp(o.dir, "cluster-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	c := &cluster{subject: s, o: o, dir: dir}
	at := func(i, k int) string { return fmt.Sprintf("127.0.0.1:%d", o.port+10*i+k) }
	for i := range nodes {
		c.nodes = append(c.nodes, &node{id: int32(i + 1), addr: at(i, 0), controller: at(i, 1), http: at(i, 2), dir: filepath.Join(dir, fmt.Sprint("node-", i+1))})
	}
	if err := c.launchAll(ctx); err != nil {
		c.kill()
		return nil, fmt.Errorf("%s: %w (output in %s)", s.name, err, dir)
	}
	return c, nil
}

func (c *cluster) launchAll(ctx context.Context) error {
	for _, n := range c.nodes {
		if err := os.Mkdir(n.dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(n.properties(), []byte(n.text(c.subject, c.nodes)), 0o644); err != nil {
			return err
		}
		if c.format != nil {
			if err := c.format(c.o, n); err != nil {
				return err
			}
		}
	}
	for _, n := range c.nodes {
		if err := c.launch(n); err != nil {
			return err
		}
	}
	for _, n := range c.nodes {
		if err := until(ctx, readyBound, fmt.Sprintf("node %d is one of three voters and brokers", n.id), func() error { return c.formed(n) }); err != nil {
			return err
		}
	}
	return nil
}

// launch starts a node's process.
func (c *cluster) launch(n *node) error {
	out, err := os.OpenFile(n.output(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := c.cmd(c.o, n)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start node %d: %w", n.id, err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }() // how it ended is in its output
	n.proc, n.ended = cmd, ended
	return nil
}

// alive gives an error if the node's process has ended.
func (n *node) alive() error {
	if n.proc == nil {
		return fmt.Errorf("node %d does not run", n.id)
	}
	select {
	case <-n.ended:
		return fmt.Errorf("node %d has ended by itself: %v (output in %s)", n.id, n.proc.ProcessState, n.output())
	default:
		return nil
	}
}

// end signals the process and waits until it is gone; what does not stop within a minute is killed.
func (n *node) end(sig syscall.Signal) {
	if n.proc == nil {
		return
	}
	_ = n.proc.Process.Signal(sig) // it may have ended already
	select {
	case <-n.ended:
	case <-time.After(time.Minute):
		_ = n.proc.Process.Kill()
		<-n.ended
	}
	n.proc = nil
}

// kill ends all nodes and keeps what they have said, but not their data.
func (c *cluster) kill() {
	for _, n := range c.nodes {
		n.end(syscall.SIGKILL)
		_ = os.RemoveAll(filepath.Join(n.dir, "data")) // scratch
	}
}

// stop ends all nodes and removes everything, after a measurement that went well; else it is kill.
func (c *cluster) stop(err *error) {
	if *err == nil {
		for _, n := range c.nodes {
			*err = errors.Join(*err, n.alive())
		}
	}
	c.kill()
	if *err == nil {
		*err = os.RemoveAll(c.dir)
		return
	}
	*err = fmt.Errorf("%s: %w (output in %s)", c.name, *err, c.dir)
}

// ask opens a connection to a node and uses it once.
func ask[T any](n *node, question func(*kw.Conn) (T, error)) (T, error) {
	var none T
	if err := n.alive(); err != nil {
		return none, err
	}
	c, err := kw.Dial(n.addr, time.Second)
	if err != nil {
		return none, err
	}
	defer c.C.Close()
	return question(c)
}

// formed tells why a node does not know of three voters and three brokers.
func (c *cluster) formed(n *node) error {
	q, err := ask(n, func(k *kw.Conn) (*kmsg.DescribeQuorumResponseTopicPartition, error) { return k.Quorum(askBound) })
	if err != nil {
		return err
	}
	if len(q.CurrentVoters) != nodes {
		return fmt.Errorf("%d voters", len(q.CurrentVoters))
	}
	m, err := ask(n, func(k *kw.Conn) (*kmsg.MetadataResponse, error) { return k.MetadataAll(askBound) })
	if err != nil {
		return err
	}
	if len(m.Brokers) != nodes {
		return fmt.Errorf("%d brokers", len(m.Brokers))
	}
	return nil
}

// roles are the node that leads the metadata, as a running node says, and the others.
func (c *cluster) roles(ctx context.Context, asked *node) (controller *node, others []*node, err error) {
	err = until(ctx, readyBound, "somebody leads the metadata", func() error {
		controller, others = nil, nil
		q, err := ask(asked, func(k *kw.Conn) (*kmsg.DescribeQuorumResponseTopicPartition, error) { return k.Quorum(askBound) })
		if err != nil {
			return err
		}
		for _, n := range c.nodes {
			if n.id == q.LeaderID {
				controller = n
			} else {
				others = append(others, n)
			}
		}
		if controller == nil {
			return fmt.Errorf("no node %d, which leads", q.LeaderID)
		}
		return nil
	})
	return controller, others, err
}

// pids of all nodes, for a loader.
func (c *cluster) pids() string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, strconv.Itoa(n.pid()))
	}
	return strings.Join(out, ",")
}

// create creates a topic with three replicas and waits until each node says that all of them are in sync.
func (c *cluster) create(ctx context.Context, topic string, partitions int) error {
	if _, err := ask(c.nodes[0], func(k *kw.Conn) (any, error) { return nil, createAgain(k, topic, partitions) }); err != nil {
		return err
	}
	return c.whole(ctx, topic, partitions)
}

// tries is how often a request is sent that is answered REQUEST_TIMED_OUT, as it is when the controller changes.
const tries = 5

func again(request func() error) (err error) {
	for range tries {
		if err = request(); !errors.Is(err, kw.TimedOut) {
			return err
		}
	}
	return err
}

// createAgain creates a topic with three replicas.
func createAgain(k *kw.Conn, topic string, partitions int) error {
	return again(func() error { return k.CreateTopic(topic, int32(partitions), nodes, nil) })
}

// whole waits until each running node says that all partitions of a topic have a leader and three replicas in sync.
func (c *cluster) whole(ctx context.Context, topic string, partitions int) error {
	for _, n := range c.nodes {
		if n.proc == nil {
			continue
		}
		err := until(ctx, readyBound, fmt.Sprintf("all replicas of %s are in sync at node %d", topic, n.id), func() error {
			m, err := ask(n, func(k *kw.Conn) (*kmsg.MetadataResponse, error) { return k.Metadata(topic) })
			if err != nil {
				return err
			}
			return inSync(m, partitions)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inSync tells why not every one of so many partitions has a leader and three replicas in sync.
func inSync(m *kmsg.MetadataResponse, partitions int) error {
	found, lacking := 0, 0
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			found++
			if p.Leader < 0 || len(p.ISR) != nodes {
				lacking++
			}
		}
	}
	if found != partitions || lacking > 0 {
		return fmt.Errorf("%d of %d partitions, %d of them without a leader or a full ISR", found, partitions, lacking)
	}
	return nil
}
