package raftctl

import (
	"context"
	"sync"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// watch is what an active controller with peers looks after by itself. Without peers its channels are nil.
type watch struct {
	timer    *time.Timer
	unwatch  func() // pauses
	ticker   *time.Ticker
	sessions <-chan time.Time
	balance  <-chan time.Time
	raise    <-chan time.Time
	raiser   *time.Ticker
}

// newWatch begins every broker's session, and looks at once whether the brokers are there: one may have died together
// with the controller before this one, which was on node before.
func (c *Controller) newWatch(before wire.BrokerID) *watch {
	c.sessions = newLiveness(c.committed(), c.opts.sessionTimeout(), time.Now())
	c.asked.Store(c.sessions.asked)
	w := &watch{}
	if c.opts.Streams == nil {
		return w
	}
	c.sessions.answered = c.inject.heard.of
	switch {
	case c.inject.hurried.Load() == c.raft.CurrentTerm():
		c.sessions.hurried(time.Now())
	case before != c.opts.NodeID:
		c.sessions.lastHeard(before, c.raft.LastContact())
	}
	c.inject.pulse.watch()
	w.unwatch = c.inject.pulse.unwatch
	w.timer = time.NewTimer(c.untilExpiry(c.committed()))
	w.sessions = w.timer.C
	if c.opts.Balance > 0 {
		w.ticker = time.NewTicker(c.opts.Balance)
		w.balance = w.ticker.C
	}
	if len(c.opts.InternalFactors) > 0 {
		w.raiser = time.NewTicker(raiseTick)
		w.raise = w.raiser.C
	}
	for b := range c.committed().Brokers() {
		if !b.Fenced && b.ID != c.opts.NodeID {
			c.Suspect(b.ID, b.Epoch)
		}
	}
	return w
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
		w.unwatch()
	}
	if w.ticker != nil {
		w.ticker.Stop()
	}
	if w.raiser != nil {
		w.raiser.Stop()
	}
}

// breath is how long the decide loop may be busy with one thing before that counts as a pause. It has to be short beside the least that
// is left of a session, that of a former controller's broker (datedBack), and so has beatMost, which is that of a whole process.
const breath = 100 * time.Millisecond

// work does one thing of the decide loop, and takes the time that this process did not run, or was busy with it, off every session: a
// machine that is out of breath would else take everybody for dead.
func (c *Controller) work(w *watch, do func()) {
	if w.timer == nil {
		do()
		return
	}
	c.forgive(c.inject.pulse.takeLate(), time.Now())
	began := time.Now()
	do()
	paused, now := c.inject.pulse.takeLate(), time.Now()
	c.forgive(max(paused, now.Sub(began)-breath), now)
}

func (c *Controller) forgive(d time.Duration, now time.Time) {
	if d > 0 {
		c.sessions.forgive(d, now)
	}
}

func (o *Options) sessionTimeout() time.Duration {
	if o.SessionTimeout > 0 {
		return o.SessionTimeout
	}
	return defaultSession
}

// expire fences the brokers whose session has ended, and sets the clock for the next. A session that began meanwhile
// ends later than a whole timeout from now.
func (c *Controller) expire(st *stint, w *watch) {
	for {
		fenced := wire.NoBroker
		c.work(w, func() { fenced = c.expireOne(st, time.Now()) })
		if fenced == wire.NoBroker {
			break
		}
		c.metrics.fenced.WithLabelValues("session").Inc()
		c.opts.Logger.Warn("broker fenced: its session has timed out", "broker", fenced)
	}
	w.timer.Reset(c.untilExpiry(st.spec))
}

// expireOne fences a broker whose session has ended by now; NoBroker if there is none.
func (c *Controller) expireOne(st *stint, now time.Time) (fenced wire.BrokerID) {
	fenced = wire.NoBroker
	c.beats.note(c.sessions, now)
	c.handle(st, c.ownOp(func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		records, id := c.decider.expire(c.sessions, img, now)
		fenced = id
		return records, nil
	}))
	return fenced
}

// untilExpiry is the time to the end of the next session, as far as is known now.
func (c *Controller) untilExpiry(img *image.Image) time.Duration {
	wait := c.opts.sessionTimeout()
	if at, ok := c.sessions.next(img); ok {
		wait = min(wait, time.Until(at))
	}
	return wait
}

// balance moves leaderships back to preferred leaders.
func (c *Controller) balance(st *stint) {
	c.handle(st, c.ownOp(func(img *image.Image) ([]coordrec.MetadataRecord, error) { return c.decider.balance(img), nil }))
}

// raise gives internal topics the replicas that they lack since the cluster has grown.
func (c *Controller) raise(st *stint) {
	var topics []raised
	c.handle(st, c.ownOp(func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		records, what := c.decider.raiseInternal(img, c.opts.InternalFactors)
		topics = what
		return records, nil
	}))
	for _, t := range topics {
		c.opts.Logger.Info("internal topic gets more replicas: the cluster has grown, and its replication factor was not set", "topic", t.topic, "replication_factor", t.rf)
	}
}

// ownOp is an operation of the controller itself, whose answer nobody reads.
func (c *Controller) ownOp(decide func(img *image.Image) ([]coordrec.MetadataRecord, error)) *op {
	return &op{ctx: c.ctx, decide: decide, done: make(chan error, 1)}
}

// beats are the heartbeats that wait for their answers. A broker that waits for one is not silent: it is this node that
// is slow, and what it could decide meanwhile it could not commit either.
type beats struct {
	mu   sync.Mutex
	byID map[life]*beat
}

// life is one incarnation of a broker.
type life struct {
	id    wire.BrokerID
	epoch wire.BrokerEpoch
}

type beat struct {
	waiting  int
	came     time.Time // the last one
	answered time.Time // the last one that was
}

func (b *beats) begin(l life) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byID == nil {
		b.byID = map[life]*beat{}
	}
	if b.byID[l] == nil {
		b.byID[l] = &beat{}
	}
	b.byID[l].waiting++
	b.byID[l].came = time.Now()
}

// cameAfter reports whether a heartbeat of that life has come after t. One that came before and is answered later is no sign of
// life: its broker may have died meanwhile.
func (b *beats) cameAfter(l life, t time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.byID[l]
	return one != nil && one.came.After(t)
}

// last is when any life of a broker was heard last; zero: never, or long ago.
func (b *beats) last(id wire.BrokerID) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var at time.Time
	for l, one := range b.byID {
		if l.id == id && one.came.After(at) {
			at = one.came
		}
	}
	return at
}

func (b *beats) end(l life) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.byID[l]; one != nil {
		one.waiting--
		one.answered = time.Now()
	}
}

// note tells the sessions who has been heard since, and forgets the lives that are over.
func (b *beats) note(l *liveness, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for of, one := range b.byID {
		s := l.sessions[of.id]
		if s == nil || s.epoch != of.epoch {
			if one.waiting == 0 {
				delete(b.byID, of)
			}
			continue
		}
		heard := one.answered
		if one.waiting > 0 {
			heard = now
		}
		if heard.After(s.heard) {
			s.heard = heard
		}
	}
}

// probes are the nodes that are being looked for.
type probes struct {
	mu     sync.Mutex
	busy   map[probed]func() // what to do after the look that is under way; nil: nothing
	closed bool
}

// probed is one of them: a life as a broker, or the leader of the metadata.
type probed struct {
	id     wire.BrokerID
	epoch  wire.BrokerEpoch // of a broker
	leader bool
}

// run runs look on a goroutine of wg, unless the probes are closed. While the node is being looked for already, look is run after that:
// what was seen before another connection broke says nothing of it. Of several that wait the last one runs.
func (p *probes) run(wg *sync.WaitGroup, id probed, look func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if _, busy := p.busy[id]; busy {
		p.busy[id] = look
		return
	}
	if p.busy == nil {
		p.busy = map[probed]func(){}
	}
	p.busy[id] = nil
	wg.Go(func() {
		for ; look != nil; look = p.next(id) {
			look()
		}
	})
}

// next is what to do after a look at the node; nil if nothing, and then the node is being looked for no more.
func (p *probes) next(id probed) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	look := p.busy[id]
	if look == nil || p.closed {
		delete(p.busy, id)
		return nil
	}
	p.busy[id] = nil
	return look
}

// close lets none begin any more; those under way are the wait group's.
func (p *probes) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// Suspect is called when the connection breaks on which a broker sends its heartbeats. The broker is looked for: if its
// machine says that nobody listens it is fenced at once; if somebody does, or nothing is heard, its session decides. It
// does not wait.
func (c *Controller) Suspect(id wire.BrokerID, epoch wire.BrokerEpoch) {
	if c.opts.Reach == nil || c.opts.Streams == nil {
		return
	}
	since := time.Now()
	c.probes.run(&c.wg, probed{id: id, epoch: epoch}, func() {
		b, ok := c.committed().Broker(id)
		if !ok || b.Epoch != epoch || b.Fenced {
			return
		}
		ctx, cancel := context.WithTimeout(c.ctx, probeTimeout)
		defer cancel()
		if !refused(ctx, func(ctx context.Context) error { return c.opts.Reach(ctx, b) }) {
			return
		}
		fenced := false
		err := c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
			b, err := current(img, id, epoch)
			if err != nil || b.Fenced {
				return nil, err
			}
			if c.beats.cameAfter(life{id, epoch}, since) {
				return nil, nil
			}
			fenced = true
			return c.decider.fenceBroker(img, b), nil
		})
		if fenced && err == nil {
			c.metrics.fenced.WithLabelValues("refused").Inc()
			c.opts.Logger.Warn("broker fenced: nobody listens at its address", "broker", id)
		}
	})
}
