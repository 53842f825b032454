package raftctl

import (
	"context"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ProducerIDAllocator gives single producer ids out of blocks that the controller allocates. Ids of a block that were
// not given when the process ends are never given. Safe for concurrent use.
type ProducerIDAllocator struct {
	o      ProducerIDOptions
	ctx    context.Context // of the fetches
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	block    ProducerIDs
	next     ProducerIDs // Count 0: not there
	fetching chan struct{}
	err      error // of the last fetch
}

// ProducerIDOptions configure a ProducerIDAllocator.
type ProducerIDOptions struct {
	// Allocate gets a block from the controller.
	Allocate func(ctx context.Context) (ProducerIDs, error)
	// Wait is how long Next waits for a block when there is no id left; then it gives COORDINATOR_LOAD_IN_PROGRESS. 0: it
	// does not wait.
	Wait time.Duration
}

const (
	// prefetchPart: when so little of a block is left, one part in so many, the next block is fetched (Kafka:
	// RPCProducerIdManager.PREFETCH_THRESHOLD, 90 %).
	prefetchPart = 10
	// fetchTimeout bounds the fetch of one block.
	fetchTimeout = 30 * time.Second
)

// NewProducerIDAllocator makes an allocator without ids.
func NewProducerIDAllocator(o ProducerIDOptions) *ProducerIDAllocator {
	a := &ProducerIDAllocator{o: o}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Close ends a fetch under way, and joins it.
func (a *ProducerIDAllocator) Close() {
	a.cancel()
	a.wg.Wait()
}

// Prefetch gets a block ahead of the first Next. It does not wait.
func (a *ProducerIDAllocator) Prefetch() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.block.Count == 0 && a.next.Count == 0 {
		a.fetchLocked()
	}
}

// Next gives an id that nobody was given before. The errors are *Error: the controller's, or COORDINATOR_LOAD_IN_PROGRESS
// when no id is there in time; or ctx's.
func (a *ProducerIDAllocator) Next(ctx context.Context) (wire.ProducerID, error) {
	var timeout <-chan time.Time
	for tried := false; ; tried = true {
		a.mu.Lock()
		if id, ok := a.takeLocked(); ok {
			a.mu.Unlock()
			return id, nil
		}
		if err := a.err; err != nil && tried {
			a.mu.Unlock()
			return wire.NoProducer, err
		}
		fetched := a.fetchLocked()
		a.mu.Unlock()
		if a.o.Wait == 0 {
			return wire.NoProducer, errNoProducerIDs()
		}
		if timeout == nil {
			timer := time.NewTimer(a.o.Wait)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-fetched:
		case <-timeout:
			return wire.NoProducer, errNoProducerIDs()
		case <-ctx.Done():
			return wire.NoProducer, ctx.Err()
		}
	}
}

func errNoProducerIDs() *Error {
	return &Error{Code: kerr.CoordinatorLoadInProgress, Message: "The next producer ids have not come yet."}
}

// takeLocked takes an id, and has the next block fetched when the present one comes to its end.
func (a *ProducerIDAllocator) takeLocked() (wire.ProducerID, bool) {
	if a.block.Count == 0 {
		a.block, a.next = a.next, ProducerIDs{}
	}
	if a.block.Count == 0 {
		return wire.NoProducer, false
	}
	id := a.block.First
	a.block.First++
	a.block.Count--
	if a.block.Count <= producerIDBlock/prefetchPart && a.next.Count == 0 {
		a.fetchLocked()
	}
	return id, true
}

// fetchLocked fetches a block unless that is under way; what it gives is closed at the end.
func (a *ProducerIDAllocator) fetchLocked() <-chan struct{} {
	if a.fetching != nil {
		return a.fetching
	}
	done := make(chan struct{})
	a.fetching = done
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, fetchTimeout)
		defer cancel()
		block, err := a.o.Allocate(ctx)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.err = err; err == nil {
			a.next = block
		}
		a.fetching = nil
		close(done)
	})
	return done
}
