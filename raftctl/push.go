package raftctl

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// pusher tells peers at once what has been committed. By itself raft says so with its next entries, or commitTimeout
// later, and so long every other node would answer from an older image.
//
// What it sends is an ordinary AppendEntries without entries, whose previous entry and commit index are both the
// committed entry, in the term of that entry, which this node has led: true for ever, so that it may arrive late, twice
// or not at all. A peer that lacks the entry refuses it without effect.
type pusher struct {
	self      raft.ServerID
	transport *injector

	mu    sync.Mutex
	index uint64
	term  uint64
	wake  chan struct{} // holds one
}

func newPusher(self raft.ServerID, t *injector) *pusher {
	return &pusher{self: self, transport: t, wake: make(chan struct{}, 1)}
}

// committed notes an entry; the newest counts.
func (p *pusher) committed(index, term uint64) {
	p.mu.Lock()
	p.index, p.term = index, term
	p.mu.Unlock()
	p.again()
}

// again has every peer told of the newest entry: one that is back may have missed it, or have forgotten that it is committed.
func (p *pusher) again() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pusher) newest() (index, term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.index, p.term
}

// run is the pusher's goroutine; it joins those that speak to the peers, one each, which end with the leadership, too.
func (p *pusher) run(r *raft.Raft, stop <-chan struct{}) {
	var wg sync.WaitGroup
	defer wg.Wait()
	peers := map[raft.ServerID]chan raft.AppendEntriesRequest{}
	defer func() {
		for _, ch := range peers {
			close(ch)
		}
	}()
	for {
		select {
		case <-p.wake:
		case <-stop:
			return
		}
		index, term := p.newest()
		if !ledIn(r, term) {
			continue
		}
		f := r.GetConfiguration()
		if f.Error() != nil {
			continue
		}
		present := map[raft.ServerID]bool{}
		for _, s := range f.Configuration().Servers {
			if s.ID == p.self {
				continue
			}
			present[s.ID] = true
			ch, ok := peers[s.ID]
			if !ok {
				ch = make(chan raft.AppendEntriesRequest, 1)
				peers[s.ID] = ch
				wg.Go(func() { p.tell(s.ID, ch) })
			}
			select { // a newer one replaces what the peer has not been told
			case <-ch:
			default:
			}
			ch <- p.request(index, term)
		}
		for id, ch := range peers {
			if !present[id] {
				close(ch)
				delete(peers, id)
			}
		}
	}
}

// ledIn reports whether this node leads in term. Terms only grow: a leader seen between two equal readings led in it.
func ledIn(r *raft.Raft, term uint64) bool {
	return r.CurrentTerm() == term && r.State() == raft.Leader && r.CurrentTerm() == term
}

func (p *pusher) request(index, term uint64) raft.AppendEntriesRequest {
	self := p.transport.EncodePeer(p.self, raft.ServerAddress(p.self))
	return raft.AppendEntriesRequest{
		RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(p.self), Addr: self},
		Term:      term, PrevLogEntry: index, PrevLogTerm: term, LeaderCommitIndex: index,
		Leader: self, //nolint:staticcheck // old field, still read by the follower
	}
}

// Waits between tries to tell a peer that lacks the entry, as the first commit of a majority may come before the entry itself has
// reached the slower peers, or that cannot be reached.
const (
	firstRetry = 500 * time.Microsecond
	lastRetry  = 256 * time.Millisecond
	retriesFor = 2 * commitTimeout // raft has told it by then
)

// tell sends what comes by ch to one peer, until ch is closed. A peer that cannot be told learns it from raft.
func (p *pusher) tell(id raft.ServerID, ch <-chan raft.AppendEntriesRequest) {
	for req, open := <-ch; open; {
		began, wait := time.Now(), firstRetry
		for !p.told(id, &req) && time.Since(began) < retriesFor {
			timer := time.NewTimer(wait)
			select {
			case req, open = <-ch:
				timer.Stop()
				if !open {
					return
				}
				began = time.Now()
			case <-timer.C:
			}
			wait = min(2*wait, lastRetry)
		}
		req, open = <-ch
	}
}

// told asks the peer once; false if it may learn what it lacks soon.
func (p *pusher) told(id raft.ServerID, req *raft.AppendEntriesRequest) bool {
	var resp raft.AppendEntriesResponse
	err := p.transport.tell(id, raft.ServerAddress(id), req, &resp)
	return err == nil && (resp.Success || resp.Term != req.Term)
}
