package replica

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the data plane's collectors. Labels are bounded: none carries a topic.
type metrics struct {
	appendedBytes, appendedRecords, readBytes prometheus.Counter
	flushSeconds                              prometheus.Histogram
	replicatedBytes                           prometheus.Counter
	truncations, isrShrinks, isrExpands       prometheus.Counter
	fetchErrors                               *prometheus.CounterVec
	moved, movedBytes                         prometheus.Counter
	cleaner                                   *cleanerMetrics
}

func newMetrics(r prometheus.Registerer, m *Manager) *metrics {
	x := &metrics{
		appendedBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_appended_bytes_total",
			Help: "Bytes of record batches appended as leader."}),
		appendedRecords: prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_appended_records_total",
			Help: "Records appended as leader, by the offsets that they took."}),
		readBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_read_bytes_total",
			Help: "Bytes of record batches handed to consumers."}),
		flushSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kaja_replica_flush_seconds",
			Help: "Time that a flush of one partition took.", Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18)}),
	}
	x.replicatedBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_replicated_bytes_total",
		Help: "Bytes of record batches stored as a follower."})
	x.truncations = prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_truncations_total",
		Help: "Times that a follower has cut its log to its leader's history."})
	x.isrShrinks = prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_isr_shrinks_total",
		Help: "Times that a leader here had replicas taken out of the in-sync replicas because they lagged."})
	x.isrExpands = prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_isr_expands_total",
		Help: "Times that a leader here had replicas taken into the in-sync replicas."})
	x.fetchErrors = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kaja_replica_fetch_errors_total",
		Help: "Fetches of followers that failed, of a partition or of a whole leader, by kind."}, []string{"kind"})
	x.moved = prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_moved_total",
		Help: "Replicas that were brought into another log directory."})
	x.movedBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_replica_moved_bytes_total",
		Help: "Bytes of record batches copied into another log directory."})
	x.cleaner = newCleanerMetrics(r, m)
	if r == nil {
		return x
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	r.MustRegister(x.appendedBytes, x.appendedRecords, x.readBytes, x.flushSeconds,
		x.replicatedBytes, x.truncations, x.isrShrinks, x.isrExpands, x.fetchErrors, x.moved, x.movedBytes,
		gauge("kaja_replica_moving", "Replicas on their way into another log directory.", func() float64 { return float64(m.mover.count()) }),
		gauge("kaja_replica_under_replicated", "Led partitions of which not every replica is in sync.", func() float64 {
			return float64(m.count((*Partition).underReplicated))
		}),
		gauge("kaja_replica_fetch_max_lag_records", "Records that the followed partition which lags most is behind its leader's high watermark.", func() float64 {
			return float64(m.fetchers.maxLag())
		}),
		gauge("kaja_replica_fetch_failing", "Followed partitions that wait to be fetched again after an error.", func() float64 {
			return float64(m.fetchers.failing())
		}),
		gauge("kaja_replica_partitions", "Replicas on this broker.", func() float64 { return float64(m.count(func(*Partition) bool { return true })) }),
		gauge("kaja_replica_leaders", "Partitions that this broker leads.", func() float64 {
			return float64(m.count(func(p *Partition) bool { return p.Offsets().Leading }))
		}),
		gauge("kaja_replica_under_min_isr", "Led partitions with fewer replicas in sync than min.insync.replicas.", func() float64 {
			return float64(m.count((*Partition).underMinISR))
		}),
		gauge("kaja_replica_offline", "Replicas that take no writes: their log directory failed, or they were refused.", func() float64 {
			return float64(m.count(func(p *Partition) bool { return p.Err() != nil }))
		}),
	)
	return x
}

func (x *metrics) appended(bytes, records int64) {
	x.appendedBytes.Add(float64(bytes))
	x.appendedRecords.Add(float64(records))
}

func (x *metrics) read(bytes int64) { x.readBytes.Add(float64(bytes)) }

func (x *metrics) flushed(d time.Duration) { x.flushSeconds.Observe(d.Seconds()) }

func (x *metrics) replicated(bytes int64) { x.replicatedBytes.Add(float64(bytes)) }

func (x *metrics) fetchFailed(err error) { x.fetchErrors.WithLabelValues(kindOf(err)).Inc() }
