package replica

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/prometheus/client_golang/prometheus"
)

// scrubDelay is the time between a start and the first pass, which must not slow down what a start has to do.
const scrubDelay = time.Minute

// ScrubConfig bounds the scrubber.
type ScrubConfig struct {
	BytesPerSecond int64         // kaja.scrub.bytes.per.second; 0: nothing is scrubbed
	Interval       time.Duration // kaja.scrub.interval.ms: from the begin of one pass to that of the next, at least
}

// scrubber is one goroutine that reads all sealed segments of this broker at a bounded rate, one pass after the other,
// and takes a partition offline whose stored records have changed (D3).
type scrubber struct {
	m      *Manager
	config ScrubConfig
	pace   pace
	ctx    context.Context //nolint:containedctx // the life of the goroutine, ended by close
	end    context.CancelFunc
	wg     sync.WaitGroup

	bytes, passes, damaged prometheus.Counter
	lastPass               prometheus.Gauge
}

func newScrubber(m *Manager, cfg ScrubConfig, r prometheus.Registerer) *scrubber {
	s := &scrubber{m: m, config: cfg,
		bytes:    prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_log_scrub_bytes_total", Help: "Bytes of sealed segments that the scrubber has verified."}),
		passes:   prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_log_scrub_passes_total", Help: "Passes over all sealed segments that the scrubber has finished."}),
		damaged:  prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_log_scrub_damaged_partitions_total", Help: "Partitions that the scrubber took offline."}),
		lastPass: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kaja_log_scrub_last_pass_seconds", Help: "Time that the last finished pass took."}),
	}
	s.pace.set(float64(cfg.BytesPerSecond))
	s.ctx, s.end = context.WithCancel(context.Background())
	if r != nil {
		r.MustRegister(s.bytes, s.passes, s.damaged, s.lastPass, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kaja_log_scrub_full_pass_seconds",
			Help: "Time that a pass over what is stored now takes at the configured rate; 0: nothing is scrubbed."}, func() float64 { return s.fullPass().Seconds() }))
	}
	return s
}

// fullPass is how long a pass over what is stored now takes.
func (s *scrubber) fullPass() time.Duration {
	if s.config.BytesPerSecond <= 0 {
		return 0
	}
	var sum int64
	for _, p := range s.m.all() {
		if plog := p.plog(); plog != nil {
			sum += plog.SealedSize()
		}
	}
	return time.Duration(float64(sum) / float64(s.config.BytesPerSecond) * float64(time.Second))
}

func (s *scrubber) start() {
	if s.config.BytesPerSecond > 0 {
		s.wg.Go(s.run)
	}
}

func (s *scrubber) close() {
	s.end()
	s.wg.Wait()
}

func (s *scrubber) run() {
	for wait := scrubDelay; ; {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			timer.Stop()
			return
		}
		began := s.m.world.now()
		s.pass(began)
		wait = max(s.config.Interval-s.m.world.now().Sub(began), time.Second)
	}
}

// pass reads every sealed segment once.
func (s *scrubber) pass(began time.Time) {
	parts := s.m.all()
	slices.SortFunc(parts, func(a, b *Partition) int { return compareTP(a.TP, b.TP) })
	var sum int64
	damaged := 0
	for _, p := range parts {
		n, err := s.scrub(p)
		sum += n
		if s.ctx.Err() != nil {
			return
		}
		if err != nil {
			damaged++
		}
	}
	took := s.m.world.now().Sub(began)
	s.passes.Inc()
	s.lastPass.Set(took.Seconds())
	if sum > 0 || damaged > 0 {
		s.m.world.logger.Info("stored records scrubbed", slog.Int("partitions", len(parts)), slog.Int64("bytes", sum),
			slog.Int("damaged", damaged), slog.Duration("took", took))
	}
}

// scrub reads one partition; an error says that it is damaged.
func (s *scrubber) scrub(p *Partition) (int64, error) {
	at := p.at.Load()
	plog := at.plog.Load()
	if plog == nil || p.Err() != nil {
		return 0, nil
	}
	n, err := plog.Scrub(s.ctx, func(ctx context.Context, n int) error {
		if err := p.Err(); err != nil {
			return err // deleted, or its directory failed
		}
		s.bytes.Add(float64(n))
		return s.pace.wait(ctx, n)
	})
	switch {
	case err == nil || s.ctx.Err() != nil || p.Err() != nil || p.at.Load() != at || errors.Is(err, log.ErrClosed):
		return n, nil
	case errors.Is(err, log.ErrCorrupt):
		s.damaged.Inc()
		p.rotten(err)
	default:
		_ = at.failed(err) // it matters only to the directory
	}
	return n, err
}
