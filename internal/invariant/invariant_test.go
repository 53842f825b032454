package invariant_test

import (
	"errors"
	"testing"

	"github.com/kajamq/kaja/internal/invariant"
)

func panics(f func()) (msg any) {
	defer func() { msg = recover() }()
	f()
	return nil
}

func TestMust(t *testing.T) {
	if got := panics(func() { invariant.Must(true, "never") }); got != nil {
		t.Fatalf("Must(true) panicked with %v", got)
	}
	if got := panics(func() { invariant.Must(false, "hw %d > leo %d", 2, 1) }); got != "BUG: hw 2 > leo 1" {
		t.Fatalf("Must(false) panicked with %v", got)
	}
}

func TestCheckRunsOnlyWhenEnabled(t *testing.T) {
	got := panics(func() { invariant.Check(func() error { return errors.New("broken") }) })
	if invariant.Enabled && got != "BUG: broken" {
		t.Fatalf("Check panicked with %v, want BUG: broken", got)
	}
	if !invariant.Enabled && got != nil {
		t.Fatalf("Check ran though disabled: %v", got)
	}
}
