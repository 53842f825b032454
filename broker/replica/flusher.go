package replica

import (
	"sync"
)

// flushersPerDir bounds how many partitions of one directory are flushed at the same time. A journal commits for all of
// them at once, so a few in parallel cost little more than one.
const flushersPerDir = 4

// flusher is group commit for one log directory: a queue of partitions that have something to flush or somebody to
// tell, and a fixed number of goroutines that serve it. A partition is served by one goroutine at a time and is in the
// queue at most once; what is appended while its flush runs is covered by the next. The queue is bounded by the number
// of partitions.
type flusher struct {
	mu     sync.Mutex
	queue  []*home
	closed bool
	wake   chan struct{} // one token per goroutine that may sleep
	stop   chan struct{}
	wg     sync.WaitGroup
}

// flushTicket is a replica's place in its flusher. Guarded by flusher.mu.
type flushTicket struct {
	queued, running bool
}

func newFlusher() *flusher {
	return &flusher{wake: make(chan struct{}, flushersPerDir), stop: make(chan struct{})}
}

func (f *flusher) start() {
	for range flushersPerDir {
		f.wg.Go(f.run)
	}
}

// kick has h served soon. It never blocks and may be called under the partition's locks.
func (f *flusher) kick(h *home) {
	f.mu.Lock()
	if h.ticket.queued || f.closed {
		f.mu.Unlock()
		return
	}
	h.ticket.queued = true
	if h.ticket.running {
		f.mu.Unlock()
		return // whoever serves it now serves it again
	}
	f.queue = append(f.queue, h)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *flusher) run() {
	for {
		h := f.next()
		if h == nil {
			select {
			case <-f.wake:
				continue
			case <-f.stop:
				return
			}
		}
		h.serve()
		f.mu.Lock()
		h.ticket.running = false
		if h.ticket.queued {
			f.queue = append(f.queue, h)
		}
		f.mu.Unlock()
	}
}

func (f *flusher) next() *home {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		return nil
	}
	h := f.queue[0]
	f.queue[0] = nil
	f.queue = f.queue[1:]
	h.ticket.queued, h.ticket.running = false, true
	return h
}

// close ends the goroutines after what they are at. What is queued stays unserved.
func (f *flusher) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	close(f.stop)
	f.wg.Wait()
}
