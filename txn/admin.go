package txn

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// Listed is one transactional id in a list.
type Listed struct {
	ID         string
	ProducerID wire.ProducerID
	Status     state.Status
}

// Description is what is known of one transactional id.
type Description struct {
	Producer   state.Producer
	TimeoutMs  int32
	StartedMs  int64 // -1: no transaction was begun
	Status     state.Status
	Partitions []wire.TopicPartition // sorted
	User       state.Client          // zero: not seen since this coordinator was loaded
}

// List gives the ids that the filter selects of every shard led here, in the order of shards and ids. A shard that is
// still loading makes the whole answer CoordinatorLoadInProgress, as in Kafka.
func (s *Service) List(f state.Filter, done func([]Listed, *kerr.Error)) {
	ids := s.rt.IDs()
	g := &gathering{parts: make([][]Listed, len(ids)), waiting: len(ids) + 1, done: done}
	for i, p := range ids {
		s.rt.Post(p, func(m *state.State, tok coord.Token, now time.Time) coord.Decision {
			found := m.List(now, f)
			out := make([]Listed, len(found))
			for j, t := range found {
				out[j] = Listed{ID: t.ID, ProducerID: t.ProducerID, Status: t.Status}
			}
			return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: out}}}
		}, func(body any, err error) {
			part, _ := body.([]Listed)
			g.add(i, part, err)
		})
	}
	g.add(-1, nil, nil)
}

// gathering collects the answers of several shards.
type gathering struct {
	mu      sync.Mutex
	parts   [][]Listed
	err     *kerr.Error
	waiting int
	done    func([]Listed, *kerr.Error)
}

// add counts one answer; the last one calls done, outside the lock. A shard that has gone meanwhile has nothing to say.
func (g *gathering) add(i int, part []Listed, err error) {
	g.mu.Lock()
	if i >= 0 {
		g.parts[i] = part
	}
	if err != nil && code(err) != kerr.NotCoordinator {
		g.err = code(err)
	}
	g.waiting--
	last := g.waiting == 0
	g.mu.Unlock()
	if !last {
		return
	}
	var out []Listed
	for _, p := range g.parts {
		out = append(out, p...)
	}
	if g.err != nil {
		out = nil
	}
	g.done(out, g.err)
}

// Describe describes one id, or says TRANSACTIONAL_ID_NOT_FOUND.
func (s *Service) Describe(id string, done func(Description, *kerr.Error)) {
	type result struct {
		d   Description
		err *kerr.Error
	}
	s.post(id, func(m *state.State, tok coord.Token, _ time.Time) coord.Decision {
		r := result{err: kerr.TransactionalIDNotFound}
		if t, ok := m.Lookup(id); ok {
			r = result{d: Description{
				Producer: state.Producer{ID: t.ProducerID, Epoch: t.Epoch}, TimeoutMs: t.TimeoutMs, StartedMs: t.Started,
				Status: t.Status, Partitions: t.SortedPartitions(), User: t.User(),
			}}
		}
		return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: r}}}
	}, func(body any, err *kerr.Error) {
		if err != nil {
			done(Description{}, err)
			return
		}
		r := body.(result)
		done(r.d, r.err)
	})
}

// MarkersPending is the number of transactions that are decided here and whose markers are not all written.
func (s *Service) MarkersPending() int {
	jobs, _ := s.o.Markers.Pending()
	return jobs
}
