package loop_test

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kajamq/kaja/sim/loop"
)

// number is a setting of the run by its name in the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// failure is what the report of a violated invariant says.
func failure(seed uint64, res loop.Result) string {
	return fmt.Sprintf("%v\nrepeat it: make sim-loop SEED=%d N=1\nthe last events:\n%s", res.Err, seed, res.History)
}

// Every seed holds every invariant, and of each twentieth two runs are equal in every event. KAJA_LOOP_SEED and
// KAJA_LOOP_N choose the seeds (make sim-loop SEED= N=).
func TestSeeds(t *testing.T) {
	first, n := number(t, "KAJA_LOOP_SEED", 1), number(t, "KAJA_LOOP_N", 16)
	var mu sync.Mutex
	var sum loop.Result
	var next atomic.Int64
	var wg sync.WaitGroup
	done, twice := 0, 0
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || t.Failed() {
					return
				}
				seed := uint64(first + i)
				res := loop.Run(seed, loop.OptionsOf(seed))
				again := res
				if i%20 == 0 {
					again = loop.Run(seed, loop.OptionsOf(seed))
				}
				mu.Lock()
				if res.Err != nil {
					t.Error(failure(seed, res))
				}
				if again.Digest != res.Digest || again.Events != res.Events {
					t.Errorf("seed %d: two runs differ: %016x after %d events, %016x after %d", seed, res.Digest, res.Events, again.Digest, again.Events)
				}
				if i%20 == 0 {
					twice++
				}
				sum.Add(res)
				if done++; done%1000 == 0 {
					t.Logf("%d of %d seeds: %d events, %d faults", done, n, sum.Events, sum.Faults)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	t.Logf("%d of %d seeds from %d, %d of them twice: %s", done, n, first, twice, sum)
	if n >= 16 && !t.Failed() && (sum.Acks < 200*n || sum.Faults < 5*n || sum.Cuts == 0 || sum.Controllers < 2*n) {
		t.Errorf("too little happened: %s", sum)
	}
}
