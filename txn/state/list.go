package state

import (
	"regexp"
	"slices"
	"time"

	"github.com/kajamq/kaja/wire"
)

// Filter selects transactional ids; its zero value selects all.
type Filter struct {
	Producers []wire.ProducerID // none: any
	Statuses  []Status          // none: any
	LongerMs  int64             // running for longer than this; negative: any
	Pattern   *regexp.Regexp    // matches the whole id; nil: any
}

// List gives what the filter selects, in the order of the ids. The results must not be changed.
func (s *State) List(now time.Time, f Filter) []*Txn {
	var out []*Txn
	for _, id := range s.IDs() {
		t := s.byID[id]
		switch {
		case len(f.Producers) > 0 && !slices.Contains(f.Producers, t.ProducerID):
		case len(f.Statuses) > 0 && !slices.Contains(f.Statuses, t.Status):
		case f.LongerMs >= 0 && now.UnixMilli()-t.Started <= f.LongerMs: // as Kafka, also of ids that have not begun any
		case f.Pattern != nil && !f.Pattern.MatchString(id):
		default:
			out = append(out, t)
		}
	}
	return out
}

// User is who was seen to use the id since this coordinator was loaded; zero if nobody was.
func (t *Txn) User() Client { return t.user }
