package raftctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/raftstore"
)

// Controller is this node's part in the metadata: it follows the log, and leads it when elected. Safe for concurrent use.
type Controller struct {
	opts    Options
	store   *raftstore.Store
	raft    *raft.Raft
	streams StreamLayer
	pusher  *pusher
	inject  *injector
	fsm     *fsm
	decider *decider
	metrics *metrics

	sessions *liveness             // of the brokers; the decide loop's
	asked    atomic.Pointer[asked] // of sessions; never nil
	beats    beats
	probes   probes
	leader   leaders
	began    time.Time

	ops       chan *op
	pending   chan *pending
	changes   chan change
	leads     chan bool     // newest word of raft on the leadership
	unled     chan struct{} // this node has ceased to lead
	leading   atomic.Bool   // it has claimed an epoch and decides
	published atomic.Pointer[image.Image]
	live      chan struct{} // the publisher may begin: what is committed is the present, not history
	ready     chan struct{} // closed when Publish has taken the whole image

	gone     chan struct{} // closed when raft has ended, or is not waited for any more
	stop     chan struct{} // closed by the first failure or by Close
	failOnce sync.Once
	failure  error // set before stop is closed
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	closed   sync.Once
	closeErr error
}

// Open is Begin and Await.
func Open(ctx context.Context, o Options) (*Controller, error) {
	c, err := Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := c.Await(ctx); err != nil {
		return nil, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// Begin opens or makes the store and starts the node. A store that is damaged, of another node, or written by a later
// release is refused. A node with peers must be reachable by them from now on: who may speak to it says Admit.
func Begin(ctx context.Context, o Options) (*Controller, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	logger := newRaftLogger(o.Logger, o.Streams == nil)
	store, err := raftstore.Open(raftstore.Options{FS: o.FS, Dir: o.Dir, ClusterID: o.ClusterID, Logger: o.Logger, Wal: logger})
	if err != nil {
		return nil, fmt.Errorf("open metadata store: %w", err)
	}
	c := newController(o, store)
	if c.metrics, err = newMetrics(o.Registerer, c); err == nil {
		err = c.start(logger)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return c, nil
}

// Await returns once Publish has taken the whole image: on the leader that it has claimed (a lone voter does so at once),
// elsewhere what the leader had committed.
func (c *Controller) Await(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-c.stop:
		return c.Err()
	case <-ctx.Done():
		return fmt.Errorf("wait for the metadata: %w", ctx.Err())
	}
}

func newController(o Options, store *raftstore.Store) *Controller {
	c := &Controller{
		opts: o, store: store, streams: o.Streams, began: time.Now(),
		ops: make(chan *op, queuedOps), pending: make(chan *pending, pendingOps),
		changes: make(chan change, queuedChanges), leads: make(chan bool, 1), unled: make(chan struct{}, 1),
		live: make(chan struct{}, 1), ready: make(chan struct{}), stop: make(chan struct{}), gone: make(chan struct{}),
	}
	if c.streams == nil {
		c.streams = newLoneStreams()
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.fsm = &fsm{clusterID: o.ClusterID, changes: c.changes, full: make(chan struct{}, 1), stop: c.stop, fail: c.fail, committed: c.committedAt,
		snapshotBytes: cmp.Or(o.SnapshotBytes, snapshotBytes)}
	c.fsm.current.Store(image.Empty(o.ClusterID))
	c.published.Store(image.Empty(o.ClusterID))
	c.asked.Store(&asked{})
	c.decider = &decider{
		nodeID: o.NodeID, defaults: o.Defaults, configs: o.Configs, features: o.Features, newUUID: o.NewUUID,
		rng: rand.New(rand.NewPCG(o.Seed, 0x72616674)),
	}
	return c
}

// fail ends the controller with err; only the first counts.
func (c *Controller) fail(err error) {
	c.failOnce.Do(func() {
		c.failure = err
		close(c.stop)
		c.cancel()
	})
}

// Done is closed when the controller has ended, by Close or by a failure.
func (c *Controller) Done() <-chan struct{} { return c.stop }

// Err says why the controller ended: nil after Close, a failure of the store or an entry that cannot be applied
// otherwise. A failure of the store is known here before anything that it makes fail has returned, and before Done is closed.
func (c *Controller) Err() error {
	select {
	case <-c.stop:
		if errors.Is(c.failure, ErrClosed) {
			return nil
		}
		return c.failure
	default:
		return c.store.Err()
	}
}

// Run waits until ctx ends (nil) or the controller fails (why). It does not close the controller.
func (c *Controller) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-c.stop:
		return c.Err()
	}
}

// Leading reports whether this node is the active controller: it has claimed an epoch and decides. Another may already be,
// too: only an answer to a request says that it counted.
func (c *Controller) Leading() bool { return c.leading.Load() }

// Image is the newest image that Publish has taken.
func (c *Controller) Image() *image.Image { return c.published.Load() }

// Close hands the leadership over, stops the node and joins its goroutines. Requests under way are answered as unknown or refused. It changes no
// metadata: a broker shuts down with ShutDownBroker before.
func (c *Controller) Close(ctx context.Context) error {
	c.closed.Do(func() {
		c.HandOver(ctx)
		c.fail(ErrClosed)
		var err error
		if c.raft != nil {
			err = c.shutDownRaft(ctx)
		}
		close(c.gone)
		err = errors.Join(err, c.streams.Close())
		c.probes.close() // a connection that ends now may still raise a suspicion
		c.wg.Wait()
		c.closeErr = errors.Join(err, c.store.Close())
	})
	return c.closeErr
}

// waitFuture waits for a future of raft, at most until ctx ends or stopTimeout has passed. What then still waits ends with
// raft (answered), and is joined by Close.
func (c *Controller) waitFuture(ctx context.Context, f raft.Future) error {
	done := make(chan error, 1)
	c.wg.Go(func() { done <- c.answered(f) })
	return await(ctx, done)
}

// shutDownRaft ends raft. Raft that does not end is left behind, with the goroutine that waits for it: whoever closes a
// controller is about to end the process.
func (c *Controller) shutDownRaft(ctx context.Context) error {
	f, done := c.raft.Shutdown(), make(chan error, 1)
	go func() { done <- f.Error() }()
	return await(ctx, done)
}

func await(ctx context.Context, done <-chan error) error {
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for raft: %w", ctx.Err())
	case <-timer.C:
		return errors.New("wait for raft: it does not end")
	}
}

// publish hands committed changes over, in log order. What raft replays of the log at start is history: it is taken
// together into one change.
func (c *Controller) publish() {
	past := c.fsm.current.Load() // empty
	for begun := false; !begun; {
		select {
		case ch := <-c.changes:
			past = ch.image
			close(ch.published)
		case <-c.live:
			c.opts.Publish(c.ctx, image.Diff(image.Empty(c.opts.ClusterID), past), past)
			c.published.Store(past)
			close(c.ready)
			begun = true
		case <-c.stop:
			return
		}
	}
	for {
		select {
		case ch := <-c.changes:
			began := time.Now()
			c.opts.Publish(c.ctx, ch.delta, ch.image)
			c.published.Store(ch.image)
			c.metrics.published(time.Since(began))
			close(ch.published)
		case <-c.stop:
			return
		}
	}
}

// snapshot takes one by bytes and by age.
func (c *Controller) snapshot() {
	timer := time.NewTimer(snapshotAge)
	defer timer.Stop()
	for {
		select {
		case <-c.fsm.full:
		case <-timer.C:
		case <-c.stop:
			return
		}
		timer.Reset(snapshotAge)
		if c.fsm.applied.Load() == 0 {
			continue
		}
		err := c.answered(c.raft.Snapshot())
		if errors.Is(err, raft.ErrNothingNewToSnapshot) {
			continue
		}
		c.metrics.snapshot(err)
		if err != nil {
			c.opts.Logger.Error("metadata snapshot failed", "err", err)
		}
	}
}
