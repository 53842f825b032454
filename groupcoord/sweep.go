package groupcoord

import (
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/wire"
)

// maxSweepRecords bounds the records of one append of a sweep or of a topic's removal, so that it fits into a batch.
const maxSweepRecords = 1000

// sweepGroups bounds how many groups one operation of a sweep looks at, so that requests get in between.
const sweepGroups = 1000

// soon makes a timer due with the loop's next turn, behind the requests that wait.
const soon = time.Nanosecond

const sweepKey = "sweep"

func (s *Service) sweepTimer(now time.Time) coord.Timer[*machine] {
	return coord.Timer[*machine]{Key: sweepKey, At: now.Add(s.o.CheckInterval), Op: s.sweep}
}

// sweep begins a round over all groups; the next one begins CheckInterval after this one has ended.
func (s *Service) sweep(m *machine, _ coord.Token, now time.Time) coord.Decision {
	return s.sweepPart(m.groups.Groups())(m, 0, now)
}

// sweepPart looks at some of the groups and goes on with the rest as soon as that is written. A refused write ends the
// round.
func (s *Service) sweepPart(groups []string) op {
	return func(m *machine, _ coord.Token, now time.Time) coord.Decision {
		part := groups[:min(len(groups), sweepGroups)]
		d, done := m.offsets.Expire(now, part, maxSweepRecords)
		d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
			if err == nil && done < len(groups) {
				return nil, []coord.Effect{coord.Timer[*machine]{Key: sweepKey, At: now.Add(soon), Op: s.sweepPart(groups[done:])}}
			}
			return nil, []coord.Effect{s.sweepTimer(now)}
		}
		return d
	}
}

// TopicDeleted removes the offsets that groups committed for a topic that exists no longer, in every shard led here;
// shards that are loading do it when they are ready.
func (s *Service) TopicDeleted(name string, id wire.UUID) { s.rt.Each(s.dropTopic(name, id)) }

func (s *Service) dropTopic(name string, id wire.UUID) op {
	return func(m *machine, _ coord.Token, now time.Time) coord.Decision {
		d, more := m.offsets.DropTopic(now, name, id, maxSweepRecords)
		key := "drop/" + id.String() + "/" + name
		d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
			switch {
			case err != nil: // try again; what stays until then is ignored by its topic id
				return nil, []coord.Effect{coord.Timer[*machine]{Key: key, At: now.Add(classic.RetryDelay), Op: s.dropTopic(name, id)}}
			case more:
				return nil, []coord.Effect{coord.Timer[*machine]{Key: key, At: now.Add(soon), Op: s.dropTopic(name, id)}}
			}
			return nil, nil
		}
		return d
	}
}
