package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/vfs/memfs"
)

// clusterSecret is what the nodes of a simulated cluster share.
const clusterSecret = "kaja.cluster.secret=a secret of this cluster alone"

// Form adds n machines, n1 to n<n>, that are to be one cluster: they list each other as controllers, and share a secret.
// settings are for all of them. Start them with StartAll.
func (c *Cluster) Form(n int, settings ...string) []*Node {
	var voters []string
	for i := 1; i <= n; i++ {
		voters = append(voters, fmt.Sprintf("%d@n%d:9093", i, i))
	}
	var out []*Node
	for i := 1; i <= n; i++ {
		out = append(out, c.formed(i, append([]string{"controller.quorum.voters=" + strings.Join(voters, ",")}, settings...)))
	}
	return out
}

// controllersOnly are the settings of nodes without partitions, brokersOnly those of nodes that have nothing else.
var (
	controllersOnly = []string{"process.roles=controller", "listeners=CONTROLLER://:9093", "advertised.listeners="}
	brokersOnly     = []string{"process.roles=broker", "listeners=PLAINTEXT://:9092"}
)

// Apart adds as many machines as Form does, n1 and the next, that are controllers only, and as many again that are brokers
// only and know the controllers. settings are the brokers'.
func (c *Cluster) Apart(n int, settings ...string) (controllers, brokers []*Node) {
	controllers = c.Form(n, controllersOnly...)
	for id := n + 1; id <= 2*n; id++ {
		own := append(slices.Clone(brokersOnly), fmt.Sprintf("advertised.listeners=PLAINTEXT://n%d:9092", id))
		brokers = append(brokers, c.Joiner(id, controllers, append(own, settings...)...))
	}
	for _, n := range controllers {
		n.apart = true
	}
	return controllers, brokers
}

// brokers are the nodes that clients reach.
func (c *Cluster) brokers() []*Node {
	return slices.DeleteFunc(slices.Clone(c.nodes), func(n *Node) bool { return n.apart })
}

// Joiner adds the machine n<id>, whose node joins the cluster that the nodes at form.
func (c *Cluster) Joiner(id int, at []*Node, settings ...string) *Node {
	var servers []string
	for _, n := range at {
		servers = append(servers, n.host.name+":9093")
	}
	return c.formed(id, append([]string{"controller.quorum.bootstrap.servers=" + strings.Join(servers, ",")}, settings...))
}

func (c *Cluster) formed(id int, settings []string) *Node {
	n := c.Node(fmt.Sprintf("n%d", id), append([]string{fmt.Sprintf("node.id=%d", id), clusterSecret}, settings...)...)
	n.formed = true
	return n
}

// StartAll starts nodes at once and waits for all of them.
func (c *Cluster) StartAll(ctx context.Context, nodes ...*Node) error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.Start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Controller waits for a node that leads the metadata quorum; nil when d has passed.
func (c *Cluster) Controller(d time.Duration) *Node {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, n := range c.nodes {
			if ctl := n.controller(); ctl != nil && ctl.Leading() {
				return n
			}
		}
	}
	return nil
}

// wipe gives a stopped node an empty disk.
func (n *Node) wipe() { n.disk = memfs.New(time.Now) }

// controller is the running node's; nil while it has none.
func (n *Node) controller() *raftctl.Controller {
	if n.broker == nil {
		return nil
	}
	return n.broker.Controller()
}
