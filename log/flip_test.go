package log

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// flips gives every copy of data that has another bit in one byte, and that byte's position.
func flips(data []byte, try func(damaged []byte, at int)) {
	for at := range data {
		data[at] ^= 1 << (at % 8)
		try(data, at)
		data[at] ^= 1 << (at % 8)
	}
}

// D2: one bit flipped at every byte of a segment of 50 batches is found by recovery, which keeps the batches before it as they were.
// No checksum covers the leader epoch of a batch: of a flip there is only demanded that no record is another one. Nor its base
// offset, which only the batch after it tells: the last one may lie behind a gap, as compaction leaves them.
func TestRecoveryFindsEveryFlip(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, nil)
	var ends []int64 // file position after each batch
	for i := range 50 {
		b.append(spec{n: 1 + i%3, size: i % 7, producer: &batch.Producer{ID: 3, Sequence: int32(b.log.EndOffset())}})
		ends = append(ends, b.log.Size())
	}
	offsets := b.offsets()
	b.must(b.log.Flush())
	name := b.dir + "/00000000000000000000.log"
	whole, err := vfs.ReadFile(mem, name)
	b.must(err)
	flips(bytes.Clone(whole), func(damaged []byte, at int) {
		hit, _ := slices.BinarySearch(ends, int64(at)+1)
		within := at
		if hit > 0 {
			within -= int(ends[hit-1])
		}
		c := b.on(t, mem.Crash(memfs.Keep, 0))
		b.must(vfs.WriteAtomic(c.fs, name, damaged))
		c.open(false, 0)
		if c.rec.BytesRead == 0 || c.log.Err() != nil {
			t.Fatalf("flip at %d: %+v, %v", at, c.rec, c.log.Err())
		}
		if epoch := within >= 12 && within < 16; epoch && len(c.offsets()) != hit { // seen as no damage
			if got := c.offsets(); !slices.Equal(got, offsets) || !bytes.Equal(c.bytes(0), damaged) {
				t.Fatalf("flip at %d, in the epoch of batch %d: batches %v", at, hit, got)
			}
			return
		}
		if last := hit == len(ends)-1 && within < 8; last && len(c.offsets()) > hit {
			if got := c.offsets(); !slices.Equal(got[:hit], offsets[:hit]) || got[hit][0] <= offsets[hit][0] {
				t.Fatalf("flip at %d, in the base offset of the last batch: batches %v", at, got)
			}
			return
		}
		if got := c.offsets(); !slices.Equal(got, offsets[:hit]) {
			t.Fatalf("flip at %d, byte %d of batch %d: batches %v", at, within, hit, got)
		}
		if hit > 0 && !bytes.Equal(c.bytes(0), whole[:ends[hit-1]]) {
			t.Fatalf("flip at %d: the batches before it are other ones", at)
		}
		next := wire.Offset(0)
		if hit > 0 {
			next = offsets[hit-1][1] + 1
		}
		if a := c.append(spec{n: 1}); a.First != next {
			t.Fatalf("flip at %d: append went to %d, want %d", at, a.First, next)
		}
		c.must(c.log.Close())
	})
}

// D2: the scrubber finds one bit flipped at every byte of a sealed segment of 50 batches, and says in which file.
func TestScrubFindsEveryFlip(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, func(c *Config) { c.SegmentBytes = 4000 })
	for len(b.log.view.Load().segments) < 2 {
		b.append(spec{n: 1, size: 5})
	}
	if n := len(b.offsets()); n < 50 {
		t.Fatalf("%d batches", n)
	}
	s := b.log.view.Load().segments[0]
	whole, err := vfs.ReadFile(mem, s.path(suffixLog))
	b.must(err)
	f, err := mem.OpenRW(s.path(suffixLog))
	b.must(err)
	begins := map[int64]bool{}
	for pos, rest := int64(0), whole; len(rest) > 0; {
		x, r, err := batch.Next(rest)
		b.must(err)
		begins[pos] = true
		pos, rest = pos+int64(len(x)), r
	}
	from := int64(0)
	flips(bytes.Clone(whole), func(damaged []byte, at int) {
		if begins[int64(at)] {
			from = int64(at)
		}
		if within := int64(at) - from; within >= 12 && within < 16 {
			return // the leader epoch
		}
		_, err := f.WriteAt(damaged[at:at+1], int64(at))
		b.must(err)
		var corrupt *CorruptError
		if _, err := b.log.Scrub(t.Context(), nil); !errors.As(err, &corrupt) || corrupt.File != s.path(suffixLog) {
			t.Fatalf("flip at %d, byte %d of its batch: %v", at, int64(at)-from, err)
		}
		_, err = f.WriteAt(whole[at:at+1], int64(at))
		b.must(err)
	})
	if _, err := b.log.Scrub(t.Context(), nil); err != nil {
		t.Fatalf("as it was: %v", err)
	}
}
