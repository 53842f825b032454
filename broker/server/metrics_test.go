package server

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Requests are counted by listener, API and version; a key or version that no route can have is not counted.
func TestRequestsAreCounted(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := newMetrics(reg, newBudget(1<<20, 1<<20, 0))
	if err != nil {
		t.Fatal(err)
	}
	a, b := m.forListener("A"), m.forListener("B")
	for _, r := range []struct {
		counts       *requestCounts
		key, version int16
	}{{a, 0, 9}, {a, 0, 9}, {a, 0, 11}, {b, 18, 5}, {a, -1, 0}, {a, 128, 0}, {a, 0, 32}, {a, 0, -1}} {
		r.counts.count(r.key, r.version)
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "kaja_server_requests_total" {
			continue
		}
		for _, metric := range f.GetMetric() {
			name := ""
			for _, l := range metric.GetLabel() {
				name += l.GetName() + "=" + l.GetValue() + " "
			}
			got[name] = metric.GetCounter().GetValue()
		}
	}
	want := map[string]float64{"api=Produce listener=A version=9 ": 2, "api=Produce listener=A version=11 ": 1, "api=ApiVersions listener=B version=5 ": 1}
	if len(got) != len(want) {
		t.Errorf("counted %v", got)
	}
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %v, want %v", name, got[name], n)
		}
	}
}
