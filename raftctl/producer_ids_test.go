package raftctl

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// blocks allocates blocks one after the other, each when the test lets it.
type blocks struct {
	n    int64
	gate chan error
}

func (b *blocks) allocate(ctx context.Context) (ProducerIDs, error) {
	select {
	case err := <-b.gate:
		if err != nil {
			return ProducerIDs{}, err
		}
	case <-ctx.Done():
		return ProducerIDs{}, ctx.Err()
	}
	b.n++
	return ProducerIDs{First: wire.ProducerID((b.n - 1) * producerIDBlock), Count: producerIDBlock}, nil
}

// Without an id nobody waits: the answer is 14 at once, and there is one when the controller has answered. The next block
// is fetched when a tenth is left, so that nobody notices.
func TestProducerIDsArePrefetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocks{gate: make(chan error)}
		a := NewProducerIDAllocator(ProducerIDOptions{Allocate: b.allocate})
		defer a.Close()
		for range 3 {
			if _, err := a.Next(t.Context()); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
				t.Fatalf("without an id: %v, want COORDINATOR_LOAD_IN_PROGRESS", err)
			}
		}
		b.gate <- nil
		synctest.Wait()
		for want := range wire.ProducerID(2 * producerIDBlock) {
			if want == producerIDBlock-producerIDBlock/prefetchPart {
				synctest.Wait()
				b.gate <- nil // somebody waits for it, or this would never return
				synctest.Wait()
			}
			if id, err := a.Next(t.Context()); err != nil || id != want {
				t.Fatalf("id %d, %v; want %d", id, err, want)
			}
		}
		if _, err := a.Next(t.Context()); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
			t.Fatalf("after the second block: %v", err)
		}
	})
}

// A node that is its own controller waits for the block, and gives the controller's error.
func TestProducerIDsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blocks{gate: make(chan error, 1)}
		a := NewProducerIDAllocator(ProducerIDOptions{Allocate: b.allocate, Wait: time.Second})
		defer a.Close()
		b.gate <- nil
		if id, err := a.Next(t.Context()); err != nil || id != 0 {
			t.Fatalf("%d %v", id, err)
		}
		a2 := NewProducerIDAllocator(ProducerIDOptions{Allocate: b.allocate, Wait: time.Second})
		defer a2.Close()
		b.gate <- errNotController()
		if _, err := a2.Next(t.Context()); !errors.Is(err, kerr.NotController) {
			t.Fatalf("%v, want the controller's error", err)
		}
		began := time.Now()
		if _, err := a2.Next(t.Context()); !errors.Is(err, kerr.CoordinatorLoadInProgress) || time.Since(began) != time.Second {
			t.Fatalf("%v after %v, want COORDINATOR_LOAD_IN_PROGRESS after 1s", err, time.Since(began))
		}
	})
}
