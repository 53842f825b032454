package raftctl

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pledge is the last heartbeat, or entries, to which this node has said yes. The node that sent it counts on it that nobody else is
// elected with this one's vote for the time of an election (beforeSuccession). Raft's own rule is nearly that, but it answers heartbeats
// beside its loop: also while that is about to vote, and syncs the term that it votes in. And it forgets its leader at once when it is
// told to stand, or of an election in which the leader hands over, whatever comes of it. So what raft has decided of a vote is held
// against the pledge before it goes out. A vote that does not is lost, as one on the way may be. Who leads is bound by the word that it is
// given, to itself: raft votes for another node as soon as it has stepped down. Safe for concurrent use.
type pledge struct {
	answering sync.RWMutex // read-locked while a heartbeat is answered
	// counted is closed when the answer counts to what hold was last given; nil before. It is of hold's caller.
	counted <-chan struct{}

	mu     sync.Mutex
	leader []byte    // as raft's header has it
	at     time.Time // when the heartbeat came
}

var errPledged = errors.New("this node has just heard its leader: it does not stand against it")

// answer has handle answer a heartbeat. handle answers before it returns, or never.
func (p *pledge) answer(rpc raft.RPC, req *raft.AppendEntriesRequest, handle func(raft.RPC)) {
	came, answer := time.Now(), make(chan raft.RPCResponse, 1)
	p.answering.RLock()
	defer p.answering.RUnlock()
	handle(raft.RPC{Command: rpc.Command, Reader: rpc.Reader, RespChan: answer})
	select {
	case r := <-answer:
		if resp, ok := r.Response.(*raft.AppendEntriesResponse); ok && resp.Success {
			p.give(req.ID, came)
		}
		rpc.Respond(r.Response, r.Error)
	default:
	}
}

func (p *pledge) give(leader []byte, came time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if came.After(p.at) {
		p.leader, p.at = leader, came
	}
}

// binds reports whether another node than candidate counts on this one.
func (p *pledge) binds(candidate []byte) bool {
	p.answering.Lock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answering.Unlock()
	return !p.at.IsZero() && time.Since(p.at) < electionTimeout && !slices.Equal(p.leader, candidate)
}

// hold gives a request as raft is to get it, which answers those of its loop in the order in which it gets them. A vote goes out
// unless the pledge has to be kept. The goroutine that sees to that ends with the answer, or when stop is closed. Not for concurrent use.
func (p *pledge) hold(rpc raft.RPC, wg *sync.WaitGroup, stop <-chan struct{}) raft.RPC {
	var count func(r raft.RPCResponse)
	came := time.Now()
	switch req := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		count = func(r raft.RPCResponse) {
			if resp, ok := r.Response.(*raft.AppendEntriesResponse); ok && resp.Success {
				p.give(req.ID, came)
			}
		}
	case *raft.RequestVoteRequest:
		if req.LeadershipTransfer { // then the leader has said so itself, or is dead
			return rpc
		}
		count = func(r raft.RPCResponse) {
			if resp, ok := r.Response.(*raft.RequestVoteResponse); ok && resp.Granted && p.binds(req.ID) {
				resp.Granted = false
			}
		}
	default:
		return rpc
	}
	answer, before, counted := make(chan raft.RPCResponse, 1), p.counted, make(chan struct{})
	p.counted = counted
	wg.Go(func() {
		defer close(counted)
		select {
		case r := <-answer:
			if before != nil {
				<-before
			}
			count(r)
			rpc.Respond(r.Response, r.Error)
		case <-stop:
		}
	})
	return raft.RPC{Command: rpc.Command, Reader: rpc.Reader, RespChan: answer}
}
