package compattests_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// skippedTest is a test that franz-go skips for something that it does not find.
var skippedTest = regexp.MustCompile(`--- SKIP: (\S+)`) //nolint:gochecknoglobals // a constant

// franz-go's own tests of transactions pass: read, process and write through a chain of groups, whose members come and go
// (20,000 records, twice; 20 times at full size). Only those that ask for the group protocol of KIP-848 may be skipped, for
// as long as that is not advertised.
func TestFranzTransactionSuite(t *testing.T) {
	b := ownBroker(t, map[string]string{"group.initial.rebalance.delay.ms": "0"})
	suite := filepath.Join(t.TempDir(), "kgo.test")
	if out, err := exec.Command("go", "test", "-c", "-o", suite, "github.com/twmb/franz-go/pkg/kgo").CombinedOutput(); err != nil {
		t.Fatalf("build franz-go's tests: %v\n%s", err, out)
	}
	count, atMost := "2", 8*time.Minute
	if long() {
		count, atMost = "20", time.Hour
	}
	env := []string{"KGO_SEEDS=" + b.Addr, "KGO_TEST_RF=1", "KGO_TEST_RECORDS=20000", "KGO_LOG_LEVEL=none"}
	o := execute(t, atMost, "", env, suite, "-test.run", "Txn", "-test.count", count, "-test.v", "-test.timeout", atMost.String())
	for _, m := range skippedTest.FindAllStringSubmatch(o.Out, -1) {
		if !strings.Contains(m[1], "/848") {
			t.Errorf("%s was skipped", m[1])
		}
	}
	if o.Exit != 0 || !strings.Contains(o.Out, "--- PASS: TestTxnEtl (") {
		t.Errorf("exit %d\n%.8000s\n%.2000s", o.Exit, failures(o.Out), o.Err)
	}
}

// failures are the lines of a test's output that tell what went wrong.
func failures(out string) string {
	var lines []string
	for _, line := range strings.Split(out, "\n") {
		if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- PASS") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
