package replica

import (
	"errors"
	"slices"
	"testing"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// modelLog is a log as the list of its records' epochs, with the epochs that its replica has begun as a leader without
// writing anything.
type modelLog struct {
	records []wire.LeaderEpoch
	begun   []EpochEnd // as starts, by epoch, beyond those that records show
}

func (m *modelLog) EndOffset() wire.Offset { return wire.Offset(len(m.records)) }

// starts are the epochs with their first offsets, as a checkpoint holds them.
func (m *modelLog) starts() []EpochEnd {
	all := slices.Clone(m.begun)
	for o, e := range m.records {
		if !slices.ContainsFunc(all, func(s EpochEnd) bool { return s.Epoch == e }) {
			all = append(all, EpochEnd{e, wire.Offset(o)})
		}
	}
	slices.SortFunc(all, func(a, b EpochEnd) int { return int(a.Epoch - b.Epoch) })
	return all
}

func (m *modelLog) latest() wire.LeaderEpoch {
	s := m.starts()
	if len(s) == 0 {
		return wire.NoLeaderEpoch
	}
	return s[len(s)-1].Epoch
}

func (m *modelLog) EndOffsetForEpoch(e wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset, bool) {
	s := m.starts()
	if len(s) == 0 || e > s[len(s)-1].Epoch {
		return wire.NoLeaderEpoch, wire.NoOffset, false
	}
	found, end := e, m.EndOffset()
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].Epoch <= e {
			return s[i].Epoch, end, true
		}
		end = s[i].End
	}
	return found, end, true
}

func (m *modelLog) truncate(o wire.Offset) {
	if o < m.EndOffset() {
		m.records = m.records[:o]
	}
	m.begun = slices.DeleteFunc(m.begun, func(s EpochEnd) bool { return s.End >= m.EndOffset() })
}

// catchUp lets follower f fetch from a leader in epoch current until it is where the leader is. It gives the rounds that
// ended in a truncation.
func catchUp(t *rapid.T, f, leader *modelLog, current wire.LeaderEpoch) (rounds int) {
	for range 1000 {
		leo := f.EndOffset()
		d, diverges, err := EpochEnd{}, false, error(nil)
		if last := f.latest(); last != wire.NoLeaderEpoch {
			d, diverges, err = Divergence(leader, current, leader.EndOffset(), leo, last)
		}
		switch {
		case errors.Is(err, kerr.OffsetOutOfRange) || err == nil && !diverges && leo > leader.EndOffset():
			to, over := OutOfRange(leo, 0, leader.EndOffset())
			if over {
				t.Fatal("starts over although the leader has everything from 0")
			}
			if to == leo {
				t.Fatalf("no way on from %d, leader ends at %d", leo, leader.EndOffset())
			}
			f.truncate(to)
			rounds++
		case diverges:
			before, epochs := leo, len(f.starts())
			f.truncate(TruncationOffset(f, d))
			if f.EndOffset() == before && len(f.starts()) == epochs {
				t.Fatalf("a truncation changed nothing: leader says epoch %d ends at %d, log ends at %d", d.Epoch, d.End, before)
			}
			rounds++
		case leo == leader.EndOffset():
			return rounds
		default: // one record at a time, and its epoch with it
			f.records = append(f.records, leader.records[leo])
		}
	}
	t.Fatal("no end")
	return 0
}

// R3: a history of elections, some of them without records and some so fast that nothing was copied, leaves any two
// replicas with logs from which the follower comes to its leader's in at most one round for each of its epochs (KIP-101,
// KIP-279).
func TestHistoriesConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logs := make([]*modelLog, rapid.IntRange(2, 4).Draw(t, "replicas"))
		for i := range logs {
			logs[i] = &modelLog{}
		}
		epoch := wire.LeaderEpoch(0)
		for range rapid.IntRange(1, 12).Draw(t, "elections") {
			epoch++
			leader := logs[rapid.IntRange(0, len(logs)-1).Draw(t, "leader")]
			leader.begun = append(leader.begun, EpochEnd{epoch, leader.EndOffset()})
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				leader.records = append(leader.records, epoch)
			}
			for _, f := range logs {
				if f == leader || !rapid.Bool().Draw(t, "copies") {
					continue
				}
				epochs := len(f.starts())
				before := slices.Clone(f.records)
				rounds := catchUp(t, f, leader, epoch)
				if !slices.Equal(f.records, leader.records) {
					t.Fatalf("follower has %v, leader %v", f.records, leader.records)
				}
				if rounds > epochs+1 {
					t.Fatalf("%d rounds for %d epochs (%v)", rounds, epochs, before)
				}
			}
		}
	})
}

// The first truncation of a pair never goes below what both hold, whatever the epochs are.
func TestTruncationKeepsWhatBothHave(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) *modelLog {
			m := &modelLog{}
			e := wire.LeaderEpoch(0)
			for range rapid.IntRange(0, 8).Draw(t, name) {
				e += wire.LeaderEpoch(rapid.IntRange(0, 2).Draw(t, name+" epoch"))
				m.records = append(m.records, e)
			}
			return m
		}
		common, f, leader := draw("common"), &modelLog{}, &modelLog{}
		f.records, leader.records = slices.Clone(common.records), slices.Clone(common.records)
		last := wire.LeaderEpoch(0)
		if n := len(common.records); n > 0 {
			last = common.records[n-1]
		}
		// From here on each was led by somebody else: an epoch belongs to one of them.
		for i := range rapid.IntRange(0, 6).Draw(t, "apart") {
			e := last + 1 + wire.LeaderEpoch(i)
			m := f
			if rapid.Bool().Draw(t, "leader's") {
				m = leader
			}
			for range rapid.IntRange(1, 3).Draw(t, "n") {
				m.records = append(m.records, e)
			}
		}
		current := last + 10
		leader.begun = append(leader.begun, EpochEnd{current, leader.EndOffset()}) // as every leader does first
		for range 20 {
			if f.latest() == wire.NoLeaderEpoch {
				break
			}
			d, diverges, err := Divergence(leader, current, leader.EndOffset(), f.EndOffset(), f.latest())
			if err != nil {
				f.truncate(leader.EndOffset())
				if len(leader.records) == 0 {
					break
				}
				continue
			}
			if !diverges {
				break
			}
			f.truncate(TruncationOffset(f, d))
		}
		if n := min(len(common.records), len(f.records)); n < len(common.records) || !slices.Equal(f.records[:n], common.records) {
			t.Fatalf("follower keeps %v of %v", f.records, common.records)
		}
		if n := len(f.records); n > len(leader.records) || !slices.Equal(f.records, leader.records[:n]) {
			t.Fatalf("follower keeps %v, leader has %v", f.records, leader.records)
		}
	})
}
