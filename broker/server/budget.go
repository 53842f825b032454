package server

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

var (
	errClosed   = errors.New("connection closed")
	errTooSlow  = errors.New("frame arrives too slowly while others wait for memory")
	errDeadlock = errors.New("requests that are only half there hold all memory")
)

// OverBudgetError is a request that could not be served if it were alone.
type OverBudgetError struct{ Need, Limit int64 } // bytes

func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("request needs %d bytes, the budget for requests is %d", e.Need, e.Limit)
}

const (
	// smallClaim is up to which size a request may use the memory set aside for small ones, in bytes.
	smallClaim = 64<<10 + 64<<10/16
	// maxSmallHeld is what a small request may hold there in all, its decoded form included, in bytes.
	maxSmallHeld = 4 * smallClaim
	// maxSmallBytes bounds the memory set aside for small requests.
	maxSmallBytes = 16 << 20
	// reserveSlack is the part of the reserve that is left for decoding the largest frame, in bytes.
	reserveSlack = 4 << 20
	// slowFrameBytes is what an incomplete frame must have gained between two looks of the reaper, in bytes.
	slowFrameBytes = 10 << 10
)

// budget is the memory that requests may take between their first byte and the end of stage one.
//
// Three parts keep it live. Small requests have a part of their own, so they never wait for large ones; those of nodes wait
// for nobody. One request at
// a time, the favoured one, may draw on a reserve that holds the largest frame once the common part is used up: of several
// that have each received a piece and need more, one can always be completed, then the next. And while anyone
// waits, a timer looks for those that hold memory and send nothing.
//
// Requests wait in the order in which they asked. Safe for concurrent use.
type budget struct {
	common  int64 // capacity of the common part
	reserve int64 // capacity of the favoured request's part
	small   int64 // capacity of the small requests' part
	ample   bool  // the reserve holds the largest frame
	period  time.Duration

	mu          sync.Mutex
	usedCommon  int64
	usedReserve int64
	usedSmall   int64
	favoured    *claim
	waiting     []*claim
	holders     map[*claim]struct{} // claims with memory for a frame that is still arriving
	timer       *time.Timer         // not nil while anyone waits
	closed      bool
}

// claim is what one request holds. Used by one reader; cancel may come from anywhere.
type claim struct {
	node                   bool  // of a node that has proven who it is: there are few, and no client keeps their heartbeats waiting
	common, reserve, small int64 // held of each part
	want, all              int64 // want > 0 while it waits: what it asked acquire for
	granted                chan int64
	err                    error // why it may not go on
	size                   int64 // of the frame, as its length field says
	received, seen         int64 // bytes of the frame, now and at the reaper's last look
	incomplete             bool
	evict                  func(error) // ends the connection; called without the lock
}

func newBudget(total int64, maxFrame int64, period time.Duration) *budget {
	largest := int64(sizeFor(int(maxFrame))) + reserveSlack
	reserve := min(largest, total/2)
	return &budget{
		common: total - reserve, reserve: reserve, ample: reserve == largest, small: min(total/8, maxSmallBytes), period: period,
		holders: map[*claim]struct{}{},
	}
}

// limit is what one request can get at most.
func (b *budget) limit() int64 { return b.common + b.reserve }

func (c *claim) held() int64 { return c.common + c.reserve + c.small }

// acquire gives c n more bytes, or all of them (all >= n) if that is what the reserve is drawn on for, so that it need
// not be asked again. It waits if it must, and says whether it has. It fails with *OverBudgetError if c would hold more
// than there is, and with the reason if c is cancelled or evicted.
func (b *budget) acquire(c *claim, n, all int64) (granted int64, waited bool, err error) {
	b.mu.Lock()
	if c.err != nil {
		defer b.mu.Unlock()
		return 0, false, c.err
	}
	if total := c.held() + n; total > b.limit() {
		b.mu.Unlock()
		return 0, false, &OverBudgetError{Need: total, Limit: b.limit()}
	}
	c.want, c.all = n, all
	if granted = b.takeLocked(c, len(b.waiting) > 0); granted > 0 || n == 0 {
		c.want = 0
		b.mu.Unlock()
		return granted, false, nil
	}
	if c.granted == nil {
		c.granted = make(chan int64, 1)
	}
	b.waiting = append(b.waiting, c)
	if b.timer == nil && !b.closed {
		b.timer = time.AfterFunc(b.period, b.reap)
	}
	b.mu.Unlock()
	granted = <-c.granted
	b.mu.Lock()
	defer b.mu.Unlock()
	return granted, true, c.err
}

// tryAcquire gives c n bytes of the common part if that needs neither waiting nor going ahead of anybody: for memory that
// helps and could be done without.
func (b *budget) tryAcquire(c *claim, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.err != nil || len(b.waiting) > 0 || b.usedCommon+n > b.common {
		return false
	}
	b.usedCommon += n
	c.common += n
	if c.incomplete {
		b.holders[c] = struct{}{}
	}
	return true
}

// roomy says whether reading ahead of a frame is all right: not in a budget so small that the largest frame fits only
// just.
func (b *budget) roomy() bool { return b.ample }

// takeLocked tries to give c what it wants and says how much it got. behind: others wait already, so only the small part
// and the reserve are open.
func (b *budget) takeLocked(c *claim, behind bool) int64 {
	n := c.want
	switch {
	case !behind && b.usedCommon+n <= b.common:
		b.usedCommon += n
		c.common += n
	case c.size <= smallClaim && c.held()+n <= maxSmallHeld && (c.node || b.usedSmall+n <= b.small):
		b.usedSmall += n
		c.small += n
	case b.favoured != nil && b.favoured != c:
		return 0
	case b.favourLocked(c, c.all):
		n = c.all
	case !b.favourLocked(c, n):
		return 0
	}
	if c.incomplete {
		b.holders[c] = struct{}{}
	}
	return n
}

// favourLocked makes c the favoured request and gives it n bytes of the reserve, and where that is too small of the
// common part, before all that wait for it.
func (b *budget) favourLocked(c *claim, n int64) bool {
	r := min(n, b.reserve-b.usedReserve)
	if b.usedCommon+n-r > b.common {
		return false
	}
	b.favoured = c
	b.usedReserve, b.usedCommon = b.usedReserve+r, b.usedCommon+n-r
	c.reserve, c.common = c.reserve+r, c.common+n-r
	return true
}

// give returns n of the bytes that c holds: those of the common part first, so that the waiting get them.
func (b *budget) give(c *claim, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveLocked(c, n)
	b.wakeLocked()
}

func (b *budget) giveLocked(c *claim, n int64) {
	k := min(n, c.common)
	c.common, b.usedCommon, n = c.common-k, b.usedCommon-k, n-k
	k = min(n, c.small)
	c.small, b.usedSmall, n = c.small-k, b.usedSmall-k, n-k
	c.reserve, b.usedReserve = c.reserve-n, b.usedReserve-n
}

// release returns everything and ends the claim's part in the budget; c may be used for the next request.
func (b *budget) release(c *claim) { b.trim(c, 0) }

// trim is release of all but keep bytes, which must not be of the reserve: it is returned first.
func (b *budget) trim(c *claim, keep int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := min(c.held()-keep, c.reserve)
	c.reserve, b.usedReserve = c.reserve-k, b.usedReserve-k
	b.giveLocked(c, c.held()-keep)
	c.size, c.received, c.seen = 0, 0, 0
	if c.incomplete {
		c.incomplete = false
		delete(b.holders, c)
	}
	if b.favoured == c {
		b.favoured = nil
	}
	b.wakeLocked()
}

// begin says that a frame of size bytes starts, of which some have not arrived if incomplete is set; progress how much of
// it is there; complete that all is. begin and complete cost nothing for a frame that was complete from the start.
func (b *budget) begin(c *claim, size int64, incomplete bool) {
	c.size, c.incomplete = size, incomplete
	if incomplete && c.held() > 0 { // the memory of a frame before it, which this one starts in
		b.mu.Lock()
		b.holders[c] = struct{}{}
		b.mu.Unlock()
	}
}

func (b *budget) progress(c *claim, received int64) {
	b.mu.Lock()
	c.received = received
	b.mu.Unlock()
}

func (b *budget) complete(c *claim) {
	if !c.incomplete {
		return
	}
	b.mu.Lock()
	c.incomplete = false
	delete(b.holders, c)
	b.mu.Unlock()
}

// cancel ends c for good: a wait returns err, and so does every acquire after it.
func (b *budget) cancel(c *claim, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancelLocked(c, err)
	b.wakeLocked()
}

func (b *budget) cancelLocked(c *claim, err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for i, w := range b.waiting {
		if w == c {
			b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
			c.want = 0
			c.granted <- 0
			return
		}
	}
}

// wakeLocked grants in order as far as the memory goes. The favoured one and, where there is none, the first whose need
// fits into the reserve are served ahead of those that only the common part could satisfy.
func (b *budget) wakeLocked() {
	for i := 0; i < len(b.waiting); {
		c := b.waiting[i]
		n := b.takeLocked(c, i > 0)
		if n == 0 {
			i++
			continue
		}
		c.want = 0
		b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
		c.granted <- n
	}
	if len(b.waiting) == 0 && b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// victim is a claim that has to go, and why.
type victim struct {
	evict func(error)
	err   error
}

// reap runs from time to time while anyone waits.
func (b *budget) reap() {
	b.mu.Lock()
	if len(b.waiting) == 0 || b.closed {
		b.timer = nil
		b.mu.Unlock()
		return
	}
	victims := b.victimsLocked()
	b.timer = time.AfterFunc(b.period, b.reap)
	b.mu.Unlock()
	for _, v := range victims {
		v.evict(v.err)
	}
}

// victimsLocked finds the holders of incomplete frames that send next to nothing. If all memory is held by requests that
// wait for more, none of them can be completed: then the one that wants most is the victim.
func (b *budget) victimsLocked() []victim {
	var victims []victim
	for c := range b.holders {
		if c.want == 0 && c.received-c.seen < slowFrameBytes && c.seen > 0 {
			delete(b.holders, c)
			victims = append(victims, victim{c.evict, errTooSlow})
		}
		c.seen = max(c.received, 1)
	}
	var held int64
	most := b.waiting[0]
	for _, c := range b.waiting {
		held += c.common + c.reserve
		if c.want > most.want {
			most = c
		}
	}
	if held == b.usedCommon+b.usedReserve {
		victims = append(victims, victim{most.evict, errDeadlock})
	}
	return victims
}

// close stops the reaper.
func (b *budget) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// used is what all requests hold, in bytes, and how many of them wait.
func (b *budget) used() (bytes int64, waiting int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usedCommon + b.usedReserve + b.usedSmall, len(b.waiting)
}
