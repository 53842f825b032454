package replica

import (
	"testing"

	"github.com/kajamq/kaja/wire"
)

// A move copies until it has caught up, has the controller told, and swaps only when the metadata names the new directory
// and nothing is missing.
func TestMoveSteps(t *testing.T) {
	one, two := wire.UUID{1}, wire.UUID{2}
	for _, tt := range []struct {
		name  string
		state moveState
		said  []wire.UUID // by the metadata before each step; zero: nothing new
		ready []bool
		want  []moveStep
		lies  wire.UUID // in the end, by what the metadata is to say
	}{
		{"copying", moveState{from: one, to: two, said: one}, []wire.UUID{{}, {}}, []bool{false, false}, []moveStep{stepCopy, stepCopy}, one},
		{"the whole way", moveState{from: one, to: two, said: one}, []wire.UUID{{}, {}, {}, {}, two, {}},
			[]bool{false, true, false, true, false, true}, []moveStep{stepCopy, stepAnnounce, stepCopy, stepWait, stepCopy, stepSwap}, two},
		{"the metadata speaks of something else", moveState{from: one, to: two, said: one}, []wire.UUID{{}, {3}, one, two},
			[]bool{true, true, true, true}, []moveStep{stepAnnounce, stepWait, stepWait, stepSwap}, two},
		{"nobody to be told", moveState{from: one, to: two, untold: true}, []wire.UUID{{}, {}}, []bool{false, true}, []moveStep{stepCopy, stepSwap}, one},
		{"told before a restart", moveState{from: one, to: two, said: two, announced: true}, []wire.UUID{{}, {}}, []bool{false, true}, []moveStep{stepCopy, stepSwap}, two},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.state
			for i, want := range tt.want {
				if !tt.said[i].IsZero() {
					s.said = tt.said[i]
				}
				if got := s.next(tt.ready[i]); got != want {
					t.Fatalf("step %d is %d, want %d", i, got, want)
				}
			}
			if got := s.declared(); got != tt.lies {
				t.Errorf("declared %v, want %v", got, tt.lies)
			}
		})
	}
}

// side is a log as align sees it: the epochs with their starts, ascending.
type side struct {
	start, end wire.Offset
	epochs     [][2]int // epoch, start
}

func (s side) StartOffset() wire.Offset { return s.start }
func (s side) EndOffset() wire.Offset   { return s.end }

func (s side) LatestEpoch() wire.LeaderEpoch {
	if len(s.epochs) == 0 {
		return wire.NoLeaderEpoch
	}
	return wire.LeaderEpoch(s.epochs[len(s.epochs)-1][0])
}

func (s side) EndOffsetForEpoch(e wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset, bool) {
	if e < 0 || e > s.LatestEpoch() {
		return wire.NoLeaderEpoch, wire.NoOffset, false
	}
	for i := len(s.epochs) - 1; i >= 0; i-- {
		if s.epochs[i][0] > int(e) {
			continue
		}
		if i+1 < len(s.epochs) {
			return wire.LeaderEpoch(s.epochs[i][0]), wire.Offset(s.epochs[i+1][1]), true
		}
		return wire.LeaderEpoch(s.epochs[i][0]), s.end, true
	}
	return e, wire.Offset(s.epochs[0][1]), true
}

// A copy is brought back to what its original has become, whatever has happened to either meanwhile, and stands where it is a
// part of it.
func TestAlign(t *testing.T) {
	none := alignment{cut: wire.NoOffset, restart: wire.NoOffset}
	cut := func(o wire.Offset) alignment { return alignment{cut: o, restart: wire.NoOffset} }
	restart := func(o wire.Offset) alignment { return alignment{cut: wire.NoOffset, restart: o} }
	for _, tt := range []struct {
		name       string
		orig, copy side
		want       alignment
	}{
		{"nothing copied yet", side{0, 100, [][2]int{{1, 0}}}, side{}, none},
		{"nothing copied yet, and the oldest are gone", side{40, 100, [][2]int{{1, 40}}}, side{}, restart(40)},
		{"a part", side{0, 100, [][2]int{{1, 0}, {2, 50}}}, side{0, 60, [][2]int{{1, 0}, {2, 50}}}, none},
		{"all", side{0, 100, [][2]int{{1, 0}}}, side{0, 100, [][2]int{{1, 0}}}, none},
		{"an epoch without records", side{0, 100, [][2]int{{1, 0}, {2, 100}}}, side{0, 100, [][2]int{{1, 0}}}, none},
		{"an epoch of which compaction left nothing", side{0, 100, [][2]int{{1, 0}, {2, 30}, {3, 40}}}, side{0, 20, [][2]int{{1, 0}}}, none},
		{"the oldest are gone", side{80, 100, [][2]int{{1, 80}}}, side{0, 60, [][2]int{{1, 0}}}, restart(80)},
		{"cut", side{0, 50, [][2]int{{1, 0}}}, side{0, 70, [][2]int{{1, 0}}}, cut(50)},
		{"cut and filled by another leader", side{0, 90, [][2]int{{1, 0}, {2, 50}}}, side{0, 70, [][2]int{{1, 0}}}, cut(50)},
		{"cut and filled, epochs in between", side{0, 90, [][2]int{{1, 0}, {4, 50}}}, side{0, 70, [][2]int{{1, 0}, {3, 60}}}, cut(50)},
		{"its end was lost, and the epoch with it", side{0, 50, [][2]int{{1, 0}}}, side{0, 70, [][2]int{{1, 0}, {2, 60}}}, cut(50)},
		{"cut to its start", side{40, 40, nil}, side{0, 70, [][2]int{{1, 0}}}, restart(40)},
		{"begun anew below the copy's end", side{40, 90, [][2]int{{3, 40}}}, side{0, 70, [][2]int{{1, 0}}}, restart(40)},
		{"begun anew as empty", side{}, side{0, 70, [][2]int{{1, 0}}}, restart(0)},
		{"the copy begins within a batch", side{5, 100, [][2]int{{1, 5}}}, side{0, 10, [][2]int{{1, 0}}}, none},
	} {
		if got := align(tt.orig, tt.copy); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
