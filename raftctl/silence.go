package raftctl

import (
	"sync"
	"time"
)

// silence measures the time between two heartbeats of one leadership, as a follower gets them. Safe for concurrent use.
type silence struct {
	observe func(time.Duration)

	mu   sync.Mutex
	term uint64
	last time.Time
}

// end is called at a heartbeat of term.
func (s *silence) end(term uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case term < s.term: // a leader that was replaced
		return
	case term == s.term && s.observe != nil:
		s.observe(now.Sub(s.last))
	}
	s.term, s.last = term, now
}
