package raftctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Member is one node that holds the metadata log.
type Member struct {
	ID    peer.ID // without the cluster id
	Voter bool
}

// ErrNotMember is why a proven node may not speak raft here: it has to be added first.
var ErrNotMember = errors.New("the node is not a member of the metadata quorum")

// followTick is how often a starting follower looks whether it has caught up.
const followTick = 5 * time.Millisecond

func (c *Controller) self() peer.ID {
	return peer.ID{ClusterID: c.opts.ClusterID, NodeID: c.opts.NodeID, DirectoryID: c.opts.DirectoryID}
}

// committedAt is told of every committed entry by raft's FSM goroutine.
func (c *Controller) committedAt(index, term uint64) {
	if c.opts.Streams != nil {
		c.pusher.committed(index, term)
	}
}

// Leader is the node that leads the metadata log, as far as this one knows; false while nobody does.
func (c *Controller) Leader() (peer.ID, bool) {
	_, id := c.raft.LeaderWithID()
	leader, err := peer.ParseID(string(id))
	return leader, err == nil
}

// Members are the nodes of the newest configuration that this node knows, committed or not.
func (c *Controller) Members() ([]Member, error) {
	f := c.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("read the members of the metadata log: %w", err)
	}
	var out []Member
	for _, s := range f.Configuration().Servers {
		id, err := peer.ParseID(string(s.ID))
		if err != nil {
			return nil, err
		}
		out = append(out, Member{ID: id, Voter: s.Suffrage == raft.Voter})
	}
	return out, nil
}

// sinceMajority is how long ago this node asked what a majority of the voters has answered as its followers. A node that neither leads nor
// has done so lately gets a long time.
func (c *Controller) sinceMajority() time.Duration {
	now := time.Now()
	members, err := c.Members()
	if err != nil {
		return now.Sub(time.Time{})
	}
	var others []wire.BrokerID
	for _, m := range members {
		if m.Voter && serverID(m.ID) != serverID(c.self()) {
			others = append(others, m.ID.NodeID)
		}
	}
	return now.Sub(c.inject.heard.majority(others, now))
}

// Admit says whether a node that has proven who it is may open a raft stream. Members may. To a node that is no member itself,
// because it has never been one or was taken out, every node may, since it waits to be added; and to one that knows of no
// leader, since it may have been away while the others changed: who leads now may be a node that it has never heard of. Raft's
// own rules hold for all of them. The only voter knows better, and nodes that a recovery has left behind speak to nobody.
func (c *Controller) Admit(id peer.ID) error {
	members, err := c.Members()
	if err != nil {
		return err
	}
	member, self := false, c.self()
	for _, m := range members {
		if m.ID.NodeID == id.NodeID && m.ID.DirectoryID == id.DirectoryID {
			return nil
		}
		member = member || m.ID.NodeID == self.NodeID && m.ID.DirectoryID == self.DirectoryID
	}
	_, led := c.Leader()
	n, known := c.committed().Node(id.NodeID, id.DirectoryID)
	if (!member || !led && !c.soleVoter()) && (!known || n.Port != 0) {
		return nil
	}
	return fmt.Errorf("node %s: %w", id, ErrNotMember)
}

// AddNode makes a node a non-voter: it gets the log and counts for nothing. A node whose directory was wiped comes as
// another one, whatever voice its old self has. Adding a member changes nothing. Errors are *Error.
func (c *Controller) AddNode(ctx context.Context, id peer.ID) error {
	members, err := c.Members()
	if err != nil {
		return errNotController()
	}
	for _, m := range members {
		if m.ID.NodeID == id.NodeID && m.ID.DirectoryID == id.DirectoryID {
			return nil
		}
		if m.ID.NodeID == id.NodeID && planted.On(planted.WipedVotes) {
			return c.Promote(ctx, id)
		}
	}
	return c.memberChange(ctx, c.raft.AddNonvoter(serverID(id), raft.ServerAddress(id.String()), 0, rpcTimeout))
}

// Promote gives a member a vote. Its caller has seen that the node has caught up. What the node was before its directory
// was wiped loses its place first: a node never has two votes. Errors are *Error.
func (c *Controller) Promote(ctx context.Context, id peer.ID) error {
	members, err := c.Members()
	if err != nil {
		return errNotController()
	}
	for _, m := range members {
		if m.ID.NodeID == id.NodeID && m.ID.DirectoryID != id.DirectoryID {
			if err := c.ForgetNode(ctx, m.ID); err != nil {
				return err
			}
		}
	}
	return c.memberChange(ctx, c.raft.AddVoter(serverID(id), raft.ServerAddress(id.String()), 0, rpcTimeout))
}

// RemoveNode takes a node out of the quorum. Errors are *Error.
func (c *Controller) RemoveNode(ctx context.Context, id peer.ID) error {
	return c.memberChange(ctx, c.raft.RemoveServer(serverID(id), 0, rpcTimeout))
}

// RegisterNode makes a node a member of the quorum and notes where it is and whether it may vote. Said again it changes
// nothing. Errors are *Error.
func (c *Controller) RegisterNode(ctx context.Context, n image.Node) error {
	err := c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		if old, ok := img.Node(n.ID, n.DirectoryID); ok && *old == n {
			return nil, nil
		}
		return []coordrec.MetadataRecord{n.Record()}, nil
	})
	if err != nil || c.opts.Streams == nil {
		return err
	}
	return c.AddNode(ctx, peer.ID{NodeID: n.ID, DirectoryID: n.DirectoryID})
}

// ForgetNode takes a node out of the quorum, and forgets where it was. Errors are *Error.
func (c *Controller) ForgetNode(ctx context.Context, id peer.ID) error {
	if err := c.RemoveNode(ctx, id); err != nil {
		return err
	}
	return c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		if _, ok := img.Node(id.NodeID, id.DirectoryID); !ok {
			return nil, nil
		}
		return []coordrec.MetadataRecord{&coordrec.NodeRemovedRecord{NodeID: id.NodeID, DirectoryID: id.DirectoryID}}, nil
	})
}

// removeMembers takes every directory of a node out of the quorum.
func (c *Controller) removeMembers(ctx context.Context, id wire.BrokerID) error {
	members, err := c.Members()
	if err != nil {
		return errUnknown("The members of the quorum cannot be read: " + err.Error())
	}
	for _, m := range members {
		if m.ID.NodeID == id {
			if err := c.ForgetNode(ctx, m.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// memberChange waits for a change of the members and puts its failure into words.
func (c *Controller) memberChange(ctx context.Context, f raft.IndexFuture) error {
	err := c.waitFuture(ctx, f)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return errNotController()
	}
	return errUnknown("The members of the quorum may not have been changed: " + err.Error())
}

// HandOver gives the metadata leadership, if this node has it, to another voter, so that the cluster does not wait for this
// node's silence: to the one that raft thinks is furthest, else, should that one not answer, to any. It waits for at most
// handOverTime. Without one that takes it this node goes on leading. A broker that stops calls it before it ceases to read
// heartbeats: a leader that reads none fences everybody. Not to be called after Close.
func (c *Controller) HandOver(ctx context.Context) {
	if c.raft == nil || c.opts.Streams == nil || c.raft.State() != raft.Leader {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	members, err := c.Members() // an error: nobody is asked by name
	others := slices.DeleteFunc(members, func(m Member) bool { return !m.Voter || serverID(m.ID) == serverID(c.self()) })
	if err == nil && len(others) == 0 {
		return
	}
	c.inject.handing.Store(true)
	defer c.inject.handing.Store(false)
	err = c.waitFuture(ctx, c.raft.LeadershipTransfer())
	for _, m := range others {
		if err == nil || ctx.Err() != nil || c.raft.State() != raft.Leader {
			break
		}
		id := serverID(m.ID)
		err = c.waitFuture(ctx, c.raft.LeadershipTransferToServer(id, raft.ServerAddress(id)))
	}
	if err != nil && c.raft.State() == raft.Leader {
		c.opts.Logger.Warn("the metadata leadership was not handed over", "err", err)
	}
}

// follow lets the publisher begin on a node that does not lead, once it has applied what its leader had committed.
func (c *Controller) follow() {
	ticker := time.NewTicker(followTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.ready:
			return
		case <-c.stop:
			return
		}
		if c.raft.State() == raft.Leader || c.raft.LastContact().IsZero() || c.committed().ControllerEpoch() == 0 {
			continue
		}
		if c.raft.AppliedIndex() >= c.raft.CommitIndex() {
			select {
			case c.live <- struct{}{}:
			default:
			}
		}
	}
}
