package raftctl

import (
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A vote that raft gives after this node has said yes to a heartbeat does not go out, for the time of an election; but to the node that
// sent the heartbeat, and to one that it hands over to.
func TestPledge(t *testing.T) {
	header := func(id string) raft.RPCHeader { return raft.RPCHeader{ID: []byte(id)} }
	synctest.Test(t, func(t *testing.T) {
		var p pledge
		var wg sync.WaitGroup
		stop := make(chan struct{})
		beat := func(leader string, success bool) {
			t.Helper()
			answer := make(chan raft.RPCResponse, 1)
			p.answer(raft.RPC{RespChan: answer}, &raft.AppendEntriesRequest{RPCHeader: header(leader)}, func(rpc raft.RPC) {
				rpc.Respond(&raft.AppendEntriesResponse{Success: success}, nil)
			})
			if got := (<-answer).Response.(*raft.AppendEntriesResponse); got.Success != success {
				t.Errorf("the answer to a heartbeat has become %v", got.Success)
			}
		}
		vote := func(what, candidate string, transfer, granted, want bool) {
			t.Helper()
			answer := make(chan raft.RPCResponse, 1)
			rpc := p.hold(raft.RPC{Command: &raft.RequestVoteRequest{RPCHeader: header(candidate), LeadershipTransfer: transfer}, RespChan: answer}, &wg, stop)
			rpc.Respond(&raft.RequestVoteResponse{Granted: granted}, nil)
			if got := (<-answer).Response.(*raft.RequestVoteResponse); got.Granted != want {
				t.Errorf("%s: granted %v, want %v", what, got.Granted, want)
			}
		}
		vote("before any heartbeat", "b", false, true, true)
		beat("a", false)
		vote("after a refused heartbeat", "b", false, true, true)
		beat("a", true)
		vote("at once", "b", false, true, false)
		vote("refused anyhow", "b", false, false, false)
		vote("the leader itself, restarted", "a", false, true, true)
		vote("handed over", "b", true, true, true)
		if !p.binds([]byte("c")) || p.binds([]byte("a")) {
			t.Error("this node would stand against the leader that it has heard, or not after itself")
		}
		<-time.After(electionTimeout - time.Millisecond)
		beat("a", false)
		vote("just before the time of an election", "b", false, true, false)
		<-time.After(time.Millisecond)
		vote("after the time of an election", "b", false, true, true)

		// A handler that does not answer, since raft ends.
		p.answer(raft.RPC{RespChan: make(chan raft.RPCResponse)}, &raft.AppendEntriesRequest{RPCHeader: header("a")}, func(raft.RPC) {})
		// A request that raft never answers ends with the node.
		p.hold(raft.RPC{Command: &raft.RequestVoteRequest{RPCHeader: header("b")}}, &wg, stop)
		close(stop)
		wg.Wait()
	})
}

// A vote waits for the heartbeat that is being answered.
func TestPledgeOfAHeartbeatUnderWay(t *testing.T) {
	var p pledge
	begun, end, bound := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	go p.answer(raft.RPC{RespChan: make(chan raft.RPCResponse, 1)}, &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ID: []byte("a")}}, func(rpc raft.RPC) {
		close(begun)
		<-end
		rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
	})
	<-begun
	go func() { bound <- p.binds([]byte("b")) }()
	for len(bound) == 0 && p.answering.TryRLock() { // until the vote waits
		p.answering.RUnlock()
		runtime.Gosched()
	}
	close(end)
	if !<-bound {
		t.Error("a heartbeat that is being answered does not bind")
	}
}

// Entries that this node takes bind it as a heartbeat does: its leader counts on both. Raft forgets its leader when it is told of an
// election by one that the leader hands over to, also if it refuses its vote.
func TestPledgeOfEntries(t *testing.T) {
	here, there := plainTransport(t), plainTransport(t)
	i := newInjector("self", here, nil)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		i.run(stop)
	}()
	defer func() {
		close(stop)
		<-ended
	}()
	cfg, store, snapshots := raft.DefaultConfig(), raft.NewInmemStore(), raft.NewInmemSnapshotStore()
	cfg.LocalID, cfg.LogOutput = "self", io.Discard
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = time.Minute, time.Minute, time.Minute // it stands by itself for nothing
	var members raft.Configuration
	for _, id := range []raft.ServerID{"self", "leader", "heir", "other"} {
		members.Servers = append(members.Servers, raft.Server{ID: id, Address: raft.ServerAddress(id)})
	}
	if err := raft.BootstrapCluster(cfg, store, store, snapshots, i, members); err != nil {
		t.Fatal(err)
	}
	r, err := raft.NewRaft(cfg, &raft.MockFSM{}, store, store, snapshots, i)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Shutdown().Error(); err != nil {
			t.Error(err)
		}
	}()
	header := func(id string) raft.RPCHeader {
		return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(id), Addr: []byte(id)}
	}
	entries := func(req *raft.AppendEntriesRequest) {
		t.Helper()
		var resp raft.AppendEntriesResponse
		if err := there.AppendEntries("self", here.LocalAddr(), req, &resp); err != nil || !resp.Success {
			t.Fatalf("entries are not taken: %v, %v", resp, err)
		}
	}
	vote := func(req *raft.RequestVoteRequest) bool {
		t.Helper()
		var resp raft.RequestVoteResponse
		if err := there.RequestVote("self", here.LocalAddr(), req, &resp); err != nil {
			t.Fatal(err)
		}
		return resp.Granted
	}
	entries(&raft.AppendEntriesRequest{RPCHeader: header("leader"), Term: 2})
	<-time.After(electionTimeout)
	heard := time.Now()
	entries(&raft.AppendEntriesRequest{RPCHeader: header("leader"), Term: 2, PrevLogEntry: 1, PrevLogTerm: 1, Entries: []*raft.Log{{Index: 2, Term: 2, Type: raft.LogNoop}}})
	if vote(&raft.RequestVoteRequest{RPCHeader: header("heir"), Term: 3, LastLogIndex: 1, LastLogTerm: 1, LeadershipTransfer: true}) {
		t.Fatal("a node without the newest entry is voted for")
	}
	if vote(&raft.RequestVoteRequest{RPCHeader: header("other"), Term: 4, LastLogIndex: 2, LastLogTerm: 2}) {
		t.Errorf("another node is voted for %v after the leader was heard", time.Since(heard))
	}
	<-time.After(electionTimeout)
	if !vote(&raft.RequestVoteRequest{RPCHeader: header("other"), Term: 5, LastLogIndex: 2, LastLogTerm: 2}) {
		t.Error("nobody is voted for after the time of an election")
	}
}
