package loop

import (
	"errors"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/txn/marker"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	abortEvery  = 500 * time.Millisecond // transaction.abort.timed.out.transaction.cleanup.interval.ms
	markerRetry = 100 * time.Millisecond
)

// txnShard is the transaction coordinator on the leader of its partition: the core of txn, and what the service and the
// sender of markers do around it.
type txnShard struct {
	host
	state *state.State
	jobs  map[string]*markerJob // by transactional id
}

// markerJob is a decided transaction whose markers are under way.
type markerJob struct {
	state.SendMarkers
	missing   int
	cancelled bool
}

// sweepLater is the effect that looks for transactions which have run out of time, a while later.
type sweepLater struct{}

// completeLater is the effect that tries again to write that a transaction is complete.
type completeLater struct{ m state.SendMarkers }

func newTxnShard(p *part) *txnShard {
	s := &txnShard{state: state.New(state.Config{MaxTimeoutMs: 900_000, Expiration: 7 * 24 * time.Hour}), jobs: map[string]*markerJob{}}
	s.load(p, s.state.Replay, s.run)
	p.n.later(0, func() {
		if s.ended {
			return
		}
		d := s.state.Loaded()
		p.n.c.check.txns.owed += len(d.Effects)
		d.Effects = append(d.Effects, sweepLater{})
		s.carry(0, d)
	})
	return s
}

// end gives up the markers that are under way: the next leader owes them.
func (s *txnShard) end() {
	s.host.end()
	for _, j := range s.jobs {
		j.cancelled = true
	}
}

// run carries out an effect of a committed decision.
func (s *txnShard) run(e coord.Effect) {
	switch e := e.(type) {
	case state.SendMarkers:
		s.send(e)
	case sweepLater:
		s.p.n.later(abortEvery, s.sweep)
	case completeLater:
		s.p.n.later(abortEvery, func() { s.complete(e.m) })
	}
}

func (s *txnShard) sweep() {
	if s.ended {
		return
	}
	d, _ := s.state.AbortTimedOut(s.p.n.c.time(), s.state.IDs(), state.V2)
	s.p.n.c.check.txns.timeouts += len(d.Records)
	d.Soft = func(error) ([]coord.Reply, []coord.Effect) { return nil, []coord.Effect{sweepLater{}} }
	s.carry(0, d)
}

// send begins to bring the markers of a decided transaction to its partitions.
func (s *txnShard) send(m state.SendMarkers) {
	c := s.p.n.c
	c.note("markers", int64(s.p.n.id), int64(m.Producer.ID), int64(m.Producer.Epoch), b2i(m.Commit))
	c.say("%s %v", m.ID, m.Partitions)
	c.check.decided(m)
	if old := s.jobs[m.ID]; old != nil {
		old.cancelled = true
	}
	j := &markerJob{SendMarkers: m, missing: len(m.Partitions)}
	s.jobs[m.ID] = j
	if j.missing == 0 {
		s.complete(m)
	}
	for _, tp := range m.Partitions {
		s.deliver(j, indexOf(tp.Topic, tp.Partition))
	}
}

// deliver brings one marker to the leader of partition i, until it is there or the job is given up.
func (s *txnShard) deliver(j *markerJob, i int) {
	n := s.p.n
	if s.ended || j.cancelled {
		return
	}
	again := func() { n.later(markerRetry, func() { s.deliver(j, i) }) }
	tp := nameOf(i)
	leader := wire.NoBroker
	if p, ok := n.img.Partition(tp.Topic, tp.Partition); ok {
		leader = p.Leader
	}
	if leader == wire.NoBroker {
		n.c.check.txns.markerRetries++
		again()
		return
	}
	to := n.c.node(int(leader))
	m := coord.Marker{ProducerRef: coord.ProducerRef{ID: j.Producer.ID, Epoch: j.Producer.Epoch},
		CoordinatorEpoch: int32(s.epoch), Commit: j.Commit, V2: j.Version.Bumps()}
	attempt := marker.Attempt{Broker: n.epoch, Lost: n.lostMarkers[to.id]}
	n.c.net.dial(&n.actor, &to.actor).call(rpcTimeout, func(reply func(any)) { to.takeMarker(n.id, attempt, i, m, reply) }, func(r any) {
		if r == nil {
			n.lostMarkers[to.id]++
		}
		if s.ended || j.cancelled {
			return
		}
		a, ok := r.(marked)
		if !ok || a.err != nil && !errors.Is(a.err, kerr.InvalidProducerEpoch) {
			n.c.check.txns.markerRetries++
			again()
			return
		}
		if j.missing--; j.missing == 0 {
			s.complete(j.SendMarkers)
		}
	})
}

// complete writes that all markers of m are there.
func (s *txnShard) complete(m state.SendMarkers) {
	if s.ended {
		return
	}
	d := s.state.Complete(s.p.n.c.time(), m, state.V2)
	d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
		if err != nil {
			return nil, []coord.Effect{completeLater{m}}
		}
		return nil, nil
	}
	s.carry(0, d)
}

// marked is the answer to a marker.
type marked struct{ err error }

// takeMarker is the handler of WriteTxnMarkers for one partition.
func (n *node) takeMarker(from int, attempt marker.Attempt, i int, m coord.Marker, reply func(any)) {
	leave, err := n.markers.Enter(wire.BrokerID(from), attempt)
	if err != nil {
		reply(marked{err})
		return
	}
	defer leave()
	n.writeMarker(i, m, reply)
}

// writeMarker appends one.
func (n *node) writeMarker(i int, m coord.Marker, reply func(any)) {
	c := n.c
	p := n.served(i)
	if p == nil {
		reply(marked{kerr.NotLeaderForPartition})
		return
	}
	mk := batch.Marker{ProducerID: m.ID, ProducerEpoch: m.Epoch, Timestamp: c.time().UnixMilli(),
		EndTxn: batch.EndTxn{Commit: m.Commit, CoordinatorEpoch: m.CoordinatorEpoch}}
	data, _ := mk.Append(nil)
	v, err := log.Validate(data, log.ValidateOptions{Config: c.logConfig, Now: c.time(), Coordinator: true, Codecs: c.codecs})
	if err != nil {
		c.violated("validate a marker: %v", err)
		return
	}
	v.Txn.V2 = m.V2
	if _, err := p.append(v, wire.NoLeaderEpoch, -1, func(_ log.Appended, err error) { reply(marked{err}) }); err != nil {
		c.note("marker refused", int64(n.id), int64(i), int64(m.ID), int64(m.Epoch))
		reply(marked{err})
	}
}

// served is this node's replica of a partition; nil while it has none or does not serve.
func (n *node) served(i int) *part {
	if !n.serving {
		return nil
	}
	return n.parts[i]
}

// coordinator is this node's transaction coordinator; nil if it is elsewhere.
func (n *node) coordinator() *txnShard {
	p := n.served(txnPartition)
	if p == nil {
		return nil
	}
	return p.txns
}

// askTxns runs an operation of the transaction coordinator at this node; done is told its reply.
func (n *node) askTxns(op func(s *state.State, tok coord.Token, now time.Time) coord.Decision, done func(body any, err error)) {
	s := n.coordinator()
	if s == nil {
		done(nil, kerr.NotCoordinator)
		return
	}
	s.op(func(tok coord.Token, now time.Time) coord.Decision { return op(s.state, tok, now) }, func(body any, err error) {
		if errors.Is(err, kerr.CoordinatorLoadInProgress) {
			n.c.check.txns.loading++
		}
		done(body, err)
	})
}

// initProducerID is the handler of InitProducerId: a new producer id is drawn where the decision asks for one.
func (n *node) initProducerID(r state.InitRequest, reply func(any)) {
	op := func(s *state.State, tok coord.Token, now time.Time) coord.Decision {
		return s.InitProducerID(tok, now, r)
	}
	n.askTxns(op, func(body any, err error) {
		if got, ok := body.(state.Reply); err != nil || !ok || !got.NeedsID {
			reply(said{body, err})
			return
		}
		n.drawProducerID(func(id wire.ProducerID, ok bool) {
			if !ok {
				reply(said{nil, kerr.CoordinatorNotAvailable})
				return
			}
			n.c.check.producerID(id)
			r.Fresh = id
			n.askTxns(op, func(body any, err error) { reply(said{body, err}) })
		})
	})
}
