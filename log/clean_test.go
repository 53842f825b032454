package log

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"pgregory.net/rapid"
)

// kv is a record to write; a nil value is a tombstone.
type kv struct {
	key   string
	value []byte
}

func pair(key, value string) kv { return kv{key, []byte(value)} }

// put appends one batch of keyed records; without a producer the records are plain.
func (b *bench) put(p *batch.Producer, txn bool, codec compress.Type, records ...kv) Appended {
	b.t.Helper()
	a, err := b.tryPut(p, txn, codec, 0, records...)
	b.must(err)
	return a
}

// tryPut is put in a leader epoch, with the log's error.
func (b *bench) tryPut(p *batch.Producer, txn bool, codec compress.Type, epoch wire.LeaderEpoch, records ...kv) (Appended, error) {
	b.t.Helper()
	bl := batch.NewBuilder(batch.Spec{Producer: p, Transactional: txn, Codec: codec, LeaderEpoch: -1, Level: defaultLevel(codec)})
	for i, r := range records {
		bl.Add(batch.NewRecord{Timestamp: b.now.UnixMilli() + int64(i), Key: []byte(r.key), Value: r.value,
			Headers: []batch.Header{{Key: "h", Value: []byte(r.key)}}})
	}
	raw, _, err := bl.Build(nil, b.codecs)
	b.must(err)
	a, err := b.log.AppendAsLeader(b.validate(raw), epoch)
	b.log.Replicated(b.log.EndOffset())
	return a, err
}

// stable is the last stable offset of a lone replica.
func (b *bench) stable() wire.Offset {
	if o, open := b.log.FirstUnstableOffset(); open {
		return o
	}
	return b.log.EndOffset()
}

// clean runs one round from the checkpoint and gives the next one.
func (b *bench) clean(checkpoint wire.Offset) CleanStats {
	b.t.Helper()
	b.log.Replicated(b.log.EndOffset())
	p, err := b.log.PlanClean(checkpoint, b.stable(), b.now)
	b.must(err)
	st, err := b.log.Clean(context.Background(), p, CleanOptions{Now: b.now, MapBytes: 1 << 20, MapLoad: 0.9, BufferBytes: 4096})
	b.must(err)
	return st
}

// seen is a record as a reader finds it.
type seen struct {
	offset     wire.Offset
	key, value string
	tombstone  bool
	time       int64
}

// committed reads the log as a read_committed consumer does.
func (b *bench) committed() []seen {
	b.t.Helper()
	aborted := b.log.AbortedTransactions(b.log.StartOffset(), b.stable())
	slices.SortFunc(aborted, func(a, b AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	skip := map[wire.ProducerID]bool{}
	var out []seen
	b.must(b.log.Scan(b.log.StartOffset(), b.stable(), func(x batch.Batch) error {
		for len(aborted) > 0 && aborted[0].FirstOffset <= x.LastOffset() {
			skip[aborted[0].ProducerID] = true
			aborted = aborted[1:]
		}
		if x.Control() {
			if end, ok, err := x.EndTxn(b.codecs); err != nil || ok && !end.Commit {
				delete(skip, x.ProducerID())
				return err
			}
			return nil
		}
		if x.Transactional() && skip[x.ProducerID()] {
			return nil
		}
		payload, err := x.Records(b.codecs, nil, 1<<20)
		if err != nil {
			return err
		}
		it := batch.Iterate(payload, x.Count())
		for it.Next() {
			r := it.Record
			out = append(out, seen{x.BaseOffset() + wire.Offset(r.OffsetDelta), string(r.Key), string(r.Value), r.Value == nil, r.Timestamp(x)})
		}
		return it.Err()
	}))
	return out
}

// lasts is the last value of each key, without tombstones.
func lasts(records []seen) map[string]string {
	out := map[string]string{}
	for _, r := range records {
		if r.tombstone {
			delete(out, r.key)
		} else {
			out[r.key] = r.value
		}
	}
	return out
}

func compacted(c *Config) {
	c.Compact, c.Delete = true, false
	c.SegmentBytes = 600
	c.DeleteRetention = time.Minute
}

// Compaction keeps the newest record of each key at its offset, and joins small segments.
func TestCleanKeepsTheNewest(t *testing.T) {
	b := newBench(t, nil, compacted)
	for i := range 40 {
		b.put(nil, false, compress.Type(i%5), pair(fmt.Sprintf("k%d", i%7), fmt.Sprintf("v%d", i)), pair("all", fmt.Sprint(i)))
	}
	before := b.committed()
	st := b.clean(wire.NoOffset)
	after := b.committed()
	if st.SegmentsIn == 0 || st.RecordsKept >= st.RecordsRead {
		t.Fatalf("%+v", st)
	}
	if !maps.Equal(lasts(before), lasts(after)) {
		t.Fatalf("table %v, want %v", lasts(after), lasts(before))
	}
	keys := map[string]int{}
	for _, r := range after {
		if !slices.Contains(before, r) {
			t.Fatalf("record %+v was never written", r)
		}
		if r.offset < st.End {
			keys[r.key]++
		}
	}
	for k, n := range keys {
		if n != 1 {
			t.Errorf("key %s is there %d times below %d", k, n, st.End)
		}
	}
	if a := b.put(nil, false, 0, pair("x", "y")); a.First != 80 {
		t.Fatalf("append went to %d", a.First)
	}
	b.must(b.log.Roll())
	if again := b.clean(st.End); again.End != 81 || again.SegmentsOut >= again.SegmentsIn {
		t.Fatalf("%+v", again)
	}
}

// T10, KIP-534: a tombstone and a marker get a delete horizon at their first compaction and go when it has passed; the
// marker never before its data.
func TestCleanDeleteHorizon(t *testing.T) {
	b := newBench(t, nil, compacted)
	p := &batch.Producer{ID: 9, Epoch: 1}
	b.put(p, true, 0, pair("a", "1"))
	b.marker(9, 1, false)
	b.put(nil, false, 0, pair("b", "1"))
	b.put(nil, false, 0, kv{"b", nil})
	b.put(&batch.Producer{ID: 9, Epoch: 1, Sequence: 1}, true, 0, pair("c", "1"))
	b.marker(9, 1, true)
	b.must(b.log.Roll())
	state := func() string {
		var out []string
		b.must(b.log.Scan(0, b.log.EndOffset(), func(x batch.Batch) error {
			horizon, set := x.DeleteHorizon()
			kind := "data"
			if x.Control() {
				kind = "marker"
			}
			out = append(out, fmt.Sprintf("%d:%s:%d", x.BaseOffset(), kind, x.Count()))
			if set {
				out[len(out)-1] += fmt.Sprintf(":%d", (horizon-epochZero.UnixMilli())/1000)
			}
			return nil
		}))
		return strings.Join(out, " ")
	}
	st := b.clean(wire.NoOffset)
	// The aborted data is gone, its marker stays for now; the tombstone has its horizon; c is the producer's last batch.
	if got, want := state(), "1:marker:1 3:data:1:60 4:data:1 5:marker:1"; got != want {
		t.Fatalf("first round: %s, want %s", got, want)
	}
	b.now = b.now.Add(time.Second)
	b.put(nil, false, 0, pair("c", "2"))
	b.must(b.log.Roll())
	b.now = epochZero.Add(10 * time.Second)
	st = b.clean(st.End)
	if got, want := state(), "1:marker:1:70 3:data:1:60 4:data:0 5:marker:1 6:data:1"; got != want {
		t.Fatalf("second round: %s, want %s", got, want)
	}
	b.now = epochZero.Add(65 * time.Second)
	b.put(nil, false, 0, pair("d", "1"))
	b.must(b.log.Roll())
	st = b.clean(st.End)
	if got, want := state(), "1:marker:1:70 4:data:0 5:marker:1 6:data:1 7:data:1"; got != want {
		t.Fatalf("third round: %s, want %s", got, want)
	}
	// The producer is forgotten: its empty batch goes, a round later its marker gets a horizon, and then that goes too.
	b.now = epochZero.Add(2 * time.Hour)
	b.config.ProducerIDExpiration = time.Minute
	b.log.ExpireProducers(b.now)
	for i, want := range []string{"5:marker:1 6:data:1 7:data:1 8:data:1", "5:marker:1:7260 6:data:1 7:data:1 8:data:1 9:data:1"} {
		b.put(nil, false, 0, pair(fmt.Sprint("e", i), "1"))
		b.must(b.log.Roll())
		st = b.clean(st.End)
		if got := state(); got != want {
			t.Fatalf("round %d after expiry: %s, want %s", i, got, want)
		}
	}
	b.now = b.now.Add(time.Hour)
	b.put(nil, false, 0, pair("f", "1"))
	b.must(b.log.Roll())
	b.clean(st.End)
	if got, want := state(), "6:data:1 7:data:1 8:data:1 9:data:1 10:data:1"; got != want {
		t.Fatalf("last round: %s, want %s", got, want)
	}
}

// P5: whatever compaction removes, every live producer is known after an unclean restart without any snapshot file.
func TestCleanKeepsProducers(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, compacted)
	for i := range 30 {
		b.put(&batch.Producer{ID: wire.ProducerID(i % 3), Sequence: int32(i / 3)}, false, compress.Type(i%5), pair("same", fmt.Sprint(i)))
	}
	b.must(b.log.Roll())
	b.put(nil, false, 0, pair("same", "last"))
	b.must(b.log.Roll())
	b.clean(wire.NoOffset)
	want := b.log.Producers()
	b.must(b.log.Flush())
	for _, recoveryPoint := range []wire.Offset{0, 15, b.log.FlushedOffset()} {
		fs := mem.Crash(memfs.Keep, 0)
		names, err := fs.List(b.dir)
		b.must(err)
		for _, name := range names {
			if strings.HasSuffix(name, suffixSnapshot) || strings.HasSuffix(name, suffixWindow) {
				b.must(fs.Remove(b.dir + "/" + name))
			}
		}
		c := b.on(t, fs)
		c.open(false, recoveryPoint)
		if got := c.log.Producers(); !slices.Equal(got, want) {
			t.Fatalf("producers %v, want %v", got, want)
		}
		if c.rec.BytesTruncated != 0 || c.log.EndOffset() != b.log.EndOffset() {
			t.Fatalf("recovery point %d: %+v, end %d", recoveryPoint, c.rec, c.log.EndOffset())
		}
		raw, _, err := batchOf(c, &batch.Producer{ID: 2, Sequence: 9})
		c.must(err)
		a, err := c.log.AppendAsLeader(c.validate(raw), 0)
		if err != nil || !a.Duplicate || a.First != 29 {
			t.Fatalf("retry of the last batch: %+v, %v", a, err)
		}
	}
}

func batchOf(b *bench, p *batch.Producer) ([]byte, []byte, error) {
	bl := batch.NewBuilder(batch.Spec{Producer: p, LeaderEpoch: -1})
	bl.Add(batch.NewRecord{Timestamp: b.now.UnixMilli(), Key: []byte("same"), Value: []byte("29")})
	return bl.Build(nil, b.codecs)
}

// D8: a crash between every two calls of the file system while segments are compacted. Each group of segments is found as
// it was or as it is to be; the log opens, reads the same table, knows its producers, and goes on.
func TestCleanCrashBetweenEveryTwoCalls(t *testing.T) {
	mem := memfs.New(func() time.Time { return epochZero })
	faults := faultfs.New(mem)
	b := newBench(t, faults, compacted)
	for i := range 24 {
		p := &batch.Producer{ID: wire.ProducerID(i % 4), Sequence: int32(i / 4 * 2)}
		txn := i%4 >= 2
		b.put(p, txn, 0, pair(fmt.Sprintf("k%d", i%5), fmt.Sprintf("value %d", i)), pair("x", "y"))
		if txn && i%8 >= 4 {
			b.marker(p.ID, 0, i%3 == 0)
		}
	}
	for id := range wire.ProducerID(4) {
		b.marker(id, 0, id%2 == 0)
	}
	b.must(b.log.Roll())
	b.put(nil, false, 0, pair("tail", "t"))
	b.must(b.log.Flush())
	b.config.SegmentBytes = 1300 // so that some are joined
	before := b.committed()
	want, producers, flushed, end := lasts(before), b.log.Producers(), b.log.FlushedOffset(), b.log.EndOffset()
	points, states := 0, map[string]int{}
	faults.Before(func(op faultfs.Op, name string) {
		points++
		for seed := range uint64(6) {
			fate := []memfs.Fate{memfs.Lose, memfs.Keep, memfs.Coin, memfs.Coin, memfs.Coin, memfs.Coin}[seed]
			where := fmt.Sprintf("point %d (%s %s), fate %d, seed %d", points, op, name, fate, seed)
			for _, recoveryPoint := range []wire.Offset{0, flushed} {
				c := b.on(t, mem.Crash(fate, seed))
				l, rec, err := Open(context.Background(), c.options(false, recoveryPoint))
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				c.log = l
				l.Replicated(l.EndOffset())
				got := c.committed()
				for _, r := range got {
					if !slices.Contains(before, r) {
						t.Fatalf("%s: record %+v was never there", where, r)
					}
				}
				if !maps.Equal(lasts(got), want) || c.log.EndOffset() != end || rec.BytesTruncated != 0 {
					t.Fatalf("%s: table %v, want %v; end %d, %+v", where, lasts(got), want, c.log.EndOffset(), rec)
				}
				if ps := c.log.Producers(); !slices.EqualFunc(ps, producers, func(a, b ProducerState) bool {
					return a.ID == b.ID && a.LastSequence == b.LastSequence && a.TxnFirst == b.TxnFirst
				}) {
					t.Fatalf("%s: producers %v, want %v", where, ps, producers)
				}
				names, err := c.fs.List(c.dir)
				c.must(err)
				if i := slices.IndexFunc(names, func(n string) bool {
					return strings.HasSuffix(n, suffixSwap) || strings.HasSuffix(n, suffixCleaned) || strings.HasSuffix(n, suffixDeleted)
				}); i >= 0 {
					t.Fatalf("%s: %s is left over", where, names[i])
				}
				states[string(c.bytes(0))]++
				c.clean(wire.NoOffset)
				if !maps.Equal(lasts(c.committed()), want) {
					t.Fatalf("%s: compacted after the restart: %v, want %v", where, lasts(c.committed()), want)
				}
				c.put(nil, false, 0, pair("more", "m"))
				c.must(c.log.Close())
			}
		}
	})
	st := b.clean(wire.NoOffset)
	faults.Before(nil)
	if points < 30 || st.SegmentsOut < 3 || st.SegmentsIn <= st.SegmentsOut || len(states) != st.SegmentsOut+1 {
		t.Fatalf("%d crash points, %d states for %+v", points, len(states), st)
	}
	t.Logf("%d crash points, %d states, %d segments became %d", points, len(states), st.SegmentsIn, st.SegmentsOut)
}

// D2: a bit that flipped never reaches a compacted segment: the round ends with the file named, and the segment stays as
// it is. Only the leader epoch (bytes 12 to 15) is covered by nothing.
func TestCleanStopsAtBitRot(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, compacted)
	for i := range 12 {
		b.put(nil, false, 0, pair(fmt.Sprint(i%2), "some value"))
	}
	b.must(b.log.Roll())
	b.must(b.log.Close())
	name := b.dir + "/00000000000000000000.log"
	whole, err := vfs.ReadFile(mem, name)
	b.must(err)
	var sizes []int
	for rest := whole; len(rest) > 0; {
		x, r, err := batch.Next(rest)
		b.must(err)
		sizes, rest = append(sizes, len(x)), r
	}
	within := func(at int) int {
		for _, n := range sizes {
			if at < n {
				return at
			}
			at -= n
		}
		return at
	}
	for at := range whole {
		if in := within(at); in >= 12 && in < 16 {
			continue
		}
		c := b.on(t, mem.Crash(memfs.Keep, 0))
		f, err := c.fs.OpenRW(name)
		c.must(err)
		_, err = f.WriteAt([]byte{whole[at] ^ 1<<(at%8)}, int64(at))
		c.must(errors.Join(err, f.Close()))
		var corrupt *CorruptError
		l, _, err := Open(context.Background(), c.options(true, b.log.EndOffset()))
		if errors.As(err, &corrupt) && corrupt.File == name {
			continue // found even sooner
		}
		c.must(err)
		p, err := l.PlanClean(wire.NoOffset, l.EndOffset(), c.now)
		c.must(err)
		_, err = l.Clean(context.Background(), p, CleanOptions{Now: c.now, MapBytes: 1 << 20})
		if !errors.As(err, &corrupt) || corrupt.File != name {
			t.Fatalf("flip at %d: %v", at, err)
		}
		names, err := c.fs.List(c.dir)
		c.must(err)
		if slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, suffixCleaned) || strings.Contains(n, suffixSwap) }) {
			t.Fatalf("flip at %d: %v", at, names)
		}
	}
}

// The map of keys takes memory as there are keys, not as it may.
func TestCleanMapGrowsWithTheKeys(t *testing.T) {
	last := int64(0)
	for _, keys := range []int64{10, 500, 5000} {
		b := newBench(t, nil, compacted)
		for i := range keys {
			b.put(nil, false, 0, pair(fmt.Sprint(i), "v"))
		}
		p, err := b.log.PlanClean(wire.NoOffset, b.stable(), b.now)
		b.must(err)
		st, err := b.log.Clean(t.Context(), p, CleanOptions{Now: b.now, MapBytes: 128 << 20, MapLoad: 0.9})
		b.must(err)
		if st.MapBytes <= last || st.MapBytes > 64<<10+keys*60 {
			t.Errorf("%d keys take %d bytes, fewer took %d", keys, st.MapBytes, last)
		}
		last = st.MapBytes
	}
}

// A map that is too small makes a round end early; rounds from where the last one ended finish the work.
func TestCleanInSeveralRounds(t *testing.T) {
	b := newBench(t, nil, compacted)
	for i := range 3000 {
		b.put(nil, false, 0, pair(fmt.Sprint(i%700), fmt.Sprint(i)))
	}
	want := lasts(b.committed())
	at, rounds := wire.NoOffset, 0
	for {
		p, err := b.log.PlanClean(at, b.stable(), b.now)
		b.must(err)
		if p.DirtyBytes == 0 || p.From == p.End {
			break
		}
		st, err := b.log.Clean(context.Background(), p, CleanOptions{Now: b.now, MapBytes: 4000, MapLoad: 0.9})
		b.must(err)
		if st.End <= at || st.MapBytes > 4000 {
			t.Fatalf("round %d: %+v after %d", rounds, st, at)
		}
		at, rounds = st.End, rounds+1
	}
	if got := lasts(b.committed()); !maps.Equal(got, want) || rounds < 3 {
		t.Fatalf("%d rounds, %d keys, want %d", rounds, len(got), len(want))
	}
	if n := len(b.committed()); n > 800 {
		t.Errorf("%d records are left of 700 keys", n)
	}
}

func TestPlanClean(t *testing.T) {
	b := newBench(t, nil, compacted)
	for i := range 20 {
		b.now = epochZero.Add(time.Duration(i) * time.Second)
		b.put(nil, false, 0, pair(fmt.Sprint(i), strings.Repeat("v", 100)))
	}
	bases := []wire.Offset{}
	for _, s := range b.log.view.Load().segments {
		bases = append(bases, s.base)
	}
	active := bases[len(bases)-1]
	plan := func(checkpoint, stable wire.Offset) CleanPlan {
		p, err := b.log.PlanClean(checkpoint, stable, b.now)
		b.must(err)
		return p
	}
	if p := plan(wire.NoOffset, 20); p.From != 0 || p.End != active || p.Ratio() != 1 || p.Reset || p.Overdue != 0 || !p.Due(&b.config) {
		t.Errorf("all: %+v", p)
	}
	if p := plan(active, 20); p.DirtyBytes != 0 || p.Due(&b.config) {
		t.Errorf("nothing: %+v", p)
	}
	if p := plan(25, 20); p.From != 0 || !p.Reset {
		t.Errorf("beyond the end: %+v", p)
	}
	if p := plan(0, bases[2]+1); p.End != bases[2] {
		t.Errorf("stable within a segment: %+v, want %d", p, bases[2])
	}
	b.config.MinCompactionLag = 10 * time.Second
	if p := plan(0, 20); p.End != bases[2] && p.End != bases[3] {
		t.Errorf("min lag: %+v of %v", p, bases)
	}
	b.config.MinCompactionLag, b.config.MaxCompactionLag, b.config.MinCleanableRatio = 0, 10*time.Second, 1
	if p := plan(0, 20); p.Overdue != 9*time.Second || !p.Due(&b.config) {
		t.Errorf("max lag: %+v", p)
	}
	b.must(b.log.IncrementStart(5))
	if p := plan(3, 20); p.From != 5 || !p.Reset {
		t.Errorf("before the start: %+v", p)
	}
}

// Metamorphic: a log that is compacted at random points, restarted and crashed, reads as one that never is: the same table, the
// same records where there are any, the same producers.
func TestCleanedLogReadsTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mem := memfs.New(nil)
		change := func(c *Config) {
			compacted(c)
			c.SegmentBytes = rapid.Int64Range(300, 3000).Draw(rt, "segment bytes")
			c.IndexIntervalBytes = rapid.IntRange(0, 500).Draw(rt, "index interval")
			c.DeleteRetention = time.Duration(rapid.IntRange(0, 20).Draw(rt, "delete retention")) * time.Second
		}
		b := newBench(rt, mem, change)
		plain := newBench(rt, nil, func(c *Config) { *c = b.config; c.SegmentBytes = 1 << 30 })
		checkpoint, seqs, open := wire.NoOffset, map[wire.ProducerID]int32{}, map[wire.ProducerID]bool{}
		both := func(do func(x *bench)) { do(b); plain.now = b.now; do(plain) }
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				id := wire.ProducerID(rapid.IntRange(0, 4).Draw(rt, "producer"))
				codec := compress.Type(rapid.IntRange(0, 4).Draw(rt, "codec"))
				var records []kv
				for range rapid.IntRange(1, 4).Draw(rt, "n") {
					r := pair(fmt.Sprint(rapid.IntRange(0, 6).Draw(rt, "key")), fmt.Sprint(b.log.EndOffset(), len(records)))
					if rapid.IntRange(0, 3).Draw(rt, "tombstone") == 0 {
						r.value = nil
					}
					records = append(records, r)
				}
				var p *batch.Producer
				if id > 0 {
					p = &batch.Producer{ID: id, Sequence: seqs[id]}
					seqs[id] += int32(len(records))
				}
				open[id] = id > 2
				both(func(x *bench) { x.put(p, id > 2, codec, records...) })
			},
			"end": func(rt *rapid.T) {
				id := wire.ProducerID(rapid.IntRange(3, 4).Draw(rt, "producer"))
				commit := rapid.Bool().Draw(rt, "commit")
				if open[id] {
					open[id] = false
					both(func(x *bench) { x.marker(id, 0, commit); x.log.Replicated(x.log.EndOffset()) })
				}
			},
			"wait":  func(rt *rapid.T) { b.now = b.now.Add(time.Duration(rapid.IntRange(1, 15).Draw(rt, "s")) * time.Second) },
			"roll":  func(*rapid.T) { b.must(b.log.Roll()) },
			"clean": func(*rapid.T) { checkpoint = max(checkpoint, b.clean(checkpoint).End) },
			"restart": func(*rapid.T) {
				b.must(b.log.Close())
				b.open(true, b.log.EndOffset())
				b.log.Replicated(b.log.EndOffset())
			},
			"crash": func(rt *rapid.T) {
				b.must(b.log.Flush())
				point := wire.Offset(rapid.Int64Range(0, int64(b.log.EndOffset())).Draw(rt, "recovery point"))
				mem = mem.Crash(memfs.Lose, 0)
				b.fs = mem
				b.open(false, point)
				b.log.Replicated(b.log.EndOffset())
			},
			"": func(rt *rapid.T) {
				got, want := b.committed(), plain.committed()
				for _, r := range got {
					if !slices.Contains(want, r) {
						rt.Fatalf("record %+v is not in the history", r)
					}
				}
				if !maps.Equal(lasts(got), lasts(want)) || b.log.EndOffset() != plain.log.EndOffset() || b.stable() != plain.stable() {
					rt.Fatalf("table %v, want %v", lasts(got), lasts(want))
				}
				same := func(a, b ProducerState) bool {
					return a.ID == b.ID && a.LastSequence == b.LastSequence && a.Epoch == b.Epoch
				}
				if a, z := b.log.Producers(), plain.log.Producers(); !slices.EqualFunc(a, z, same) {
					rt.Fatalf("producers %v, want %v", a, z)
				}
			},
		})
	})
}

// A range that was read before a compaction stays readable, unchanged.
func TestCleanLeavesReadersAlone(t *testing.T) {
	b := newBench(t, nil, compacted)
	for i := range 20 {
		b.put(nil, false, 0, pair("k", fmt.Sprint(i)))
	}
	res, err := b.log.Read(0, ReadOptions{Max: 1 << 20, End: 20})
	b.must(err)
	want := make([]byte, res.Size)
	_, err = res.Segments[0].File.ReadAt(want, 0)
	b.must(err)
	b.clean(wire.NoOffset)
	got := make([]byte, res.Size)
	if _, err := res.Segments[0].File.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("promised range changed: %v", err)
	}
	wire.Release(res.Segments)
	b.must(b.log.RemoveDeleted(b.now.Add(time.Hour)))
	names, err := b.fs.List(b.dir)
	b.must(err)
	if slices.ContainsFunc(names, func(n string) bool { return strings.HasSuffix(n, suffixDeleted) }) {
		t.Fatal(names)
	}
}
