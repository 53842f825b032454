//go:build linux

package main

import (
	"slices"
	"testing"
)

// The same seed gives the same faults, another one others; every kind comes in each round.
func TestSchedule(t *testing.T) {
	take := func(seed uint64, n int) []event {
		o := options{seed: seed, kinds: names(kinds()), nodes: 3}
		s := newSchedule(o)
		var events []event
		for range n {
			events = append(events, s.next())
		}
		return events
	}
	n := len(kinds())
	a := take(7, 3*n)
	if b := take(7, 3*n); !slices.Equal(a, b) {
		t.Errorf("one seed, two schedules: %v and %v", a, b)
	}
	if b := take(8, 3*n); slices.Equal(a, b) {
		t.Error("two seeds, one schedule")
	}
	for round := range 3 {
		var got []string
		for _, e := range a[round*n : (round+1)*n] {
			got = append(got, e.kind)
			if e.node < 1 || e.node > 3 || e.other < 1 || e.other > 3 || e.other == e.node {
				t.Errorf("%+v: want two nodes of 1 to 3", e)
			}
		}
		want := names(kinds())
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("round %d is %v, want each of %v once", round, got, want)
		}
	}
}

func TestPercentile(t *testing.T) {
	values := []float64{5, 1, 4, 2, 3}
	for percent, want := range map[int]float64{0: 1, 50: 3, 99: 5, 100: 5} {
		if got := at(values, percent); got != want {
			t.Errorf("%d %%: %v, want %v", percent, got, want)
		}
	}
}
