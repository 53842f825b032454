package replica

import (
	"testing"

	"github.com/kajamq/kaja/wire"
)

func TestTrail(t *testing.T) {
	var tr trail
	tr.append(5, 100)
	tr.append(8, 30)
	tr.append(9, 7)
	for _, tt := range []struct {
		o    wire.Offset
		want int64
	}{{0, 0}, {4, 0}, {5, 100}, {7, 100}, {8, 130}, {9, 137}, {99, 137}} {
		if got := tr.at(tt.o); got != tt.want {
			t.Errorf("at(%d) = %d, want %d", tt.o, got, tt.want)
		}
	}
	tr.forget(8)
	if got := tr.at(8); got != 130 {
		t.Fatalf("after forget: %d", got)
	}
	tr.truncate(8)
	if got := tr.at(8); got != 137 {
		t.Fatalf("after truncate: %d", got)
	}
	tr.append(10, 3)
	if got := tr.at(10); got != 140 {
		t.Fatalf("after truncate and append: %d", got)
	}
}

// However many appends wait for the high watermark, memory is bounded and bytes never count late.
func TestTrailIsBounded(t *testing.T) {
	var tr trail
	for i := wire.Offset(1); i <= 100_000; i++ {
		tr.append(i, 10)
		if i%977 == 0 {
			if got, want := tr.at(i/2), int64(i/2)*10; got < want {
				t.Fatalf("at(%d) = %d, less than %d", i/2, got, want)
			}
		}
	}
	if n := len(tr.steps); n > maxTrail {
		t.Fatalf("%d steps", n)
	}
	tr.forget(100_000)
	if got := tr.total(); got != 1_000_000 {
		t.Fatalf("total %d", got)
	}
}
