package coord

import (
	"errors"
	"slices"
)

// end drops the machine and fails everything that waits. err wraps ErrNotHere or ErrFailed.
func (s *shard[M]) end(err error) {
	reason, p := ErrNotHere, stopped
	if errors.Is(err, ErrFailed) {
		reason, p = ErrFailed, failed
		s.logger.Error("coordinator shard failed, it serves nothing until the next election", "err", err)
	} else {
		s.logger.Debug("coordinator shard unloaded", "reason", err)
	}
	s.setPhase(p)
	batch, _ := s.take()
	var none M
	s.machine, s.timers, s.fifo = none, newTimers[M](), fifo[M]{}

	waiting := make([]Token, 0, len(s.tokens))
	for tok := range s.tokens {
		waiting = append(waiting, tok)
	}
	slices.Sort(waiting)
	for _, tok := range waiting {
		s.answer(Reply{Token: tok, Err: reason})
	}
	for _, it := range batch {
		if it.done != nil {
			it.done(nil, reason)
		}
	}
}
