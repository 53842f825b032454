package log

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
)

func (b *bench) verify(t *testing.T) Report {
	t.Helper()
	r, err := Verify(t.Context(), VerifyOptions{FS: b.fs, Dir: b.dir, Codecs: b.codecs, MaxDecompressedBytes: math.MaxInt32})
	b.must(err)
	return r
}

// fillEveryKind writes every kind of batch over several segments, compacts some, and closes the log.
func fillEveryKind(t *testing.T, fs vfs.FS) *bench {
	b := newBench(t, fs, compacted)
	for i := range 20 {
		b.put(&batch.Producer{ID: 1, Sequence: int32(i)}, false, compress.Type(i%5), pair("k", strings.Repeat("v", i)))
	}
	b.put(&batch.Producer{ID: 2}, true, 0, pair("t", "aborted"))
	b.marker(2, 0, false)
	b.put(&batch.Producer{ID: 2, Sequence: 1}, true, 0, pair("t", "committed"))
	b.marker(2, 0, true)
	b.clean(wire.NoOffset)
	b.must(b.log.RemoveDeleted(b.now.Add(b.config.FileDeleteDelay)))
	b.must(b.log.Close())
	return b
}

// What this package writes is whole, compacted or not, and counts as what it is.
func TestVerifyFindsNothing(t *testing.T) {
	b := fillEveryKind(t, memfs.New(nil))
	r := b.verify(t)
	if len(r.Problems)+len(r.Notes) != 0 || r.End != 24 || r.Segments < 3 || r.IndexEntries == 0 {
		t.Fatalf("%+v", r)
	}
}

// A byte that changes in any file is found, but for what nothing covers: the leader epoch of a batch, and the base offset of the
// last one, behind which there may be a gap.
func TestVerifyFindsEveryFlip(t *testing.T) {
	mem := memfs.New(nil)
	b := fillEveryKind(t, mem)
	names, err := mem.List(b.dir)
	b.must(err)
	missed, flips, end := map[string]int{}, 0, b.log.EndOffset()
	for _, name := range names {
		_, suffix, _ := parseName(name)
		whole, err := vfs.ReadFile(mem, b.dir+"/"+name)
		b.must(err)
		uncovered := map[int]bool{}
		if suffix == suffixLog {
			b.must(ReadLogFile(context.Background(), mem, b.dir+"/"+name, func(x FileBatch) error {
				for i := range 4 {
					uncovered[int(x.Pos)+12+i] = true
				}
				if x.NextOffset() == end {
					for i := range 8 {
						uncovered[int(x.Pos)+i] = true
					}
				}
				return nil
			}))
		}
		for at := range whole {
			c := b.on(t, mem.Crash(memfs.Keep, 0))
			f, err := c.fs.OpenRW(c.dir + "/" + name)
			c.must(err)
			_, err = f.WriteAt([]byte{whole[at] ^ 0x40}, int64(at))
			c.must(errors.Join(err, f.Close()))
			flips++
			if r := c.verify(t); len(r.Problems) == 0 && !uncovered[at] {
				missed[suffix]++
			}
		}
	}
	// Indexes hold what is right or harmless in places: a smaller offset of an entry, a later time. The text of the topic
	// id is another topic id. None of them is missed in a .log, a snapshot or a window.
	for _, suffix := range []string{suffixLog, suffixSnapshot, suffixWindow} {
		if missed[suffix] > 0 {
			t.Errorf("%d flips in %s files were not found", missed[suffix], suffix)
		}
	}
	t.Logf("%d flips, not found: %v", flips, missed)
}
