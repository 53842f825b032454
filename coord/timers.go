package coord

import (
	"container/heap"
	"time"
)

// timer is one armed Timer of a shard. It is in the heap unless it is held: a timer set by a decision that is not
// committed yet must not fire, since what it does would rest on records that may be lost.
type timer[M Machine] struct {
	key   string
	at    time.Time
	after time.Duration // from the decision to at; a timer released late runs this long again
	op    Op[M]
	set   uint64 // grows with every setting of any key, so that a released or popped timer knows whether it is current
	index int    // in the heap, -1 while held
}

// timers is the set of a shard's timers: by key, and ordered by time. Not safe for concurrent use.
type timers[M Machine] struct {
	byKey map[string]*timer[M]
	heap  timerHeap[M]
	sets  uint64
}

func newTimers[M Machine]() *timers[M] {
	return &timers[M]{byKey: make(map[string]*timer[M])}
}

// set arms t, replacing the timer of that key, or cancels the key when t.At is zero. A held timer waits for release.
// It returns nil for a cancellation.
func (ts *timers[M]) set(t Timer[M], now time.Time, held bool) *timer[M] {
	ts.cancel(t.Key)
	if t.At.IsZero() {
		return nil
	}
	ts.sets++
	e := &timer[M]{key: t.Key, at: t.At, after: t.At.Sub(now), op: t.Op, set: ts.sets, index: -1}
	ts.byKey[t.Key] = e
	if !held {
		heap.Push(&ts.heap, e)
	}
	return e
}

func (ts *timers[M]) cancel(key string) {
	e, ok := ts.byKey[key]
	if !ok {
		return
	}
	delete(ts.byKey, key)
	if e.index >= 0 {
		heap.Remove(&ts.heap, e.index)
	}
}

// release lets a held timer run, for its full duration from now; nothing happens if it was replaced meanwhile.
func (ts *timers[M]) release(e *timer[M], now time.Time) {
	if ts.byKey[e.key] != e || e.index >= 0 {
		return
	}
	e.at = now.Add(e.after)
	heap.Push(&ts.heap, e)
}

// due removes and returns the earliest timer at or before now.
func (ts *timers[M]) due(now time.Time) (*timer[M], bool) {
	if len(ts.heap) == 0 || ts.heap[0].at.After(now) {
		return nil, false
	}
	e := heap.Pop(&ts.heap).(*timer[M])
	delete(ts.byKey, e.key)
	return e, true
}

// next is when the earliest timer is due; false if none runs.
func (ts *timers[M]) next() (time.Time, bool) {
	if len(ts.heap) == 0 {
		return time.Time{}, false
	}
	return ts.heap[0].at, true
}

// timerHeap orders by time, then by the order of setting, so that equal times fire deterministically.
type timerHeap[M Machine] []*timer[M]

func (h timerHeap[M]) Len() int { return len(h) }

func (h timerHeap[M]) Less(i, j int) bool {
	if h[i].at.Equal(h[j].at) {
		return h[i].set < h[j].set
	}
	return h[i].at.Before(h[j].at)
}

func (h timerHeap[M]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *timerHeap[M]) Push(x any) {
	e := x.(*timer[M])
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *timerHeap[M]) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
