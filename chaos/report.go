//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kajamq/kaja/chaos/load"
)

// strike is one fault and what it did. Times are in seconds, gaps in milliseconds: the longest time between two
// acknowledgements of the probe of the node that was hit, of any probe where all were.
type strike struct {
	Kind       string  `json:"kind"`
	Node       int     `json:"node"`
	Controller bool    `json:"controller"`
	At         float64 `json:"at_s"`
	Held       float64 `json:"held_s"`
	Gap        float64 `json:"gap_ms"`         // while it lasted
	GapAfter   float64 `json:"gap_after_ms"`   // from healing until the cluster was whole
	Longest    float64 `json:"longest_gap_ms"` // of both
	Whole      float64 `json:"whole_after_s"`
}

// result is what a run gives.
type result struct {
	Product   string      `json:"product"`
	Seed      uint64      `json:"seed"`
	Nodes     int         `json:"nodes"`
	Seconds   float64     `json:"seconds"`
	Load      string      `json:"machine_load"`
	Strikes   []strike    `json:"faults"`
	Calm      int         `json:"times_without_faults"`
	LeastCalm float64     `json:"least_acknowledged_per_second_without_faults"`
	Counts    load.Counts `json:"counts"`
	Findings  []string    `json:"findings"`
}

func newResult(o options, product string) *result {
	return &result{Product: product, Seed: o.seed, Nodes: o.nodes, LeastCalm: -1, Findings: []string{}}
}

func (r *result) calm(rate float64) {
	if r.Calm == 0 || rate < r.LeastCalm {
		r.LeastCalm = rate
	}
	r.Calm++
}

// row is what faults of one kind did, those that hit the controller's node apart.
type row struct {
	name                       string
	gap, after, longest, whole []float64
}

func (r *row) add(s strike) {
	r.gap, r.after = append(r.gap, s.Gap), append(r.after, s.GapAfter)
	r.longest, r.whole = append(r.longest, s.Longest), append(r.whole, s.Whole)
}

const notController = ", not the controller's node"

// rows are those of some faults, by name: of each kind, and of it again what hit the controller's node and what did not.
func rows(strikes []strike) []*row {
	byName := map[string]*row{}
	for _, s := range strikes {
		apart := notController
		if s.Controller {
			apart = ", the controller's node"
		}
		for _, name := range []string{s.Kind, s.Kind + apart} {
			if byName[name] == nil {
				byName[name] = &row{name: name}
			}
			byName[name].add(s)
		}
	}
	for _, s := range strikes {
		if all, apart := byName[s.Kind], byName[s.Kind+notController]; apart != nil && len(apart.gap) == len(all.gap) {
			delete(byName, apart.name)
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b *row) int { return strings.Compare(a.name, b.name) })
}

// print writes what a run gave.
func (r *result) print(w io.Writer) {
	printRows(w, []*result{r})
	r.printCounts(w)
	parts := []string{fmt.Sprintf("%s, seed %d, %d nodes, %.0f s, %d faults, %d acknowledged by all in sync", r.Product, r.Seed, r.Nodes, r.Seconds, len(r.Strikes), r.Counts.Acked)}
	for _, o := range rows(r.Strikes) {
		parts = append(parts, fmt.Sprintf("%d %s: %.0f/%.0f/%.0f", len(o.longest), o.name, at(o.longest, 50), at(o.longest, 99), at(o.longest, 100)))
	}
	_, _ = fmt.Fprintf(w, "ledger: %s ms (gap of acknowledgements: median/p99/max); load average %s\n", strings.Join(parts, "; "), r.Load)
	r.printFindings(w)
	if len(r.Findings) == 0 {
		_, _ = fmt.Fprintln(w, "nothing found: no acknowledged record is lost, there twice or out of order")
	}
}

// printRows writes the table of some runs.
func printRows(w io.Writer, results []*result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\n\tfault\ttimes\tgap ms: median\tp99\tmax\twhile it lasted: max\tafter healing: max\twhole after s: median\tmax")
	for _, r := range results {
		for _, o := range rows(r.Strikes) {
			_, _ = fmt.Fprintf(t, "%s\t%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.1f\n", r.Product, o.name, len(o.gap), at(o.longest, 50), at(o.longest, 99),
				at(o.longest, 100), at(o.gap, 100), at(o.after, 100), at(o.whole, 50), at(o.whole, 100))
		}
	}
	_ = t.Flush()
}

// printCounts writes what was done besides faults.
func (r *result) printCounts(w io.Writer) {
	c := r.Counts
	_, _ = fmt.Fprintf(w, "\n%s: seed %d, %d nodes, %.0f s, %d faults; in %d times without faults at least %.0f records a second were acknowledged\n",
		r.Product, r.Seed, r.Nodes, r.Seconds, len(r.Strikes), r.Calm, r.LeastCalm)
	_, _ = fmt.Fprintf(w, "acknowledged by all in sync %d, of which %d are lost and %d there twice; %d were answered by an error\n", c.Acked, c.Lost, c.Twice, c.Failed)
	if c.Followed > 0 {
		_, _ = fmt.Fprintf(w, "acknowledged by the leader alone %d; %d records followed, %d offset commits, %d assignments; transactions %+v\n",
			c.Once, c.Followed, c.Commits, c.Rebalances, c.Transactions)
	}
}

func (r *result) printFindings(w io.Writer) {
	for _, f := range r.Findings {
		_, _ = fmt.Fprintln(w, "FOUND:", f)
	}
}

// write writes the result as JSON.
func (r *result) write(name string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	return errors.Join(err, os.WriteFile(name, append(data, '\n'), 0o644))
}

// printAll writes one table of the results in some files.
func printAll(w io.Writer, files []string) error {
	var results []*result
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read a result: %w", err)
		}
		r := &result{}
		if err := json.Unmarshal(data, r); err != nil {
			return fmt.Errorf("read the result in %s: %w", name, err)
		}
		results = append(results, r)
	}
	printRows(w, results)
	for _, r := range results {
		r.printCounts(w)
		_, _ = fmt.Fprintln(w, "load average", r.Load)
		r.printFindings(w)
	}
	return nil
}

// at is a percentile: the least value that so many percent are not above.
func at(values []float64, percent int) float64 {
	v := slices.Sorted(slices.Values(values))
	return v[max((len(v)*percent+99)/100, 1)-1]
}
