package purgatory

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/wire"
)

func mark(gen uint64, hw, lso int64) Mark {
	return Mark{Generation: gen, Bytes: [bounds]int64{UpToHW: hw, UpToLSO: lso, UpToLEO: hw}}
}

func TestFetchCountsBytesOverPartitions(t *testing.T) {
	var a, b Readers
	woken := 0
	f := NewFetch(100, 2, func() { woken++ })
	a.Watch(f, Mark{}, UpToHW, 60)
	b.Watch(f, Mark{}, UpToLSO, 1000)
	f.Start(time.Hour)
	a.Advance(mark(0, 500, 500)) // counts 60: the partition's limit
	b.Advance(mark(0, 500, 39))
	if woken != 0 {
		t.Fatal("woken below min bytes")
	}
	b.Advance(mark(0, 500, 40))
	if woken != 1 || a.Len() != 0 || b.Len() != 0 {
		t.Fatalf("woken %d times, %d and %d left", woken, a.Len(), b.Len())
	}
	b.Advance(mark(0, 900, 900))
	if woken != 1 {
		t.Fatal("woken twice")
	}
}

func TestFetchMissesNothingBetweenLookAndPark(t *testing.T) {
	for _, tt := range []struct {
		name  string
		since func(r *Readers)
		want  int
	}{
		{"bytes", func(r *Readers) { r.Advance(mark(0, 10, 10)) }, 1},
		{"too few bytes", func(r *Readers) { r.Advance(mark(0, 9, 9)) }, 0},
		{"interrupt", func(r *Readers) { r.Interrupt(mark(1, 0, 0)) }, 1},
		{"nothing", func(r *Readers) {}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r Readers
			woken := 0
			tt.since(&r)
			f := NewFetch(10, 1, func() { woken++ })
			r.Watch(f, Mark{}, UpToHW, 100)
			f.Start(time.Hour)
			if woken != tt.want || r.Len() != 1-tt.want {
				t.Fatalf("woken %d times with %d parked, want %d", woken, r.Len(), tt.want)
			}
			f.Complete()
			if woken != 1 || r.Len() != 0 {
				t.Fatalf("after Complete: woken %d times with %d parked", woken, r.Len())
			}
		})
	}
}

func TestFetchDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Readers
		start := time.Now()
		woken := make(chan time.Duration, 1)
		f := NewFetch(10, 1, func() { woken <- time.Since(start) })
		r.Watch(f, Mark{}, UpToHW, 100)
		f.Start(2 * time.Second)
		if d := <-woken; d != 2*time.Second {
			t.Fatalf("woken after %v", d)
		}
		if r.Len() != 0 {
			t.Fatal("expired fetch still listed")
		}
	})
}

func TestCommitOutcomes(t *testing.T) {
	var a, b, c Commits
	errLost, errExpired, errFew := errors.New("lost"), errors.New("expired"), errors.New("few")
	synctest.Test(t, func(t *testing.T) {
		got := make(chan []error, 1)
		w := NewCommit(3, errExpired, func(errs []error) { got <- errs })
		a.Watch(w, 0, 0, 5)
		b.Watch(w, 1, 0, 7)
		c.Watch(w, 2, 0, 9)
		w.Start(time.Second)
		a.Advance(0, 5, nil)
		b.Fail(1, 0, errLost)
		c.Advance(0, 8, nil)
		errs := <-got
		if errs[0] != nil || !errors.Is(errs[1], errLost) || !errors.Is(errs[2], errExpired) {
			t.Fatalf("outcomes %v", errs)
		}
		if a.Len()+b.Len()+c.Len() != 0 {
			t.Fatal("entries left")
		}
		late := NewCommit(2, errExpired, func(errs []error) { got <- errs })
		b.Watch(late, 0, 0, 3) // appended in the generation that ended
		c.Watch(late, 1, 0, 9)
		late.Start(time.Second)
		c.Advance(0, 9, errFew)
		if errs := <-got; !errors.Is(errs[0], errLost) || !errors.Is(errs[1], errFew) {
			t.Fatalf("outcomes %v", errs)
		}
	})
}

// Callbacks come in offset order although several goroutines move the high watermark.
func TestCallbacksInOrder(t *testing.T) {
	var q Commits
	const n = 2000
	var last atomic.Int64
	var wg sync.WaitGroup
	var got sync.WaitGroup
	got.Add(n)
	var bad atomic.Int64
	for i := int64(1); i <= n; i++ {
		q.Push(0, wire.Offset(i), func(err error) {
			if err != nil || last.Add(1) != i {
				bad.Add(1)
			}
			got.Done()
		})
	}
	for g := range 4 {
		wg.Go(func() {
			for hw := int64(g); hw <= n+4; hw += 4 {
				q.Advance(0, wire.Offset(hw), nil)
			}
		})
	}
	wg.Wait()
	got.Wait()
	if bad.Load() != 0 {
		t.Fatalf("%d callbacks out of order", bad.Load())
	}
	if known := q.Push(0, 1, func(error) {}); !known {
		t.Fatal("a committed offset is not known at once")
	}
}

// Racing wake-ups, deadlines and parks: every request is woken exactly once and nothing stays listed.
func TestEveryoneIsWokenOnce(t *testing.T) {
	var r Readers
	var q Commits
	const n = 300
	counts := make([]atomic.Int32, 2*n)
	var wg sync.WaitGroup
	var left sync.WaitGroup
	left.Add(2 * n)
	wg.Go(func() {
		for i := int64(1); i <= 2*n; i++ {
			r.Advance(mark(0, i, i))
			q.Advance(0, wire.Offset(i), nil)
		}
		r.Interrupt(mark(1, 0, 0))
		q.Fail(1, 0, errors.New("over"))
	})
	for i := range n {
		wg.Go(func() {
			f := NewFetch(int64(i%7), 1, func() { counts[i].Add(1); left.Done() })
			r.Watch(f, Mark{}, UpToHW, 100)
			f.Start(time.Duration(i%3) * time.Millisecond)
			c := NewCommit(1, errors.New("expired"), func([]error) { counts[n+i].Add(1); left.Done() })
			q.Watch(c, 0, 0, wire.Offset(i))
			c.Start(time.Duration(i%3) * time.Millisecond)
		})
	}
	wg.Wait()
	left.Wait()
	for i := range counts {
		if counts[i].Load() != 1 {
			t.Fatalf("request %d woken %d times", i, counts[i].Load())
		}
	}
	if r.Len() != 0 || q.Len() != 0 {
		t.Fatalf("%d and %d left", r.Len(), q.Len())
	}
}

func TestAdvanceAllocatesNothing(t *testing.T) {
	var r Readers
	var q Commits
	n := int64(0)
	if a := testing.AllocsPerRun(100, func() {
		n++
		r.Advance(mark(0, n, n))
		q.Advance(0, wire.Offset(n), nil)
	}); a != 0 {
		t.Fatalf("%v allocations", a)
	}
}

func BenchmarkAdvanceHerd(b *testing.B) {
	var r Readers
	for range 1000 {
		f := NewFetch(1<<60, 1, func() {})
		r.Watch(f, Mark{}, UpToHW, 1<<60)
		f.Start(time.Hour)
	}
	n := int64(0)
	for b.Loop() {
		n++
		r.Advance(mark(0, n, n))
	}
}
