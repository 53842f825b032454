package coord

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gather gives every sample by name and labels, of a histogram its number and sum.
func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			switch {
			case m.Histogram != nil:
				got[name+" count"], got[name+" sum"] = float64(m.Histogram.GetSampleCount()), m.Histogram.GetSampleSum()
			case m.Counter != nil:
				got[name] = m.Counter.GetValue()
			default:
				got[name] = m.Gauge.GetValue()
			}
		}
	}
	return got
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		r := newRuntime(Options[*counter]{Name: "a", Registerer: reg, CommitTimeout: time.Second, MaxQueued: 1})
		other := newRuntime(Options[*counter]{Name: "b", Registerer: reg}) // two coordinators share a registry
		defer other.Close()
		defer r.Close()
		slow := &fakeLog{delay: 2 * time.Second, load: 3 * time.Second}
		r.Elected(0, 1, slow)
		r.Elected(1, 1, &fakeLog{load: time.Hour})
		time.Sleep(4 * time.Second)
		ignore := func(any, error) {}
		r.Post(0, write("x"), ignore) // committed after its reply was late
		time.Sleep(3 * time.Second)
		slow.mu.Lock()
		slow.refuse = errors.New("no")
		slow.mu.Unlock()
		r.Post(0, write("y"), ignore)
		synctest.Wait()
		got := gather(t, reg)
		for name, want := range map[string]float64{
			"kaja_coord_operations_total coordinator=a":         2,
			"kaja_coord_operations_refused_total coordinator=a": 0,
			"kaja_coord_appends_refused_total coordinator=a":    1,
			"kaja_coord_replies_late_total coordinator=a":       1,
			"kaja_coord_load_seconds coordinator=a count":       1,
			"kaja_coord_load_seconds coordinator=a sum":         3,
			"kaja_coord_commit_seconds coordinator=a count":     1,
			"kaja_coord_commit_seconds coordinator=a sum":       2,
			"kaja_coord_shards coordinator=a phase=active":      1,
			"kaja_coord_shards coordinator=a phase=loading":     1,
			"kaja_coord_shards coordinator=a phase=failed":      0,
			"kaja_coord_queued_operations coordinator=a":        0,
			"kaja_coord_operations_total coordinator=b":         0,
			"kaja_coord_operations_refused_total coordinator=b": 0,
			"kaja_coord_shards coordinator=b phase=active":      0,
			"kaja_coord_load_seconds coordinator=b count":       0,
		} {
			if v, ok := got[name]; !ok || v != want {
				t.Errorf("%s: %v (there: %v), want %v", name, v, ok, want)
			}
		}
	})
}
