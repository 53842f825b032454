package replica

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
)

// housekeeper is one goroutine that does what comes by the clock: checkpoints, retention, producer expiry, flush.ms,
// and the removal of what was deleted. It sleeps until the next of them is due.
type housekeeper struct {
	m     *Manager
	tasks []*task
	wg    sync.WaitGroup
	wake  chan struct{}
	stop  chan struct{}

	mu       sync.Mutex
	started  bool
	flushes  map[*Partition]time.Time // flush.ms: when
	removals []removal                // directories of deleted partitions
	cleanups map[*Partition]time.Time // partitions with segment files to remove: when
}

// cleanUpRetry is the wait before files of deleted segments that could not be removed are tried again.
const cleanUpRetry = time.Minute

type task struct {
	every time.Duration
	next  time.Time
	do    func(now time.Time)
}

type removal struct {
	dir  *logDir
	path string
	plog *log.Log // nil for a directory that was found condemned
	at   time.Time
}

func newHousekeeper(m *Manager) *housekeeper {
	h := &housekeeper{m: m, wake: make(chan struct{}, 1), stop: make(chan struct{}),
		flushes: map[*Partition]time.Time{}, cleanups: map[*Partition]time.Time{}}
	i := m.o.Intervals
	h.tasks = []*task{
		{every: i.HWCheckpoint, do: h.checkpointHWs},
		{every: i.RecoveryPoint, do: h.eachDir((*logDir).checkpointRecoveryPoint)},
		{every: i.LogStart, do: h.eachDir((*logDir).checkpointLogStart)},
		{every: i.Retention, do: h.retain},
		{every: i.ProducerExpiration, do: h.expireProducers},
	}
	return h
}

func (h *housekeeper) start() {
	now := h.m.world.now()
	for _, t := range h.tasks {
		t.next = now.Add(t.every)
	}
	h.tasks[3].next = now.Add(min(h.m.o.RetentionInitDelay, h.tasks[3].every))
	h.mu.Lock()
	h.started = true
	h.mu.Unlock()
	h.wg.Go(h.run)
}

func (h *housekeeper) close() {
	h.mu.Lock()
	started := h.started
	h.started = false
	h.mu.Unlock()
	if started {
		close(h.stop)
		h.wg.Wait()
	}
}

func (h *housekeeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-h.stop:
			return
		case <-h.wake:
		case <-timer.C:
		}
		now := h.m.world.now()
		for _, t := range h.tasks {
			if !now.Before(t.next) {
				t.do(now)
				t.next = now.Add(t.every)
			}
		}
		h.flushDue(now)
		h.removeDue(now)
		h.cleanUpDue(now)
		timer.Reset(max(0, h.nextDue().Sub(h.m.world.now())))
	}
}

// nextDue is when the goroutine has to look again.
func (h *housekeeper) nextDue() time.Time {
	next := h.tasks[0].next
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	for _, t := range h.tasks {
		sooner(t.next)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.flushes {
		sooner(at)
	}
	for _, at := range h.cleanups {
		sooner(at)
	}
	for _, r := range h.removals {
		sooner(r.at)
	}
	return next
}

func (h *housekeeper) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// flushAt has p flushed at the given time unless it is to be flushed sooner.
func (h *housekeeper) flushAt(p *Partition, at time.Time) {
	h.mu.Lock()
	_, planned := h.flushes[p]
	if !planned {
		h.flushes[p] = at
	}
	h.mu.Unlock()
	if !planned {
		h.poke()
	}
}

// removeAt has a condemned directory removed at the given time.
func (h *housekeeper) removeAt(d *logDir, path string, plog *log.Log, at time.Time) {
	h.mu.Lock()
	h.removals = append(h.removals, removal{d, path, plog, at})
	h.mu.Unlock()
	h.poke()
}

func (h *housekeeper) flushDue(now time.Time) {
	var due []*Partition
	h.mu.Lock()
	for p, at := range h.flushes {
		if !now.Before(at) {
			due = append(due, p)
			delete(h.flushes, p)
		}
	}
	h.mu.Unlock()
	for _, p := range due {
		if plog := p.plog(); plog != nil && plog.FlushedOffset() < plog.EndOffset() {
			p.forceFlush()
			p.kick()
		}
	}
}

func (h *housekeeper) removeDue(now time.Time) {
	var due []removal
	h.mu.Lock()
	keep := h.removals[:0]
	for _, r := range h.removals {
		if now.Before(r.at) {
			keep = append(keep, r)
		} else {
			due = append(due, r)
		}
	}
	h.removals = keep
	h.mu.Unlock()
	for _, r := range due {
		if r.dir.failed() != nil {
			continue
		}
		var err error
		if r.plog != nil {
			err = r.plog.Delete()
		} else {
			err = vfs.RemoveAll(r.dir.fs, r.path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			h.m.world.logger.Warn("deleted partition cannot be removed yet", "path", r.path, "err", err)
			h.removeAt(r.dir, r.path, r.plog, now.Add(time.Minute))
		}
	}
}

func (h *housekeeper) cleanUpDue(now time.Time) {
	var due []*Partition
	h.mu.Lock()
	for p, at := range h.cleanups {
		if !now.Before(at) {
			due = append(due, p)
			delete(h.cleanups, p)
		}
	}
	h.mu.Unlock()
	for _, p := range due {
		if p.Err() != nil {
			continue
		}
		plog := p.plog()
		if plog == nil {
			continue
		}
		at := h.m.world.aged.now()
		err := plog.RemoveDeleted(at)
		if err != nil {
			h.m.world.logger.Warn("deleted segments cannot be removed", "topic", p.TP.Topic, "partition", p.TP.Partition, "err", err)
		}
		switch wait, more := plog.NextRemoval(at); {
		case !more:
		case err != nil:
			h.cleanUpAt(p, now.Add(cleanUpRetry))
		default:
			h.cleanUpAt(p, now.Add(max(wait, time.Second)))
		}
	}
}

func (h *housekeeper) eachDir(do func(*logDir) error) func(time.Time) {
	return func(time.Time) {
		for _, d := range h.m.dirs {
			_ = do(d) // an error has taken the directory offline or was logged
		}
	}
}

func (h *housekeeper) checkpointHWs(time.Time) {
	h.m.world.aged.now() // so that a jump is noticed soon
	for _, d := range h.m.dirs {
		if d.hwDirty.Swap(false) {
			if err := d.checkpointHW(); err != nil {
				d.hwDirty.Store(true)
			}
		}
	}
}

// retain deletes what retention.ms, retention.bytes and the log start allow.
func (h *housekeeper) retain(now time.Time) {
	for _, p := range h.m.all() {
		at := p.at.Load()
		plog := at.plog.Load()
		if plog == nil || p.Err() != nil {
			continue
		}
		n, err := p.retain(at, plog)
		if err != nil {
			h.m.world.logger.Error("retention failed", "topic", p.TP.Topic, "partition", p.TP.Partition, "err", err)
		}
		if n > 0 {
			h.m.world.logger.Info("segments deleted", "topic", p.TP.Topic, "partition", p.TP.Partition, "segments", n, "log_start", plog.StartOffset())
			h.cleanUpAt(p, now.Add(p.Config().FileDeleteDelay))
		}
	}
}

// cleanUpAt has the files of deleted segments of p removed at the given time, or sooner if that is planned; what is not due
// then is planned anew.
func (h *housekeeper) cleanUpAt(p *Partition, at time.Time) {
	h.mu.Lock()
	if planned, ok := h.cleanups[p]; !ok || at.Before(planned) {
		h.cleanups[p] = at
	}
	h.mu.Unlock()
	h.poke()
}

func (h *housekeeper) expireProducers(now time.Time) {
	for _, p := range h.m.all() {
		p.guards.expire(now.Add(-p.Config().ProducerIDExpiration))
		if plog := p.plog(); plog != nil && p.Err() == nil {
			plog.ExpireProducers(h.m.world.aged.now())
		}
	}
}
