package purgatory

import (
	"sync"
	"sync/atomic"
	"time"
)

// Bound is up to where a reader may read.
type Bound uint8

// The bounds of a read_uncommitted consumer, of a read_committed one, and of a follower.
const (
	UpToHW Bound = iota
	UpToLSO
	UpToLEO
	bounds
)

// Mark is a moment in the life of a partition: how many bytes it has made readable under each bound, counted from an
// arbitrary start, and its generation, which changes when readers must look again (leadership, truncation, offline).
type Mark struct {
	Generation uint64
	Bytes      [bounds]int64
}

// Fetch is a fetch that waits for bytes. Make it with NewFetch, add it to each partition with Readers.Watch, then call
// Start once; all from one goroutine.
type Fetch struct {
	op
	missing atomic.Int64
	entries []fetchEntry
}

type fetchEntry struct {
	prev, next *fetchEntry
	list       *Readers // nil until watched
	linked     bool     // guarded by list.mu
	fetch      *Fetch
	bound      Bound
	seen       int64 // bytes of the bound that were counted or looked at
	room       int64 // bytes that may still count: the partition's limit
}

// NewFetch makes a fetch that wants missing more bytes from at most partitions partitions. wake runs exactly once, on
// the goroutine of whoever completes it (possibly inside Watch), and must only signal.
func NewFetch(missing int64, partitions int, wake func()) *Fetch {
	f := &Fetch{entries: make([]fetchEntry, 0, partitions)}
	f.missing.Store(missing)
	f.op.wake = wake
	f.op.unlink = f.unlinkAll
	return f
}

// Start parks the fetch for at most d.
func (f *Fetch) Start(d time.Duration) { f.start(d, func() { f.complete() }) }

// Complete wakes the fetch now unless it was woken before.
func (f *Fetch) Complete() { f.complete() }

func (f *Fetch) unlinkAll() {
	for i := range f.entries {
		e := &f.entries[i]
		e.list.mu.Lock()
		e.list.removeLocked(e)
		e.list.mu.Unlock()
	}
}

// Readers is the list of fetches that wait for one partition. The zero value is ready. Safe for concurrent use.
type Readers struct {
	mu   sync.Mutex
	mark Mark
	head *fetchEntry
	size int
}

// Watch adds f, whose read of this partition was done at mark under bound and may still take room bytes of it. What
// has become readable since counts at once; if the generation has changed since, f is woken.
func (r *Readers) Watch(f *Fetch, mark Mark, bound Bound, room int64) {
	f.entries = append(f.entries, fetchEntry{list: r, fetch: f, bound: bound, seen: mark.Bytes[bound], room: room})
	e := &f.entries[len(f.entries)-1]
	r.mu.Lock()
	full := mark.Generation != r.mark.Generation || e.countLocked(r.mark)
	if !full {
		r.insertLocked(e)
	}
	r.mu.Unlock()
	if full {
		f.complete()
	}
}

// countLocked charges what became readable since the entry was last looked at and reports whether its fetch has enough.
func (e *fetchEntry) countLocked(m Mark) bool {
	fresh := m.Bytes[e.bound] - e.seen
	if fresh <= 0 {
		return false
	}
	e.seen = m.Bytes[e.bound]
	fresh = min(fresh, e.room)
	e.room -= fresh
	return e.fetch.missing.Add(-fresh) <= 0
}

// Advance says that the partition has reached m. The caller may call it out of order; bytes never go back. It must hold
// no lock.
func (r *Readers) Advance(m Mark) {
	r.mu.Lock()
	if m.Generation != r.mark.Generation {
		r.mu.Unlock()
		r.Interrupt(m) // of an older generation it does nothing, of a newer one it is the first word of it
		return
	}
	moved := false
	for b, n := range m.Bytes {
		if n > r.mark.Bytes[b] {
			r.mark.Bytes[b], moved = n, true
		}
	}
	if !moved || r.head == nil {
		r.mu.Unlock()
		return
	}
	var buf [8]*Fetch
	woken := buf[:0]
	for e := r.head; e != nil; {
		next := e.next
		if e.countLocked(r.mark) {
			r.removeLocked(e)
			woken = append(woken, e.fetch)
		}
		e = next
	}
	r.mu.Unlock()
	for _, f := range woken {
		f.complete()
	}
}

// Interrupt starts generation m.Generation and wakes every fetch that waits. The caller must hold no lock.
func (r *Readers) Interrupt(m Mark) {
	r.mu.Lock()
	if m.Generation <= r.mark.Generation {
		r.mu.Unlock()
		return
	}
	r.mark = m
	var woken []*Fetch
	for e := r.head; e != nil; e = r.head {
		r.removeLocked(e)
		woken = append(woken, e.fetch)
	}
	r.mu.Unlock()
	for _, f := range woken {
		f.complete()
	}
}

// Len is the number of fetches that wait.
func (r *Readers) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size
}

func (r *Readers) insertLocked(e *fetchEntry) {
	e.linked = true
	e.next = r.head
	if r.head != nil {
		r.head.prev = e
	}
	r.head = e
	r.size++
}

func (r *Readers) removeLocked(e *fetchEntry) {
	if !e.linked {
		return
	}
	e.linked = false
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		r.head = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	r.size--
}
