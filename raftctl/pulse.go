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
// are most of what an idle controller costs, and none leaves later than raft may let it. They also tell for how long this process did
// not run: while it is watched something happens every beatMost, if not a heartbeat, a timer. Safe for concurrent use.
type pulse struct {
	mu    sync.Mutex
	term  uint64
	peers map[raft.ServerID]*pulsePeer
	leave chan struct{} // closed when those who wait go

	watchdog *time.Timer // nil: nobody asks for pauses
	seen     time.Time   // when something has happened last
	late     time.Duration
}

type pulsePeer struct {
	answered time.Time // when the last heartbeat was; zero while one is under way and after one that failed
	waiting  bool
	there    bool // the last one that has ended was answered
}

// due is when raft calls for the next heartbeat at the latest; false if that is not known.
func (p *pulsePeer) due() (time.Time, bool) { return p.answered.Add(beatMost), !p.answered.IsZero() }

// begin is called when raft wants a heartbeat sent, and returns when it shall leave: with those of the other peers that are due before
// this one has to.
func (u *pulse) begin(id raft.ServerID, term uint64) {
	u.mu.Lock()
	if term < u.term { // of a leadership that is over, and that raft has not let go yet
		u.mu.Unlock()
		return
	}
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
	u.passLocked(now)
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
	p.waiting, p.answered = false, time.Time{}
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
	now := time.Now()
	u.passLocked(now)
	p := u.peers[id]
	if p == nil || u.term != term {
		return false
	}
	if answered {
		p.answered = now
	}
	back = answered && !p.there
	p.there = answered
	return back
}

// watch begins to look for pauses; what was before counts for nothing.
func (u *pulse) watch() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen, u.late = time.Now(), 0
	u.watchdog = time.AfterFunc(beatMost, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.passLocked(time.Now())
	})
}

// unwatch ends watch.
func (u *pulse) unwatch() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.watchdog != nil {
		u.watchdog.Stop()
		u.watchdog = nil
	}
}

// passLocked notes that this process runs now. Since it was noted last nothing may have kept it from that for longer than beatMost.
func (u *pulse) passLocked(now time.Time) {
	if u.watchdog == nil {
		return
	}
	u.late += max(0, now.Sub(u.seen)-beatMost)
	u.seen = now
	u.watchdog.Reset(beatMost)
}

// takeLate is for how long this process has not run since the last call, as far as one pause is longer than beatMost; 0 while nobody
// watches.
func (u *pulse) takeLate() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.passLocked(time.Now())
	late := u.late
	u.late = 0
	return late
}
