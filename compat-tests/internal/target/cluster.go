package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// clientsListener is the listener of a Cluster's nodes that clients use. The nodes and the test itself use another, so that what
// arrives at this one is the client's alone.
const clientsListener = "CLIENTS"

// Cluster is one or more nodes of one kind. Those of kaja have a listener for clients besides the one at Broker.Addr, and tell which
// requests arrived there. It is not safe for concurrent use.
type Cluster struct {
	Nodes   []*Broker
	clients []string // where clients connect, in the order of Nodes
	http    []string // where kaja's metrics are
}

// NewCluster prepares n nodes with ids from 1 on, below Options.Dir, without starting them. Each is broker and controller.
func NewCluster(o Options, n int) (*Cluster, error) {
	c := &Cluster{}
	var voters []string
	for i := range n {
		one := o
		one.Dir = filepath.Join(o.Dir, strconv.Itoa(i+1))
		b, err := New(one)
		if err != nil {
			return nil, err
		}
		b.settings["node.id"] = strconv.Itoa(i + 1)
		c.Nodes = append(c.Nodes, b)
		c.clients = append(c.clients, b.Addr)
		controller := b.settings["controller.quorum.bootstrap.servers"]
		if o.Kind == Kaja {
			ports, err := freePorts(3)
			if err != nil {
				return nil, err
			}
			c.clients[i], controller = ports[0], ports[2]
			c.http = append(c.http, ports[1])
			maps.Copy(b.settings, map[string]string{
				"process.roles":                  "broker,controller",
				"listeners":                      fmt.Sprintf("PLAINTEXT://%s,%s://%s,CONTROLLER://%s", b.Addr, clientsListener, ports[0], controller),
				"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT," + clientsListener + ":PLAINTEXT",
				"inter.broker.listener.name":     "PLAINTEXT",
				"controller.listener.names":      "CONTROLLER",
				"kaja.cluster.secret":            "of-the-compatibility-tests",
				"kaja.http.listener":             ports[1],
			})
		}
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, controller))
	}
	for _, b := range c.Nodes {
		b.settings["offsets.topic.replication.factor"] = strconv.Itoa(n)
		b.settings["transaction.state.log.replication.factor"] = strconv.Itoa(n)
		b.settings["transaction.state.log.min.isr"] = strconv.Itoa((n + 1) / 2)
		if o.Kind == Kaja || n > 1 { // a Kafka that is alone is a quorum of its own
			delete(b.settings, "controller.quorum.bootstrap.servers")
			b.settings["controller.quorum.voters"] = strings.Join(voters, ",")
		}
		maps.Copy(b.settings, o.Config)
	}
	return c, nil
}

// freePorts finds free ports on 127.0.0.1, as addresses.
func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		out = append(out, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	return out, nil
}

// Start starts all nodes and returns when each answers Metadata.
func (c *Cluster) Start(ctx context.Context) error {
	for _, b := range c.Nodes {
		if err := b.launch(ctx); err != nil {
			return err
		}
	}
	for _, b := range c.Nodes {
		if err := b.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends all nodes.
func (c *Cluster) Kill() error {
	var errs []error
	for _, b := range c.Nodes {
		errs = append(errs, b.Kill())
	}
	return errors.Join(errs...)
}

// Clients are the addresses where clients connect, separated by commas.
func (c *Cluster) Clients() string { return strings.Join(c.clients, ",") }

// Addrs are the addresses where the test itself connects.
func (c *Cluster) Addrs() []string {
	var out []string
	for _, b := range c.Nodes {
		out = append(out, b.Addr)
	}
	return out
}
