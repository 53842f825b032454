package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// JoinID is the node.id for a node that joins a cluster and was given none: that of its directory, else the lowest that no
// node of the cluster has, which is kept for it for a while (givenIDs). It reads, and asks the nodes that the settings name
// for the one that leads, for joinIDTime at most. Why it waits goes to env.Logger.
func JoinID(ctx context.Context, env Env, cfg *config.Config) (wire.BrokerID, error) {
	meta, err := readMeta(env.FS, cfg.MetadataDir())
	if err != nil {
		return wire.NoBroker, err
	}
	if meta != nil {
		return meta.nodeID, nil
	}
	ctx, cancel := context.WithTimeout(ctx, joinIDTime)
	defer cancel()
	a, err := askLeader(ctx, env, cfg)
	if err == nil {
		return wire.BrokerID(a.NextID), nil
	}
	todo := "Check --join and --token, and that the node there runs and can be reached; or set node.id."
	if e, ok := errors.AsType[*leaderError](err); ok {
		todo = e.todo()
	}
	return wire.NoBroker, &StartError{What: "ask the cluster for a node.id", Err: err, Todo: todo}
}

// joinIDTime bounds the search for a node.id.
const joinIDTime = 30 * time.Second

// leaderError says why a cluster whose nodes answer has given no node.id.
type leaderError struct {
	at  string // where the others say that the leader is; "": they know of none
	err error  // why it does not answer; nil: it answers that it does not lead
}

func (e *leaderError) Error() string {
	switch {
	case e.at == "":
		return "nobody leads the metadata quorum"
	case e.err == nil:
		return fmt.Sprintf("the node at %s, which the others follow, does not lead yet", e.at)
	}
	return fmt.Sprintf("the node that leads does not answer: %v", e.err) // which names at
}

func (e *leaderError) Unwrap() error { return e.err }

func (e *leaderError) todo() string {
	if e.at == "" || e.err == nil {
		return "Start the cluster's controllers, of which more than half must run and reach each other."
	}
	return fmt.Sprintf("This machine must reach %s, as the node that leads advertises itself: correct advertised.listeners there, or the network.", e.at)
}

// askLeader asks for a node.id until the node that leads has answered, or no named node does: an election takes moments. When ctx
// has ended the error is what it has waited for last.
func askLeader(ctx context.Context, env Env, cfg *config.Config) (peer.Answer, error) {
	q := peer.Question{NextID: true}
	var last error
	for {
		a, err := askCluster(ctx, env, cfg, q)
		if err == nil && a.NextID == 0 {
			a, err = askNamed(ctx, env, cfg, a.Leader, q)
		}
		if err == nil {
			return a, nil
		}
		if ctx.Err() != nil { // err may be no more than that
			return peer.Answer{}, cmp.Or(last, err)
		}
		if _, ok := errors.AsType[*leaderError](err); !ok {
			return peer.Answer{}, err
		}
		if last == nil || last.Error() != err.Error() {
			env.Logger.Info("waiting for the cluster's controller, which gives a node.id", slog.Any("err", err))
		}
		last = err
		timer := time.NewTimer(joinRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return peer.Answer{}, last
		}
	}
}

// askNamed asks the node at leader, which another has named; the error is a *leaderError.
func askNamed(ctx context.Context, env Env, cfg *config.Config, leader string, q peer.Question) (peer.Answer, error) {
	if leader == "" {
		return peer.Answer{}, &leaderError{}
	}
	a, err := askAt(ctx, env, cfg, []string{leader}, q)
	if err != nil || a.NextID == 0 {
		return peer.Answer{}, &leaderError{at: leader, err: err}
	}
	return a, nil
}

// nobody is who a command is for the nodes that it asks: nobody's id.
var nobody = peer.ID{NodeID: wire.NoBroker}

// callerAs asks nodes as id, with the proof of the node that cfg describes.
func callerAs(env Env, cfg *config.Config, id peer.ID) (peer.Caller, error) {
	c, err := credentials(env, cfg)
	if err != nil {
		return peer.Caller{}, err
	}
	identity, err := c.Identity(id)
	if err != nil {
		return peer.Caller{}, fmt.Errorf("kaja.cluster.secret: %w", err)
	}
	return peer.Caller{Identity: identity, Dial: c.Dialer(env.Dial, env.Logger)}, nil
}

// askCluster asks the nodes that the settings name, in turn, as somebody of the cluster.
func askCluster(ctx context.Context, env Env, cfg *config.Config, q peer.Question) (peer.Answer, error) {
	hostname, _ := env.Hostname() // unknown: the node does not recognise its own address by it
	quorum, err := cfg.Quorum(hostname)
	if err != nil {
		return peer.Answer{}, err
	}
	return askAt(ctx, env, cfg, quorum.Listed, q)
}

// askAt asks the nodes at these addresses.
func askAt(ctx context.Context, env Env, cfg *config.Config, at []string, q peer.Question) (peer.Answer, error) {
	id := nobody
	id.ClusterID = cfg.String("kaja.cluster.id")
	caller, err := callerAs(env, cfg, id)
	if err != nil {
		return peer.Answer{}, err
	}
	errs := []error{}
	for _, addr := range at {
		a, err := caller.Ask(ctx, addr, peer.Anybody, q)
		if err == nil {
			return a, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no node is named"))
	}
	return peer.Answer{}, errors.Join(errs...)
}

// JoinToken gives where the node that cfg describes takes other nodes, and the id of its cluster. The node must run. An
// error that the operator can do something about is a *StartError, which says what to set first.
func JoinToken(ctx context.Context, env Env, cfg *config.Config) (addr, clusterID string, err error) {
	const what = "make a token"
	l, err := cfg.PeerListener()
	if err != nil {
		return "", "", err
	}
	alone := l.Advertised == nil && loopback(l.Host)
	if !cfg.ProvesNodes() || alone {
		why := "this node has no secret that other nodes could share"
		if cfg.ProvesNodes() {
			why = fmt.Sprintf("other machines cannot reach this node, which listens on %s only", l.Host)
		}
		return "", "", &StartError{What: what, Err: errors.New(why), Todo: "Set this first, and start the node again:" + tokenSettings(cfg, alone)}
	}
	meta, err := readMeta(env.FS, cfg.MetadataDir())
	if err != nil {
		return "", "", err
	}
	if meta == nil || meta.clusterID == "" {
		return "", "", &StartError{What: what, Err: fmt.Errorf("%s belongs to no cluster yet", cfg.MetadataDir()), Todo: "Start the node first, and name its settings by --config and --set as at its start."}
	}
	at := config.HostPort{Host: l.Host, Port: l.Port}
	switch {
	case l.Advertised != nil:
		at = *l.Advertised
	case l.Wildcard():
		if at.Host, err = env.Hostname(); err != nil {
			return "", "", fmt.Errorf("find out the name of this machine: %w", err)
		}
	}
	id := nobody
	id.ClusterID = meta.clusterID
	caller, err := callerAs(env, cfg, id)
	if err != nil {
		return "", "", err
	}
	expect := peer.Only(peer.ID{NodeID: meta.nodeID, DirectoryID: meta.directoryID})
	if _, err := caller.Ask(ctx, at.String(), expect, peer.Question{}); err != nil {
		return "", "", &StartError{What: what, Err: fmt.Errorf("this node does not answer at %s: %w", at, err),
			Todo: "Start it; if it runs, advertised.listeners must name an address of " + l.Name + " that other machines reach."}
	}
	return at.String(), meta.clusterID, nil
}

// tokenSettings are the lines that a node needs so that others can join it.
func tokenSettings(cfg *config.Config, alone bool) string {
	out := ""
	if !cfg.ProvesNodes() {
		out += "\n        kaja.cluster.secret=" + newSecret(newIDs(0))
	}
	if !alone {
		return out
	}
	if !cfg.NodeTLS() {
		return out + "\n        listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n        controller.listener.names=CONTROLLER"
	}
	listeners, _ := cfg.Listeners() // Load has checked them
	for i, l := range listeners {
		out += map[bool]string{true: "\n        listeners=", false: ","}[i == 0] + config.Listener{Name: l.Name, Port: l.Port}.String()
	}
	return out
}
