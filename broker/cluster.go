package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/peerclient"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// joinRetry is the pause between two rounds of questions while a node forms or joins a cluster.
const joinRetry = 500 * time.Millisecond

// cluster is this node among the others: it proves who it is, answers them, finds them, forms or joins their cluster. A
// node without a proof for others has none. Safe for concurrent use once opened.
type cluster struct {
	env         Env
	logger      *slog.Logger
	credentials peer.Credentials
	dial        peer.DialFunc // as the credentials want it; env.Dial only asks whether somebody is there
	quorum      config.Quorum
	interBroker string

	book       *nodeBook
	former     *peer.Former
	identity   atomic.Pointer[peer.Identity] // nil until opened; another once the cluster id is known
	streams    *peer.Streams
	client     *peerclient.Client                 // to nodes where they accept members of the quorum
	brokers    *peerclient.Client                 // to brokers at their inter-broker listener
	controller atomic.Pointer[raftctl.Controller] // nil until it runs
	at         peer.Joining                       // where this node accepts connections
	given      givenIDs

	ctx    context.Context // of calls that are answered, by the server's goroutines; ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the joining
}

// clusterOptions is what newCluster needs.
type clusterOptions struct {
	Env         Env
	Logger      *slog.Logger
	Config      *config.Config
	Credentials peer.Credentials
	Quorum      config.Quorum
	Identity    *Identity
	Founded     bool // the raft store has state
	NewCluster  func() string
	At          peer.Joining
	InterBroker string
}

// newCluster opens the node to others, who may ask it questions from now on.
func newCluster(o clusterOptions) (*cluster, error) {
	c := &cluster{
		env: o.Env, logger: o.Logger, credentials: o.Credentials, dial: o.Credentials.Dialer(o.Env.Dial, o.Logger), quorum: o.Quorum, at: o.At, interBroker: o.InterBroker,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	var err error
	if c.book, err = newNodeBook(o.Env.FS, o.Identity.RaftDir(), o.Quorum.Voters); err != nil {
		return nil, err
	}
	self := peer.Candidate{
		ID:         peer.ID{ClusterID: o.Identity.ClusterID, NodeID: o.Identity.NodeID, DirectoryID: o.Identity.Metadata.ID},
		Controller: o.Config.Controller(), Founded: o.Founded, Founder: o.Identity.Founder,
	}
	if f := o.Identity.Formatted; f != nil {
		self.Quorum, self.Joins = f.quorum(), f.Joins
	}
	c.former = peer.NewFormer(peer.FormerOptions{
		Self: self, Listed: o.Quorum.Listed, Credentials: c.credentials, Dial: c.dial, NewClusterID: o.NewCluster,
		Adopt: func(id, founder string) error {
			if err := o.Identity.Adopt(id, founder); err != nil {
				return err
			}
			return c.identify(id)
		},
		Retry: joinRetry, Logger: o.Logger,
	})
	return c, c.identify(self.ID.ClusterID)
}

// identify makes the node prove to be one of this cluster.
func (c *cluster) identify(clusterID string) error {
	id := c.formerSelf()
	id.ClusterID = clusterID
	identity, err := c.credentials.Identity(id)
	if err != nil {
		return fmt.Errorf("kaja.cluster.secret: %w", err)
	}
	c.identity.Store(identity)
	return nil
}

// formerSelf is who the node is, without its cluster: the former's lock is held while it adopts one.
func (c *cluster) formerSelf() peer.ID {
	if i := c.identity.Load(); i != nil {
		return i.Self()
	}
	return c.former.Self().ID
}

// form waits until it is clear what the node does: found the cluster, with the voters of the plan, or join it.
func (c *cluster) form(ctx context.Context) (peer.Plan, error) {
	plan, err := c.former.Run(ctx)
	if err != nil {
		return plan, err
	}
	c.book.formedBy(plan.Addresses)
	return plan, nil
}

// connect makes what speaks to other nodes; the cluster id is known.
func (c *cluster) connect() {
	identity := c.identity.Load()
	c.streams = peer.NewStreams(peer.StreamsOptions{Identity: identity, Dial: c.dial, Resolve: c.book.addresses, Broken: c.broken})
	c.client = peerclient.New(peerclient.Options{
		Identity: identity, Dial: c.dial, Logger: c.logger, Resolve: c.resolve,
	})
	c.brokers = peerclient.New(peerclient.Options{
		Identity: identity, Dial: c.dial, Logger: c.logger, Resolve: func(node wire.BrokerID) (string, peer.ID, error) {
			return c.book.broker(node, c.interBroker)
		},
	})
}

// Accept implements server.Peers.
func (c *cluster) Accept(conn net.Conn) (peer.Kind, peer.ID, error) {
	return c.identity.Load().Accept(conn, func(kind peer.Kind, id peer.ID) error {
		if kind != peer.Raft {
			return nil
		}
		ctl := c.controller.Load()
		if ctl == nil {
			return fmt.Errorf("%w: the metadata log is not open", server.ErrNotReady)
		}
		return ctl.Admit(id)
	})
}

// Deliver implements server.Peers.
func (c *cluster) Deliver(conn net.Conn, kind peer.Kind, id peer.ID) {
	if kind == peer.Raft {
		c.streams.Deliver(conn, id) // a controller runs, or Accept had refused it
		return
	}
	defer conn.Close() //nolint:errcheck // the answer has left or has not
	stop := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer stop()
	if err := peer.AnswerCall(conn, func(q peer.Question) peer.Answer { return c.reply(q, id) }); err != nil {
		c.logger.Debug("a node's question was not answered", slog.Any("node", id), slog.Any("err", err))
	}
}

// reply answers a question of a node that has proven who it is.
func (c *cluster) reply(q peer.Question, by peer.ID) peer.Answer {
	a := c.former.Reply(q, by)
	ctl := c.controller.Load()
	switch {
	case ctl == nil:
	case q.Join != nil:
		c.admit(ctl, *q.Join, by, &a)
	case q.Status:
		s := ctl.Status()
		a.Applied, a.End = s.Applied, s.Offset+1
	case q.NextID && ctl.Leading():
		a.NextID = int32(c.given.next(ctl.Image(), c.identity.Load().Self().NodeID, time.Now()))
	case q.NextID:
		a.Leader = c.leaderAddress(ctl)
	}
	return a
}

// leaderAddress is where the node that leads the metadata accepts connections; "" where that is not known.
func (c *cluster) leaderAddress(ctl *raftctl.Controller) string {
	if leader, ok := ctl.Leader(); ok {
		if at := c.book.addresses(leader); len(at) > 0 {
			return at[0]
		}
	}
	return ""
}

// ask asks the node id, wherever it may be.
func (c *cluster) ask(ctx context.Context, id peer.ID, q peer.Question) (peer.Answer, error) {
	err := fmt.Errorf("nobody says where node %s is", id)
	for _, addr := range c.book.addresses(id) {
		var a peer.Answer
		if a, err = c.caller().Ask(ctx, addr, peer.Only(id), q); err == nil {
			return a, nil
		}
	}
	return peer.Answer{}, err
}

func (c *cluster) caller() peer.Caller {
	return peer.Caller{Identity: c.identity.Load(), Dial: c.dial}
}

// status is raftctl.Options.Status.
func (c *cluster) status(ctx context.Context, id peer.ID) (raftctl.NodeStatus, error) {
	a, err := c.ask(ctx, id, peer.Question{Status: true})
	return statusOf(a), err
}

// statusOf reads the answer to Status. Older releases leave End out, which is as much as knowing of no metadata.
func statusOf(a peer.Answer) raftctl.NodeStatus {
	return raftctl.NodeStatus{Applied: a.Applied, Offset: a.End - 1}
}

// reach is raftctl.Options.Reach.
func (c *cluster) reach(ctx context.Context, b *image.Broker) error {
	e, ok := b.Endpoint(c.interBroker)
	if !ok {
		return fmt.Errorf("broker %d has no listener %s", b.ID, c.interBroker)
	}
	conn, err := c.env.Dial(ctx, "tcp", config.HostPort{Host: e.Host, Port: int(e.Port)}.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// reachNode is raftctl.Options.ReachNode: refused means refused wherever the node may be.
func (c *cluster) reachNode(ctx context.Context, id peer.ID) error {
	err := fmt.Errorf("nobody says where node %s is", id)
	for _, at := range c.book.addresses(id) {
		conn, failed := c.env.Dial(ctx, "tcp", at)
		switch {
		case failed == nil:
			return conn.Close()
		case !errors.Is(failed, syscall.ECONNREFUSED):
			return failed
		}
		err = failed
	}
	return err
}

// broken is told of a node whose stream has ended.
func (c *cluster) broken(id peer.ID) {
	if ctl := c.controller.Load(); ctl != nil {
		ctl.SuspectLeader(id)
	}
}

// describe says for people how many nodes there are and what this one is among them.
func (c *cluster) describe(self peer.ID) string {
	members, err := c.controller.Load().Members()
	if err != nil {
		return ""
	}
	voters, role := 0, "this one follows"
	for _, m := range members {
		if !m.Voter {
			continue
		}
		voters++
		if m.ID == self {
			role = "this one votes"
		}
	}
	if len(members) == 1 {
		return "no other node yet; others join by `kaja node add`"
	}
	return fmt.Sprintf("%d nodes, %d of them vote; %s", len(members), voters, role)
}

// learn takes new metadata.
func (c *cluster) learn(img *image.Image) {
	if err := c.book.learn(img); err != nil {
		c.logger.Warn("the nodes' addresses were not written down: after a start without other nodes they may not be found", slog.Any("err", err))
	}
}

// drain ends what is being answered, and the joining.
func (c *cluster) drain() { c.cancel() }

// close ends the connections to other nodes, and joins the goroutines; the controller is closed by now.
func (c *cluster) close() error {
	c.cancel()
	c.wg.Wait()
	if c.client == nil {
		return nil
	}
	c.client.Close()
	c.brokers.Close()
	return c.streams.Close()
}
