//go:build planted

package sim

import (
	"fmt"
	"hash/fnv"
	mrand "math/rand"
	"os"
	"slices"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/internal/planted"
)

// eosBudget is within how many runs of eosPlantedRecords records a planted bug has to be found.
const (
	eosBudget         = 12
	eosPlantedRecords = 10_000
	eosThreeBudget    = 40 // on three nodes
)

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

// Each planted bug of transactions is found by the checker of their histories, and without any of them nothing is found.
func TestPlantedBugsOfTransactions(t *testing.T) {
	t.Run("none", func(t *testing.T) { inBubble(t, 1, func(t *testing.T) { checkPlanted(t, 1, "") }) })
	for _, bug := range chosen(planted.Txn()) {
		t.Run(string(bug), func(t *testing.T) {
			for seed := uint64(1); seed <= eosBudget; seed++ {
				found := false
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					inBubble(t, seed, func(t *testing.T) { found = checkPlanted(t, seed, bug) })
				})
				if found {
					return
				}
			}
			t.Errorf("not found in %d runs", eosBudget)
		})
	}
}

// What only several nodes show is found by the same checker on three of them, whose links take their time. It takes a
// minute for each bug: `make long` runs it.
func TestPlantedBugsOfTransactionsOnThreeNodes(t *testing.T) {
	if os.Getenv("KAJA_PLANTED_LONG") == "" {
		t.Skip("set KAJA_PLANTED_LONG=1, or run `make long`")
	}
	for _, bug := range planted.TxnCluster() {
		t.Run(string(bug), func(t *testing.T) {
			for seed := uint64(1); seed <= eosThreeBudget; seed++ {
				found := false
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					inBubble(t, seed, func(t *testing.T) {
						planted.Switch(bug)
						defer planted.Switch("")
						h, faults, err := runEOSOnThree(t, seed, eosPlantedRecords, eosLink)
						if found = err != nil; found {
							t.Logf("found after %d records and %d faults: %.1000v", h.Counts().Records, faults, err)
						}
					})
				})
				if found {
					return
				}
			}
			t.Errorf("not found in %d runs", eosThreeBudget)
		})
	}
}

func checkPlanted(t *testing.T, seed uint64, bug planted.Bug) bool {
	planted.Switch(bug)
	defer planted.Switch("")
	h, err := runEOS(t, seed, eosPlantedRecords, time.Second/2)
	switch {
	case bug == "" && err != nil:
		t.Errorf("without a planted bug: %v", err)
	case err != nil:
		t.Logf("found after %d records: %.1000v", h.Counts().Records, err)
		return true
	}
	return false
}

func inBubble(t *testing.T, seed uint64, f func(t *testing.T)) {
	cryptotest.SetGlobalRandom(t, seed)
	mrand.Seed(int64(seed)) //nolint:staticcheck // hashicorp/raft draws its election timeouts from it
	synctest.Test(t, f)
}
