package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/kajamq/kaja/wire/compress"
)

func build(t testing.TB, s Spec, c *compress.Codecs, recs ...NewRecord) Batch {
	t.Helper()
	bld := NewBuilder(s)
	for _, r := range recs {
		bld.Add(r)
	}
	b, _, err := bld.Build(nil, c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func three() []NewRecord {
	return []NewRecord{
		{Timestamp: 1000, Key: []byte("k"), Value: []byte("v1")},
		{Timestamp: 999, Value: []byte{}, Headers: []Header{{Key: "h", Value: []byte("x")}, {Key: ""}}},
		{Timestamp: 2000, Key: []byte{}},
	}
}

func TestHeaderFields(t *testing.T) {
	t.Parallel()
	b := build(t, Spec{
		BaseOffset: 100, LeaderEpoch: 7, Transactional: true,
		Producer: &Producer{ID: 9, Epoch: 3, Sequence: math.MaxInt32 - 1},
	}, nil, three()...)
	if b.BaseOffset() != 100 || b.LastOffset() != 102 || b.NextOffset() != 103 || b.LeaderEpoch() != 7 ||
		b.Magic() != 2 || b.Count() != 3 || b.LastOffsetDelta() != 2 || b.BaseTimestamp() != 1000 ||
		b.MaxTimestamp() != 2000 || b.ProducerID() != 9 || b.ProducerEpoch() != 3 ||
		b.BaseSequence() != math.MaxInt32-1 || b.LastSequence() != 0 || !b.Transactional() || b.Control() ||
		b.LogAppendTime() || b.Codec() != compress.None || int(b.Length()) != len(b)-12 || b.UnusedAttributes() != 0 {
		t.Errorf("unexpected header: %x", []byte(b[:HeaderSize]))
	}
	if err := b.CheckCRC(); err != nil {
		t.Error(err)
	}
	b.SetBaseOffset(1 << 40)
	b.SetLeaderEpoch(8)
	if b.BaseOffset() != 1<<40 || b.LeaderEpoch() != 8 {
		t.Error("setters did not set")
	}
	if err := b.CheckCRC(); err != nil {
		t.Errorf("base offset and leader epoch lie outside the checksum: %v", err)
	}
	b.SetMaxTimestamp(5000, true)
	if b.MaxTimestamp() != 5000 || !b.LogAppendTime() || b.CheckCRC() != nil {
		t.Error("SetMaxTimestamp did not patch and renew")
	}
	b[len(b)-1] ^= 1
	if err := b.CheckCRC(); !errors.Is(err, ErrCRC) || !errors.Is(err, ErrCorrupt) {
		t.Errorf("flipped bit: %v", err)
	}
}

func TestAddSequence(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ seq, n, want int32 }{
		{0, 0, 0}, {5, 3, 8}, {math.MaxInt32, 0, math.MaxInt32}, {math.MaxInt32, 1, 0},
		{math.MaxInt32 - 1, 2, 0}, {math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		if got := AddSequence(tc.seq, tc.n); got != tc.want {
			t.Errorf("%d+%d = %d, want %d", tc.seq, tc.n, got, tc.want)
		}
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	good := build(t, Spec{}, nil, three()...)
	edit := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	short := edit(11, 48)
	var magic *MagicError
	for _, tc := range []struct {
		name string
		buf  []byte
		want error
	}{
		{"empty", nil, ErrShort},
		{"eleven bytes", good[:11], ErrShort},
		{"up to the magic", good[:16], ErrShort},
		{"one byte missing", good[:len(good)-1], ErrShort},
		{"length −1", append(bytes.Repeat([]byte{0xff}, 12), good[12:]...), ErrCorrupt},
		{"length below a header", short, ErrCorrupt},
		{"magic 0", edit(16, 0), &MagicError{0}},
		{"magic 1", edit(16, 1), &MagicError{1}},
		{"magic 3", edit(16, 3), &MagicError{3}},
		{"magic −1", edit(16, 0xff), &MagicError{-1}},
	} {
		b, rest, err := Next(tc.buf)
		if b != nil || len(rest) != len(tc.buf) {
			t.Errorf("%s: gave a batch", tc.name)
		}
		if errors.As(tc.want, &magic) {
			var got *MagicError
			if !errors.As(err, &got) || *got != *magic || !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", tc.name, err)
			}
		} else if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	two := append(bytes.Clone(good), good...)
	b, rest, err := Next(two)
	if err != nil || !bytes.Equal(b, good) || !bytes.Equal(rest, good) {
		t.Errorf("two batches: %v", err)
	}
	if n, err := PeekSize(two[:MagicEnd]); err != nil || n != len(good) {
		t.Errorf("PeekSize = %d, %v", n, err)
	}
	if _, err := PeekSize(short[:MagicEnd]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("PeekSize of a short length: %v", err)
	}
}

// genRecords draws records with nulls, empty slices, headers and gaps.
func genRecords(t *rapid.T) (deltas []int64, recs []NewRecord) {
	nullable := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 200))
	next := int64(0)
	for range rapid.IntRange(1, 30).Draw(t, "records") {
		next += rapid.Int64Range(0, 3).Draw(t, "gap")
		r := NewRecord{
			Timestamp: rapid.Int64Range(-1, 1<<50).Draw(t, "timestamp"),
			Key:       nullable.Draw(t, "key"), Value: nullable.Draw(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			r.Headers = append(r.Headers, Header{rapid.String().Draw(t, "header"), nullable.Draw(t, "header value")})
		}
		deltas, recs = append(deltas, next), append(recs, r)
		next++
	}
	return deltas, recs
}

// What the Builder writes reads back the same, and as kmsg reads it.
func TestBuildIterate(t *testing.T) {
	t.Parallel()
	c := compress.New()
	rapid.Check(t, func(t *rapid.T) {
		deltas, recs := genRecords(t)
		typ := compress.Type(rapid.IntRange(0, 4).Draw(t, "codec"))
		level := map[compress.Type]int{compress.Gzip: 1, compress.Lz4: 9, compress.Zstd: 3}[typ]
		bld := NewBuilder(Spec{BaseOffset: 1000, Codec: typ, Level: level})
		for i, r := range recs {
			bld.AddAt(deltas[i], r)
		}
		prefix := []byte("prefix")
		b, all, err := bld.Build(prefix, c)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(all, prefix) || !bytes.Equal(all[len(prefix):], b) {
			t.Fatal("Build does not append")
		}
		again, rest, err := Next(b)
		if err != nil || len(rest) != 0 || again.CheckCRC() != nil {
			t.Fatalf("Next: %v", err)
		}
		payload, err := again.Records(c, nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if typ == compress.None && bld.Size() != len(b) {
			t.Fatalf("Size %d, built %d", bld.Size(), len(b))
		}
		it := Iterate(payload, again.Count())
		scan, err := again.Scan(c, int64(len(payload)))
		if err != nil {
			t.Fatal(err)
		}
		defer scan.Close()
		pos := 0
		for i := 0; it.Next(); i++ {
			if !scan.Next() || scan.Record != info(&it.Record) {
				t.Fatalf("record %d: Scanner says %+v, want %+v, %v", i, scan.Record, info(&it.Record), scan.Err())
			}
			got := NewRecord{Timestamp: it.Record.Timestamp(b), Key: it.Record.Key, Value: it.Record.Value}
			for h := range it.Record.Headers() {
				got.Headers = append(got.Headers, h)
			}
			if diff := cmp.Diff(recs[i], got); diff != "" || int64(it.Record.OffsetDelta) != deltas[i] {
				t.Fatalf("record %d: offset delta %d, want %d\n%s", i, it.Record.OffsetDelta, deltas[i], diff)
			}
			var k kmsg.Record
			if err := k.ReadFrom(payload[pos : pos+it.Record.Size]); err != nil {
				t.Fatalf("kmsg on record %d: %v", i, err)
			}
			if !bytes.Equal(k.Key, got.Key) || !bytes.Equal(k.Value, got.Value) || len(k.Headers) != len(got.Headers) {
				t.Fatalf("kmsg reads another record %d", i)
			}
			pos += it.Record.Size
		}
		if err := it.Err(); err != nil {
			t.Fatal(err)
		}
		if scan.Next() || scan.Err() != nil {
			t.Fatalf("Scanner does not end: %v", scan.Err())
		}
		var k kmsg.RecordBatch
		if err := k.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
		if int(k.NumRecords) != len(recs) || k.FirstOffset != 1000 || uint32(k.CRC) != b.CRC() ||
			k.MaxTimestamp != b.MaxTimestamp() || k.LastOffsetDelta != int32(deltas[len(deltas)-1]) {
			t.Fatal("kmsg reads another header")
		}
	})
}

// info is what a Scanner must say of r.
func info(r *Record) RecordInfo {
	return RecordInfo{
		Size: int64(r.Size), Attributes: r.Attributes, TimestampDelta: r.TimestampDelta, OffsetDelta: r.OffsetDelta,
		KeySize: sizeOf(r.Key), ValueSize: sizeOf(r.Value), HeaderCount: r.HeaderCount,
	}
}

func TestBuilderRefuses(t *testing.T) {
	t.Parallel()
	for name, bld := range map[string]func(b *Builder){
		"descending":    func(b *Builder) { b.AddAt(5, NewRecord{}); b.AddAt(5, NewRecord{}) },
		"beyond i32":    func(b *Builder) { b.AddAt(math.MaxInt32+1, NewRecord{}) },
		"end too early": func(b *Builder) { b.AddAt(5, NewRecord{}); b.EndAt(4) },
		"nothing":       func(*Builder) {},
	} {
		b := NewBuilder(Spec{})
		bld(b)
		if _, _, err := b.Build(nil, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestEmptiedBatch(t *testing.T) {
	t.Parallel()
	bld := NewBuilder(Spec{BaseOffset: 10, Producer: &Producer{ID: 1, Epoch: 2, Sequence: 3}})
	bld.EndAt(4)
	b, _, err := bld.Build(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.Count() != 0 || b.LastOffset() != 14 || b.BaseTimestamp() != -1 || b.LastSequence() != 7 || len(b) != HeaderSize {
		t.Errorf("unexpected batch %x", []byte(b))
	}
}

func TestDeleteHorizon(t *testing.T) {
	t.Parallel()
	horizon := int64(5000)
	b := build(t, Spec{DeleteHorizon: &horizon}, nil, three()...)
	if ms, ok := b.DeleteHorizon(); !ok || ms != 5000 || b.BaseTimestamp() != 5000 {
		t.Errorf("horizon %d, %v", ms, ok)
	}
	it := Iterate(b.Payload(), b.Count())
	if !it.Next() || it.Record.Timestamp(b) != 1000 {
		t.Errorf("first record at %d", it.Record.Timestamp(b))
	}
	if _, ok := build(t, Spec{}, nil, three()...).DeleteHorizon(); ok {
		t.Error("horizon where none is set")
	}
}

func TestIterateCorrupt(t *testing.T) {
	t.Parallel()
	rec := func(hexBytes string) []byte {
		b, err := hex.DecodeString(hexBytes)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, tc := range []struct {
		name    string
		payload []byte
		count   int32
	}{
		{"count −1", nil, -1},
		{"a record missing", nil, 1},
		{"bytes after the last", rec("0c000000010100" + "00"), 1},
		{"one record too many", rec("0c000000010100" + "0c000002010100"), 1},
		{"negative length", rec("01000000010100"), 1},
		{"length beyond the end", rec("0e000000010100"), 1},
		{"length too long for the fields", rec("0e00000001010000"), 1},
		{"key beyond the record", rec("0c000000040100"), 1},
		{"header count −1", rec("0c000000010101"), 1},
		{"header count beyond the record", rec("0c000000010104"), 1},
		{"header key null", rec("10000000010102" + "0101"), 1},
		{"varint of 6 bytes", rec("808080808001"), 1},
		{"varint of 11 bytes", rec("2800808080808080808080800100010100"), 1},
	} {
		it := Iterate(tc.payload, tc.count)
		for it.Next() {
		}
		if !errors.Is(it.Err(), ErrCorrupt) {
			t.Errorf("%s: %v", tc.name, it.Err())
		}
		b := append(make(Batch, HeaderSize), tc.payload...)
		binary.BigEndian.PutUint32(b[57:], uint32(tc.count))
		s, err := b.Scan(compress.New(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for s.Next() {
		}
		if !errors.Is(s.Err(), ErrCorrupt) {
			t.Errorf("%s: Scanner: %v", tc.name, s.Err())
		}
		s.Close()
	}
	it := Iterate(rec("0c000000010100"), 1)
	if !it.Next() || it.Next() || it.Err() != nil {
		t.Errorf("the smallest record: %v", it.Err())
	}
}

func TestMarker(t *testing.T) {
	t.Parallel()
	b, _ := Marker{
		ProducerID: 77, ProducerEpoch: 5, EndTxn: EndTxn{Commit: true, CoordinatorEpoch: 12},
		Timestamp: 1700000000000, BaseOffset: 42, LeaderEpoch: 3,
	}.Append(nil)
	const want = "000000000000002a" + "00000042" + "00000003" + "02" + "f1e58554" + "0030" + "00000000" +
		"0000018bcfe56800" + "0000018bcfe56800" + "000000000000004d" + "0005" + "ffffffff" + "00000001" +
		"20" + "00" + "00" + "00" + "08" + "00000001" + "0c" + "00000000000c" + "00"
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("marker\n%s, want\n%s", got, want)
	}
	end, ok, err := b.EndTxn(nil)
	if err != nil || !ok || !end.Commit || end.CoordinatorEpoch != 12 {
		t.Errorf("read back %+v, %v, %v", end, ok, err)
	}
	if _, ok, err := build(t, Spec{}, nil, three()...).EndTxn(nil); ok || err != nil {
		t.Errorf("data batch: %v, %v", ok, err)
	}
	leaderChange := build(t, Spec{Control: true}, nil, NewRecord{Key: []byte{0, 0, 0, 2}, Value: []byte{0}})
	if _, ok, err := leaderChange.EndTxn(nil); ok || err != nil {
		t.Errorf("another control record: %v, %v", ok, err)
	}
	cut := build(t, Spec{Control: true}, nil, NewRecord{Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0}})
	if _, ok, err := cut.EndTxn(nil); ok || !errors.Is(err, ErrCorrupt) {
		t.Errorf("cut marker: %v, %v", ok, err)
	}
}

// Not parallel: it counts allocations.
func TestIterateAllocatesNothing(t *testing.T) {
	recs := make([]NewRecord, 500)
	for i := range recs {
		recs[i] = NewRecord{Key: fmt.Appendf(nil, "key %d", i), Value: []byte("value"), Headers: []Header{{Key: "h"}}}
	}
	b := build(t, Spec{}, nil, recs...)
	n := 0
	allocs := testing.AllocsPerRun(20, func() {
		rest := []byte(b)
		var x Batch
		x, rest, _ = Next(rest)
		if x.CheckCRC() != nil || len(rest) != 0 {
			t.Fail()
		}
		it := Iterate(x.Payload(), x.Count())
		for it.Next() {
			n++
		}
		if it.Err() != nil {
			t.Fail()
		}
	})
	if allocs != 0 || n < 500 {
		t.Errorf("%v allocations", allocs)
	}
}

// Records that lie across the pieces of every codec's Reader are scanned as Iterator sees them.
func TestScanPieces(t *testing.T) {
	t.Parallel()
	c := compress.New()
	recs := make([]NewRecord, 50_000)
	for i := range recs {
		recs[i] = NewRecord{
			Timestamp: int64(i), Key: fmt.Appendf(nil, "%d", i), Value: fmt.Appendf(nil, "%0*d", i%250, i),
			Headers: []Header{{Key: "h", Value: []byte{byte(i)}}, {Key: "null"}},
		}
	}
	for _, typ := range []compress.Type{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		level := map[compress.Type]int{compress.Gzip: 1, compress.Lz4: 9, compress.Zstd: 1}[typ]
		b := build(t, Spec{Codec: typ, Level: level}, c, recs...)
		payload, err := b.Records(c, nil, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		s, err := b.Scan(c, int64(len(payload)))
		if err != nil {
			t.Fatal(err)
		}
		it := Iterate(payload, b.Count())
		for it.Next() {
			if !s.Next() || s.Record != info(&it.Record) {
				t.Fatalf("%s: Scanner says %+v, want %+v, %v", typ, s.Record, info(&it.Record), s.Err())
			}
		}
		if s.Next() || s.Err() != nil || it.Err() != nil {
			t.Fatalf("%s: %v, %v", typ, s.Err(), it.Err())
		}
		s.Close()
	}
}

// Not parallel: it measures allocations. A batch that inflates to 32 MiB is scanned in little memory.
func TestScanBomb(t *testing.T) {
	c := compress.New()
	for _, typ := range []compress.Type{compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		level := map[compress.Type]int{compress.Gzip: 1, compress.Lz4: 9, compress.Zstd: 1}[typ]
		b := build(t, Spec{Codec: typ, Level: level}, c, NewRecord{Value: make([]byte, 32<<20)})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := b.Scan(c, 1<<31)
		if err != nil {
			t.Fatal(err)
		}
		for s.Next() {
		}
		if s.Err() != nil || s.Record.ValueSize != 32<<20 {
			t.Errorf("%s: value of %d bytes, %v", typ, s.Record.ValueSize, s.Err())
		}
		s.Close()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 9<<20 && typ != compress.Zstd {
			t.Errorf("%s: allocated %d bytes for a batch of %d", typ, n, len(b))
		}
	}
}

func FuzzBatch(f *testing.F) {
	c := compress.New()
	for _, typ := range []compress.Type{compress.None, compress.Snappy, compress.Zstd} {
		f.Add([]byte(build(f, Spec{Codec: typ}, c, three()...)))
	}
	m, _ := Marker{ProducerID: 1}.Append(nil)
	f.Add([]byte(m))
	f.Fuzz(func(t *testing.T, buf []byte) {
		total := 0
		for rest := buf; ; {
			var b Batch
			var err error
			if b, rest, err = Next(rest); err != nil {
				break
			}
			total += len(b)
			_, _, _ = b.EndTxn(c)
			payload, err := b.Records(c, nil, 1<<20)
			scan, serr := b.Scan(c, 1<<20)
			if serr == nil {
				for scan.Next() {
				}
				serr = scan.Err()
				scan.Close()
			}
			if err != nil {
				continue
			}
			size := 0
			it := Iterate(payload, b.Count())
			for it.Next() {
				size += it.Record.Size
				for h := range it.Record.Headers() {
					_ = h
				}
			}
			if (it.Err() == nil) != (serr == nil) {
				t.Fatalf("Iterator %v, Scanner %v", it.Err(), serr)
			}
			if it.Err() == nil && size != len(payload) {
				t.Fatalf("records of %d bytes in a payload of %d", size, len(payload))
			}
		}
		if total > len(buf) {
			t.Fatal("batches larger than the buffer")
		}
	})
}

func BenchmarkIterate(b *testing.B) {
	recs := make([]NewRecord, 640)
	for i := range recs {
		recs[i] = NewRecord{Timestamp: int64(i), Value: make([]byte, 95)}
	}
	x := build(b, Spec{}, nil, recs...)
	b.SetBytes(int64(len(x)))
	b.ReportAllocs()
	for b.Loop() {
		it := Iterate(x.Payload(), x.Count())
		for it.Next() {
		}
		if it.Err() != nil {
			b.Fatal(it.Err())
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	c := compress.New()
	recs := make([]NewRecord, 640)
	for i := range recs {
		recs[i] = NewRecord{Timestamp: int64(i), Value: fmt.Appendf(nil, "%0100d", i*i*i)}
	}
	for _, typ := range []compress.Type{compress.None, compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		level := map[compress.Type]int{compress.Gzip: -1, compress.Lz4: 9, compress.Zstd: 3}[typ]
		x := build(b, Spec{Codec: typ, Level: level}, c, recs...)
		b.Run(typ.String()+"/iterate", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				payload, err := x.Records(c, nil, 1<<30)
				it := Iterate(payload, x.Count())
				for it.Next() {
				}
				if err != nil || it.Err() != nil {
					b.Fatal(err, it.Err())
				}
			}
		})
		b.Run(typ.String()+"/scan", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := x.Scan(c, 1<<30)
				if err != nil {
					b.Fatal(err)
				}
				for s.Next() {
				}
				if s.Err() != nil {
					b.Fatal(s.Err())
				}
				s.Close()
			}
		})
	}
}
