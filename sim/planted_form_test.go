//go:build planted

package sim

import (
	"fmt"
	"testing"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/vfs/faultfs"
)

// formBudget is within how many runs a planted bug of forming a cluster and of its voters has to be found.
const formBudget = 60

// formFinders say which test is to find each of these bugs.
func formFinders() map[planted.Bug]func(t *testing.T, seed uint64) error {
	join := func(t *testing.T, seed uint64) error { return joinTwo(t, NewCluster(t, seed)) }
	return map[planted.Bug]func(t *testing.T, seed uint64) error{
		planted.FoundsUnanswered: form,
		planted.LetsTwoFound:     form,
		planted.WipedVotes: func(t *testing.T, seed uint64) error {
			c, nodes := grown(t, seed)
			return wipeOne(t, c, nodes)
		},
		planted.PromotedAtOnce: join,
		planted.PromotedAlone:  join,
		planted.PromotedBehind: func(t *testing.T, seed uint64) error { return joinBehind(t, NewCluster(t, seed)) },
		planted.LeadsWithoutDisk: func(t *testing.T, seed uint64) error {
			return hangOne(t, seed, []faultfs.Op{faultfs.OpSync, faultfs.OpSyncDir}, true)
		},
	}
}

// Each planted bug of forming a cluster, of its voters and of who leads it is found by the test of what it breaks.
func TestPlantedBugsOfForming(t *testing.T) {
	for _, bug := range chosen(planted.Forming()) {
		t.Run(string(bug), func(t *testing.T) {
			for seed := uint64(1); seed <= formBudget; seed++ {
				found := false
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					inBubble(t, seed, func(t *testing.T) {
						planted.Switch(bug)
						defer planted.Switch("")
						err := formFinders()[bug](t, seed)
						if found = err != nil; found {
							t.Logf("found: %v", err)
						}
					})
				})
				if found {
					return
				}
			}
			t.Errorf("not found in %d runs", formBudget)
		})
	}
}
