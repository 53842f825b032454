package log

import (
	"bytes"
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestAppendReadReopen(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 2000 })
	for i := range 30 {
		a := b.append(spec{n: 3, size: 50})
		if a.First != wire.Offset(3*i) || a.Last != wire.Offset(3*i+2) {
			t.Fatalf("append %d went to %d–%d", i, a.First, a.Last)
		}
	}
	if b.log.Segments() < 3 {
		t.Fatalf("only %d segments", b.log.Segments())
	}
	before := b.bytes(0)
	for o := wire.Offset(0); o < 90; o++ {
		res, err := b.log.Read(o, ReadOptions{Max: 1, End: 90, MinOne: true})
		if err != nil || len(res.Segments) != 1 {
			t.Fatalf("read %d: %v, %v", o, res, err)
		}
		buf := make([]byte, res.Size)
		_, err = res.Segments[0].File.ReadAt(buf, res.Segments[0].Off)
		b.must(err)
		got, rest, err := batch.Next(buf)
		if err != nil || len(rest) != 0 || got.BaseOffset() > o || got.LastOffset() < o {
			t.Fatalf("read %d gave %d–%d, rest %d, %v", o, got.BaseOffset(), got.LastOffset(), len(rest), err)
		}
		wire.Release(res.Segments)
	}
	b.must(b.log.Close())
	b.open(true, 90)
	if b.rec.BytesRead != 0 || b.rec.IndexesRebuilt != 0 || b.rec.ProducersReplayed {
		t.Fatalf("a clean start read again: %+v", b.rec)
	}
	if !bytes.Equal(before, b.bytes(0)) || b.log.EndOffset() != 90 || b.log.FlushedOffset() != 90 {
		t.Fatalf("end %d, flushed %d after reopening", b.log.EndOffset(), b.log.FlushedOffset())
	}
	if a := b.append(spec{n: 1}); a.First != 90 {
		t.Fatalf("append after reopening went to %d", a.First)
	}
}

func TestReadBounds(t *testing.T) {
	b := newBench(t, nil, nil)
	for range 5 {
		b.append(spec{n: 2, size: 20})
	}
	one := len(b.make(spec{n: 2, size: 20}))
	cases := []struct {
		name     string
		from     wire.Offset
		o        ReadOptions
		size     int
		tooLarge bool
	}{
		{"everything", 0, ReadOptions{Max: 1 << 20, End: 10}, 5 * one, false},
		{"to the high watermark", 0, ReadOptions{Max: 1 << 20, End: 4}, 2 * one, false},
		{"from within a batch", 3, ReadOptions{Max: 1 << 20, End: 10}, 4 * one, false},
		{"limited, with a piece", 0, ReadOptions{Max: one + 7, End: 10}, one + 7, false},
		{"too large", 0, ReadOptions{Max: one - 1, End: 10}, 0, true},
		{"too large, at least one", 0, ReadOptions{Max: 0, End: 10, MinOne: true}, one, false},
		{"at the end", 10, ReadOptions{Max: 1 << 20, End: 10, MinOne: true}, 0, false},
		{"beyond the high watermark", 6, ReadOptions{Max: 1 << 20, End: 4, MinOne: true}, 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			res, err := b.log.Read(c.from, c.o)
			if err != nil || res.Size != c.size || res.TooLarge != c.tooLarge {
				t.Fatalf("got %+v, %v", res, err)
			}
			wire.Release(res.Segments)
		})
	}
	for _, o := range []wire.Offset{-1, 11} {
		if _, err := b.log.Read(o, ReadOptions{Max: 1, End: 10}); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read at %d: %v", o, err)
		}
	}
}

func TestIdempotence(t *testing.T) {
	b := newBench(t, nil, nil)
	p := func(epoch wire.ProducerEpoch, seq int32) *batch.Producer {
		return &batch.Producer{ID: 9, Epoch: epoch, Sequence: seq}
	}
	send := func(n int, p *batch.Producer) (Appended, error) {
		return b.log.AppendAsLeader(b.validate(b.make(spec{n: n, producer: p})), 0)
	}
	steps := []struct {
		name  string
		n     int
		p     *batch.Producer
		first wire.Offset
		dup   bool
		err   error
	}{
		{"any first sequence of an unknown producer", 3, p(0, 2147483646), 0, false, nil},
		{"wrapped within the batch", 1, p(0, 1), 3, false, nil},
		{"gap", 1, p(0, 3), 0, false, kerr.OutOfOrderSequenceNumber},
		{"next", 2, p(0, 2), 4, false, nil},
		{"retry of the first", 3, p(0, 2147483646), 0, true, nil},
		{"same first sequence, other length", 1, p(0, 2), 0, false, kerr.OutOfOrderSequenceNumber},
		{"higher epoch not from 0", 1, p(1, 4), 0, false, kerr.OutOfOrderSequenceNumber},
		{"higher epoch", 1, p(1, 0), 6, false, nil},
		{"lower epoch", 1, p(0, 4), 0, false, kerr.InvalidProducerEpoch},
		{"window was cleared by the epoch", 3, p(1, 2147483646), 0, false, kerr.OutOfOrderSequenceNumber},
	}
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			a, err := send(s.n, s.p)
			if !errors.Is(err, s.err) {
				t.Fatalf("error %v, want %v", err, s.err)
			}
			if err == nil && (a.First != s.first || a.Duplicate != s.dup) {
				t.Fatalf("got %+v", a)
			}
		})
	}
}

// A retry of each of the last five batches is recognised after a clean stop and after a kill.
func TestWindowSurvivesRestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem := memfs.New(nil)
		b := newBench(t, mem, func(c *Config) { c.SegmentBytes = 600 })
		for i := range 12 {
			b.append(spec{n: 2, size: 30, producer: &batch.Producer{ID: 5, Sequence: int32(2 * i)}})
		}
		if clean {
			b.must(b.log.Close())
			b.open(true, 24)
		} else {
			b = b.on(t, mem.Crash(memfs.Keep, 0))
			b.open(false, 0)
		}
		for i := 7; i < 12; i++ {
			a := b.append(spec{n: 2, size: 30, producer: &batch.Producer{ID: 5, Sequence: int32(2 * i)}})
			if !a.Duplicate || a.First != wire.Offset(2*i) {
				t.Fatalf("clean %v: retry of batch %d: %+v", clean, i, a)
			}
		}
	}
}

func TestTransactionsHoldTheStableOffset(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 400 })
	b.append(spec{n: 2})
	b.append(spec{n: 1, producer: &batch.Producer{ID: 1}, txn: true}) // 2
	b.append(spec{n: 1, producer: &batch.Producer{ID: 2}, txn: true}) // 3
	check := func(want wire.Offset, wantOK bool) {
		t.Helper()
		if o, ok := b.log.FirstUnstableOffset(); ok != wantOK || ok && o != want {
			t.Fatalf("first unstable offset %d, %v; want %d, %v", o, ok, want, wantOK)
		}
	}
	check(2, true)
	b.marker(1, 0, false) // 4
	check(2, true)        // its marker may not be replicated yet
	b.log.Replicated(5)
	check(3, true)
	b.append(spec{n: 1, producer: &batch.Producer{ID: 1, Sequence: 1}, txn: true}) // 5
	b.marker(2, 0, true)                                                           // 6
	b.log.Replicated(7)
	check(5, true)
	b.marker(1, 0, false) // 7
	b.log.Replicated(8)
	check(0, false)
	want := []AbortedTransaction{{1, 2}, {1, 5}}
	if got := b.log.AbortedTransactions(0, 8); !slices.Equal(got, want) {
		t.Fatalf("aborted %v, want %v", got, want)
	}
	if got := b.log.AbortedTransactions(5, 8); !slices.Equal(got, want[1:]) {
		t.Fatalf("aborted from 5: %v", got)
	}
	if _, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 1, producer: &batch.Producer{ID: 3}, txn: true})), 0); err != nil {
		t.Fatal(err)
	}
	_, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 1, producer: &batch.Producer{ID: 3, Sequence: 1}})), 0)
	if !errors.Is(err, kerr.InvalidTxnState) {
		t.Fatalf("plain batch within a transaction: %v", err)
	}
	b.must(b.log.Close())
	b.open(true, 9)
	check(8, true)
	if got := b.log.AbortedTransactions(0, 8); !slices.Equal(got, want) {
		t.Fatalf("aborted after reopening %v, want %v", got, want)
	}
}

func TestTimestampLookup(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 500; c.TimestampAfterMax = Forever })
	base := epochZero.UnixMilli()
	for i, ts := range []int64{10, 30, 20, 60, 40, 50, 60, 55} {
		b.append(spec{n: 2, size: 30, ts: base + ts})
		_ = i
	}
	cases := []struct {
		ts     int64
		offset wire.Offset
		found  bool
	}{{0, 0, true}, {10, 0, true}, {11, 1, true}, {12, 2, true}, {31, 3, true}, {32, 6, true}, {61, 7, true}, {62, 0, false}}
	for _, c := range cases {
		got, ok, err := b.log.OffsetForTimestamp(base+c.ts, 16)
		if err != nil || ok != c.found || got.Offset != c.offset {
			t.Errorf("timestamp %d: offset %d, %v, %v; want %d, %v", c.ts, got.Offset, ok, err, c.offset, c.found)
		}
	}
	if _, ok, err := b.log.OffsetForTimestamp(base+32, 6); ok || err != nil {
		t.Errorf("found beyond the end: %v", err)
	}
	got, ok, err := b.log.MaxTimestamp(16)
	if err != nil || !ok || got.Offset != 7 || got.Timestamp != base+61 {
		t.Errorf("max timestamp %+v, %v, %v", got, ok, err)
	}
	got, ok, err = b.log.MaxTimestamp(6)
	if err != nil || !ok || got.Offset != 3 || got.Timestamp != base+31 {
		t.Errorf("max timestamp below 6: %+v, %v, %v", got, ok, err)
	}
}

func TestTruncateKeepsPromisedBytes(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 700 })
	for range 8 {
		b.append(spec{n: 2, size: 100})
	}
	res, err := b.log.Read(0, ReadOptions{Max: 1 << 20, End: 16})
	b.must(err)
	seg := res.Segments[0]
	before := make([]byte, seg.Len)
	_, err = seg.File.ReadAt(before, seg.Off)
	b.must(err)
	b.must(b.log.TruncateTo(3)) // within a batch: it goes as a whole
	if b.log.EndOffset() != 2 || b.log.Segments() != 1 {
		t.Fatalf("end %d, %d segments", b.log.EndOffset(), b.log.Segments())
	}
	b.append(spec{n: 1, size: 300})
	after := make([]byte, seg.Len)
	_, err = seg.File.ReadAt(after, seg.Off)
	if err != nil || !bytes.Equal(before, after) {
		t.Fatalf("promised bytes changed: %v", err)
	}
	wire.Release(res.Segments)
	if got := b.offsets(); !slices.Equal(got, [][2]wire.Offset{{0, 1}, {2, 2}}) {
		t.Fatalf("batches %v", got)
	}
	b.must(b.log.Close())
	b.open(true, 3)
	if got := b.offsets(); !slices.Equal(got, [][2]wire.Offset{{0, 1}, {2, 2}}) {
		t.Fatalf("batches after reopening %v", got)
	}
}

func TestTruncateTakesEverythingBack(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 500 })
	for i := range 10 {
		v := b.validate(b.make(spec{n: 2, size: 40, producer: &batch.Producer{ID: 4, Sequence: int32(2 * i)}}))
		_, err := b.log.AppendAsLeader(v, wire.LeaderEpoch(i/3))
		b.must(err)
	}
	b.must(b.log.Flush())
	b.must(b.log.TruncateTo(10))
	if got, want := b.log.Producers()[0].LastSequence, int32(9); got != want {
		t.Errorf("last sequence %d, want %d", got, want)
	}
	if e, end, ok := b.log.EndOffsetForEpoch(0); !ok || e != 0 || end != 6 {
		t.Errorf("epoch 0 ends at %d (%d, %v)", end, e, ok)
	}
	if b.log.LatestEpoch() != 1 || b.log.FlushedOffset() != 10 {
		t.Errorf("latest epoch %d, flushed %d", b.log.LatestEpoch(), b.log.FlushedOffset())
	}
	a := b.append(spec{n: 2, size: 40, producer: &batch.Producer{ID: 4, Sequence: 10}})
	if a.First != 10 || a.Duplicate {
		t.Errorf("append after the cut: %+v", a)
	}
	b.must(b.log.TruncateFullyAndStart(100))
	if b.log.StartOffset() != 100 || b.log.EndOffset() != 100 || len(b.log.Producers()) != 0 {
		t.Errorf("restart: %d–%d", b.log.StartOffset(), b.log.EndOffset())
	}
	if a := b.append(spec{n: 1}); a.First != 100 {
		t.Errorf("append after the restart went to %d", a.First)
	}
}

func TestRetention(t *testing.T) {
	cases := []struct {
		name   string
		change func(c *Config)
		hw     wire.Offset
		after  time.Duration
		start  wire.Offset
	}{
		{"nothing is old", func(c *Config) { c.RetentionAge = time.Hour }, 20, time.Minute, 0},
		{"everything is old", func(c *Config) { c.RetentionAge = time.Hour }, 20, 2 * time.Hour, 20},
		{"never beyond the high watermark", func(c *Config) { c.RetentionAge = time.Hour }, 9, 2 * time.Hour, 8},
		{"size", func(c *Config) { c.RetentionAge = -1; c.RetentionBytes = 900 }, 20, 0, 12},
		{"compact only", func(c *Config) { c.Delete, c.Compact = false, true; c.RetentionAge = 0 }, 20, 2 * time.Hour, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, nil, func(cfg *Config) { cfg.SegmentBytes = 500; c.change(cfg) })
			for range 10 {
				b.append(spec{n: 2, size: 80, key: []byte("k")})
			}
			pinned, err := b.log.Read(0, ReadOptions{Max: 100, End: 20, MinOne: true})
			b.must(err)
			b.now = b.now.Add(c.after)
			_, err = b.log.DeleteOld(b.now, c.hw)
			b.must(err)
			if got := b.log.StartOffset(); got != c.start {
				t.Fatalf("log starts at %d, want %d", got, c.start)
			}
			b.must(b.log.RemoveDeleted(b.now.Add(b.config.FileDeleteDelay)))
			names, err := b.fs.List(b.dir)
			b.must(err)
			if i := slices.IndexFunc(names, func(n string) bool { return len(n) > 8 && n[len(n)-8:] == suffixDeleted }); i >= 0 {
				t.Fatalf("%s is still there", names[i])
			}
			_, err = pinned.Segments[0].File.ReadAt(make([]byte, pinned.Size), 0)
			b.must(err)
			wire.Release(pinned.Segments)
			if a := b.append(spec{n: 1, key: []byte("k")}); a.First != 20 {
				t.Fatalf("append went to %d", a.First)
			}
		})
	}
}

func TestDiskFullLeavesTheLogUsable(t *testing.T) {
	faults := faultfs.New(memfs.New(nil))
	b := newBench(t, faults, nil)
	b.append(spec{n: 1, size: 10})
	size := b.log.Size()
	faults.SetSpace(50)
	_, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 1, size: 400})), 0)
	if !errors.Is(err, ErrStorage) || !errors.Is(err, ErrDiskFull) {
		t.Fatalf("error %v, want disk full", err)
	}
	info, err := faults.Stat(b.dir + "/00000000000000000000.log")
	if err != nil || info.Size != size || b.log.EndOffset() != 1 {
		t.Fatalf("file has %d bytes, want %d; end %d", info.Size, size, b.log.EndOffset())
	}
	faults.SetSpace(-1)
	if a := b.append(spec{n: 1, size: 400}); a.First != 1 {
		t.Fatalf("append with space again went to %d", a.First)
	}
}

func TestFsyncFailureIsFinal(t *testing.T) {
	faults := faultfs.New(memfs.New(nil))
	b := newBench(t, faults, nil)
	b.append(spec{n: 1})
	rule := faults.Add(faultfs.Rule{Op: faultfs.OpSync, Path: "*.log", Times: 1, Err: syscall.EIO})
	if err := b.log.Flush(); !errors.Is(err, ErrStorage) || errors.Is(err, ErrDiskFull) {
		t.Fatalf("flush: %v", err)
	}
	calls := faults.Calls(faultfs.OpSync)
	if err := b.log.Flush(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("second flush: %v", err)
	}
	if _, err := b.log.AppendAsLeader(b.validate(b.make(spec{n: 1})), 0); !errors.Is(err, ErrStorage) {
		t.Fatalf("append: %v", err)
	}
	if faults.Calls(faultfs.OpSync) != calls || rule.Hits() != 1 || b.log.FlushedOffset() != 0 {
		t.Fatalf("fsync was tried again, or counted: flushed %d", b.log.FlushedOffset())
	}
	if len(b.offsets()) != 1 {
		t.Fatal("reading must go on")
	}
	if err := b.log.Close(); !errors.Is(err, ErrStorage) {
		t.Fatalf("close: %v", err)
	}
}

func TestOtherTopicIsRefused(t *testing.T) {
	b := newBench(t, nil, nil)
	b.append(spec{n: 1})
	b.must(b.log.Close())
	o := b.options(true, 1)
	o.TopicID = wire.UUID{1}
	if _, _, err := Open(t.Context(), o); !errors.Is(err, ErrTopicID) {
		t.Fatalf("open with another id: %v", err)
	}
	b.must(vfs.WriteAtomic(b.fs, b.dir+"/"+metadataFile, []byte("junk")))
	if _, _, err := Open(t.Context(), b.options(true, 1)); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("open with a damaged metadata file: %v", err)
	}
}
