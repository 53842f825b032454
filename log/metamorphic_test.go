package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/filepool"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
)

// metaProducers producers write: the first two plain batches, the others transactions.
const metaProducers = 4

// optionSet is one way to run a log. What a reader sees must not depend on it.
type optionSet struct {
	name   string
	change func(c *Config)
	codec  compress.Type
	pool   int  // descriptors; 0: no pool
	eager  bool // flush after every append
}

func optionSets() []optionSet {
	size := func(segment int64, interval, index int) func(*Config) {
		return func(c *Config) {
			c.SegmentBytes, c.IndexIntervalBytes, c.SegmentIndexBytes = segment, interval, index
		}
	}
	return []optionSet{
		{name: "defaults", change: func(*Config) {}},
		{name: "small segments", change: size(1000, 100, 1<<20)},
		{name: "one batch a segment", change: size(650, 0, 1<<20)},
		{name: "every batch indexed", change: size(3000, 0, 1<<20)},
		{name: "tiny indexes", change: size(1<<20, 0, 40)},
		{name: "flush after each", change: size(1500, 200, 1<<20), eager: true},
		{name: "gzip", change: size(900, 100, 1<<20), codec: compress.Gzip},
		{name: "snappy", change: size(900, 100, 1<<20), codec: compress.Snappy},
		{name: "lz4, recompressed", codec: compress.Lz4, change: func(c *Config) {
			c.SegmentBytes, c.Compression = 1200, compress.Target{Fixed: true, Type: compress.Gzip, Level: 1}
		}},
		{name: "zstd", change: size(900, 0, 100), codec: compress.Zstd},
		{name: "preallocated", change: func(c *Config) { c.SegmentBytes, c.Preallocate = 1000, true }},
		{name: "append time", change: func(c *Config) { c.SegmentBytes, c.LogAppendTime = 1000, true }},
		{name: "one descriptor", change: size(800, 50, 1<<20), pool: 1},
		{name: "short-lived segments", change: func(c *Config) { c.SegmentAge, c.SegmentJitter = 2*time.Second, time.Second }, pool: 3},
	}
}

// step is one operation; its numbers are taken modulo what is possible, so that a script stays one when steps go.
type step struct {
	kind byte
	a, b int
}

func (s step) String() string { return fmt.Sprintf("%c:%d:%d", s.kind, s.a, s.b) }

// kinds weighs the operations: append, marker, retry, marker of an old epoch, flush, roll, truncate, delete records,
// read, look up a time, clean restart, crash, crash within the next operation, damage side files, write that fails,
// damaged records for a follower, next leader epoch.
const kinds = "aaaaaaaaaaaammmmddofffrttsRRTcxxxXXXXgwFe"

func script(rng *rand.Rand, n int) []step {
	out := make([]step, n)
	for i := range out {
		out[i] = step{kinds[rng.IntN(len(kinds))], rng.IntN(1 << 16), rng.IntN(1 << 16)}
	}
	return out
}

// meta runs a script on a log beside its model.
type meta struct {
	*bench
	set     optionSet
	mem     *memfs.FS
	faults  *faultfs.FS
	m       plain
	crashes int
	// armed is the crash within the next operation.
	armed *step
	image *memfs.FS
	prior plain // as the image was taken
}

// giveUp carries a failure of the bench out of a script.
type giveUp struct{ err error }

type thrower struct{}

func (thrower) Helper()           {}
func (thrower) Fatal(args ...any) { panic(giveUp{errors.New(fmt.Sprint(args...))}) }

// run gives how many crashes were recovered from, and what went wrong.
func runScript(set optionSet, steps []step) (crashes int, err error) {
	x := &meta{set: set}
	at := -1
	defer func() {
		crashes = x.crashes
		if r := recover(); r != nil {
			g, ok := r.(giveUp)
			if !ok {
				panic(r)
			}
			err = g.err
		}
		if err != nil && at >= 0 && at < len(steps) {
			err = fmt.Errorf("step %d (%s): %w", at, steps[at], err)
		}
	}()
	x.mem = memfs.New(ticking())
	b := &bench{t: thrower{}, dir: "/data/t-0", config: *DefaultConfig(), now: epochZero, codecs: compress.New()}
	b.config.RetentionAge = -1
	set.change(&b.config)
	b.must(x.mem.MkdirAll("/data"))
	b.must(x.mem.SyncDir("/"))
	x.bench = b
	x.mount(x.mem)
	b.open(false, 0)
	for i, s := range steps {
		at = i
		if err := x.do(s); err != nil {
			return x.crashes, err
		}
	}
	return x.crashes, x.m.check(x.log)
}

// mount puts the log's file system over a disk.
func (x *meta) mount(mem *memfs.FS) {
	x.mem, x.faults = mem, faultfs.New(mem)
	x.fs = vfs.FS(x.faults)
	if x.set.pool > 0 {
		x.fs = filepool.New(x.faults, x.set.pool)
	}
}

func (x *meta) do(s step) error {
	if s.kind == 'X' {
		x.armed = &step{s.kind, s.a, s.b}
		return nil
	}
	armed := x.armed
	x.armed = nil
	before := x.m
	if armed != nil {
		calls := 0
		x.faults.Before(func(faultfs.Op, string) {
			if calls++; x.image == nil && calls > armed.a%12 {
				x.image = x.mem.Crash(memfs.Fate(armed.b%3), uint64(armed.b))
			}
		})
	}
	if err := x.apply(s); err != nil {
		return err
	}
	if armed == nil {
		return nil
	}
	x.faults.Before(nil)
	image := x.image
	x.image = nil
	if image == nil {
		return nil
	}
	x.prior = before
	return x.recoverFrom(image, before)
}

func (x *meta) apply(s step) error {
	switch s.kind {
	case 'a':
		return x.doAppend(s)
	case 'm':
		return x.doMarker(s)
	case 'd':
		return x.doRetry(s)
	case 'o':
		return x.doOldMarker(s)
	case 'f':
		if s.a%2 == 0 {
			x.must(x.log.FlushRecords())
		} else {
			x.must(x.log.Flush())
		}
		x.m.flush(x.log)
	case 'r':
		x.must(x.log.Roll())
	case 't':
		return x.doTruncate(s)
	case 's':
		return x.doStart(s)
	case 'R':
		return x.m.check(x.log)
	case 'T':
		return x.doTime(s)
	case 'c':
		return x.doRestart(s)
	case 'x':
		return x.recoverFrom(x.mem.Crash(memfs.Fate(s.a%3), uint64(s.b)), x.m)
	case 'g':
		return x.doDamage(s)
	case 'w':
		return x.doFailedWrite(s)
	case 'F':
		return x.doDamagedFetch(s)
	case 'e':
		x.m.epoch++
		if s.a%2 == 0 { // its leader says so before it appends
			if err := x.log.AssignEpochStart(x.m.epoch, x.m.end()); err != nil {
				return err
			}
			x.m.bare = x.m.epoch
		}
	}
	return nil
}

// note takes a batch that was appended into the model.
func (x *meta) note(v *Validated, a Appended, p plainBatch) {
	b := v.Batch
	p.bytes, p.base, p.last, p.epoch, p.maxTime = bytes.Clone(b), a.First, a.Last, x.m.epoch, b.MaxTimestamp()
	x.m.batches = append(x.m.batches[:len(x.m.batches):len(x.m.batches)], p)
	x.m.bare = 0
	if x.set.eager {
		x.must(x.log.FlushRecords())
		x.m.flush(x.log)
	}
}

func (x *meta) nextBatch(s step) (*Validated, plainBatch) {
	id := wire.ProducerID(s.a % (metaProducers + 1))
	if x.m.weak {
		id = 0
	}
	p := plainBatch{id: id, txn: id > 2}
	sp := spec{n: 1 + s.b%4, size: s.b % 130, codec: x.set.codec, txn: p.txn, ts: x.now.UnixMilli() - int64(s.b%5000)}
	if id > 0 {
		p.seq = x.m.nextSeq(id)
		sp.producer = &batch.Producer{ID: id, Epoch: 1, Sequence: p.seq}
	} else {
		p.id = wire.NoProducer
	}
	return x.validate(x.make(sp)), p
}

func (x *meta) doAppend(s step) error {
	x.now = x.now.Add(time.Duration(s.a%700) * time.Millisecond)
	v, p := x.nextBatch(s)
	a, err := x.log.AppendAsLeader(v, x.m.epoch)
	if err != nil || a.Duplicate || a.First != x.m.end() {
		return fmt.Errorf("append: %+v, %w", a, err)
	}
	x.note(v, a, p)
	return nil
}

func (x *meta) validMarker(id wire.ProducerID, epoch wire.ProducerEpoch, commit bool) *Validated {
	m, _ := batch.Marker{ProducerID: id, ProducerEpoch: epoch, EndTxn: batch.EndTxn{Commit: commit}, Timestamp: x.now.UnixMilli()}.Append(nil)
	v, err := Validate(m, ValidateOptions{Config: &x.config, Now: x.now, Coordinator: true, Codecs: x.codecs})
	x.must(err)
	return v
}

func (x *meta) doMarker(s step) error {
	id, commit := wire.ProducerID(3+s.a%2), s.b%2 == 0
	if x.m.weak || x.m.open(id) == wire.NoOffset {
		return nil
	}
	v := x.validMarker(id, 1, commit)
	a, err := x.log.AppendAsLeader(v, x.m.epoch)
	if err != nil || a.First != x.m.end() {
		return fmt.Errorf("marker: %+v, %w", a, err)
	}
	x.note(v, a, plainBatch{id: id, marker: true, commit: commit})
	return nil
}

// doOldMarker sends a marker of an older producer epoch, which must not end the transaction of a newer one.
func (x *meta) doOldMarker(s step) error {
	id := wire.ProducerID(3 + s.a%2)
	if x.m.weak || x.m.nextSeq(id) == 0 {
		return nil
	}
	a, err := x.log.AppendAsLeader(x.validMarker(id, 0, true), x.m.epoch)
	if !errors.Is(err, kerr.InvalidProducerEpoch) {
		return fmt.Errorf("marker of an old epoch: %+v, %w", a, err)
	}
	return nil
}

// doRetry sends one of a producer's newest five batches again.
func (x *meta) doRetry(s step) error {
	id := wire.ProducerID(1 + s.a%metaProducers)
	var mine []plainBatch
	for _, b := range x.m.batches {
		if b.id == id && !b.marker && b.last >= x.m.start {
			mine = append(mine, b)
		}
	}
	mine = mine[max(0, len(mine)-windowSize):]
	if len(mine) == 0 || x.m.weak {
		return nil
	}
	want := mine[s.b%len(mine)]
	sp := spec{n: int(want.last-want.base) + 1, txn: want.txn, codec: x.set.codec,
		producer: &batch.Producer{ID: id, Epoch: 1, Sequence: want.seq}}
	a, err := x.log.AppendAsLeader(x.validate(x.make(sp)), x.m.epoch)
	if err != nil || !a.Duplicate || a.First != want.base || a.Last != want.last {
		return fmt.Errorf("retry of the batch at %d: %+v, %w", want.base, a, err)
	}
	return nil
}

func (x *meta) doTruncate(s step) error {
	span := int(x.m.end() - x.m.start)
	if span <= 1 {
		return nil
	}
	at := x.m.start + 1 + wire.Offset(s.a%(span-1))
	for _, b := range x.m.batches { // the start may lie within a batch, which must stay
		if b.base < x.m.start && b.last >= at {
			return nil
		}
	}
	if err := x.log.TruncateTo(at); err != nil {
		return err
	}
	x.m.cut(at)
	x.m.weak = x.m.weak || x.m.hurt && x.m.forgot(x.log)
	return x.m.check(x.log)
}

func (x *meta) doStart(s step) error {
	span := int(x.m.end() - x.m.start)
	if span == 0 || s.b%3 > 0 && span < 20 {
		return nil
	}
	to := x.m.start + wire.Offset(s.a%(span+1))
	if err := x.log.IncrementStart(to); err != nil {
		return err
	}
	x.m.start = to
	_, err := x.log.DeleteOld(x.now, x.m.end())
	if err == nil && s.b%2 == 0 {
		err = x.log.RemoveDeleted(x.now.Add(time.Hour))
	}
	return err
}

func (x *meta) doTime(s step) error {
	return x.lookUp(epochZero.UnixMilli() + int64(s.a%(1+int(x.now.Sub(epochZero).Milliseconds()))) - 2500)
}

func (x *meta) lookUp(ts int64) error {
	got, ok, err := x.log.OffsetForTimestamp(ts, x.m.end())
	want, wantOK := x.m.byTime(ts)
	if err != nil || ok != wantOK || ok && got.Offset != want {
		return fmt.Errorf("time %d: %+v, %v, want %d, %v: %w", ts, got, ok, want, wantOK, err)
	}
	return nil
}

func (x *meta) reopen(clean bool, recoveryPoint wire.Offset) error {
	o := x.options(clean, recoveryPoint)
	o.LogStartOffset = x.m.start
	l, rec, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	x.log, x.rec, x.m.bare = l, rec, 0
	return nil
}

func (x *meta) doRestart(s step) error {
	x.must(x.log.Close())
	x.m.flush(x.log)
	if r := x.log.Resting(); r != nil && s.a%2 == 0 {
		if !r.Unchanged(x.fs, x.dir) {
			return errors.New("a log that nobody has touched does not rest")
		}
		x.log, x.rec, x.m.bare = Rest(x.options(true, r.End), r), Recovery{}, 0
		if s.b%2 == 0 {
			return nil // whatever comes next wakes it
		}
		return x.m.check(x.log)
	}
	if err := x.reopen(true, x.m.end()); err != nil {
		return err
	}
	if x.rec.BytesRead != 0 || x.rec.Unclean {
		return fmt.Errorf("a clean start read again: %+v", x.rec)
	}
	return x.m.check(x.log)
}

// doDamage takes side files away, empties, cuts, garbles or exchanges them while the log is closed.
func (x *meta) doDamage(s step) error {
	x.must(x.log.Close())
	r := x.log.Resting()
	x.m.flush(x.log)
	names, err := x.fs.List(x.dir)
	x.must(err)
	var side []string
	for _, n := range names {
		// Kafka's transaction index proves nothing of its content; what is wrong in it is found only by reading its segment.
		if !strings.HasSuffix(n, suffixLog) && !strings.HasSuffix(n, suffixTxnIndex) && n != metadataFile {
			side = append(side, n)
		}
	}
	name := x.dir + "/" + side[s.a%len(side)]
	data, err := vfs.ReadFile(x.fs, name)
	x.must(err)
	switch {
	case s.b%5 == 0 || len(data) == 0:
		x.must(x.fs.Remove(name))
		data = nil
	case s.b%5 == 1:
		data = data[:0]
	case s.b%5 == 2:
		data = data[:s.b%len(data)]
	default:
		for range 1 + s.b%3 {
			flip := byte(1 + s.b%255)
			if strings.HasSuffix(name, epochFile) { // text without a checksum: another digit would be believed
				flip |= 0x80
			}
			data[(s.a*31+s.b)%len(data)] ^= flip
		}
	}
	if data != nil {
		x.must(vfs.WriteAtomic(x.fs, name, data))
	}
	if r != nil && r.Unchanged(x.fs, x.dir) {
		return fmt.Errorf("%s was changed and the log would rest", name)
	}
	// What a snapshot held beyond the log start, and a window beyond the snapshot, is nowhere else.
	kind := strings.TrimPrefix(name, x.dir+"/")
	x.m.hurt = x.m.hurt || strings.HasSuffix(kind, suffixSnapshot)
	if strings.HasSuffix(kind, suffixWindow) || strings.HasSuffix(kind, suffixSnapshot) && x.m.start > 0 {
		x.m.weak = true
	}
	if err := x.reopen(s.a%2 == 0, x.m.end()); err != nil {
		return err
	}
	x.m.weak = x.m.weak || x.m.hurt && x.m.forgot(x.log)
	if strings.HasSuffix(kind, suffixTimeIndex) {
		for _, b := range x.m.batches {
			if err := x.lookUp(b.maxTime); err != nil {
				return err
			}
		}
	}
	return x.m.check(x.log)
}

// doFailedWrite lets an append fail half-way, for lack of space.
func (x *meta) doFailedWrite(s step) error {
	v, _ := x.nextBatch(step{s.kind, 0, s.b})
	rule := x.faults.Add(faultfs.Rule{Op: faultfs.OpWrite, Path: "*.log", Times: 1, Short: 1 + s.a%(len(v.Batch)-1), Err: syscall.ENOSPC})
	_, err := x.log.AppendAsLeader(v, x.m.epoch)
	x.faults.Clear()
	if rule.Hits() == 0 || !errors.Is(err, ErrDiskFull) {
		return fmt.Errorf("write that fails: %w", err)
	}
	return x.m.check(x.log)
}

// doDamagedFetch gives a follower's append one flipped bit.
func (x *meta) doDamagedFetch(s step) error {
	raw := x.make(spec{n: 2, size: 40})
	batch.Batch(raw).SetBaseOffset(x.m.end())
	raw[headerSize+s.a%(len(raw)-headerSize)] ^= byte(1 << (s.b % 8))
	if a, err := x.log.AppendAsFollower(raw); !errors.Is(err, ErrCorrupt) {
		return fmt.Errorf("damaged records were taken: %+v, %w", a, err)
	}
	return nil
}

// recoverFrom opens what a crash left. before is the model as the operation began, x.m as it ended; one may be a prefix
// of the other, and whole batches of the longer one must be left, no fewer than were durable either way.
func (x *meta) recoverFrom(image *memfs.FS, before plain) error {
	x.crashes++
	after := x.m
	x.mount(image)
	x.m.start = min(before.start, after.start)
	durable, point := min(before.flushed, after.flushed), min(before.point, after.point)
	// Records that were deleted before they were durable may take what is known of their producers along.
	x.m.weak = before.weak || after.weak || max(before.start, after.start) > durable
	if before.start != after.start { // the log start is durable only once the operation is over
		x.m.start = before.start
	}
	if err := x.reopen(false, point); err != nil {
		return err
	}
	if len(before.batches) > len(after.batches) {
		x.m.batches = before.batches
	}
	end := x.log.EndOffset()
	if end < durable {
		return fmt.Errorf("%d was durable, the log ends at %d", durable, end)
	}
	x.m.start = max(x.m.start, x.log.StartOffset())
	if x.m.start > max(before.start, after.start) {
		return fmt.Errorf("log starts at %d, want at most %d", x.m.start, max(before.start, after.start))
	}
	x.m.cut(end)
	if to := max(before.start, after.start); to > x.m.start && to <= end {
		// A deletion under way when the crash came may have left gaps below where it was to begin: it is done again.
		if err := x.log.IncrementStart(to); err != nil {
			return err
		}
		x.m.start = to
	}
	if end == x.log.StartOffset() && end == x.m.start && x.m.end() < end {
		// Nothing that was durable reached the durable log start, so the log begins anew there.
		x.m.floor, x.m.weak = end, true
	}
	x.m.flush(x.log)
	x.m.weak = x.m.weak || x.m.hurt && x.m.forgot(x.log)
	if x.m.end() != end {
		return fmt.Errorf("log ends at %d, within a batch or beyond everything", end)
	}
	return x.m.check(x.log)
}

// shrink takes steps away as long as the script still fails.
func shrink(set optionSet, steps []step, failure error) []step {
	kind := func(err error) string { // the words of the innermost error
		for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
			err = next
		}
		return strings.Map(func(r rune) rune {
			if unicode.IsLetter(r) {
				return r
			}
			return -1
		}, err.Error())
	}
	for size := len(steps) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(steps); {
			shorter := append(append([]step{}, steps[:at]...), steps[at+size:]...)
			if _, err := runScript(set, shorter); err != nil && kind(err) == kind(failure) {
				steps = shorter
			} else {
				at += size
			}
		}
	}
	return steps
}

// scriptOf gives the script and the options of a seed.
func scriptOf(seed uint64) (optionSet, []step) {
	rng := rand.New(rand.NewPCG(seed, 0x6d657461))
	sets := optionSets()
	return sets[int(seed)%len(sets)], script(rng, 20+rng.IntN(120))
}

// search runs scripts from seed on until so many crashes were recovered from, or one fails.
func search(seed uint64, crashes int) (done, scripts int, err error) {
	for err == nil && done < crashes {
		set, steps := scriptOf(seed + uint64(scripts))
		var c int
		c, err = runScript(set, steps)
		done += c
		scripts++
	}
	return done, scripts, err
}

// metamorphic is search with a shorter script for what it finds.
func metamorphic(seed uint64, crashes int) (done, scripts int, err error) {
	done, scripts, err = search(seed, crashes)
	if err == nil {
		return done, scripts, nil
	}
	failing := seed + uint64(scripts) - 1
	set, steps := scriptOf(failing)
	short := shrink(set, steps, err)
	_, why := runScript(set, short)
	return done, scripts, fmt.Errorf("seed %d, options %q: %w\nshortest script: %v\nwhich fails with: %w", failing, set.name, err, short, why)
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, v, err)
	}
	return n
}

// Random operations, with crashes between and within them, against a plain model, under 14 option sets.
// KAJA_CRASHES is how many crashes are recovered from, KAJA_SEED the first script.
func TestMetamorphic(t *testing.T) {
	began := time.Now()
	done, scripts, err := metamorphic(uint64(number(t, "KAJA_SEED", 1)), number(t, "KAJA_CRASHES", 3000))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d crash-recoveries in %d scripts, %v", done, scripts, time.Since(began).Round(time.Millisecond))
}
