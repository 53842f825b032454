package xsync_test

import (
	"sync"
	"testing"

	"github.com/kajamq/kaja/internal/xsync"
)

func TestMutexExcludes(t *testing.T) {
	var mu xsync.Mutex
	var wg sync.WaitGroup
	n := 0
	for range 8 {
		wg.Go(func() {
			for range 500 {
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if n != 4000 {
		t.Fatalf("counted %d, want 4000", n)
	}
	if !mu.TryLock() {
		t.Fatal("TryLock of a free mutex failed")
	}
	if mu.TryLock() {
		t.Fatal("TryLock of a held mutex succeeded")
	}
	mu.Unlock()
}
