package log

import (
	"testing"

	"github.com/kajamq/kaja/wire"
)

// A replica that led and appended nothing knows an epoch that nobody else does. Cutting its log at its end forgets it, or it
// would differ from its leader for ever.
func TestTruncationAtTheEndDropsEpochsWithoutRecords(t *testing.T) {
	b := newBench(t, nil, nil)
	v := b.validate(b.make(spec{n: 3}))
	if _, err := b.log.AppendAsLeader(v, 4); err != nil {
		t.Fatal(err)
	}
	b.must(b.log.AssignEpochStart(5, 3))
	b.must(b.log.TruncateTo(7))
	if e := b.log.LatestEpoch(); e != 4 {
		t.Fatalf("newest epoch %d, want 4", e)
	}
	b.must(b.log.Close())
	b.open(true, 3)
	if e, end, ok := b.log.EndOffsetForEpoch(4); e != 4 || end != wire.Offset(3) || !ok {
		t.Fatalf("after a restart epoch 4 is %d and ends at %d", e, end)
	}
}
