package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kajamq/kaja/broker/config"
)

// maxDevNodes bounds a cluster in one process.
const maxDevNodes = 9

// DevOptions is what NewDevCluster needs.
type DevOptions struct {
	Nodes int
	// Env is the world of a node, by its number from 1 on.
	Env func(node int) Env
	// Load makes the configuration of a node: the settings that the user gave, and what is set for the node on top.
	Load func(set ...string) (*config.Config, error)
}

// DevCluster is a cluster of several nodes in one process, for development and tests: each with its own directories and
// ports, one secret that nobody else knows. Its nodes are brokers and controllers as any others.
type DevCluster struct {
	nodes []*Broker
	ended chan error // of the nodes' Wait
	waits sync.WaitGroup
}

// NewDevCluster makes a cluster and touches nothing yet. Node n listens on the configured port plus n-1 and has the
// directory n beside the configured one, with "-dev-cluster" appended to its name.
func NewDevCluster(o DevOptions) (*DevCluster, error) {
	if o.Nodes < 1 || o.Nodes > maxDevNodes {
		return nil, fmt.Errorf("--dev-cluster: %d is not a number of nodes between 1 and %d", o.Nodes, maxDevNodes)
	}
	base, err := o.Load()
	if err != nil {
		return nil, err
	}
	settings, err := devSettings(base, o.Nodes)
	if err != nil {
		return nil, err
	}
	secret := "kaja.cluster.secret=" + newSecret(newIDs(0))
	c := &DevCluster{ended: make(chan error, o.Nodes)}
	for n := 1; n <= o.Nodes; n++ {
		cfg, err := o.Load(append(settings[n-1], secret)...)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", n, err)
		}
		env := o.Env(n)
		env.Logger = env.Logger.With(slog.Int("node", n))
		b, err := New(env, cfg)
		if err != nil {
			return nil, fmt.Errorf("node %d: %w", n, err)
		}
		c.nodes = append(c.nodes, b)
	}
	return c, nil
}

// devSettings is what each node has of its own.
func devSettings(base *config.Config, nodes int) ([][]string, error) {
	listeners, err := base.Listeners()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"node.id", "broker.id", "process.roles", "controller.quorum.voters", "controller.quorum.bootstrap.servers", "advertised.listeners"} {
		if base.IsSet(name) {
			return nil, fmt.Errorf("%s: --dev-cluster sets it for every node; leave it out", name)
		}
	}
	if len(listeners) != 1 || listeners[0].Controller || listeners[0].Port == 0 {
		return nil, errors.New("listeners: --dev-cluster takes one listener with a port, and gives each node the next port")
	}
	l := listeners[0]
	host := l.Host
	if l.Wildcard() {
		host = "localhost"
	}
	var voters []string
	for n := range nodes {
		voters = append(voters, fmt.Sprintf("%d@%s", n+1, config.HostPort{Host: host, Port: l.Port + n}))
	}
	var out [][]string
	for n := range nodes {
		set := []string{
			fmt.Sprintf("node.id=%d", n+1), "controller.quorum.voters=" + strings.Join(voters, ","),
			"listeners=" + config.Listener{Name: l.Name, Host: l.Host, Port: l.Port + n}.String(),
			"log.dirs=" + path.Join(path.Clean(base.LogDirs()[0])+"-dev-cluster", strconv.Itoa(n+1)),
		}
		if http := base.String("kaja.http.listener"); http != "" {
			at, port, err := net.SplitHostPort(http)
			p, numErr := strconv.Atoi(port)
			if err := errors.Join(err, numErr); err != nil {
				return nil, fmt.Errorf("kaja.http.listener: %w", err)
			}
			if p > 0 {
				p += n
			}
			set = append(set, "kaja.http.listener="+net.JoinHostPort(at, strconv.Itoa(p)))
		}
		out = append(out, set)
	}
	return out, nil
}

// Nodes are the brokers, by their numbers.
func (c *DevCluster) Nodes() []*Broker { return c.nodes }

// Start brings all nodes up at once, and returns when clients are served by all. On an error all are ended.
func (c *DevCluster) Start(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() {
			if errs[i] = n.Start(ctx); errs[i] != nil {
				errs[i] = fmt.Errorf("node %d: %w", i+1, errs[i])
				cancel() // the others would wait for it
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return errors.Join(errs[i], c.Close(context.WithoutCancel(ctx)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	for i, n := range c.nodes {
		c.waits.Go(func() { // ends with the node; ended has room for all
			err := n.Wait()
			if err != nil {
				err = fmt.Errorf("node %d: %w", i+1, err)
			}
			c.ended <- err
		})
	}
	return nil
}

// Wait blocks until a node ends by itself, with the reason; nil after Close.
func (c *DevCluster) Wait() error { return <-c.ended }

// Close ends all nodes at once.
func (c *DevCluster) Close(ctx context.Context) error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = n.Close(ctx) })
	}
	wg.Wait()
	c.waits.Wait()
	return errors.Join(errs...)
}

// Screen is that of the first node, with the others' listeners and directories.
func (c *DevCluster) Screen(version string, took time.Duration, ignored int) Screen {
	s := c.nodes[0].Screen(version, took, ignored)
	s.Nodes = len(c.nodes)
	for _, n := range c.nodes[1:] {
		other := n.Screen(version, took, ignored)
		s.Listeners = append(s.Listeners, other.Listeners...)
		s.Dirs = append(s.Dirs, other.Dirs...)
	}
	return s
}
