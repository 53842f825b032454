package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
)

// CleanerConfig is what compaction runs with on this broker.
type CleanerConfig struct {
	Threads        int           // log.cleaner.threads; 0: nothing is compacted
	MapBytes       int64         // log.cleaner.dedupe.buffer.size, of all threads together
	MapLoad        float64       // log.cleaner.io.buffer.load.factor
	BufferBytes    int           // log.cleaner.io.buffer.size, of all threads together
	BytesPerSecond float64       // log.cleaner.io.max.bytes.per.second, of all threads together
	Backoff        time.Duration // log.cleaner.backoff.ms
}

// minBackoff keeps log.cleaner.backoff.ms=0 from turning into a loop that looks all the time.
const minBackoff = 10 * time.Millisecond

// cleaner compacts logs: a fixed number of goroutines, each of which takes the log with the largest dirty part that is due
// (Kafka: LogCleaner.CleanerThread), and sleeps for the back-off when none is. Between rounds it holds no memory.
type cleaner struct {
	m     *Manager
	pace  pace
	ctx   context.Context //nolint:containedctx // the life of the goroutines, ended by close
	end   context.CancelFunc
	wg    sync.WaitGroup
	picks xsync.Mutex // one goroutine looks for work at a time; covers reading the first headers of segments

	mu      sync.Mutex // covers what follows
	config  CleanerConfig
	running map[int]bool
	changed chan struct{} // closed when config changes
	busy    map[*Partition]bool
	unclean map[*Partition]bool // could not be compacted for a reason that stays; until the next start
	stopped bool
}

func newCleaner(m *Manager) *cleaner {
	c := &cleaner{m: m, running: map[int]bool{}, changed: make(chan struct{}), busy: map[*Partition]bool{}, unclean: map[*Partition]bool{}}
	c.ctx, c.end = context.WithCancel(context.Background())
	return c
}

// configure puts a configuration into force: rounds that begin later and the pace of those that run follow it.
func (c *cleaner) configure(cfg CleanerConfig) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.config == cfg || c.stopped {
		return
	}
	c.config = cfg
	c.pace.set(cfg.BytesPerSecond)
	close(c.changed)
	c.changed = make(chan struct{})
	for id := range cfg.Threads {
		if !c.running[id] {
			c.running[id] = true
			c.wg.Go(func() { c.run(id) })
		}
	}
}

// close ends the rounds that run, which changes nothing that they have not finished, and joins the goroutines.
func (c *cleaner) close() {
	c.mu.Lock()
	c.stopped = true
	c.mu.Unlock()
	c.end()
	c.wg.Wait()
}

func (c *cleaner) run(id int) {
	for {
		c.mu.Lock()
		cfg, changed := c.config, c.changed
		if id >= cfg.Threads || c.ctx.Err() != nil {
			delete(c.running, id)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if p, plan := c.pick(); p != nil && c.clean(p, plan, cfg) {
			continue
		}
		timer := time.NewTimer(max(cfg.Backoff, minBackoff))
		select {
		case <-timer.C:
		case <-changed:
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

// pick takes the log with the largest dirty ratio of those that are due.
func (c *cleaner) pick() (*Partition, log.CleanPlan) {
	c.picks.Lock()
	defer c.picks.Unlock()
	var best *Partition
	var plan log.CleanPlan
	dirtiest, late := 0.0, time.Duration(0)
	now := c.m.world.aged.now()
	c.forgetGone()
	for _, p := range c.m.all() {
		plog, cfg := p.plog(), p.Config()
		if plog == nil || !cfg.Compact || p.Err() != nil || plog.Segments() < 2 || c.taken(p) || c.m.mover.moving(p) {
			continue
		}
		this, err := plog.PlanClean(wire.Offset(p.cleaned.Load()), p.Offsets().LSO, now)
		if err != nil {
			c.failed(p, err)
			continue
		}
		dirtiest, late = max(dirtiest, this.Ratio()), max(late, this.Overdue)
		if this.Reset && !cfg.Delete {
			c.m.world.logger.Warn("cleaner checkpoint does not fit the log, compacting it from its start", slog.String("topic", p.TP.Topic),
				slog.Int("partition", int(p.TP.Partition)), slog.Int64("checkpoint", p.cleaned.Load()),
				slog.Int64("log_start", int64(plog.StartOffset())), slog.Int64("end_offset", int64(plog.EndOffset())))
			p.cleaned.Store(int64(this.From))
		}
		if this.Due(cfg) && (best == nil || cmp.Compare(this.Ratio(), plan.Ratio()) > 0) {
			best, plan = p, this
		}
	}
	c.m.world.metrics.cleaner.looked(dirtiest, late)
	if best != nil {
		c.mu.Lock()
		c.busy[best] = true
		c.mu.Unlock()
	}
	return best, plan
}

// forgetGone drops what is known of partitions that are out of service.
func (c *cleaner) forgetGone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.unclean, func(p *Partition, _ bool) bool { return p.Err() != nil })
}

// working reports whether a round runs on p.
func (c *cleaner) working(p *Partition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy[p]
}

func (c *cleaner) taken(p *Partition) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy[p] || c.unclean[p]
}

// clean runs one round on p; true says that it did something, so that there may be more to do at once.
func (c *cleaner) clean(p *Partition, plan log.CleanPlan, cfg CleanerConfig) bool {
	defer func() {
		c.mu.Lock()
		delete(c.busy, p)
		c.mu.Unlock()
	}()
	began, plog := c.m.world.now(), p.plog()
	st, err := plog.Clean(c.ctx, plan, log.CleanOptions{
		Now: c.m.world.aged.now(), MapBytes: cfg.MapBytes / int64(max(cfg.Threads, 1)), MapLoad: cfg.MapLoad,
		BufferBytes: cfg.BufferBytes / max(cfg.Threads, 1) / 2,
		Throttle: func(ctx context.Context, n int) error {
			if err := p.Err(); err != nil {
				return err // deleted, or its directory failed
			}
			if c.m.mover.moving(p) {
				return log.ErrCleanAborted // what is copied does not change meanwhile
			}
			c.m.world.metrics.cleaner.moved(n)
			return c.pace.wait(ctx, n)
		},
	})
	took := c.m.world.now().Sub(began)
	c.m.world.metrics.cleaner.round(st, took)
	if st.SegmentsIn > 0 {
		c.m.house.cleanUpAt(p, c.m.world.now().Add(p.Config().FileDeleteDelay))
	}
	if err != nil {
		c.failed(p, err)
		return false
	}
	p.cleaned.Store(int64(st.End))
	c.m.world.logger.Info("log compacted", slog.String("topic", p.TP.Topic), slog.Int("partition", int(p.TP.Partition)),
		slog.Int64("from", int64(plan.From)), slog.Int64("to", int64(st.End)),
		slog.Int64("bytes_before", st.BytesRead), slog.Int64("bytes_after", st.BytesWritten),
		slog.Int64("records_before", st.RecordsRead), slog.Int64("records_after", st.RecordsKept),
		slog.Int("segments_before", st.SegmentsIn), slog.Int("segments_after", st.SegmentsOut),
		slog.Int("keys", st.MapKeys), slog.Duration("took", took))
	_ = p.dir().checkpointCleaner() // an error has taken the directory offline or was logged; the next round writes it again
	return true
}

// failed deals with a round that did not end well. Nothing is lost by it: the log is as it was.
func (c *cleaner) failed(p *Partition, err error) {
	logger := c.m.world.logger.With(slog.String("topic", p.TP.Topic), slog.Int("partition", int(p.TP.Partition)), slog.Any("err", err))
	switch {
	case c.ctx.Err() != nil || p.Err() != nil || errors.Is(err, log.ErrCleanAborted) || errors.Is(err, log.ErrClosed):
	case log.Passing(err):
		logger.Warn("no space or no descriptor to compact a log")
	case errors.Is(err, log.ErrStorage):
		logger.Error("log cannot be compacted")
		_ = p.storageFailed(err) // it matters only to the directory
	case errors.Is(err, log.ErrCorrupt):
		p.rotten(err)
	default:
		logger.Error("log cannot be compacted and is left as it is until the next start")
		c.mu.Lock()
		c.unclean[p] = true
		c.mu.Unlock()
	}
}

// uncleanable is the number of partitions that are not compacted any more.
func (c *cleaner) uncleanable() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.unclean)
}

// rotten takes a partition out of service here whose stored bytes have changed on the disk: what a reader would get is
// not what was written. Nothing is cut off or removed; the good part is left for whoever repairs it.
func (p *Partition) rotten(err error) {
	p.world.logger.Error("partition is offline: its stored records are damaged; nothing was changed", slog.String("topic", p.TP.Topic),
		slog.Int("partition", int(p.TP.Partition)), slog.String("dir", p.dir().path), slog.Any("err", err))
	p.stop(fmt.Errorf("%w: %s is damaged: %w", ErrOffline, p.TP, err))
	p.world.damaged(p)
}

// pace is a bound on bytes per second that several goroutines share.
type pace struct {
	mu      sync.Mutex
	rate    float64
	free    time.Time     // when the bytes that were taken are paid for
	changed chan struct{} // closed when rate changes; nil: nobody waits
}

// set puts another bound into force; 0 is none. Whoever waits goes on.
func (p *pace) set(bytesPerSecond float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate == bytesPerSecond {
		return
	}
	p.rate, p.free = bytesPerSecond, time.Time{}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// wait takes n bytes and returns when that keeps the bound, when the bound changes, or when ctx ends, whose error it gives.
func (p *pace) wait(ctx context.Context, n int) error {
	p.mu.Lock()
	rate, now := p.rate, time.Now()
	if !(rate > 0) || float64(n)/rate < 1e-12 {
		p.mu.Unlock()
		return ctx.Err()
	}
	if p.free.Before(now) {
		p.free = now
	}
	delay := p.free.Sub(now)
	p.free = p.free.Add(time.Duration(min(float64(n)/rate*float64(time.Second), math.MaxInt64/4)))
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	changed := p.changed
	p.mu.Unlock()
	if delay <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-changed:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
