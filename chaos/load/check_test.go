package load

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kajamq/kaja/sim/history"
)

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func got(p int32, offset int64, value string) *kgo.Record {
	return &kgo.Record{Partition: p, Offset: offset, Value: []byte(value)}
}

// Each fault of a group that the checker looks for, made by hand.
func TestGroupCheck(t *testing.T) {
	log := map[int32][]history.Read{0: {{Offset: 0, Value: "a"}, {Offset: 1, Value: "b"}, {Offset: 2, Value: "c"}}}
	for _, tt := range []struct {
		name string
		do   func(*group)
		want string
	}{
		{"right", func(g *group) {
			g.given(0, []int32{0})
			g.took(0, got(0, 0, "a"))
			g.took(0, got(0, 1, "b"))
			g.acked[0] = 1
			g.taken(0, []int32{0})
			g.given(1, []int32{0})
			g.took(1, got(0, 1, "b")) // was handed out, its commit was not acknowledged
			g.took(1, got(0, 2, "c"))
		}, ""},
		{"goes back", func(g *group) {
			g.given(0, []int32{0})
			g.took(0, got(0, 0, "a"))
			g.acked[0] = 1
			g.given(1, []int32{0})
			g.took(1, got(0, 0, "a"))
		}, "partition 0: member 1 begins at 0, and 1 was committed before"},
		{"jumps over", func(g *group) {
			g.given(0, []int32{0})
			g.took(0, got(0, 1, "b"))
		}, "partition 0: member 0 begins at 1, and nobody has got what comes after 0"},
		{"leaves out", func(g *group) {
			g.given(0, []int32{0})
			g.took(0, got(0, 0, "a"))
			g.took(0, got(0, 2, "c"))
		}, "partition 0: member 0 gets offset 2 after 0"},
		{"without being given it", func(g *group) { g.took(0, got(0, 0, "a")) },
			"partition 0: member 0 gets offset 0 without having been given the partition"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGroup(1)
			tt.do(g)
			if e := text(g.check(t.Context(), log)); e != tt.want {
				t.Errorf("got %q, want %q", e, tt.want)
			}
		})
	}
}

// And of a reader.
func TestFollowerCheck(t *testing.T) {
	log := map[int32][]history.Read{0: {{Offset: 0, Value: "a"}, {Offset: 1, Value: "b"}}}
	for _, tt := range []struct {
		name string
		read []*kgo.Record
		want string
	}{
		{"right", []*kgo.Record{got(0, 0, "a"), got(0, 1, "b")}, ""},
		{"changed", []*kgo.Record{got(0, 0, "a"), got(0, 1, "x")}, `partition 0: "x" was read at 1, now it is "b"`},
		{"gone", []*kgo.Record{got(0, 0, "a"), got(0, 1, "b"), got(0, 2, "c")}, `partition 0: "c" was read at 2, which is not there`},
		{"left out", []*kgo.Record{got(0, 0, "a"), got(0, 2, "c")}, "partition 0: a reader gets offset 2, its next one was 1"},
		{"twice", []*kgo.Record{got(0, 0, "a"), got(0, 0, "a")}, "partition 0: a reader gets offset 0, its next one was 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFollower("t")
			for _, r := range tt.read {
				f.take(r)
			}
			if e := text(f.check(t.Context(), log)); e != tt.want {
				t.Errorf("got %q, want %q", e, tt.want)
			}
		})
	}
}

// A gap counts from the acknowledgement before to the one after, and to the end where none comes.
func TestProbeGap(t *testing.T) {
	began := time.Now()
	sec := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	p := newProbes(2)
	p.acks[0] = []time.Time{sec(1), sec(2), sec(5), sec(6)}
	p.acks[1] = []time.Time{sec(1)}
	for _, tt := range []struct {
		partitions []int32
		from, to   int
		want       time.Duration
	}{
		{[]int32{0}, 3, 6, 3 * time.Second},
		{[]int32{0}, 5, 6, time.Second},
		{[]int32{0}, 6, 10, 4 * time.Second},
		{[]int32{0, 1}, 1, 6, 5 * time.Second},
	} {
		if got := p.Gap(tt.partitions, sec(tt.from), sec(tt.to)); got != tt.want {
			t.Errorf("partitions %v from %d to %d: %v, want %v", tt.partitions, tt.from, tt.to, got, tt.want)
		}
	}
}
