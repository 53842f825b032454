package replica

import (
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/prometheus/client_golang/prometheus"
)

// cleanerMetrics are the collectors of compaction.
type cleanerMetrics struct {
	bytes, readBytes, writtenBytes, records, kept prometheus.Counter
	seconds                                       prometheus.Histogram
	mapBytes, dirtiest, late                      prometheus.Gauge
}

func newCleanerMetrics(r prometheus.Registerer, m *Manager) *cleanerMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_log_cleaner_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "kaja_log_cleaner_" + name, Help: help})
	}
	x := &cleanerMetrics{
		bytes:        counter("io_bytes_total", "Bytes that compaction has read and written; grows while a round runs."),
		readBytes:    counter("compacted_bytes_total", "Bytes of segments that went into compaction."),
		writtenBytes: counter("retained_bytes_total", "Bytes of segments that came out of compaction."),
		records:      counter("compacted_records_total", "Records that went into compaction."),
		kept:         counter("retained_records_total", "Records that came out of compaction."),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "kaja_log_cleaner_round_seconds",
			Help: "Time that one round on one log took.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 12)}),
		mapBytes: gauge("map_bytes", "Memory that the last round used to find duplicate keys."),
		dirtiest: gauge("max_dirty_ratio", "Dirty part of the dirtiest compacted log, 0 to 1."),
		late:     gauge("max_delay_seconds", "How long ago max.compaction.lag.ms asked for the compaction of a log that waits for it."),
	}
	if r == nil {
		return x
	}
	r.MustRegister(x.bytes, x.readBytes, x.writtenBytes, x.records, x.kept, x.seconds, x.mapBytes, x.dirtiest, x.late,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "kaja_log_cleaner_uncleanable_partitions",
			Help: "Partitions that are not compacted any more because of an error that stays."},
			func() float64 { return float64(m.clean.uncleanable()) }))
	return x
}

// looked takes what a look over all logs found.
func (x *cleanerMetrics) looked(dirtiest float64, late time.Duration) {
	x.dirtiest.Set(dirtiest)
	x.late.Set(late.Seconds())
}

// moved counts bytes that were read or are about to be written.
func (x *cleanerMetrics) moved(n int) { x.bytes.Add(float64(n)) }

func (x *cleanerMetrics) round(st log.CleanStats, took time.Duration) {
	x.readBytes.Add(float64(st.BytesRead))
	x.writtenBytes.Add(float64(st.BytesWritten))
	x.records.Add(float64(st.RecordsRead))
	x.kept.Add(float64(st.RecordsKept))
	x.seconds.Observe(took.Seconds())
	x.mapBytes.Set(float64(st.MapBytes))
}
