package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// CleanPlan says what of a log compaction could clean now, and how much it is worth.
type CleanPlan struct {
	From wire.Offset // the first dirty offset: everything below was compacted before
	End  wire.Offset // exclusive; the base of a segment, at most the stable end, never within the active segment

	CleanBytes, DirtyBytes int64 // of the segments below From, and of those from From to End
	// Overdue is how long ago max.compaction.lag.ms asked for the dirty part; 0: not yet.
	Overdue time.Duration
	// Reset says that the checkpoint was not usable and From is the log start.
	Reset bool
}

// Ratio is the dirty part of what is below End, from 0 to 1.
func (p CleanPlan) Ratio() float64 {
	if p.CleanBytes+p.DirtyBytes == 0 {
		return 0
	}
	return float64(p.DirtyBytes) / float64(p.CleanBytes+p.DirtyBytes)
}

// Due reports whether the log is to be compacted under its configuration.
func (p CleanPlan) Due(c *Config) bool {
	return p.DirtyBytes > 0 && (p.Overdue > 0 || p.Ratio() > c.MinCleanableRatio)
}

// PlanClean finds the range that may be compacted (Kafka: LogCleanerManager.cleanableOffsets). checkpoint is where the
// last compaction ended, NoOffset if there was none; stable bounds it: the last stable offset, which is at most the high
// watermark. It reads nothing but, with a max.compaction.lag.ms, one header of each dirty segment once.
//
// Errors: ErrStorage, ErrCorrupt, ErrClosed.
func (l *Log) PlanClean(checkpoint, stable wire.Offset, now time.Time) (CleanPlan, error) {
	if err := l.Wake(); err != nil {
		return CleanPlan{}, err
	}
	v, c, start := l.view.Load(), l.Config(), l.StartOffset()
	var p CleanPlan
	if p.From = checkpoint; checkpoint < start || checkpoint > l.EndOffset() {
		p.From, p.Reset = start, checkpoint != wire.NoOffset
	}
	dirty := v.find(p.From)
	end := min(stable, v.active().base)
	if c.MinCompactionLag > 0 {
		for _, s := range v.segments[dirty : len(v.segments)-1] {
			newest, err := l.newestTime(s)
			if err != nil {
				return p, err
			}
			if newest > now.Add(-c.MinCompactionLag).UnixMilli() {
				end = min(end, s.base)
				break
			}
		}
	}
	last := v.find(max(end, p.From))
	p.End = v.segments[last].base
	for i, s := range v.segments[:last] {
		if s.base < p.From {
			p.CleanBytes += s.size.Load()
		}
		if i >= dirty {
			p.DirtyBytes += s.size.Load()
		}
	}
	var err error
	p.Overdue, err = l.overdue(v.segments[dirty:len(v.segments)-1], c, now)
	return p, err
}

// newestTime is the largest timestamp of a segment, or the time of its last change where it has none.
func (l *Log) newestTime(s *segment) (int64, error) {
	if err := l.proveTimestamps(s); err != nil {
		return 0, err
	}
	if newest, _ := s.maxTimestamp(); newest >= 0 {
		return newest, nil
	}
	info, err := l.dir.fs.Stat(s.path(suffixLog))
	if err != nil {
		return 0, storageErr("stat", s.path(suffixLog), err)
	}
	return info.ModTime.UnixMilli(), nil
}

// overdue is by how much the oldest of some sealed segments has passed max.compaction.lag.ms.
func (l *Log) overdue(segments []*segment, c *Config, now time.Time) (time.Duration, error) {
	if c.MaxCompactionLag == Forever {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, ErrClosed
	}
	limit := now.Add(-c.MaxCompactionLag).UnixMilli()
	var worst int64
	for _, s := range segments {
		if !s.firstKnown {
			if err := l.loadFirstTime(s); err != nil {
				return 0, err
			}
		}
		if s.firstTime > 0 {
			worst = max(worst, limit-s.firstTime)
		}
	}
	return time.Duration(worst) * time.Millisecond, nil
}

// CleanOptions bound one round of compaction.
type CleanOptions struct {
	Now         time.Time
	MapBytes    int64   // memory for finding duplicate keys, at most
	MapLoad     float64 // how full it may get, between 0 and 1
	BufferBytes int     // for reading and for writing, each; a larger batch makes it grow
	// Throttle is called with the bytes that were read or are to be written; it waits as it likes. Its error ends the
	// round.
	Throttle func(ctx context.Context, bytes int) error
}

// CleanStats tell what a round of compaction did.
type CleanStats struct {
	End wire.Offset // exclusive: the log is compacted up to here

	MapKeys      int
	MapBytes     int64 // memory of the map
	MapBytesRead int64 // read to fill it
	BytesRead    int64 // of the segments that were compacted, and what was written instead
	BytesWritten int64
	RecordsRead  int64
	RecordsKept  int64
	SegmentsIn   int // replaced
	SegmentsOut  int // in their place
}

// Clean compacts the log as p says: it keeps the last record of each key of the dirty part, removes aborted data, and
// tombstones and markers whose time has come, and keeps offsets, the last batch of every live producer, and everything
// from p.End on (Kafka: Cleaner.doClean). Segments are replaced one group after the other; a crash at any point leaves
// each group as it was or as it is to be. Reads and appends go on meanwhile. Only one Clean of a log may run at a time.
//
// Every batch is checked before anything of it is written: a damaged one ends the round with a *CorruptError and the
// group as it was. Errors: ErrCleanAborted (a truncation or deletion got in between), ErrCorrupt, ErrStorage (Passing: what has
// begun is finished later), ErrClosed, ctx's and Throttle's.
func (l *Log) Clean(ctx context.Context, p CleanPlan, o CleanOptions) (CleanStats, error) {
	if err := l.Wake(); err != nil {
		return CleanStats{}, err
	}
	l.flushMu.Lock()
	err := l.finish() // an output beside a swap that is not finished would undo it after a crash
	if err == nil && l.RecoveryPoint() < p.End {
		err = l.flushAll(true) // the first records of an epoch may go: then only the checkpoint tells where it begins
	}
	l.flushMu.Unlock()
	if err != nil {
		return CleanStats{}, fmt.Errorf("compact %s: %w", l.Dir(), err)
	}
	r := &cleanRound{l: l, o: &o, plan: p, view: l.view.Load(), ctx: ctx}
	r.buf = max(o.BufferBytes, headScanBytes)
	if err := r.run(); err != nil {
		if ctx.Err() == nil && !r.current(r.view.segments[:r.view.find(p.End)]) {
			err = ErrCleanAborted
		}
		return r.stats, fmt.Errorf("compact %s: %w", l.Dir(), err)
	}
	return r.stats, nil
}

// cleanRound is one run of Clean.
type cleanRound struct {
	l     *Log
	o     *CleanOptions
	ctx   context.Context //nolint:containedctx // lives as long as the call that it came with
	plan  CleanPlan
	view  *view // as it was at the beginning, less what was replaced
	buf   int
	stats CleanStats
}

func (r *cleanRound) run() error {
	end := r.view.find(r.plan.End)
	if r.view.segments[end].base != r.plan.End || r.plan.From >= r.plan.End {
		return nil
	}
	sources := r.view.segments[:end]
	aborted := abortedOf(r.view.segments, r.plan.End)
	keys := newKeyMap(r.o.MapBytes, r.o.MapLoad)
	mapped, err := r.fill(keys, sources, aborted)
	if err != nil {
		return err
	}
	r.stats.MapKeys, r.stats.MapBytes = keys.keys, keys.bytes()
	f := &filter{
		keys: keys, mapped: mapped, txns: newTxnTracker(aborted), producers: r.l.lastOfProducers(), now: r.o.Now.UnixMilli(),
		retention: r.l.Config().DeleteRetention, codecs: r.l.codecs, limit: r.l.Config().MaxDecompressedBytes, stats: &r.stats,
	}
	for len(sources) > 0 && sources[0].base < mapped {
		group := r.group(sources, mapped)
		if err := r.clean(f, group); err != nil {
			return err
		}
		sources = sources[len(group):]
	}
	r.stats.End = mapped
	return nil
}

// abortedOf gives the aborted transactions that begin below end; their markers may lie in any later segment.
func abortedOf(segments []*segment, end wire.Offset) []abortedTxn {
	var out []abortedTxn
	for _, s := range segments {
		s.mu.Lock()
		for _, a := range s.aborted {
			if a.first < end {
				out = append(out, a)
			}
		}
		s.mu.Unlock()
	}
	return out
}

// lastOfProducers is what of each live producer must stay in the log.
func (l *Log) lastOfProducers() map[wire.ProducerID]lastOfProducer {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[wire.ProducerID]lastOfProducer, len(l.producers.byID))
	for id, p := range l.producers.byID {
		last := lastOfProducer{last: wire.NoOffset, epoch: p.epoch}
		if b, ok := p.newest(); ok {
			last.last = b.lastOffset
		}
		out[id] = last
	}
	return out
}

// fill takes the keys of the dirty part into the map and gives the exclusive end of what it knows: plan.End, or the
// first record that found no room.
func (r *cleanRound) fill(keys *keyMap, sources []*segment, aborted []abortedTxn) (wire.Offset, error) {
	// A transaction whose marker lies before the dirty part would never end in this pass.
	txns := newTxnTracker(slices.DeleteFunc(slices.Clone(aborted), func(a abortedTxn) bool { return a.last < r.plan.From }))
	var records []byte
	for _, s := range sources[r.view.find(r.plan.From):] {
		_, at, err := r.l.locate(s, s.size.Load(), r.plan.From)
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			return 0, err
		}
		mapped := wire.NoOffset
		read, err := r.walk(s, at, func(h *header, b batch.Batch) (err error) {
			if h.control {
				end, isEnd, err := b.EndTxn(r.l.codecs)
				if err == nil {
					txns.control(h, end, isEnd)
				}
				return err
			}
			if txns.data(h) || h.count == 0 {
				return nil
			}
			if records, mapped, err = r.put(keys, h, b, records); err == nil && mapped != wire.NoOffset {
				err = io.EOF
			}
			return err
		})
		r.stats.MapBytesRead += read
		if err != nil || mapped != wire.NoOffset {
			return mapped, err
		}
	}
	return r.plan.End, nil
}

// put takes the keys of one batch into the map; full is the offset of the first record that found no room, or NoOffset.
func (r *cleanRound) put(keys *keyMap, h *header, b batch.Batch, buf []byte) (_ []byte, full wire.Offset, err error) {
	records, err := b.Records(r.l.codecs, buf, r.l.Config().MaxDecompressedBytes)
	if err != nil {
		return buf, wire.NoOffset, err
	}
	it := batch.Iterate(records, h.count)
	for it.Next() {
		o := h.base + wire.Offset(it.Record.OffsetDelta)
		if it.Record.Key != nil && o >= r.plan.From && !keys.put(it.Record.Key, o) {
			return buf, o, nil
		}
	}
	if h.count > 0 && len(b.Payload()) > 0 && &records[0] != &b.Payload()[0] {
		buf = records
	}
	return buf, wire.NoOffset, it.Err()
}

// walk calls fn for every batch of a segment from a position on, its checksum verified; io.EOF from fn ends it without
// an error.
func (r *cleanRound) walk(s *segment, at int64, fn func(h *header, b batch.Batch) error) (read int64, err error) {
	file, err := s.open()
	if err != nil {
		return 0, err
	}
	sc := &scanner{buf: make([]byte, min(int64(r.buf), max(s.size.Load(), headerSize)))}
	sc.reset(s, file.file, at, s.size.Load())
	next, limit := s.base, r.view.end(r.view.find(s.base), r.l.EndOffset())
	for {
		if err := r.ctx.Err(); err != nil {
			return sc.read, err
		}
		before := sc.read
		h, b, pos, err := sc.batch()
		if errors.Is(err, io.EOF) {
			return sc.read, nil
		}
		if err == nil && (h.base < next || h.last >= limit) {
			err = &CorruptError{File: sc.name(), Pos: pos, Reason: "offsets do not ascend within the segment"}
		}
		next = h.last + 1
		if err == nil {
			err = r.throttle(int(sc.read - before))
		}
		if err == nil {
			err = fn(&h, b)
		}
		if errors.Is(err, io.EOF) {
			return sc.read, nil
		}
		if errors.Is(err, batch.ErrCorrupt) {
			err = &CorruptError{File: sc.name(), Pos: pos, Reason: err.Error()}
		}
		if err != nil {
			return sc.read, err
		}
	}
}

func (r *cleanRound) throttle(n int) error {
	if n == 0 || r.o.Throttle == nil {
		return nil
	}
	return r.o.Throttle(r.ctx, n)
}

// group takes from the front of the sources those that go into one new segment: together within the limits of one by
// size, index sizes and offsets (Kafka: Cleaner.groupSegmentsBySize).
func (r *cleanRound) group(sources []*segment, mapped wire.Offset) []*segment {
	c := r.l.Config()
	var size int64
	var offsets, times int
	for i, s := range sources {
		next := r.plan.End
		if i+1 < len(sources) {
			next = sources[i+1].base
		}
		size += s.size.Load()
		offsets += s.offsets.entries() * offsetEntrySize
		times += s.times.entries() * timeEntrySize
		if i > 0 && (s.base >= mapped || size > c.SegmentBytes || offsets > c.SegmentIndexBytes || times > c.SegmentIndexBytes ||
			next-1-sources[0].base > maxRelativeOffset) {
			return sources[:i]
		}
	}
	return sources
}

// current reports whether the segments are still part of the log and no truncation has touched it since the beginning.
func (r *cleanRound) current(segments []*segment) bool {
	v := r.l.view.Load()
	if len(segments) == 0 {
		return v.gen == r.view.gen
	}
	at := v.find(segments[0].base)
	if v.gen != r.view.gen || at+len(segments) >= len(v.segments) {
		return false
	}
	for i, s := range segments {
		if v.segments[at+i] != s {
			return false
		}
	}
	return true
}
