package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// startBroker starts the broker under test, as the tests of compat-tests do: KAJA_COMPAT=1 switches them on,
// KAJA_COMPAT_TARGET=kafka proves them on a real Kafka 4.4, KAJA_COMPAT_BINARY names a built kaja.
func startBroker(t *testing.T, config map[string]string) *target.Broker {
	t.Helper()
	if os.Getenv("KAJA_COMPAT") == "" {
		t.Skip("needs a broker process: set KAJA_COMPAT=1, or run `make clients`")
	}
	o := target.Options{Kind: target.Kind(os.Getenv("KAJA_COMPAT_TARGET")), Dir: t.TempDir(), Config: config, Binary: os.Getenv("KAJA_COMPAT_BINARY")}
	if o.Kind == "" {
		o.Kind = target.Kaja
	}
	if o.Kind == target.Kafka {
		o.Jars = need(t, "java").Jars()
	} else if o.Binary == "" {
		o.Binary = filepath.Join(t.TempDir(), "kaja")
		build := exec.Command("go", "build", "-o", o.Binary, "./cmd/kaja")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build kaja: %v\n%s", err, out)
		}
	}
	b, err := target.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Errorf("end the broker: %v", err)
		}
		if t.Failed() {
			t.Logf("end of the broker's log:\n%s", b.LogTail(15))
		}
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

func fresh(t *testing.T) string {
	t.Helper()
	return strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ".", "-").Replace(t.Name()))
}
