package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// resolve is peerclient.Options.Resolve.
func (c *cluster) resolve(node wire.BrokerID) (string, peer.ID, error) {
	return c.book.resolve(node, c.interBroker)
}

// admit makes a node a member if this one leads, else it says who does. A node that runs already under the same id, on
// another disk, keeps the id: two processes with one id would take each other's place again and again.
func (c *cluster) admit(ctl *raftctl.Controller, j peer.Joining, by peer.ID, a *peer.Answer) {
	if !ctl.Leading() {
		a.Leader = c.leaderAddress(ctl)
		return
	}
	if n, ok := ctl.Image().Node(by.NodeID, by.DirectoryID); ok && n.Port == 0 {
		a.Refused = leftBehind(by)
		return
	}
	members, err := ctl.Members()
	if err != nil {
		return
	}
	member := false
	for _, m := range members {
		member = member || m.ID.NodeID == by.NodeID && m.ID.DirectoryID == by.DirectoryID
		if m.ID.NodeID != by.NodeID || m.ID.DirectoryID == by.DirectoryID {
			continue
		}
		if _, err := c.ask(c.ctx, m.ID, peer.Question{}); err == nil {
			a.Refused = fmt.Sprintf("the node %s is there, and has node.id %d too: give this one another node.id", m.ID, by.NodeID)
			return
		}
	}
	if !member && ctl.LeftBehind(j.LastTerm) {
		a.Refused = leftBehind(by)
		return
	}
	if err := ctl.RegisterNode(c.ctx, nodeOf(by, j)); err != nil {
		c.logger.Info("a node could not join yet", slog.Any("node", by), slog.Any("err", err))
		return
	}
	a.Joined = true
}

func leftBehind(node peer.ID) string {
	return fmt.Sprintf("the quorum was recovered by force without node %s, whose metadata may differ: empty its log.dirs, so that it joins as a new node", node)
}

func nodeOf(id peer.ID, j peer.Joining) image.Node {
	return image.Node{ID: id.NodeID, DirectoryID: id.DirectoryID, Host: j.Host, Port: j.Port, Controller: j.Controller}
}

// whomToAsk is every address that is known, once; first that of the leader, unless it is "".
func (c *cluster) whomToAsk(leader string) []string {
	targets := append(slices.Clone(c.quorum.Listed), c.book.everybody()...)
	slices.Sort(targets)
	targets = slices.Compact(targets)
	if leader == "" {
		return targets
	}
	return append([]string{leader}, slices.DeleteFunc(targets, func(at string) bool { return at == leader })...)
}

// join tells the cluster where this node is, which makes it a member if it is none, and returns when the leader has
// noted it. The error is a *peer.Refusal or that of ctx.
func (c *cluster) join(ctx context.Context) error {
	ctl := c.controller.Load()
	self := c.identity.Load().Self()
	at := c.at
	leader, said, redirected := "", "", false
	for {
		err := errors.New("no node of the cluster is known")
		if ctl.Leading() {
			if err = ctl.RegisterNode(ctx, nodeOf(self, at)); err == nil {
				return nil
			}
		}
		targets := c.whomToAsk(leader)
		leader = ""
		if term, unread := ctl.LastTerm(); unread == nil {
			at.LastTerm = term
		} else {
			err, targets = fmt.Errorf("read the metadata log: %w", unread), nil
		}
		for _, addr := range targets {
			var a peer.Answer
			a, err = c.caller().Ask(ctx, addr, peer.Anybody, peer.Question{Join: &at})
			if refusal, ok := errors.AsType[*peer.Refusal](err); ok {
				return refusal
			}
			if err == nil && a.Joined {
				return nil
			}
			if err == nil && a.Leader != "" {
				leader = a.Leader
				break
			}
		}
		if redirected = leader != "" && !redirected; redirected {
			continue
		}
		if leader == "" {
			if err == nil {
				err = errors.New("nobody leads the metadata quorum")
			}
			if why := err.Error(); why != said && ctx.Err() == nil {
				said = why
				c.logger.Info("waiting for the cluster's controller", slog.Any("asked", targets), slog.Any("err", err))
			}
		}
		t := time.NewTimer(joinRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("join the cluster: %w", ctx.Err())
		}
	}
}
