//go:build linux

package netns

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// wire gives packets, and takes them.
type wire struct {
	out [][]byte
	in  chan string
}

func (w *wire) Read(b []byte) (int, error) {
	if len(w.out) == 0 {
		return 0, io.EOF
	}
	n := copy(b, w.out[0])
	w.out = w.out[1:]
	return n, nil
}

func (w *wire) Write(b []byte) (int, error) {
	select {
	case w.in <- string(b):
		return len(b), nil
	default:
		return 0, errors.New("full")
	}
}

// Every packet arrives, unchanged; those that are repeated twice; and out of order.
func TestRelay(t *testing.T) {
	const packets = 200
	w := &wire{in: make(chan string, 2*packets)}
	var sent []string
	for i := range packets {
		w.out = append(w.out, []byte{byte(i), byte(i >> 8), 'x'})
		sent = append(sent, string(w.out[i]))
	}
	r := &relay{stop: make(chan struct{})}
	r.pump(w, w, Shuffle{Late: 300, Twice: 200, Hold: 3 * time.Millisecond}, rand.New(rand.NewPCG(1, 1)))
	r.workers.Wait()
	close(w.in)
	var got []string
	for p := range w.in {
		got = append(got, p)
	}
	if inOrder := slices.Clone(got); slices.Equal(slices.Compact(inOrder), sent) {
		t.Error("all came in order")
	}
	if twice := r.twice.Load(); twice == 0 || len(got) != packets+int(twice) || r.passed.Load() != packets || r.late.Load() == 0 {
		t.Errorf("%d packets came of %d, %d of them twice, %d late", len(got), r.passed.Load(), twice, r.late.Load())
	}
	slices.Sort(got)
	slices.Sort(sent)
	if got = slices.Compact(got); !slices.Equal(got, sent) {
		t.Errorf("%d different packets came, %d were sent", len(got), packets)
	}
}
