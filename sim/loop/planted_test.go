//go:build planted

package loop_test

import (
	"hash/fnv"
	"os"
	"slices"
	"testing"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/sim/loop"
)

// plantedBudget is within how many seeds a planted bug has to be found.
const plantedBudget = 400

// chosen gives three of the bugs by the hash of KAJA_COMMIT, or all of them without it. KAJA_PLANTED names one.
func chosen(bugs []planted.Bug) []planted.Bug {
	if name := planted.Bug(os.Getenv("KAJA_PLANTED")); name != "" {
		return slices.DeleteFunc(bugs, func(b planted.Bug) bool { return b != name })
	}
	commit := os.Getenv("KAJA_COMMIT")
	if commit == "" {
		return bugs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(commit))
	at := int(h.Sum64() % uint64(len(bugs)))
	return append(bugs[at:len(bugs):len(bugs)], bugs[:at]...)[:3]
}

// Each planted bug of replication and of the controller is found, and without any of them nothing is.
func TestPlantedBugsOfTheCluster(t *testing.T) {
	planted.Switch("")
	for seed := uint64(1); seed <= 8; seed++ {
		if res := loop.Run(seed, loop.OptionsOf(seed)); res.Err != nil {
			t.Fatalf("without a planted bug: %v", res.Err)
		}
	}
	for _, bug := range chosen(planted.Cluster()) {
		t.Run(string(bug), func(t *testing.T) {
			planted.Switch(bug)
			defer planted.Switch("")
			for seed := uint64(1); seed <= plantedBudget; seed++ {
				if res := loop.Run(seed, loop.OptionsOf(seed)); res.Err != nil {
					t.Logf("found after %d seeds: %v", seed, res.Err)
					return
				}
			}
			t.Errorf("not found in %d seeds", plantedBudget)
		})
	}
}
