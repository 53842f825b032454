package raftctl

import (
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
