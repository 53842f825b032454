package coord

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/prometheus/client_golang/prometheus"
)

// DefaultMaxQueued is how many operations may wait for one shard.
const DefaultMaxQueued = 65_536

// Options configure a Runtime. NewMachine, CommitTimeout and Logger are required.
type Options[M Machine] struct {
	// Name says in logs and metrics what runs here, such as "group coordinator".
	Name string
	// NewMachine makes the empty machine that a shard's log is replayed into.
	NewMachine func(id wire.PartitionID) M
	// Loaded runs once when a shard has become active, before any other operation, with no token. It derives effects
	// (timers above all) from the loaded state. May be nil.
	Loaded Op[M]
	// Effect carries out an effect that is not a Timer, after commit, on the shard's goroutine: it must not block.
	Effect func(id wire.PartitionID, epoch wire.LeaderEpoch, e Effect)
	// CommitTimeout bounds how long a reply waits for commit, from its decision; then it is ErrUnknown.
	CommitTimeout time.Duration
	// MaxQueued bounds the operations that wait for one shard; more are refused with ErrBusy. 0 is DefaultMaxQueued.
	MaxQueued int
	// Now is the clock; nil is time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Runtime runs the shards that this process leads. Safe for concurrent use.
type Runtime[M Machine] struct {
	o       Options[M]
	metrics *metrics
	wg      sync.WaitGroup

	mu      sync.Mutex
	shards  map[wire.PartitionID]*shard[M]
	changed chan struct{} // closed and replaced when a shard is added
	closed  bool
}

// New makes a runtime without shards.
func New[M Machine](o Options[M]) *Runtime[M] {
	if o.MaxQueued == 0 {
		o.MaxQueued = DefaultMaxQueued
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Runtime[M]{o: o, shards: make(map[wire.PartitionID]*shard[M]), changed: make(chan struct{})}
	r.metrics = newMetrics(o.Registerer, o.Name, r.count, r.queued)
	return r
}

// Elected starts the shard under a leader epoch; it answers ErrLoading until its log is replayed and committed. An
// older or equal epoch than the running shard's is ignored; a newer one replaces the shard. It does not block.
func (r *Runtime[M]) Elected(id wire.PartitionID, epoch wire.LeaderEpoch, log Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.shards[id]
	if r.closed || old != nil && old.epoch >= epoch {
		return
	}
	if old != nil {
		old.stop()
	}
	s := newShard(r, id, epoch, log)
	r.shards[id] = s
	close(r.changed)
	r.changed = make(chan struct{})
	r.wg.Go(s.run)
}

// Resigned ends the shard if its epoch is at most epoch: waiting requests get ErrNotHere, the machine is dropped. It
// does not wait for the shard's goroutine, whose further appends the log refuses because of their epoch.
func (r *Runtime[M]) Resigned(id wire.PartitionID, epoch wire.LeaderEpoch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.shards[id]; s != nil && s.epoch <= epoch {
		delete(r.shards, id)
		s.stop()
	}
}

// Close ends every shard and joins the goroutines.
func (r *Runtime[M]) Close() {
	r.mu.Lock()
	r.closed = true
	for id, s := range r.shards {
		delete(r.shards, id)
		s.stop()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// Post queues op for a shard. done is called exactly once: with the body of the reply to op's token, or with an error
// (one of this package's, or why the log refused the append). It runs on the caller's goroutine when the shard is not
// active, else on the shard's, and must not block. Replies come in the order of commits, not of posts.
func (r *Runtime[M]) Post(id wire.PartitionID, op Op[M], done func(body any, err error)) {
	s := r.shard(id)
	if s == nil {
		done(nil, ErrNotHere)
		return
	}
	s.post(op, done)
}

// Each queues op for every shard that is led here, also for those still loading (they run it once active). Tokens are
// 0; replies are ignored.
func (r *Runtime[M]) Each(op Op[M]) {
	for _, id := range r.IDs() {
		r.Internal(id, op)
	}
}

// Internal queues an operation of the process itself: it has no token, waits for the load, and is not subject to the
// queue's bound. It is dropped if the shard is not led here.
func (r *Runtime[M]) Internal(id wire.PartitionID, op Op[M]) {
	if s := r.shard(id); s != nil {
		s.internal(op)
	}
}

// IDs lists the shards led here, loading ones included, in order.
func (r *Runtime[M]) IDs() []wire.PartitionID {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := make([]wire.PartitionID, 0, len(r.shards))
	for id := range r.shards {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// WaitActive blocks until the shard is led here and active, ctx ends, or the shard has failed.
func (r *Runtime[M]) WaitActive(ctx context.Context, id wire.PartitionID) error {
	for {
		r.mu.Lock()
		s, changed := r.shards[id], r.changed
		r.mu.Unlock()
		var ready chan struct{}
		if s != nil {
			ready, changed = s.ready, nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			continue
		case <-ready:
		}
		switch s.currentPhase() {
		case active:
			return nil
		case failed:
			return ErrFailed
		default:
			return ErrNotHere
		}
	}
}

func (r *Runtime[M]) shard(id wire.PartitionID) *shard[M] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shards[id]
}
