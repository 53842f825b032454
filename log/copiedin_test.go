package log

import (
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// Files that another broker has appended to, and that were copied in after a clean stop, count whole, also where they hold the
// producer snapshot of that stop: they may have come from here, and Kafka keeps it.
func TestCopiedFilesGoOnBeyondTheRecoveryPoint(t *testing.T) {
	b := newBench(t, memfs.New(nil), nil)
	for range 3 {
		b.append(spec{n: 2, size: 100})
	}
	left := b.log.EndOffset()
	b.must(b.log.Close())
	snapshot := b.dir + "/" + fileName(left, suffixSnapshot)
	kept, err := vfs.ReadFile(b.fs, snapshot)
	b.must(err)
	b.open(true, left)
	for range 5 {
		b.append(spec{n: 2, size: 100})
	}
	want, end := b.bytes(0), b.log.EndOffset()
	b.must(b.log.Close())
	b.must(vfs.WriteAtomic(b.fs, snapshot, kept))
	b.open(true, left)
	if got := b.log.EndOffset(); got != end {
		t.Fatalf("the log ends at %d, want %d", got, end)
	}
	if a := b.append(spec{n: 1}); a.First != end {
		t.Fatalf("an append went to %d, want %d", a.First, end)
	}
	if got := b.bytes(0); string(got[:len(want)]) != string(want) {
		t.Fatal("other records")
	}
	if got := b.offsets(); wire.Offset(got[len(got)-1][0]) != end {
		t.Fatalf("offsets %v", got)
	}
}
