//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kajamq/kaja/chaos/load"
)

// strike is one fault and what it did. Times are in seconds, gaps in milliseconds.
type strike struct {
	Kind       string  `json:"kind"`
	Node       int     `json:"node"`
	Controller bool    `json:"controller"`
	At         float64 `json:"at_s"`
	Held       float64 `json:"held_s"`
	Gap        float64 `json:"gap_ms"`       // longest time without an acknowledgement while it lasted
	GapAfter   float64 `json:"gap_after_ms"` // from healing until the cluster was whole
	Whole      float64 `json:"whole_after_s"`
}

// result is what a run gives.
type result struct {
	Seed       uint64      `json:"seed"`
	Nodes      int         `json:"nodes"`
	Seconds    float64     `json:"seconds"`
	Strikes    []strike    `json:"faults"`
	Calm       int         `json:"times_without_faults"`
	LeastCalm  float64     `json:"least_acknowledged_per_second_without_faults"`
	Counts     load.Counts `json:"counts"`
	Findings   []string    `json:"findings"`
	binaryName string
}

func newResult(o options) *result {
	return &result{Seed: o.seed, Nodes: o.nodes, LeastCalm: -1, Findings: []string{}, binaryName: o.binary}
}

func (r *result) calm(rate float64) {
	if r.Calm == 0 || rate < r.LeastCalm {
		r.LeastCalm = rate
	}
	r.Calm++
}

// print writes the table.
func (r *result) print(w io.Writer) {
	byKind := map[string][]strike{}
	for _, s := range r.Strikes {
		name := s.Kind
		if s.Controller {
			name += " of the controller's node"
		}
		byKind[name] = append(byKind[name], s)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nfault\ttimes\tgap ms: median\tp99\tmax\tafter healing: median\tmax\twhole after s: median\tmax")
	for _, name := range slices.Sorted(maps.Keys(byKind)) {
		var gap, after, whole []float64
		for _, s := range byKind[name] {
			gap, after, whole = append(gap, s.Gap), append(after, s.GapAfter), append(whole, s.Whole)
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\n", name, len(gap), at(gap, 50), at(gap, 99), at(gap, 100),
			at(after, 50), at(after, 100), at(whole, 50), at(whole, 100))
	}
	_ = t.Flush()
	_, _ = fmt.Fprintf(w, "\nseed %d, %d nodes, %.0f s, %d faults; in %d times without faults at least %.0f records a second were acknowledged\n",
		r.Seed, r.Nodes, r.Seconds, len(r.Strikes), r.Calm, r.LeastCalm)
	_, _ = fmt.Fprintf(w, "acknowledged by all in sync %d, by the leader alone %d; %d records followed, %d offset commits, %d assignments; transactions %+v\n",
		r.Counts.Acked, r.Counts.Once, r.Counts.Followed, r.Counts.Commits, r.Counts.Rebalances, r.Counts.Transactions)
	_, _ = fmt.Fprintln(w, "ledger:", r.line(byKind))
	for _, f := range r.Findings {
		_, _ = fmt.Fprintln(w, "FOUND:", f)
	}
	if len(r.Findings) == 0 {
		_, _ = fmt.Fprintln(w, "nothing found: no acknowledged record is lost, there twice or out of order")
	}
}

// line is the run in one line, for the ledger.
func (r *result) line(byKind map[string][]strike) string {
	parts := []string{fmt.Sprintf("seed %d, %d nodes, %.0f s, %d faults, %d acknowledged by all in sync", r.Seed, r.Nodes, r.Seconds, len(r.Strikes), r.Counts.Acked)}
	for _, name := range slices.Sorted(maps.Keys(byKind)) {
		var gap []float64
		for _, s := range byKind[name] {
			gap = append(gap, max(s.Gap, s.GapAfter))
		}
		parts = append(parts, fmt.Sprintf("%d %s %.0f/%.0f/%.0f", len(gap), name, at(gap, 50), at(gap, 99), at(gap, 100)))
	}
	return strings.Join(parts, ", ") + " ms (gap of acknowledgements: median/p99/max); load average " + machineLoad()
}

// at is a percentile: the least value that so many percent are not above.
func at(values []float64, percent int) float64 {
	v := slices.Sorted(slices.Values(values))
	return v[max((len(v)*percent+99)/100, 1)-1]
}
