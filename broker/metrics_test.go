package broker

import (
	"log/slog"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the process and the Go runtime use is among the metrics of a real node.
func TestMetricsOfTheProcess(t *testing.T) {
	families, err := OSEnv(slog.New(slog.DiscardHandler)).Gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	for _, name := range []string{
		"go_goroutines", "go_memstats_heap_alloc_bytes", "process_start_time_seconds", "process_open_fds", "process_resident_memory_bytes",
	} {
		if runtime.GOOS == "linux" && values[name] <= 0 {
			t.Errorf("%s is %v", name, values[name])
		}
	}
}

// A whole node registers the metrics of every part, under names of one form, with bounded labels and a help text.
func TestMetricsOfANode(t *testing.T) {
	n := start(t, memfs.New(time.Now), nil)
	n.dial().ask(kmsg.NewPtrMetadataRequest())
	families, err := n.env.Gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	form := regexp.MustCompile(`^kaja_(api|coord|groupcoord|raftctl|replica|server|log|txn)_[a-z_]+$`)
	allowed := map[string]bool{"listener": true, "reason": true, "api": true, "coordinator": true, "phase": true, "event": true, "result": true,
		"error": true, "role": true, "version": true}
	values := map[string]float64{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "kaja_") {
			t.Errorf("%s does not belong here", f.GetName())
		}
		if !form.MatchString(f.GetName()) || f.GetHelp() == "" {
			t.Errorf("%s (%q): want kaja_<area>_<thing>_<unit> and a help text", f.GetName(), f.GetHelp())
		}
		for _, m := range f.GetMetric() {
			values[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			for _, l := range m.GetLabel() {
				if !allowed[l.GetName()] {
					t.Errorf("%s: label %s: is it bounded?", f.GetName(), l.GetName())
				}
			}
		}
	}
	for name, want := range map[string]float64{
		"kaja_api_fetch_sessions":                 0,
		"kaja_api_fetch_session_evictions_total":  0,
		"kaja_coord_shards":                       0,
		"kaja_groupcoord_committed_offsets_total": 0,
		"kaja_raftctl_active":                     1,
		"kaja_raftctl_controller_epoch":           1,
		"kaja_replica_partitions":                 0,
		"kaja_server_connections":                 1,
	} {
		if got, ok := values[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{"kaja_raftctl_metadata_offset", "kaja_raftctl_entries_total", "kaja_raftctl_commit_seconds", "kaja_raftctl_publish_seconds"} {
		if values[name] <= 0 {
			t.Errorf("%s is %v", name, values[name])
		}
	}
}

// gauge is the sum of a gauge's series.
func (n *node) gauge(name string) float64 {
	n.t.Helper()
	families, err := n.env.Gatherer.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
