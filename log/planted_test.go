//go:build planted

package log

import (
	"hash/fnv"
	"os"
	"testing"

	"github.com/kajamq/kaja/internal/planted"
)

// plantedBudget is after how many crash-recoveries at the latest a planted bug has to be found.
const plantedBudget = 20000

// Each planted bug is found by the metamorphic test, and without any of them nothing is found. KAJA_COMMIT chooses three
// of them by its hash; without it all are tried.
func TestPlantedBugsAreFound(t *testing.T) {
	bugs := planted.Log()
	if commit := os.Getenv("KAJA_COMMIT"); commit != "" {
		h := fnv.New64a()
		_, _ = h.Write([]byte(commit))
		at := int(h.Sum64() % uint64(len(bugs)))
		bugs = append(bugs[at:len(bugs):len(bugs)], bugs[:at]...)[:3]
	}
	planted.Switch("")
	if _, _, err := metamorphic(1, 500); err != nil {
		t.Fatalf("without a planted bug: %v", err)
	}
	for _, bug := range bugs {
		t.Run(string(bug), func(t *testing.T) {
			planted.Switch(bug)
			defer planted.Switch("")
			done, scripts, err := search(1, plantedBudget)
			if err == nil {
				t.Fatalf("not found within %d crash-recoveries in %d scripts", done, scripts)
			}
			t.Logf("found after %d scripts with %d crash-recoveries: %v", scripts, done, err)
		})
	}
}
