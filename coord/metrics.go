package coord

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the collectors of one Runtime; the label coordinator, its name, tells runtimes of one process apart.
type metrics struct {
	operations, busy, refused, late prometheus.Counter
	loadSeconds, commitSeconds      prometheus.Histogram
}

// newMetrics registers with reg unless that is nil. shards counts those in a phase, queued the operations that wait.
func newMetrics(reg prometheus.Registerer, name string, shards func(phase) int, queued func() int) *metrics {
	labels := prometheus.Labels{"coordinator": name}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: labels,
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16)})
	}
	m := &metrics{
		operations:    counter("kaja_coord_operations_total", "Operations carried out."),
		busy:          counter("kaja_coord_operations_refused_total", "Operations refused because the queue of their shard was full."),
		refused:       counter("kaja_coord_appends_refused_total", "Appends that the log refused."),
		late:          counter("kaja_coord_replies_late_total", "Replies that were not committed in time and told that the outcome is unknown."),
		loadSeconds:   seconds("kaja_coord_load_seconds", "Time from an election until the shard served requests."),
		commitSeconds: seconds("kaja_coord_commit_seconds", "Time from an append until it was committed."),
	}
	if reg == nil {
		return m
	}
	reg.MustRegister(m.operations, m.busy, m.refused, m.late, m.loadSeconds, m.commitSeconds,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kaja_coord_queued_operations", ConstLabels: labels,
			Help: "Operations that wait in the queues of all shards."}, func() float64 { return float64(queued()) }))
	for p, label := range map[phase]string{loading: "loading", active: "active", failed: "failed"} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kaja_coord_shards", Help: "Shards led here, by phase.",
			ConstLabels: prometheus.Labels{"coordinator": name, "phase": label}}, func() float64 { return float64(shards(p)) }))
	}
	return m
}

func (m *metrics) loaded(d time.Duration) { m.loadSeconds.Observe(d.Seconds()) }

func (m *metrics) committed(d time.Duration) { m.commitSeconds.Observe(d.Seconds()) }

// count is the number of shards in a phase.
func (r *Runtime[M]) count(p phase) int {
	n := 0
	for _, s := range r.all() {
		if s.currentPhase() == p {
			n++
		}
	}
	return n
}

// queued is the number of operations that wait in all shards.
func (r *Runtime[M]) queued() int {
	n := 0
	for _, s := range r.all() {
		s.mu.Lock()
		n += len(s.in)
		s.mu.Unlock()
	}
	return n
}

func (r *Runtime[M]) all() []*shard[M] {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*shard[M], 0, len(r.shards))
	for _, s := range r.shards {
		all = append(all, s)
	}
	return all
}
