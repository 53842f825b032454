package raftctl

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// beatMost is the longest that raft waits by itself from a heartbeat's answer to the next: it draws one to two tenths of its heartbeat
// timeout. The millisecond is what a timer may be late on a machine at rest.
const beatMost = (electionTimeout+time.Millisecond)/10*2 + time.Millisecond

// pulse is the heartbeats of a leadership. raft draws their times for each peer by itself; here they leave together, since the wakes
// are most of what an idle controller costs, and none leaves later than raft may let it. And because the next one is due by a known
// time, they tell for how long this process did not run. Safe for concurrent use.
type pulse struct {
	mu    sync.Mutex
	term  uint64
	peers map[raft.ServerID]*pulsePeer
	leave chan struct{} // closed when those who wait go
	seen  time.Time     // up to when late has been counted
	late  time.Duration // not taken yet
}

type pulsePeer struct {
	answered time.Time // when the last heartbeat was; zero while one is under way and after one that failed
	waiting  bool
	there    bool // the last one that has ended was answered
	overdue  bool // the next one is, and that was counted
}

// due is when raft calls for the next heartbeat at the latest; false if that is not known.
func (p *pulsePeer) due() (time.Time, bool) { return p.answered.Add(beatMost), !p.answered.IsZero() }

// begin is called when raft wants a heartbeat sent, and returns when it shall leave: with those of the other peers that are due before
// this one has to.
func (u *pulse) begin(id raft.ServerID, term uint64) {
	u.mu.Lock()
	if u.term != term || u.peers == nil {
		if u.leave != nil {
			close(u.leave)
		}
		u.term, u.peers, u.leave = term, map[raft.ServerID]*pulsePeer{}, make(chan struct{})
	}
	p := u.peers[id]
	if p == nil {
		p = &pulsePeer{}
		u.peers[id] = p
	}
	now := time.Now()
	u.countLocked(now)
	due, known := p.due()
	if known && now.Before(due) && u.expectsLocked(p, now) {
		p.waiting = true
		leave := u.leave
		u.mu.Unlock()
		timer := time.NewTimer(due.Sub(now))
		select {
		case <-leave:
			timer.Stop()
		case <-timer.C:
		}
		u.mu.Lock()
	} else {
		close(u.leave)
		u.leave = make(chan struct{})
	}
	p.waiting, p.overdue, p.answered = false, false, time.Time{}
	u.mu.Unlock()
}

// expectsLocked reports whether another peer's heartbeat is about to be wanted.
func (u *pulse) expectsLocked(p *pulsePeer, now time.Time) bool {
	for _, other := range u.peers {
		if due, known := other.due(); other != p && known && !other.waiting && now.Before(due) {
			return true
		}
	}
	return false
}

// end is called when a heartbeat was answered, or has failed. It reports whether this is the first that the peer has answered in this
// leadership, or since one failed: the peer is back.
func (u *pulse) end(id raft.ServerID, term uint64, answered bool) (back bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.peers[id]
	if p == nil || u.term != term {
		return false
	}
	if answered {
		p.answered = time.Now()
	}
	back = answered && !p.there
	p.there = answered
	return back
}

// countLocked adds what is overdue now, and was not counted before, to late. A heartbeat counts once: that of a peer that is no member
// any more does not come.
func (u *pulse) countLocked(now time.Time) {
	late := time.Duration(0)
	for _, p := range u.peers {
		due, known := p.due()
		if !known || p.overdue || !due.Before(now) {
			continue
		}
		p.overdue = true
		if due.Before(u.seen) {
			due = u.seen
		}
		late = max(late, now.Sub(due))
	}
	u.late, u.seen = u.late+late, now
}

// takeLate is for how long this process has not run since the last call, as far as one pause is longer than beatMost.
func (u *pulse) takeLate() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.countLocked(time.Now())
	late := u.late
	u.late = 0
	return late
}
