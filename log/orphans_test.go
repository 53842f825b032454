package log

import (
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire/batch"
)

// A file whose owner is gone goes too, but not before it is durable that the owner is gone: no crash leaves the owner back
// alone, at whichever call it comes.
func TestOrphansOutliveTheirOwners(t *testing.T) {
	for suffix, owner := range ownerOf {
		t.Run(suffix, func(t *testing.T) {
			mem := memfs.New(nil)
			b := newBench(t, mem, func(c *Config) { c.SegmentBytes = 500; c.IndexIntervalBytes = 0 })
			for i := range 6 {
				b.append(spec{n: 2, size: 60, txn: true, producer: &batch.Producer{ID: 4, Sequence: int32(2 * i)}})
				if i%2 == 1 {
					b.marker(4, 0, false)
				}
			}
			b.must(b.log.Close())
			base := b.log.view.Load().segments[1].base
			exists := func(fs vfs.FS, suffix string) bool {
				ok, err := vfs.Exists(fs, b.dir+"/"+fileName(base, suffix))
				b.must(err)
				return ok
			}
			if !exists(mem, suffix) || !exists(mem, owner) {
				t.Fatalf("the segment at %d has no %s or no %s", base, suffix, owner)
			}
			b.must(mem.Remove(b.dir + "/" + fileName(base, owner)))
			faults, points := faultfs.New(mem), 0
			check := func() {
				points++
				for seed := range uint64(20) {
					left := mem.Crash(memfs.Coin, seed)
					if exists(left, owner) && !exists(left, suffix) {
						t.Fatalf("call %d, seed %d: the %s came back without its %s", points, seed, owner, suffix)
					}
				}
			}
			faults.Before(func(faultfs.Op, string) { check() })
			c := b.on(t, faults)
			_, _, _ = Open(t.Context(), c.options(true, b.log.EndOffset())) // a segment may be missing now: whatever it does
			check()
			if exists(mem, suffix) || points < 3 {
				t.Fatalf("%s is still there, or only %d calls were seen", suffix, points)
			}
		})
	}
}
