package coord

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

type phase uint8

const (
	loading phase = iota // replaying, or waiting until what was replayed is committed
	active
	failed
	stopped
)

// item is one queued operation; done is nil for internal ones.
type item[M Machine] struct {
	op   Op[M]
	done func(any, error)
}

// shard is one state machine and its goroutine. Everything below "loop" belongs to that goroutine.
type shard[M Machine] struct {
	rt     *Runtime[M]
	id     wire.PartitionID
	epoch  wire.LeaderEpoch
	log    Log
	logger *slog.Logger
	ctx    context.Context
	stop   context.CancelFunc
	ready  chan struct{} // closed when the phase leaves loading
	wake   chan struct{} // holds a token while there is something in the inbox

	mu    sync.Mutex // guards the inbox; never held over a call
	phase phase
	in    []item[M]
	acks  []error // one per commit report, in append order

	// loop
	machine M
	tokens  map[Token]func(any, error)
	last    Token
	fifo    fifo[M]
	timers  *timers[M]
}

func newShard[M Machine](r *Runtime[M], id wire.PartitionID, epoch wire.LeaderEpoch, log Log) *shard[M] {
	ctx, cancel := context.WithCancel(context.Background())
	return &shard[M]{
		rt: r, id: id, epoch: epoch, log: log, ctx: ctx, stop: cancel,
		logger: r.o.Logger.With("coordinator", r.o.Name, "partition", id, "leader_epoch", epoch),
		ready:  make(chan struct{}), wake: make(chan struct{}, 1),
		tokens: make(map[Token]func(any, error)), timers: newTimers[M](),
	}
}

func (s *shard[M]) post(op Op[M], done func(any, error)) {
	s.mu.Lock()
	var err error
	switch {
	case s.phase == failed:
		err = ErrFailed
	case s.phase == stopped || s.ctx.Err() != nil:
		err = ErrNotHere
	case s.phase == loading:
		err = ErrLoading
	case len(s.in) >= s.rt.o.MaxQueued:
		err = ErrBusy
		s.rt.metrics.busy.Inc()
	default:
		s.in = append(s.in, item[M]{op: op, done: done})
	}
	s.mu.Unlock()
	if err != nil {
		done(nil, err)
		return
	}
	s.signal()
}

func (s *shard[M]) internal(op Op[M]) {
	s.mu.Lock()
	ok := s.phase == loading || s.phase == active
	if ok {
		s.in = append(s.in, item[M]{op: op})
	}
	s.mu.Unlock()
	if ok {
		s.signal()
	}
}

func (s *shard[M]) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *shard[M]) currentPhase() phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

func (s *shard[M]) setPhase(p phase) {
	s.mu.Lock()
	was := s.phase
	s.phase = p
	s.mu.Unlock()
	if was == loading && p != loading {
		close(s.ready)
	}
}

// run is the shard's goroutine, from election to loss.
func (s *shard[M]) run() {
	defer s.stop()
	if err := s.load(); err != nil {
		s.end(err)
		return
	}
	s.end(s.loop())
}

// load replays the log and waits until all of it is committed: before that a reply could show what may yet be lost.
func (s *shard[M]) load() error {
	began := s.rt.o.Now()
	s.machine = s.rt.o.NewMachine(s.id)
	end, err := s.log.Load(s.ctx, s.machine)
	if err != nil {
		if s.ctx.Err() != nil {
			return ErrNotHere
		}
		return fmt.Errorf("%w: load: %w", ErrFailed, err)
	}
	committed := make(chan error, 1)
	s.log.WaitCommitted(end, func(err error) { committed <- err })
	select {
	case err := <-committed:
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotHere, err)
		}
	case <-s.ctx.Done():
		return ErrNotHere
	}
	now := s.rt.o.Now()
	s.setPhase(active)
	s.rt.metrics.loaded(now.Sub(began))
	s.logger.Debug("coordinator shard loaded", "end_offset", end, "took", now.Sub(began))
	if s.rt.o.Loaded != nil {
		return s.execute(s.rt.o.Loaded, 0, now)
	}
	return nil
}

// loop runs until the leadership is lost; the error says how it ended.
func (s *shard[M]) loop() error {
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		if s.ctx.Err() != nil {
			return ErrNotHere
		}
		// The order matters: whatever was posted before now is in the batch and is carried out before a timer that is
		// due now. So a member whose heartbeat waits in the queue is not expired.
		now := s.rt.o.Now()
		batch, acks := s.take()
		for _, err := range acks {
			if err != nil {
				return fmt.Errorf("%w: %w", ErrNotHere, err)
			}
			if e := s.fifo.commit(); e != nil {
				s.rt.metrics.committed(now.Sub(e.at))
			}
		}
		s.flush(now)
		for _, it := range batch {
			if err := s.execute(it.op, s.token(it.done), now); err != nil {
				return err
			}
		}
		if err := s.fire(now); err != nil {
			return err
		}
		for _, r := range s.fifo.timeout(now) {
			s.rt.metrics.late.Inc()
			s.answer(Reply{Token: r.Token, Err: ErrUnknown})
		}
		s.sleep(alarm)
	}
}

// sleep waits for the inbox, the next timer, the next reply's deadline or the end.
func (s *shard[M]) sleep(alarm *time.Timer) {
	at, ok := s.timers.next()
	if d, waits := s.fifo.deadline(); waits && (!ok || d.Before(at)) {
		at, ok = d, true
	}
	var ring <-chan time.Time
	if ok {
		alarm.Reset(max(at.Sub(s.rt.o.Now()), 0))
		ring = alarm.C
	}
	select {
	case <-s.wake:
	case <-ring:
	case <-s.ctx.Done():
	}
}

func (s *shard[M]) take() ([]item[M], []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch, acks := s.in, s.acks
	s.in, s.acks = nil, nil
	return batch, acks
}

func (s *shard[M]) token(done func(any, error)) Token {
	if done == nil {
		return 0
	}
	s.last++
	s.tokens[s.last] = done
	return s.last
}

// fire runs the timers due at now.
func (s *shard[M]) fire(now time.Time) error {
	for {
		t, ok := s.timers.due(now)
		if !ok {
			return nil
		}
		if err := s.execute(t.op, 0, now); err != nil {
			return err
		}
	}
}

// execute is the one path of every operation: decide, append, replay, soft, park. An error ends the shard.
func (s *shard[M]) execute(op Op[M], tok Token, now time.Time) error {
	s.rt.metrics.operations.Inc()
	d := op(s.machine, tok, now)
	e := &entry[M]{at: now, replies: d.Replies, effects: d.Effects}
	refused, err := s.append(&d.Batch, e, now)
	if err != nil {
		return err
	}
	if refused != nil {
		e.replies, e.effects = nil, nil
	}
	if d.Soft != nil {
		replies, effects := d.Soft(refused)
		e.replies, e.effects = append(e.replies, replies...), append(e.effects, effects...)
	}
	if refused != nil {
		s.rt.metrics.refused.Inc()
		s.logger.Warn("coordinator append refused", "records", len(d.Records), "err", refused)
		if tok != 0 && !slices.ContainsFunc(e.replies, func(r Reply) bool { return r.Token == tok }) {
			e.replies = append(e.replies, Reply{Token: tok, Err: refused})
		}
	}
	if planted.On(planted.RepliesTooSoon) {
		for _, r := range e.replies {
			s.answer(r)
		}
		e.replies = nil
	}
	s.park(e, now)
	s.flush(now)
	return nil
}

// append writes b and replays it; refused says why nothing was written. err is a broken machine.
func (s *shard[M]) append(b *Batch, e *entry[M], now time.Time) (refused, err error) {
	if b.Empty() {
		return nil, nil
	}
	if b.Timestamp.IsZero() {
		b.Timestamp = now
	}
	b.Timestamp = time.UnixMilli(b.Timestamp.UnixMilli()) // what a reload will read
	base, refused := s.log.Append(s.epoch, *b, s.committed)
	if refused != nil {
		return refused, nil
	}
	e.append = true
	pos := Pos{Timestamp: b.Timestamp, ProducerID: wire.NoProducer, ProducerEpoch: wire.NoEpoch}
	if b.Producer != nil {
		pos.ProducerID, pos.ProducerEpoch, pos.Transactional = b.Producer.ID, b.Producer.Epoch, true
	}
	if b.Marker != nil {
		if err := s.machine.ReplayMarker(b.Marker.ID, b.Marker.Epoch, b.Marker.Commit); err != nil {
			return nil, fmt.Errorf("%w: replay marker at offset %d: %w", ErrFailed, base, err)
		}
		return nil, nil
	}
	for i, rec := range b.Records {
		pos.Offset = base + wire.Offset(i)
		if err := s.machine.Replay(rec, pos); err != nil {
			return nil, fmt.Errorf("%w: replay offset %d: %w", ErrFailed, pos.Offset, err)
		}
	}
	return nil, nil
}

// committed is called by the log from any goroutine.
func (s *shard[M]) committed(_ wire.Offset, err error) {
	s.mu.Lock()
	s.acks = append(s.acks, err)
	s.mu.Unlock()
	s.signal()
}

// park sets the entry's timers and queues it. Timers replace their predecessors at once, but do not fire before the
// entry has left: they rest on its records, and a member whose reply waits here must not be expired.
func (s *shard[M]) park(e *entry[M], now time.Time) {
	held := e.append || !s.fifo.empty()
	effects := e.effects[:0]
	for _, f := range e.effects {
		t, ok := f.(Timer[M])
		if !ok {
			effects = append(effects, f)
			continue
		}
		if set := s.timers.set(t, now, held); set != nil && held {
			e.timers = append(e.timers, set)
		}
	}
	e.effects = effects
	if len(e.replies) > 0 {
		e.deadline = now.Add(s.rt.o.CommitTimeout)
	}
	if e.append || len(e.replies) > 0 || len(e.effects) > 0 || len(e.timers) > 0 {
		s.fifo.push(e)
	}
}

// flush lets go of what is committed.
func (s *shard[M]) flush(now time.Time) {
	for {
		e, ok := s.fifo.pop()
		if !ok {
			return
		}
		for _, t := range e.timers {
			s.timers.release(t, now)
		}
		for _, r := range e.replies {
			s.answer(r)
		}
		for _, f := range e.effects {
			s.rt.o.Effect(s.id, s.epoch, f)
		}
	}
}

// answer calls the callback behind a token once; a token that was answered before is ignored.
func (s *shard[M]) answer(r Reply) {
	done, ok := s.tokens[r.Token]
	if !ok {
		return
	}
	delete(s.tokens, r.Token)
	if r.Err != nil {
		done(nil, r.Err)
		return
	}
	done(r.Body, nil)
}
