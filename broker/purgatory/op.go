package purgatory

import (
	"sync"
	"sync/atomic"
	"time"
)

// op is what every parked request is: something that completes once, by what it waits for or by its deadline.
type op struct {
	done atomic.Bool
	mu   sync.Mutex
	// started says that the request is parked: its entries do not change any more and whoever completes it unlinks
	// them. Before that its owner does.
	started bool
	timer   *time.Timer
	unlink  func()
	wake    func()
}

// complete reports whether this call was the one that completed the request.
//
// The race with start: the completer sets done first and looks at started after, the owner looks at done and sets
// started in one critical section. So either the completer sees started and unlinks, or start sees done and does.
func (o *op) complete() bool {
	if !o.done.CompareAndSwap(false, true) {
		return false
	}
	o.mu.Lock()
	timer, started := o.timer, o.started
	o.mu.Unlock()
	if timer != nil {
		timer.Stop()
	}
	if started {
		o.unlink()
	}
	o.wake()
	return true
}

// start parks the request for at most d. It reports false when it was completed already.
func (o *op) start(d time.Duration, expire func()) bool {
	o.mu.Lock()
	if o.done.Load() {
		o.mu.Unlock()
		o.unlink()
		return false
	}
	o.timer = time.AfterFunc(d, expire)
	o.started = true
	o.mu.Unlock()
	return true
}
