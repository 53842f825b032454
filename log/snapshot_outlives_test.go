package log

import (
	"path"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire/batch"
)

// Segments may go while a snapshot of their producers stays: the state that the next start would find counts at once, so
// that a restart changes nothing (P5).
func TestSnapshotOutlivesSegments(t *testing.T) {
	mem := memfs.New(func() time.Time { return epochZero })
	b := newBench(t, mem, nil)
	v := b.validate(b.make(spec{n: 2, producer: &batch.Producer{ID: 7, Sequence: 0}}))
	if _, err := b.log.AppendAsLeader(v, 0); err != nil {
		t.Fatal(err)
	}
	b.must(b.log.Close())
	for _, suffix := range []string{suffixLog, suffixIndex, suffixTimeIndex} {
		b.must(mem.Remove(path.Join(b.dir, fileName(0, suffix))))
	}
	for _, clean := range []bool{false, true} {
		opt := b.options(clean, 2)
		opt.LogStartOffset = 2
		reopen(b, opt)
		got := b.log.Producers()
		if len(got) != 1 || got[0].ID != 7 || got[0].LastSequence != 1 || b.log.EndOffset() != 2 {
			t.Fatalf("clean %v: producers %+v, the log ends at %d", clean, got, b.log.EndOffset())
		}
		b.must(b.log.Close())
	}
}
