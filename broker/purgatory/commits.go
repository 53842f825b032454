package purgatory

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/wire"
)

// Commit is a request that waits until its records are committed on every partition it wrote to. Make it with
// NewCommit, add it with Commits.Watch, then call Start once; all from one goroutine.
type Commit struct {
	op
	pending atomic.Int32
	expired error
	entries []commitEntry
	errs    []error
}

type commitEntry struct {
	prev, next *commitEntry
	list       *Commits
	linked     bool // guarded by list.mu
	end        wire.Offset
	commit     *Commit         // nil for a callback
	index      int             // into commit.errs
	settled    bool            // guarded by list.mu: the outcome is known, or the deadline has passed
	err        error           // the outcome of a callback
	fn         func(err error) // nil for a Commit
}

// NewCommit makes a request with n partitions to wait for. When the deadline passes first, the ones that are still
// open get expired. wake runs exactly once, on the goroutine of whoever completes it (possibly inside Start), and must
// only signal.
func NewCommit(n int, expired error, wake func(errs []error)) *Commit {
	c := &Commit{expired: expired, entries: make([]commitEntry, 0, n), errs: make([]error, n)}
	c.pending.Store(int32(n) + 1) // one for Start, so that nothing completes before all are watched
	c.op.wake = func() { wake(c.errs) }
	c.op.unlink = func() {}
	return c
}

// Start parks the request for at most d.
func (c *Commit) Start(d time.Duration) {
	if c.pending.Add(-1) == 0 {
		c.complete()
		return
	}
	c.start(d, c.expire)
}

// expire settles what is open. An entry that a list settles at the same moment keeps the list's outcome.
func (c *Commit) expire() {
	open := int32(0)
	for i := range c.entries {
		e := &c.entries[i]
		e.list.mu.Lock()
		if !e.settled {
			e.settled = true
			c.errs[e.index] = c.expired
			e.list.removeLocked(e)
			open++
		}
		e.list.mu.Unlock()
	}
	if open > 0 && c.pending.Add(-open) == 0 {
		c.complete()
	}
}

// Commits is the queue of those who wait for one partition's high watermark, in offset order. The zero value is ready.
// Safe for concurrent use.
type Commits struct {
	mu         sync.Mutex
	hw         wire.Offset
	err        error // what a commit at or below hw is told: nil, or that too few replicas have it
	generation uint64
	failed     error // why the previous generation ended
	head, tail *commitEntry
	// settled holds what left the queue and was not told yet; draining says that someone is telling. One teller at a
	// time keeps callbacks in offset order whoever moves the high watermark.
	settled  []*commitEntry
	draining bool
	size     int
}

// Watch adds c as its index-th partition: records up to end (exclusive), appended in generation. A generation that has
// ended gets that reason, a high watermark that is there already its outcome.
func (q *Commits) Watch(c *Commit, index int, generation uint64, end wire.Offset) {
	c.entries = append(c.entries, commitEntry{list: q, end: end, commit: c, index: index})
	e := &c.entries[len(c.entries)-1]
	q.mu.Lock()
	switch {
	case generation != q.generation:
		e.settled, c.errs[index] = true, q.failed
	case q.hw >= end:
		e.settled, c.errs[index] = true, q.err
	default:
		q.insertLocked(e)
	}
	settled := e.settled
	q.mu.Unlock()
	if settled && c.pending.Add(-1) == 0 {
		c.complete()
	}
}

// Push adds a callback for records up to end (exclusive) in generation. It never calls it itself, so it may be called
// under a lock; if the outcome is known already, Push reports true and someone has to call Drain.
func (q *Commits) Push(generation uint64, end wire.Offset, fn func(err error)) (known bool) {
	e := &commitEntry{list: q, end: end, fn: fn}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case generation != q.generation:
		e.err = q.failed
	case q.hw >= end:
		e.err = q.err
	default:
		q.insertLocked(e)
		return false
	}
	e.settled = true
	q.settled = append(q.settled, e)
	return true
}

// Advance says that the high watermark is hw; err is what those are told who wait for no more than that. The high
// watermark never goes back within a generation. The caller must hold no lock.
func (q *Commits) Advance(generation uint64, hw wire.Offset, err error) {
	q.Move(generation, hw, err)
	q.Drain()
}

// Move is Advance without telling anybody; the caller has to see that Drain runs. It may be called under a lock.
func (q *Commits) Move(generation uint64, hw wire.Offset, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if generation != q.generation {
		return
	}
	q.hw, q.err = max(q.hw, hw), err
	for e := q.head; e != nil && e.end <= q.hw; e = q.head {
		q.settleLocked(e, q.err)
	}
}

// Fail ends every generation before generation: all who wait are told err, and so are those who come later with an
// older one. hw is the high watermark that the new generation starts with. The caller must hold no lock.
func (q *Commits) Fail(generation uint64, hw wire.Offset, err error) {
	q.End(generation, hw, err)
	q.Drain()
}

// End is Fail without telling anybody; the caller has to see that Drain runs. It may be called under a lock, and should
// be under the one under which the generation is taken with an append: else an append of the new generation could come
// to Watch before End.
func (q *Commits) End(generation uint64, hw wire.Offset, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if generation <= q.generation {
		return
	}
	q.generation, q.failed, q.hw, q.err = generation, err, hw, nil
	for e := q.head; e != nil; e = q.head {
		q.settleLocked(e, err)
	}
}

// Refuse tells every request that waits in generation err; callbacks go on waiting. The caller must see that Drain runs. It
// may be called under a lock.
func (q *Commits) Refuse(generation uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if generation != q.generation {
		return
	}
	for e := q.head; e != nil; {
		next := e.next
		if e.commit != nil {
			q.settleLocked(e, err)
		}
		e = next
	}
}

func (q *Commits) settleLocked(e *commitEntry, err error) {
	q.removeLocked(e)
	e.settled = true
	if e.commit != nil {
		e.commit.errs[e.index] = err
	} else {
		e.err = err
	}
	q.settled = append(q.settled, e)
}

// Drain tells everybody whose outcome is known, in the order in which the outcomes came, unless another goroutine is
// at it (which then tells these too). The caller must hold no lock.
func (q *Commits) Drain() {
	q.mu.Lock()
	if q.draining {
		q.mu.Unlock()
		return
	}
	q.draining = true
	for len(q.settled) > 0 {
		batch := q.settled
		q.settled = nil
		q.mu.Unlock()
		for _, e := range batch {
			if e.commit == nil {
				e.fn(e.err)
			} else if e.commit.pending.Add(-1) == 0 {
				e.commit.complete()
			}
		}
		q.mu.Lock()
	}
	q.draining = false
	q.mu.Unlock()
}

// Len is the number of those who wait.
func (q *Commits) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

// insertLocked keeps offset order, and order of arrival among equals. Nearly every entry goes to the end.
func (q *Commits) insertLocked(e *commitEntry) {
	at := q.tail
	for at != nil && at.end > e.end {
		at = at.prev
	}
	e.linked, e.prev = true, at
	if at == nil {
		e.next, q.head = q.head, e
	} else {
		e.next, at.next = at.next, e
	}
	if e.next == nil {
		q.tail = e
	} else {
		e.next.prev = e
	}
	q.size++
}

func (q *Commits) removeLocked(e *commitEntry) {
	if !e.linked {
		return
	}
	e.linked = false
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		q.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		q.tail = e.prev
	}
	e.prev, e.next = nil, nil
	q.size--
}
