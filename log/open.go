package log

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// Open opens the log in o.Dir, making it if it is not there. After an unclean stop it reads every segment that reaches
// beyond the recovery point, cuts at the first batch that is not whole and valid, removes later segments and rebuilds
// indexes, producer state and epochs; what it kept is durable when it returns. ctx ends a long recovery between batches.
//
// Errors: ErrTopicID, ErrStorage, ErrCorrupt (of what recovery may not repair), *OldFormatError, ctx's.
func Open(ctx context.Context, o Options) (*Log, Recovery, error) {
	l := newLog(&o, newDirectory(&o))
	rec, err := l.open(ctx, &o, nil)
	if err != nil {
		return nil, rec, err
	}
	return l, rec, nil
}

func newDirectory(o *Options) *directory {
	d := &directory{fs: o.FS}
	d.path.Store(&o.Dir)
	return d
}

func newLog(o *Options, d *directory) *Log {
	l := &Log{tp: o.TP, topicID: o.TopicID, dir: d, wall: o.Wall, logger: o.Logger, codecs: o.Codecs}
	l.config.Store(o.Config)
	l.lastFlush = o.Wall()
	l.noteLacksLocked()
	return l
}

// open is Open of a log that nobody knows yet. With r it is one that has been served as r says.
func (l *Log) open(ctx context.Context, o *Options, r *Resting) (Recovery, error) {
	op := opening{Log: l, o: o, rec: Recovery{Unclean: !o.Clean}, rested: r}
	if err := op.run(ctx); err != nil {
		return op.rec, errors.Join(fmt.Errorf("open log %s: %w", o.Dir, err), op.abandon())
	}
	for _, s := range op.segments { // thousands of idle logs must not hold thousands of files open
		if err := s.rest(); err != nil {
			return op.rec, errors.Join(err, op.abandon())
		}
	}
	return op.rec, nil
}

// opening is a log on its way to being open; nobody else knows it yet, so it needs no lock.
type opening struct {
	*Log
	o        *Options
	rec      Recovery
	segments []*segment
	names    []string     // in the directory, after cleaning up; what the opening itself writes is not among them
	told     []epochEntry // what the epoch checkpoint held before segments were read again
	// proven: the last stop was clean, and left its newest snapshot right at the recovery point. Then that is the end, and the
	// indexes are complete.
	proven bool
	rested *Resting // what the log was served as until now; nil: it was not
}

// found reports whether the directory held a file of this name when the opening began.
func (op *opening) found(name string) bool {
	_, ok := slices.BinarySearch(op.names, name)
	return ok
}

// lastSnapshotIs reports whether the newest producer snapshot is the one at o. Files that went on elsewhere may hold those of both stops.
func (op *opening) lastSnapshotIs(o wire.Offset) bool {
	for _, name := range slices.Backward(op.names) {
		if at, suffix, ok := parseName(name); ok && suffix == suffixSnapshot {
			return at == o
		}
	}
	return false
}

func (op *opening) run(ctx context.Context) error {
	if err := op.prepareDir(); err != nil {
		return err
	}
	var err error
	if op.names, err = op.cleanUp(); err != nil {
		return err
	}
	for _, name := range op.names {
		if base, suffix, ok := parseName(name); ok && suffix == suffixLog {
			op.segments = append(op.segments, newSegment(op.dir, base, op.wall()))
		}
	}
	if op.rested != nil && len(op.segments) != len(op.rested.Segments) {
		return op.rested.changed(op.o.Dir)
	}
	if len(op.segments) == 0 {
		return op.begin(max(op.o.LogStartOffset, 0))
	}
	last := op.segments[len(op.segments)-1]
	op.proven = op.o.Clean && !op.o.Changed && op.o.RecoveryPoint >= last.base && op.lastSnapshotIs(op.o.RecoveryPoint)
	if err := op.loadSegments(); err != nil {
		return err
	}
	if op.rested != nil && !op.rested.fits(op.segments) {
		return op.rested.changed(op.o.Dir)
	}
	op.prepared = op.segments[0].size.Load() > 0 // there are records, so it was done before them
	op.setView(op.segments, false)
	if planted.On(planted.StartForgotten) {
		op.o.LogStartOffset = 0
	}
	op.start.Store(int64(max(op.o.LogStartOffset, op.segments[0].base)))
	if err := op.loadEpochs(); err != nil {
		return err
	}
	return op.recover(ctx)
}

// abandon closes what a failed Open opened.
func (op *opening) abandon() error {
	var err error
	for _, s := range op.segments {
		err = errors.Join(err, s.close())
	}
	return err
}

// prepareDir makes the directory and partition.metadata, or checks that they belong to the topic.
func (op *opening) prepareDir() error {
	if op.o.Verified {
		return nil
	}
	dir := op.o.Dir
	if err := op.o.FS.MkdirAll(dir); err != nil {
		return storageErr("make", dir, err)
	}
	name := path.Join(dir, metadataFile)
	id, err := ReadTopicID(op.o.FS, dir)
	switch {
	case err == nil && id == op.o.TopicID:
		return nil
	case err == nil:
		return fmt.Errorf("%s has topic id %s, want %s: %w", dir, id, op.o.TopicID, ErrTopicID)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrCorrupt):
		return storageErr("read", name, err)
	}
	// It is durable before the first record, so a missing or damaged one is excused where there is none.
	switch holds, err := op.holdsRecords(); {
	case err != nil:
		return err
	case holds:
		return &CorruptError{File: name, Reason: "missing or damaged, but the directory holds records"}
	}
	return writeUnsynced(op.o.FS, name, encodeMetadata(op.o.TopicID))
}

func (op *opening) holdsRecords() (bool, error) {
	names, err := op.o.FS.List(op.o.Dir)
	if err != nil {
		return false, storageErr("list", op.o.Dir, err)
	}
	for _, name := range names {
		if _, suffix, ok := parseName(name); ok && suffix == suffixLog {
			info, err := op.o.FS.Stat(op.dir.join(name))
			if err != nil || info.Size > 0 {
				return true, storageErr("stat", name, err)
			}
		}
	}
	return false, nil
}

// begin makes the first segment of an empty log.
func (op *opening) begin(base wire.Offset) error {
	s := newSegment(op.dir, base, op.wall())
	op.segments = []*segment{s}
	if err := s.create(); err != nil {
		return err
	}
	if op.o.Config.Preallocate {
		if err := s.reserve(op.o.Config.SegmentBytes); err != nil {
			return err
		}
	}
	op.setView(op.segments, false)
	op.start.Store(int64(base))
	op.leo.Store(int64(base))
	op.flushed.Store(int64(base))
	// The segments may be gone, deleted or not yet durable, while a snapshot of their producers is left: what the next
	// start would find counts now.
	if err := op.loadProducers(op.names, base, nil); err != nil {
		return err
	}
	op.namesDirty = true
	if op.found(epochFile) {
		held, err := op.readEpochs()
		if err == nil && len(held.entries) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	return op.writeEpochsLocked() // no record is left of what it holds
}

// loadSegments gives each segment its size, and those that are not read again their transaction index and timestamps.
func (op *opening) loadSegments() error {
	for i, s := range op.segments {
		info, err := op.o.FS.Stat(s.path(suffixLog))
		if err != nil {
			return storageErr("stat", s.path(suffixLog), err)
		}
		s.size.Store(info.Size)
		s.lastIndexed, s.firstKnown = info.Size, info.Size == 0
		s.reserved = !op.o.Clean && i == len(op.segments)-1 && info.Spare // before the crash
		if !op.o.Clean && op.reaches(i) {
			continue
		}
		if err := op.loadIndexes(s); err != nil {
			return err
		}
		if i == len(op.segments)-1 {
			continue // its tail is read next
		}
		if err := s.rest(); err != nil {
			return err
		}
	}
	return nil
}

// reaches reports whether segment i holds offsets beyond the recovery point, as far as names tell. One that ends exactly
// there may have been sealed after the flush that moved it, and what sealing wrote is not durable then.
func (op *opening) reaches(i int) bool {
	if planted.On(planted.RecoveryStartsTooLate) {
		return i == len(op.segments)-1
	}
	return i == len(op.segments)-1 || op.segments[i+1].base >= op.o.RecoveryPoint
}

// loadIndexes checks the indexes of a segment that is taken as it is, and rebuilds them where they can't be right.
func (op *opening) loadIndexes(s *segment) error {
	size := s.size.Load()
	var err error
	if op.proven {
		err = errors.Join(op.measure(&s.offsets), op.measure(&s.times))
		s.timedBy, s.complete = byNothing, true
	} else {
		err = errors.Join(s.checkTable(&s.offsets, suffixIndex, size), s.checkTable(&s.times, suffixTimeIndex, size))
	}
	if op.found(fileName(s.base, suffixTxnIndex)) {
		err = errors.Join(err, s.loadAborted())
	}
	if err == nil && !op.proven {
		err = op.loadTimestamps(s)
	}
	if err == nil || errors.Is(err, ErrStorage) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	op.logger.Warn("rebuilding the indexes of a segment", "file", s.path(suffixLog), "err", err)
	op.rec.IndexesRebuilt++
	return op.reindex(s)
}

// measure sets the number of entries of an index file that a clean stop has left. What they say is checked when it is used.
func (op *opening) measure(t *table) error {
	name := t.name()
	info, err := op.o.FS.Stat(name)
	if err != nil {
		return storageErr("stat", name, err)
	}
	if info.Size%int64(t.width) != 0 {
		return &CorruptError{File: name, Pos: info.Size, Reason: "length is not a multiple of the entry size"}
	}
	t.written = int(info.Size) / t.width
	return nil
}

// checkTable sets the number of entries of an index file and checks its length and its last entry.
func (s *segment) checkTable(t *table, suffix string, logSize int64) error {
	name := s.path(suffix)
	if err := s.openTables(false); err != nil {
		return err
	}
	size, err := t.file.Size()
	if err != nil {
		return storageErr("stat", name, err)
	}
	if size%int64(t.width) != 0 {
		return &CorruptError{File: name, Pos: size, Reason: "length is not a multiple of the entry size"}
	}
	t.written, t.pending = int(size)/t.width, nil
	if t.written == 0 {
		return nil
	}
	var buf [timeEntrySize]byte
	if err := t.entry(t.written-1, buf[:]); err != nil {
		return err
	}
	bad := false
	if t.width == offsetEntrySize {
		e := decodeOffsetEntry(buf[:])
		bad = e.rel == 0 || e.rel > maxRelativeOffset || int64(e.pos) >= logSize
	} else {
		e := decodeTimeEntry(buf[:])
		bad = e.time < 0 || e.rel > maxRelativeOffset
	}
	if bad {
		return &CorruptError{File: name, Pos: size - int64(t.width), Reason: "last entry does not belong to the segment"}
	}
	return nil
}

// trustTimestamps takes the last time entry, which sealing and a clean stop leave, for the largest timestamp, if nothing is
// known of that. It reads the entry without opening the index for good: retention asks every segment there is.
func (s *segment) trustTimestamps() error {
	s.mu.Lock()
	source := s.timedBy
	s.mu.Unlock()
	n := s.times.entries()
	if source != byNothing || n == 0 {
		return nil
	}
	name := s.times.name()
	f, err := s.dir.fs.Open(name)
	if err != nil {
		return storageErr("open", name, err)
	}
	var buf [timeEntrySize]byte
	_, err = f.ReadAt(buf[:], int64(n-1)*timeEntrySize)
	if err = errors.Join(err, f.Close()); err != nil {
		return storageErr("read", name, err)
	}
	e := decodeTimeEntry(buf[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timedBy == byNothing {
		s.maxTime, s.maxLast, s.timedBy = e.time, s.base+wire.Offset(e.rel), byIndex
	}
	return nil
}

// proveTimestamps looks at the batches before the largest timestamp of a segment decides anything: at the one that the
// last time entry names and what follows it, and at all if that does not fit. The log's mutex is held where batches may
// be appended to s; others may call it at any time.
func (l *Log) proveTimestamps(s *segment) error {
	s.mu.Lock()
	proven := s.timedBy == byBatches
	s.mu.Unlock()
	if proven {
		return nil
	}
	newest, last, fits, err := l.newestFrom(s, true)
	if err == nil && !fits {
		l.logger.Warn("time index does not fit its log", "file", s.path(suffixTimeIndex))
		newest, last, _, err = l.newestFrom(s, false)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timedBy != byBatches {
		s.maxTime, s.maxLast, s.timedBy = newest, last, byBatches
	}
	return nil
}

// newestFrom gives the largest timestamp of s by its batches, from the one that the last time entry names or from the
// first. fits is false if that batch is another one.
func (l *Log) newestFrom(s *segment, indexed bool) (newest int64, last wire.Offset, fits bool, err error) {
	newest, last, fits = wire.NoTimestamp, s.base, true
	e, ok, err := timeEntry{}, false, s.openTables(false)
	if err == nil && indexed {
		e, ok, err = s.times.lastTime()
	}
	if err != nil {
		return newest, last, false, err
	}
	seen := false
	err = l.walk(s, s.base+wire.Offset(e.rel), 1<<63-1, func(h *header, _ int64) (bool, error) {
		if !seen && ok && (h.last != s.base+wire.Offset(e.rel) || h.maxTime != e.time) {
			fits = false
			return false, nil
		}
		seen = true
		if h.maxTime > newest {
			newest, last = h.maxTime, h.last
		}
		return true, nil
	})
	return newest, last, fits && (seen || !ok), err
}

// loadTimestamps finds the largest timestamp: the last time entry's, or that of a batch after it.
func (l *Log) loadTimestamps(s *segment) error {
	s.mu.Lock()
	s.maxTime, s.maxLast, s.timedBy = wire.NoTimestamp, s.base, byBatches
	s.mu.Unlock()
	e, ok, err := s.times.lastTime()
	if err != nil {
		return err
	}
	from, seen := s.base, false
	if ok {
		from += wire.Offset(e.rel)
	}
	err = l.walk(s, from, 1<<63-1, func(h *header, _ int64) (bool, error) {
		if !seen && ok && (h.last != from || h.maxTime != e.time) {
			return false, nil
		}
		seen = true
		s.noteTimestamp(h.maxTime, h.last)
		return true, nil
	})
	if err == nil && ok && !seen {
		return &CorruptError{File: s.path(suffixTimeIndex), Reason: "last entry does not fit the segment"}
	}
	return err
}

// reindex rebuilds the indexes of a segment that is not cut.
func (l *Log) reindex(s *segment) error {
	if err := s.clearIndexes(); err != nil {
		return err
	}
	h, err := s.open()
	if err != nil {
		return err
	}
	sc := l.scanner(s, h, 0, s.size.Load())
	defer l.putScanner(sc)
	for {
		h, pos, err := sc.head()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		s.noteTimestamp(h.maxTime, h.last)
		if err := s.index(&h, pos, l.Config().IndexIntervalBytes); err != nil {
			return err
		}
	}
	s.sealedDirty = true
	return s.seal()
}

// rebuildIndexes begins the indexes anew, making missing files; seal ends it. The segment has to be read again after a
// crash before it does.
func (s *segment) rebuildIndexes() error {
	if err := s.openTables(true); err != nil {
		return err
	}
	s.forgetIndexed()
	return errors.Join(s.offsets.rebuild(), s.times.rebuild())
}

// forgetIndexed is what indexing from the beginning of the segment begins with.
func (s *segment) forgetIndexed() {
	s.lastIndexed, s.complete = 0, false
	s.mu.Lock()
	s.maxTime, s.maxLast, s.timedBy = wire.NoTimestamp, s.base, byBatches
	s.mu.Unlock()
}

// clearIndexes empties the indexes, making missing files.
func (s *segment) clearIndexes() error {
	if err := s.openTables(true); err != nil {
		return err
	}
	for _, t := range []*table{&s.offsets, &s.times} {
		size, err := t.file.Size()
		if err != nil {
			return storageErr("stat", t.name(), err)
		}
		t.written, t.pending = int((size+int64(t.width)-1)/int64(t.width)), nil // so that cut reaches the file
	}
	s.forgetIndexed()
	return errors.Join(s.offsets.cut(0), s.times.cut(0))
}
