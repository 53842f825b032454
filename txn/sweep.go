package txn

import (
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/txn/state"
)

// Keys of the timers of a shard.
const (
	abortKey  = "abort"
	expireKey = "expire"
)

// soon makes a timer due with the loop's next turn, behind the requests that wait.
const soon = time.Nanosecond

// loaded asks again for the markers that the shard owes and starts its sweeps.
func (s *Service) loaded(m *state.State, _ coord.Token, now time.Time) coord.Decision {
	d := m.Loaded()
	d.Effects = append(d.Effects, s.sweepTimer(abortKey, now), s.sweepTimer(expireKey, now))
	return d
}

func (s *Service) sweepTimer(key string, now time.Time) coord.Timer[*state.State] {
	interval := s.o.AbortInterval
	if key == expireKey {
		interval = s.o.ExpireInterval
	}
	return coord.Timer[*state.State]{Key: key, At: now.Add(interval), Op: func(m *state.State, tok coord.Token, now time.Time) coord.Decision {
		return s.sweep(key, m.IDs())(m, tok, now)
	}}
}

// sweep looks at some of the ids and goes on with the rest as soon as that is written; the next round begins an interval
// after this one has ended. A refused write ends the round.
func (s *Service) sweep(key string, ids []string) op {
	return func(m *state.State, _ coord.Token, now time.Time) coord.Decision {
		var d coord.Decision
		var looked int
		if key == abortKey {
			d, looked = m.AbortTimedOut(now, ids, s.o.Version())
		} else {
			d, looked = m.Expire(now, ids)
		}
		if n := len(d.Records); n > 0 {
			s.o.Logger.Info("transactions swept", "sweep", key, "transactional_ids", n)
		}
		d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
			if err == nil && looked < len(ids) {
				return nil, []coord.Effect{coord.Timer[*state.State]{Key: key, At: now.Add(soon), Op: s.sweep(key, ids[looked:])}}
			}
			return nil, []coord.Effect{s.sweepTimer(key, now)}
		}
		return d
	}
}
