package raftctl

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the controller's collectors.
type metrics struct {
	active                        prometheus.Gauge
	entries, entryBytes           prometheus.Counter
	commitSeconds, publishSeconds prometheus.Histogram
	snapshots, fenced             *prometheus.CounterVec
	heartbeatGap, leaderSilence   prometheus.Histogram
}

// newMetrics registers with reg unless that is nil. c's published image is asked at each scrape.
func newMetrics(reg prometheus.Registerer, c *Controller) (*metrics, error) {
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0002, 2, 16)})
	}
	silence := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: []float64{0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 1, 1.25, 1.5, 2, 3, 4.5, 9}})
	}
	m := &metrics{
		heartbeatGap: silence("kaja_raftctl_heartbeat_gap_seconds",
			"Time between two heartbeats of a broker at the active controller; after broker.session.timeout.ms without one it is fenced."),
		leaderSilence: silence("kaja_raftctl_leader_silence_seconds",
			"Time between two words of the node that leads the metadata, on a node that follows."),
		fenced: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kaja_raftctl_fenced_brokers_total",
			Help: "Brokers that this node, as the active controller, has fenced by itself, by what told it that they were gone: the end of their session, or their machine, which refused connections."},
			[]string{"by"}),
		active: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kaja_raftctl_active",
			Help: "1 while this node is the active controller, else 0."}),
		entries: prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_raftctl_entries_total",
			Help: "Metadata entries that this node proposed."}),
		entryBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_raftctl_entry_bytes_total",
			Help: "Bytes of the metadata entries that this node proposed."}),
		commitSeconds:  seconds("kaja_raftctl_commit_seconds", "Time from the proposal of a metadata entry until it was committed and published here."),
		publishSeconds: seconds("kaja_raftctl_publish_seconds", "Time that applying one committed metadata change took on this node."),
		snapshots: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kaja_raftctl_snapshots_total",
			Help: "Metadata snapshots tried, by result."}, []string{"result"}),
	}
	if reg == nil {
		return m, nil
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	for _, x := range []prometheus.Collector{m.active, m.entries, m.entryBytes, m.commitSeconds, m.publishSeconds, m.snapshots, m.fenced, m.heartbeatGap, m.leaderSilence,
		gauge("kaja_raftctl_metadata_offset", "Offset of the newest metadata that this node has applied.",
			func() float64 { return float64(c.Image().Offset()) }),
		gauge("kaja_raftctl_controller_epoch", "Controller epoch of the newest metadata that this node has applied.",
			func() float64 { return float64(c.Image().ControllerEpoch()) }),
	} {
		if err := reg.Register(x); err != nil {
			return nil, fmt.Errorf("register controller metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) proposed(bytes int) {
	m.entries.Inc()
	m.entryBytes.Add(float64(bytes))
}

func (m *metrics) committed(d time.Duration) { m.commitSeconds.Observe(d.Seconds()) }

func (m *metrics) published(d time.Duration) { m.publishSeconds.Observe(d.Seconds()) }

func (m *metrics) snapshot(err error) {
	result := "ok"
	if err != nil {
		result = "failed"
	}
	m.snapshots.WithLabelValues(result).Inc()
}
