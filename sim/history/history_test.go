package history

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kajamq/kaja/wire"
)

// Each fault that the checker looks for, made by hand.
func TestCheck(t *testing.T) {
	h := New()
	for i := range 3 {
		h.acked[fmt.Sprintf("p:%d", i)] = place{0, wire.Offset(i)}
	}
	h.failed["p:3"] = errors.New("unknown")
	good := []Read{{0, "p:0"}, {1, "p:1"}, {2, "p:2"}}
	for _, tt := range []struct {
		name string
		log  []Read
		want string
	}{
		{"right", good, ""},
		{"unknown is there", append(good[:3:3], Read{3, "p:3"}), ""},
		{"lost", good[:2], `"p:2" was acknowledged at {0 2} and is lost`},
		{"twice", append(good[:3:3], Read{3, "p:1"}), `"p:1" is there twice: at {0 1} and {0 3}`},
		{"order", append(good[:3:3], Read{3, "p:5"}, Read{4, "p:4"}), `partition 0: "p:4" comes after number 5 of its producer`},
		{"moved", []Read{{0, "p:0"}, {1, "p:1"}, {3, "p:2"}}, `"p:2" is at {0 3}, its producer was told {0 2}`},
		{"offsets go back", append(good[:3:3], Read{2, "p:3"}), "partition 0: offset 2 comes after 2"},
		{"strange", append(good[:3:3], Read{3, "x"}), `at {0 3}: "x" was sent by nobody`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := h.Check(map[int32][]Read{0: tt.log}); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTally(t *testing.T) {
	h := New()
	for i := range 3 {
		h.acked[fmt.Sprintf("p:%d", i)] = place{0, wire.Offset(i)}
	}
	lost, twice := h.Tally(map[int32][]Read{0: {{0, "p:0"}, {1, "p:0"}, {2, "p:3"}}, 1: {{0, "p:0"}}})
	if lost != 2 || twice != 2 {
		t.Errorf("%d lost and %d twice, want 2 and 2", lost, twice)
	}
}
