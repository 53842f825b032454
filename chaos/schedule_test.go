//go:build linux

package main

import (
	"fmt"
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

// In a series the controller's node is hit when it is its turn and at no other time; elsewhere at least then.
func TestAim(t *testing.T) {
	type hit struct{ node, other int }
	for _, tt := range []struct {
		e      event
		ctl    int
		series bool
		want   hit
	}{
		{event{node: 1, other: 2, ctl: true}, 3, true, hit{3, 2}},
		{event{node: 1, other: 2, ctl: true}, 2, true, hit{2, 1}},
		{event{node: 1, other: 2, ctl: true}, 1, true, hit{1, 2}},
		{event{node: 1, other: 2}, 1, true, hit{2, 1}},
		{event{node: 1, other: 2}, 3, true, hit{1, 2}},
		{event{node: 1, other: 2}, 1, false, hit{1, 2}},
		{event{node: 1, other: 2, ctl: true}, 3, false, hit{3, 2}},
		{event{node: 1, other: 2, ctl: true}, 0, false, hit{1, 2}},
	} {
		if got := tt.e.aim(tt.ctl, tt.series); (hit{got.node, got.other}) != tt.want {
			t.Errorf("%+v, controller %d, series %v: %d and %d, want %v", tt.e, tt.ctl, tt.series, got.node, got.other, tt.want)
		}
	}
}

// A kind that has hit the controller's node, too, has a row for that, one for the rest and one for both.
func TestRows(t *testing.T) {
	var got []string
	for _, r := range rows([]strike{{Kind: "kill", Longest: 3}, {Kind: "cut", Longest: 2}, {Kind: "kill", Controller: true, Longest: 1}}) {
		got = append(got, fmt.Sprint(r.name, " ", r.longest))
	}
	want := []string{"cut [2]", "kill [3 1]", "kill, not the controller's node [3]", "kill, the controller's node [1]"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
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
