package log

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// seedFiles gives the files of a small log with transactions and two segments.
func seedFiles(f *testing.F) map[string][]byte {
	f.Helper()
	mem := memfs.New(nil)
	b := newBench(f, mem, func(c *Config) { c.SegmentBytes = 900 })
	for i := range 8 {
		b.append(spec{n: 2, size: 60, producer: &batch.Producer{ID: 2, Sequence: int32(2 * i)}, txn: true})
	}
	b.marker(2, 0, false)
	b.must(b.log.Close())
	names, err := mem.List(b.dir)
	b.must(err)
	files := map[string][]byte{}
	for _, name := range names {
		files[name], err = vfs.ReadFile(mem, b.dir+"/"+name)
		b.must(err)
	}
	return files
}

// FuzzRecover damages a segment: opening never panics, what is left is whole valid batches, and the log goes on.
func FuzzRecover(f *testing.F) {
	files := seedFiles(f)
	const first = "00000000000000000000.log"
	whole := files[first]
	f.Add(whole)
	f.Add(whole[:len(whole)-7])
	f.Add(append(bytes.Clone(whole), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		mem := memfs.New(nil)
		b := newBench(t, mem, nil)
		b.must(b.log.Close())
		for name, content := range files {
			if name == first {
				content = data
			}
			b.must(vfs.WriteAtomic(mem, b.dir+"/"+name, content))
		}
		l, _, err := Open(t.Context(), b.options(false, 0))
		if err != nil {
			return // refused, with a reason
		}
		b.log = l
		next := b.log.StartOffset()
		b.must(b.log.Scan(next, b.log.EndOffset(), func(x batch.Batch) error {
			if x.BaseOffset() < next {
				t.Fatalf("batch at %d after %d", x.BaseOffset(), next)
			}
			next = x.NextOffset()
			return nil
		}))
		if a := b.append(spec{n: 1}); a.First < next {
			t.Fatalf("append went to %d, the log ended at %d", a.First, next)
		}
		b.must(b.log.Close())
	})
}

// FuzzSideFiles damages an index, a snapshot or a checkpoint of a cleanly closed log: every read gives the right bytes,
// or the open is refused.
func FuzzSideFiles(f *testing.F) {
	files := seedFiles(f)
	suffixes := []string{suffixIndex, suffixTimeIndex, suffixTxnIndex, suffixSnapshot, suffixWindow}
	for i := range suffixes {
		for name, content := range files {
			if _, suffix, ok := parseName(name); ok && suffix == suffixes[i] {
				f.Add(uint8(i), content)
				f.Add(uint8(i), content[:len(content)/2])
			}
		}
	}
	f.Add(uint8(len(suffixes)), files[epochFile])
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		mem := memfs.New(nil)
		b := newBench(t, mem, nil)
		b.must(b.log.Close())
		for name, content := range files {
			_, suffix, ok := parseName(name)
			if ok && int(which) < len(suffixes) && suffix == suffixes[which] || !ok && int(which) == len(suffixes) && name == epochFile {
				content = data
			}
			b.must(vfs.WriteAtomic(mem, b.dir+"/"+name, content))
		}
		l, _, err := Open(t.Context(), b.options(true, 17))
		if err != nil {
			return
		}
		b.log = l
		if l.EndOffset() != 17 || len(b.offsets()) != 9 {
			t.Fatalf("end %d, batches %v", l.EndOffset(), b.offsets())
		}
		for o := wire.Offset(0); o < 17; o++ {
			res, err := l.Read(o, ReadOptions{Max: 1, End: 17, MinOne: true})
			b.must(err)
			head := make([]byte, headerSize)
			_, err = res.Segments[0].File.ReadAt(head, res.Segments[0].Off)
			b.must(err)
			if h := parseHeader(head); h.base > o || h.last < o {
				t.Fatalf("read at %d gave %d–%d", o, h.base, h.last)
			}
			wire.Release(res.Segments)
		}
		if got, ok, err := l.OffsetForTimestamp(0, 17); err != nil || !ok || got.Offset != 0 {
			t.Fatalf("first timestamp: %+v, %v, %v", got, ok, err)
		}
		b.must(l.Close())
	})
}

func FuzzSnapshot(f *testing.F) {
	for name, content := range seedFiles(f) {
		if _, suffix, ok := parseName(name); ok && suffix == suffixSnapshot {
			f.Add(content)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) >= snapshotHead {
			data = bytes.Clone(data)
			binary.BigEndian.PutUint32(data[2:], crc32.Checksum(data[6:], castagnoli))
		}
		ps, err := decodeSnapshot("x", data, 1<<40)
		if err != nil {
			return
		}
		again, err := decodeSnapshot("x", encodeSnapshot(ps), 1<<40)
		if err != nil || !bytes.Equal(encodeSnapshot(again), encodeSnapshot(ps)) {
			t.Fatalf("not the same after writing and reading: %v", err)
		}
		applyWindow(ps, data, data)
	})
}

func FuzzEpochCheckpoint(f *testing.F) {
	f.Add([]byte("0\n2\n0 0\n3 17\n"))
	f.Add([]byte("0\n0\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decodeEpochs("x", data)
		if err != nil {
			return
		}
		again, err := decodeEpochs("x", c.encode())
		if err != nil || len(again.entries) != len(c.entries) {
			t.Fatalf("not the same after writing and reading: %v", err)
		}
	})
}

// FuzzTxnIndex: what is read of a transaction index is written again byte for byte, and its entries ascend.
func FuzzTxnIndex(f *testing.F) {
	f.Add([]byte{})
	f.Add(abortedTxn{producerID: 2, first: 101, last: 117, stable: 118}.append(nil))
	f.Add(abortedTxn{producerID: 3, first: 103, last: 120, stable: 101}.append(abortedTxn{producerID: 2, first: 101, last: 117, stable: 118}.append(nil)))
	f.Fuzz(func(t *testing.T, data []byte) {
		const base = 100
		txns, err := decodeTxnIndex("x", data, base)
		if err != nil {
			return
		}
		var again []byte
		last := wire.Offset(base - 1)
		for _, a := range txns {
			if a.last <= last || a.first > a.last {
				t.Fatalf("entry %+v after marker %d", a, last)
			}
			last = a.last
			again = a.append(again)
		}
		if !bytes.Equal(again, data) {
			t.Fatal("not the same after reading and writing")
		}
	})
}

// FuzzIndexes lets an offset index and a time index of any content be looked up: an entry comes out that is in the file and
// lies at or before what was asked for, or none, and what is read beyond the file is an error.
func FuzzIndexes(f *testing.F) {
	f.Add(offsetEntry{8, 400}.append(offsetEntry{3, 200}.append(nil)), timeEntry{1000, 3}.append(nil), uint32(5), int64(1000))
	f.Add([]byte{1, 2, 3}, []byte{}, uint32(0), int64(-1))
	f.Fuzz(func(t *testing.T, offsets, times []byte, rel uint32, ts int64) {
		mem := memfs.New(nil)
		b := newBench(t, mem, nil)
		s := newSegment(b.log.dir, 0, b.now)
		b.must(vfs.WriteAtomic(mem, s.path(suffixIndex), offsets))
		b.must(vfs.WriteAtomic(mem, s.path(suffixTimeIndex), times))
		if s.checkTable(&s.offsets, suffixIndex, 1<<31) == nil {
			e, err := s.offsets.lookupOffset(rel)
			b.must(err)
			if e != (offsetEntry{}) && (e.rel > rel || !bytes.Contains(offsets, e.append(nil))) {
				t.Fatalf("looked up %d, got %+v", rel, e)
			}
		}
		if s.checkTable(&s.times, suffixTimeIndex, 1<<31) == nil {
			e, ok, err := s.times.lookupTime(ts)
			b.must(err)
			if ok && (e.time > ts || !bytes.Contains(times, e.append(nil))) {
				t.Fatalf("looked up %d, got %+v", ts, e)
			}
		}
		b.must(s.close())
	})
}
