package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/peer"
)

// How the node comes up among others.

// secretError refuses a node of several without a secret. The line that it shows fits where the node was told of the others.
func secretError(ids *ids, cfg *config.Config) *StartError {
	where, name := "configuration", "kaja.cluster.secret"
	for _, told := range []string{"controller.quorum.voters", "controller.quorum.bootstrap.servers"} {
		if kind := cfg.Origin(told).Kind; kind == config.FromKafkaEnv || kind == config.FromKajaEnv {
			where, name = "environment", "KAJA_CLUSTER_SECRET"
		}
	}
	return &StartError{
		What: "start one of several nodes", Err: errors.New("nodes prove to each other that they share a secret, and kaja.cluster.secret is not set"),
		Todo: "Add this line to the " + where + " of every node, the same on all of them: " + name + "=" + newSecret(ids) + "\n      Or let nodes prove themselves by certificates: docs/cluster.md, \"Mutual TLS\".",
	}
}

// newSecret draws a cluster secret.
func newSecret(ids *ids) string { return ids.uuid().String() + ids.uuid().String() }

// serverListeners says what to bind, and where other nodes connect.
func (b *Broker) serverListeners(listeners []config.Listener) []server.Listener {
	out := serverListeners(listeners)
	for i, l := range listeners {
		out[i].Early = l.Controller
		if l.Protocol == config.SSL {
			out[i].TLS = b.credentials.TLS
		}
		out[i].Peers = l.Controller || l.Name == b.cfg.InterBrokerListener()
	}
	return out
}

// serverPeers takes the connections of other nodes; nil for a node that is alone for good.
func (b *Broker) serverPeers() server.Peers {
	if !b.cfg.ProvesNodes() {
		return nil
	}
	return lateCluster{b}
}

// lateCluster is the node's cluster, which is there before connections are accepted.
type lateCluster struct{ b *Broker }

// Accept implements server.Peers.
func (l lateCluster) Accept(conn net.Conn) (peer.Kind, peer.ID, error) {
	return l.b.cluster.Accept(conn)
}

// Deliver implements server.Peers.
func (l lateCluster) Deliver(conn net.Conn, kind peer.Kind, id peer.ID) {
	l.b.cluster.Deliver(conn, kind, id)
}

// openCluster opens the node to others, if it can prove to them that it is one of theirs.
func (b *Broker) openCluster() error {
	if !b.cfg.ProvesNodes() && !b.identity.Formed {
		return nil
	}
	founded, err := raftctl.Founded(b.env.FS, b.identity.RaftDir(), b.identity.ClusterID, b.logger)
	if err != nil {
		return b.metadataError(err)
	}
	if b.quorum.Alone && !founded && b.identity.Formed && b.identity.ClusterID != "" && b.identity.Founder != b.peerID().String() {
		return &StartError{
			What: "start a cluster of one node in " + b.identity.Metadata.Path,
			Err:  fmt.Errorf("the directory belongs to cluster %s, of several nodes, and holds no metadata yet", b.identity.ClusterID),
			Todo: "Name the other nodes in controller.quorum.bootstrap.servers or controller.quorum.voters, as before.",
		}
	}
	if !b.cfg.ProvesNodes() {
		return nil
	}
	at, err := b.peerAddress()
	if err != nil {
		return err
	}
	b.warnOfName(at.Host)
	b.cluster, err = newCluster(clusterOptions{
		Env: b.env, Logger: b.logger, Config: b.cfg, Credentials: b.credentials, Quorum: b.quorum, Identity: b.identity, Founded: founded || b.quorum.Alone,
		NewCluster: func() string { return b.ids.uuid().String() }, At: at, InterBroker: b.cfg.InterBrokerListener(),
	})
	if err != nil {
		return err
	}
	return b.server.AcceptNodes()
}

// peerID is who this node is, without its cluster.
func (b *Broker) peerID() peer.ID {
	return peer.ID{NodeID: b.nodeID(), DirectoryID: b.identity.Metadata.ID}
}

// peerAddress is where other nodes connect.
func (b *Broker) peerAddress() (peer.Joining, error) {
	l, err := b.cfg.PeerListener()
	if err != nil {
		return peer.Joining{}, err
	}
	if target := b.farAway(); target != "" && l.Advertised == nil && loopback(l.Host) {
		return peer.Joining{}, &StartError{
			What: "be one of several nodes", Err: fmt.Errorf("the node at %s cannot reach this one, which listens on %s only", target, l.Host),
			Todo: "Listen where other nodes reach it, for example with --set listeners=" + l.Name + "://:" + strconv.Itoa(l.Port) + ".",
		}
	}
	at := peer.Joining{Host: l.Host, Port: uint16(b.addresses.port(l)), Controller: b.cfg.Controller()}
	switch {
	case l.Advertised != nil:
		at.Host, at.Port = l.Advertised.Host, uint16(l.Advertised.Port)
	case l.Wildcard():
		if at.Host, err = b.env.Hostname(); err != nil {
			return at, fmt.Errorf("find out the name of this machine: %w", err)
		}
	}
	return at, nil
}

// farAway is the first named address of a node on another machine; "" for none.
func (b *Broker) farAway() string {
	for _, at := range b.quorum.Listed {
		if host, _, err := net.SplitHostPort(at); err == nil && !loopback(host) {
			return at
		}
	}
	return ""
}

// loopback reports whether a host is this machine alone.
func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// startController opens the metadata: of a node alone at once, of one of several when it has founded or joined a cluster.
func (b *Broker) startController(ctx context.Context, o raftctl.Options) (*raftctl.Controller, error) {
	if b.cluster == nil {
		c, err := raftctl.Open(ctx, o)
		if errors.Is(err, raftctl.ErrNeedsPeers) {
			return nil, b.needsSecret(err)
		}
		b.health.Store(c)
		return c, err
	}
	if !b.cluster.former.Self().Founded {
		plan, err := b.cluster.form(ctx)
		if err != nil {
			return nil, formError(ctx, err)
		}
		if o.Join = plan.Step == peer.Join; !o.Join {
			o.Founders = raftctl.TargetVoters(plan.Founders)
		}
		o.ClusterID = plan.ClusterID
	} else {
		o.Join = b.identity.Formed && b.identity.Founder != b.peerID().String() // its store may hold a vote and no member yet
	}
	b.cluster.connect()
	o.Streams, o.Status = b.cluster.streams, b.cluster.status
	o.Reach, o.ReachNode = b.cluster.reach, b.cluster.reachNode
	o.SessionTimeout = b.cfg.Duration("broker.session.timeout.ms")
	c, err := raftctl.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	b.health.Store(c)
	b.cluster.controller.Store(c)
	if err := b.awaitCluster(ctx, c); err != nil {
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), joinCloseTime)
		defer cancel()
		return nil, errors.Join(err, c.Close(closeCtx))
	}
	b.cluster.former.Joined()
	return c, nil
}

// joinCloseTime bounds the end of a controller that has not come up.
const joinCloseTime = 10 * time.Second

// awaitCluster joins, and waits until the metadata are here.
func (b *Broker) awaitCluster(ctx context.Context, c *raftctl.Controller) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	b.cluster.wg.Go(func() {
		err := b.cluster.join(b.cluster.ctx)
		if refusal, ok := errors.AsType[*peer.Refusal](err); ok {
			b.logger.Error("the cluster does not take this node", slog.Any("err", refusal))
			stop(refusal)
		}
	})
	err := c.Await(waiting)
	if refusal, ok := errors.AsType[*peer.Refusal](context.Cause(waiting)); ok && err != nil {
		return &StartError{What: fmt.Sprintf("join cluster %s", b.identity.ClusterID), Err: refusal, Todo: "Correct the setting that it names, then start again."}
	}
	return err
}

// lanes are the ways to other nodes; nil for a node alone.
func (b *Broker) lanes() *control.Lanes {
	if b.cluster == nil {
		return nil
	}
	c := b.cluster.client
	return &control.Lanes{Beats: c.Conn("heartbeats"), ISR: c.Conn("isr"), Asked: c.Conn("asked"), Other: c}
}

// needsSecret explains that the metadata belong to several nodes.
func (b *Broker) needsSecret(err error) *StartError {
	return &StartError{
		What: "open the metadata in " + b.identity.RaftDir(), Err: err,
		Todo: "Set kaja.cluster.secret to that of the other nodes, or the ssl.* settings and listeners that they have.",
	}
}

// formError explains why no cluster has come about.
func formError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &StartError{What: "form a cluster", Err: err, Todo: "Nothing was begun. Correct node.id, log.dirs or the list of controllers, then start again."}
}
