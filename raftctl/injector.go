package raftctl

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/internal/planted"
)

// injector is a raft transport that also takes requests of this node to itself, that waits for members that cannot be
// reached instead of having raft do so, and that neither leads nor stands while a disk hangs: raft's own loop waits for the
// disk then, and its heartbeats, which do not, would go on for as long as that takes.
type injector struct {
	*raft.NetworkTransport
	rpcs  chan raft.RPC
	raft  atomic.Pointer[raft.Raft] // nil until it runs
	self  raft.ServerID
	hangs func() bool
	heard contacts
	pulse pulse
	back  func() // called when a member answers that has not before, or that could not be reached; it must not block
	// silence is that of the node that leads the metadata.
	silence silence
	pledge  pledge
	// handing is set while this node hands its leadership over. raft then waits, without an end, until the member's sender
	// takes an order: a sender that waits here would take none.
	handing atomic.Bool
	// hurried is the last term for which this node has stood although the voters may have heard their leader a moment ago.
	hurried atomic.Uint64
}

// Waits between two tries to reach a member. raft itself would wait for up to ten seconds after a few failures, and a node
// that comes back so long for what it has missed.
const (
	firstReach = 10 * time.Millisecond
	lastReach  = 250 * time.Millisecond
)

var errDeposed = errors.New("the member knows a later leader")

var errDiskHangs = errors.New("a disk of this node hangs: it does not lead the metadata")

// fit is nil unless a disk hangs and another voter could lead. Followers that hear nothing elect one, and a leader that none of
// them answers steps down.
func (i *injector) fit() error {
	if i.hangs == nil || !i.hangs() || planted.On(planted.LeadsWithoutDisk) {
		return nil
	}
	if r := i.raft.Load(); r != nil && slices.ContainsFunc(r.GetConfiguration().Configuration().Servers, func(s raft.Server) bool {
		return s.Suffrage == raft.Voter && s.ID != i.self
	}) {
		return errDiskHangs
	}
	return nil
}

// SetHeartbeatHandler implements raft.Transport.
func (i *injector) SetHeartbeatHandler(handle func(raft.RPC)) {
	i.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if req, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
			i.silence.end(req.Term, time.Now())
			i.pledge.answer(rpc, req, handle)
			return
		}
		handle(rpc)
	})
}

// RequestPreVote implements raft.Transport.
func (i *injector) RequestPreVote(id raft.ServerID, target raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := i.fit(); err != nil {
		return err
	}
	return i.NetworkTransport.RequestPreVote(id, target, req, resp)
}

// RequestVote implements raft.Transport.
func (i *injector) RequestVote(id raft.ServerID, target raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	switch {
	case req.LeadershipTransfer:
		i.hurried.Store(req.Term)
	case i.pledge.binds(req.ID):
		return errPledged
	}
	if err := i.fit(); err != nil {
		return err
	}
	return i.NetworkTransport.RequestVote(id, target, req, resp)
}

// tell sends entries, once.
func (i *injector) tell(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := i.fit(); err != nil {
		return err
	}
	asked := time.Now()
	err := i.NetworkTransport.AppendEntries(id, target, req, resp)
	if err == nil && resp.Term == req.Term {
		if resp.Success {
			i.pledge.give([]byte(i.self), asked) // raft forgets at once that it led
		} else { // it lives, but goes on missing its leader as if it had not heard it
			asked = time.Time{}
		}
		i.heard.note(id, asked, time.Now())
	}
	return err
}

// AppendEntries implements raft.Transport. It fails when the leadership of the request's term, or the member, is gone; a
// heartbeat fails at once, since raft counts by them who is there.
func (i *injector) AppendEntries(id raft.ServerID, target raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if len(req.Entries) == 0 && req.PrevLogEntry == 0 && req.LeaderCommitIndex == 0 {
		i.pulse.begin(id, req.Term)
		if r := i.raft.Load(); r != nil && !ledIn(r, req.Term) {
			return raft.ErrNotLeader // since it has waited
		}
		err := i.tell(id, target, req, resp)
		if err == nil && resp.Term > req.Term {
			err = errDeposed // raft would take it for a sign that it leads
		}
		if i.pulse.end(id, req.Term, err == nil) {
			i.back()
		}
		return err
	}
	for wait := firstReach; ; wait = min(2*wait, lastReach) {
		err := i.tell(id, target, req, resp)
		if err == nil || i.handing.Load() || !i.reaches(id, req.Term) {
			return err
		}
		<-time.After(wait)
	}
}

// InstallSnapshot implements raft.Transport. The snapshot is read once, so it waits with it until the member can be reached.
func (i *injector) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	heartbeat := raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term, Leader: req.Leader} //nolint:staticcheck // old field, still read by the follower
	for wait := firstReach; ; wait = min(2*wait, lastReach) {
		err := i.tell(id, target, &heartbeat, &raft.AppendEntriesResponse{})
		if err == nil {
			return i.NetworkTransport.InstallSnapshot(id, target, req, resp, data)
		}
		if i.handing.Load() || !i.reaches(id, req.Term) {
			return err
		}
		<-time.After(wait)
	}
}

// reaches reports whether this node leads in term, and has the member id.
func (i *injector) reaches(id raft.ServerID, term uint64) bool {
	r := i.raft.Load()
	if r == nil || !ledIn(r, term) {
		return false
	}
	f := r.GetConfiguration()
	return f.Error() == nil && slices.ContainsFunc(f.Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// newInjector makes that of the member self; hangs reports whether a disk of this node hangs, nil that none ever does.
func newInjector(self raft.ServerID, t *raft.NetworkTransport, hangs func() bool) *injector {
	return &injector{NetworkTransport: t, rpcs: make(chan raft.RPC), self: self, hangs: hangs, back: func() {}}
}

// Consumer implements raft.Transport.
func (i *injector) Consumer() <-chan raft.RPC { return i.rpcs }

// run hands on what comes from the network, until stop is closed.
func (i *injector) run(stop <-chan struct{}) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case rpc := <-i.NetworkTransport.Consumer():
			select {
			case i.rpcs <- i.pledge.hold(rpc, &wg, stop):
			case <-stop:
				return
			}
		case <-stop:
			return
		}
	}
}

// stand makes this node stand for election at once, as a leader does that hands over to it: others vote although they
// have heard of a leader a moment ago.
func (i *injector) stand(ctx context.Context, self raft.ServerID) {
	answer := make(chan raft.RPCResponse, 1)
	addr := i.EncodePeer(self, raft.ServerAddress(self))
	rpc := raft.RPC{
		Command:  &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: addr}},
		RespChan: answer,
	}
	select {
	case i.rpcs <- rpc:
		select {
		case <-answer:
		case <-ctx.Done():
		}
	case <-ctx.Done():
	}
}
