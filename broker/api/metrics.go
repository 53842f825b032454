package api

import "github.com/prometheus/client_golang/prometheus"

// register adds the collectors of the session cache to reg, unless that is nil.
func (c *fetchSessions) register(reg prometheus.Registerer) {
	if reg == nil {
		return
	}
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	reg.MustRegister(
		gauge("kaja_api_fetch_sessions", "Incremental fetch sessions (KIP-227).", func() float64 {
			n, _, _ := c.Stats()
			return float64(n)
		}),
		gauge("kaja_api_fetch_session_partitions", "Partitions in all incremental fetch sessions.", func() float64 {
			_, n, _ := c.Stats()
			return float64(n)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "kaja_api_fetch_session_evictions_total",
			Help: "Incremental fetch sessions that had to make room for others."}, func() float64 {
			_, _, n := c.Stats()
			return float64(n)
		}),
	)
}
