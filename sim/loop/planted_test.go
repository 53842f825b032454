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
const plantedBudget = 1000

// chosen gives n of the bugs by the hash of KAJA_COMMIT, or all of them without it. KAJA_PLANTED names one.
func chosen(bugs []planted.Bug, n int) []planted.Bug {
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
	return append(bugs[at:len(bugs):len(bugs)], bugs[:at]...)[:n]
}

// Each planted bug of replication and of the controller is found, and without any of them nothing is.
func TestPlantedBugsOfTheCluster(t *testing.T) {
	planted.Switch("")
	for seed := uint64(1); seed <= 16; seed++ {
		if res := loop.Run(seed, loop.OptionsOf(seed)); res.Err != nil {
			t.Fatalf("without a planted bug: %v", res.Err)
		}
	}
	find(t, chosen(planted.Cluster(), 3), false)
}

// So is each of transactions, by the seeds that carry some.
func TestPlantedBugsOfTransactions(t *testing.T) {
	find(t, chosen(planted.TxnLoop(), 2), true)
}

// find wants each bug to be found within plantedBudget seeds: of those with transactions, or of all without theirs.
func find(t *testing.T, bugs []planted.Bug, txns bool) {
	for _, bug := range bugs {
		t.Run(string(bug), func(t *testing.T) {
			planted.Switch(bug)
			defer planted.Switch("")
			for seed, tried := uint64(1), 0; tried < plantedBudget; seed++ {
				o := loop.OptionsOf(seed)
				if txns && !o.Txns {
					continue
				}
				o.Txns = txns
				tried++
				if res := loop.Run(seed, o); res.Err != nil {
					t.Logf("found after %d seeds: %v", tried, res.Err)
					return
				}
			}
			t.Errorf("not found in %d seeds", plantedBudget)
		})
	}
}
