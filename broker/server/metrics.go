package server

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests of keys up to maxMetricKey in versions up to maxMetricVersion are counted; none beyond them is served.
const (
	maxMetricKey     = 127
	maxMetricVersion = 31
)

// metrics are the server's collectors. Counters of APIs appear with the first request.
type metrics struct {
	connections *prometheus.GaugeVec
	accepted    *prometheus.CounterVec
	acceptError prometheus.Counter
	closed      [closeKinds]prometheus.Counter
	bytesIn     prometheus.Counter
	bytesOut    prometheus.Counter
	requests    *prometheus.CounterVec
}

// requestCounts are the counters of one listener's requests by key and version. Safe for concurrent use.
type requestCounts struct {
	vec      *prometheus.CounterVec
	listener string
	counters [maxMetricKey + 1][maxMetricVersion + 1]atomic.Pointer[prometheus.Counter]
}

// forListener gives the counters of a listener's requests.
func (m *metrics) forListener(name string) *requestCounts {
	return &requestCounts{vec: m.requests, listener: name}
}

func newMetrics(reg prometheus.Registerer, b *budget) (*metrics, error) {
	closed := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kaja_server_connections_closed_total", Help: "Connections closed, by reason.",
	}, []string{"reason"})
	m := &metrics{
		connections: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kaja_server_connections", Help: "Open connections.",
		}, []string{"listener"}),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kaja_server_connections_accepted_total", Help: "Connections accepted.",
		}, []string{"listener"}),
		acceptError: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kaja_server_accept_errors_total", Help: "Failed accepts, for example for want of file descriptors.",
		}),
		bytesIn: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kaja_server_received_bytes_total", Help: "Bytes of complete requests.",
		}),
		bytesOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kaja_server_sent_bytes_total", Help: "Bytes of answers sent.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kaja_server_requests_total", Help: "Requests decoded, by listener, API and version.",
		}, []string{"listener", "api", "version"}),
	}
	for k := range m.closed {
		m.closed[k] = closed.WithLabelValues(closeTexts[k].label)
	}
	if reg == nil {
		return m, nil
	}
	used := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kaja_server_request_memory_bytes", Help: "Memory that requests being read or handled hold.",
	}, func() float64 { n, _ := b.used(); return float64(n) })
	waiting := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kaja_server_requests_waiting_for_memory", Help: "Requests that wait for the memory budget.",
	}, func() float64 { _, n := b.used(); return float64(n) })
	for _, c := range []prometheus.Collector{m.connections, m.accepted, m.acceptError, closed, m.bytesIn, m.bytesOut,
		m.requests, used, waiting} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// count counts a request of key in a version.
func (r *requestCounts) count(key, version int16) {
	if key < 0 || key > maxMetricKey || version < 0 || version > maxMetricVersion {
		return
	}
	c := r.counters[key][version].Load()
	if c == nil {
		name := kmsg.NameForKey(key)
		if name == "" {
			name = strconv.Itoa(int(key))
		}
		counter := r.vec.WithLabelValues(r.listener, name, strconv.Itoa(int(version)))
		c = &counter
		r.counters[key][version].Store(c)
	}
	(*c).Inc()
}
