package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stopTime is how long a clean stop of a broker may take, in virtual time.
const stopTime = time.Minute

// clientTimeout is how long a client waits for an answer beyond what the request allows: short, so that the silence of a
// machine without power costs little virtual time.
const clientTimeout = time.Second

// Cluster is some nodes and their clients on one network. Make it inside a synctest bubble.
type Cluster struct {
	t    testing.TB
	seed uint64
	Net  *Network
	Log  *Logs

	nodes []*Node
	dying sync.WaitGroup // what is left of killed processes
}

// NewCluster makes a cluster without nodes; it ends with the test. seed decides about packet delays, about the ids that
// brokers draw, and about what a crash leaves.
func NewCluster(t testing.TB, seed uint64) *Cluster {
	c := &Cluster{t: t, seed: seed, Net: NewNetwork(seed, DefaultLatency), Log: &Logs{}}
	t.Cleanup(c.close)
	return c
}

func (c *Cluster) close() {
	for _, n := range c.nodes {
		if n.broker != nil {
			if err := n.Stop(); err != nil {
				c.t.Errorf("stop node %s: %v", n.host.name, err)
			}
		}
	}
	c.Net.Close()
	c.dying.Wait()
	if c.t.Failed() {
		c.t.Logf("what the nodes said:\n%s", c.Log.String())
	}
}

// Node is one machine with a disk, and the broker on it while it runs.
type Node struct {
	cluster  *Cluster
	host     *Host
	disk     *memfs.FS
	settings []string
	formed   bool                 // one of several, with a controller listener
	apart    bool                 // a controller alone, which no client reaches
	slow     time.Duration        // at most, of a sync; see SlowDisk
	faults   func(fs *faultfs.FS) // see FaultyDisk
	starts   uint64
	broker   *broker.Broker
	metrics  prometheus.Gatherer // of the broker that was started last
	logger   *slog.Logger
}

// Node adds a machine with an empty disk; settings are name=value.
func (c *Cluster) Node(name string, settings ...string) *Node {
	n := &Node{
		cluster: c, host: c.Net.Host(name), disk: memfs.New(time.Now), settings: settings,
		logger: slog.New(slog.NewTextHandler(c.Log, nil)).With("node", name),
	}
	c.nodes = append(c.nodes, n)
	return n
}

// Addr is where the node's PLAINTEXT listener is reached.
func (n *Node) Addr() string { return n.host.name + ":9092" }

// Disk is the node's disk as it is now; a crash replaces it.
func (n *Node) Disk() *memfs.FS { return n.disk }

// config is the node's configuration.
func (n *Node) config() (*config.Config, error) {
	set := []string{"listeners=PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://" + n.Addr(),
		"kaja.http.listener=", "log.dirs=/data", "group.initial.rebalance.delay.ms=0"}
	if n.formed {
		set[0] += ",CONTROLLER://:9093"
		set[1] += ",CONTROLLER://" + n.host.name + ":9093"
		set = append(set, "controller.listener.names=CONTROLLER")
	}
	set = append(set, n.settings...)
	cfg, _, err := config.Load(config.Sources{Set: set, Hostname: n.host.name})
	if err != nil {
		return nil, fmt.Errorf("settings of node %s: %w", n.host.name, err)
	}
	return cfg, nil
}

// Start boots the machine and starts a broker on it.
func (n *Node) Start(ctx context.Context) error {
	if n.broker != nil {
		return errors.New("the broker runs already")
	}
	cfg, err := n.config()
	if err != nil {
		return err
	}
	n.starts++
	p, reg := n.host.Boot(), prometheus.NewRegistry()
	n.metrics = reg
	b, err := broker.New(broker.Env{
		FS: n.diskOf(), Listen: p.Listen, Dial: p.Dial, Wall: time.Now, Seed: mix(n.cluster.seed, n.host.seed(), n.starts) | 1,
		Hostname: func() (string, error) { return n.host.name, nil },
		Logger:   n.logger, Registerer: reg, Gatherer: reg,
	}, cfg)
	if err != nil {
		return err
	}
	n.broker = b
	if err := b.Start(ctx); err != nil {
		n.broker = nil
		return fmt.Errorf("start node %s: %w", n.host.name, err)
	}
	return nil
}

// Broker is the running broker; nil while there is none.
func (n *Node) Broker() *broker.Broker { return n.broker }

// Name is the machine's, which others reach it by.
func (n *Node) Name() string { return n.host.name }

// Stop is a clean stop (SIGTERM).
func (n *Node) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	b := n.broker
	n.broker = nil
	err := b.Close(ctx)
	n.host.Kill()
	return err
}

// Kill ends the process as SIGKILL does: the machine goes on, and so does its page cache.
func (n *Node) Kill() { n.crash(n.host.Kill, memfs.Keep, 0) }

// PowerOff ends process and machine. Of what was not synced the disk keeps what fate says, by seed.
func (n *Node) PowerOff(fate memfs.Fate, seed uint64) { n.crash(n.host.PowerOff, fate, seed) }

// crash cuts the process off before the disk is cloned, so that no answer leaves that rests on more than what the clone
// can have.
func (n *Node) crash(cut func(), fate memfs.Fate, seed uint64) {
	cut()
	n.disk = n.disk.Crash(fate, seed)
	b := n.broker
	n.broker = nil
	n.cluster.dying.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		_ = b.Close(ctx) // it speaks to nobody and its disk is gone
	})
}

// seed tells hosts apart.
func (h *Host) seed() uint64 { return uint64(h.ip[2])<<8 | uint64(h.ip[3]) }

// Client makes a franz-go client on a host of its own. The caller closes it. No compression: franz-go keeps codecs beyond
// the bubble.
func (c *Cluster) Client(name string, opts ...kgo.Opt) (*kgo.Client, error) {
	p := c.Net.Host(name).Boot()
	all := []kgo.Opt{
		kgo.ClientID(name), kgo.Dialer(p.Dial), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.RequestTimeoutOverhead(clientTimeout), kgo.ProduceRequestTimeout(clientTimeout),
	}
	var seeds []string
	for _, n := range c.brokers() {
		seeds = append(seeds, n.Addr())
	}
	cl, err := kgo.NewClient(append(append(all, kgo.SeedBrokers(seeds...)), opts...)...)
	if err != nil {
		return nil, fmt.Errorf("client %s: %w", name, err)
	}
	return cl, nil
}

// Logs collects what the nodes log. Safe for concurrent use.
type Logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *Logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

// String is all of it.
func (l *Logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
