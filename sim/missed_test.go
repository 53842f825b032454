package sim

import (
	"fmt"
	"testing"
	"time"
)

// A member that was away for long, so that raft has failed to reach it very often, is told of what it has missed at once.
func TestMemberIsToldAtOnceWhatItHasMissed(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		members := found(t, q, 3)
		away := members[2]
		if q.Leader(time.Minute) == away {
			t.Fatal("the last one leads")
		}
		away.Kill()
		for i := range 100 {
			time.Sleep(2 * time.Second)
			if err := createOn(t.Context(), members[0], fmt.Sprintf("t%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if err := away.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, away)
		want := members[0].Controller().Image().Offset()
		for away.Controller().Image().Offset() < want && time.Since(began) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it had what it has missed after %v", took)
		}
		converged(t, q)
	})
}
