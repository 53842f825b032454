package raftctl

import (
	"slices"
	"testing"
	"time"
)

func TestSilenceIsThatOfOneLeadership(t *testing.T) {
	var seen []time.Duration
	s := silence{observe: func(d time.Duration) { seen = append(seen, d) }}
	began := time.Unix(1000, 0)
	for _, beat := range []struct {
		term uint64
		at   time.Duration
	}{{3, 0}, {3, 100}, {3, 350}, {2, 360}, {3, 400}, {5, 2000}, {3, 2010}, {5, 2075}} {
		s.end(beat.term, began.Add(beat.at*time.Millisecond))
	}
	want := []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 50 * time.Millisecond, 75 * time.Millisecond}
	if !slices.Equal(seen, want) {
		t.Errorf("observed %v, want %v", seen, want)
	}
}
