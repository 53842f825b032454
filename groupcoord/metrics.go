package groupcoord

import (
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics are the service's collectors. The runtime below has its own (coord).
type metrics struct {
	events  *prometheus.CounterVec
	commits prometheus.Counter
}

// newMetrics registers with reg unless that is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kaja_groupcoord_events_total",
			Help: "What happened to classic groups, in the words of the log."}, []string{"event"}),
		commits: prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_groupcoord_committed_offsets_total",
			Help: "Offsets that groups committed, one for each partition of a request."}),
	}
	if reg != nil {
		reg.MustRegister(m.events, m.commits)
	}
	return m
}

func (m *metrics) event(e classic.Event) { m.events.WithLabelValues(e.What).Inc() }

// committed counts the offsets that an answer says were stored.
func (m *metrics) committed(resp *kmsg.OffsetCommitResponse) {
	n := 0
	for i := range resp.Topics {
		for _, p := range resp.Topics[i].Partitions {
			if p.ErrorCode == 0 {
				n++
			}
		}
	}
	m.commits.Add(float64(n))
}
