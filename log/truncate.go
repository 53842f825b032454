package log

import (
	"errors"
	"io"
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// TruncateTo removes every batch that ends at or beyond o and lets the log end at o or at the end of the batch before
// it. Indexes, producer state, epochs, snapshots and the recovery point go back with it. A range that was read before
// stays readable and unchanged. An o at or beyond the LEO changes nothing but the epochs: one that began there with this
// replica as its leader, and has no record, goes. It is what another leader knows nothing of.
//
// The recovery point may fall: the caller writes it down (checkpoint) before it appends again, or a crash could leave
// new bytes below an old recovery point unread.
//
// What lacked space or a descriptor half-way (Passing) is finished by the next call of whatever needs it, an append first of all.
//
// Errors: ErrStorage, ErrCorrupt, ErrClosed.
func (l *Log) TruncateTo(o wire.Offset) error {
	if err := l.Wake(); err != nil {
		return err
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.finish(); err != nil {
		return err
	}
	if err := l.beginTruncation(o); err != nil {
		return err
	}
	return l.finish()
}

// beginTruncation lets the log end at o for everybody but the disk, and undertakes the rest.
func (l *Log) beginTruncation(o wire.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if o >= l.EndOffset() {
		return l.dropEmptyEpochsLocked()
	}
	if o <= l.StartOffset() {
		l.beginRestartLocked(o)
		return nil
	}
	err := l.truncateLocked(o)
	if errors.Is(err, ErrCorrupt) {
		l.breakLocked(err)
	}
	return l.failLocked(err)
}

// dropEmptyEpochsLocked drops the epochs that no record was written in (Kafka: UnifiedLog.truncateTo).
func (l *Log) dropEmptyEpochsLocked() error {
	l.epochs.truncateEnd(l.EndOffset())
	if !l.epochs.dirty {
		return nil
	}
	return l.noteEpochsLocked()
}

func (l *Log) truncateLocked(o wire.Offset) error {
	v := l.view.Load()
	keep := v.find(o - 1)
	s := v.segments[keep]
	if err := s.openTables(true); err != nil {
		return err
	}
	at, pos, err := l.locate(s, s.size.Load(), o)
	end := o
	switch {
	case errors.Is(err, io.EOF):
		pos = s.size.Load()
	case err != nil:
		return err
	case at.base < o:
		end = at.base // o lies within a batch, which goes as a whole
	}
	l.leo.Store(int64(end))
	l.flushed.Store(min(l.flushed.Load(), int64(end)))
	removed, ended := v.segments[keep+1:], slices.Clone(l.producers.ended)
	l.setView(v.segments[:keep+1:keep+1], true)
	l.undertakeLocked(unfinished{cut: true, do: func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if err := l.cutLocked(s, end, pos, removed); err != nil {
			return err
		}
		return l.rewindLocked(s, end, ended)
	}})
	return nil
}

// cutLocked takes what lies at or beyond end, which is at pos in s, from the disk. It may be run again after an error.
func (l *Log) cutLocked(s *segment, end wire.Offset, pos int64, removed []*segment) error {
	for i := len(removed) - 1; i >= 0; i-- { // from the end: a crash in between leaves no gap
		if err := l.dropLocked(removed[i]); err != nil {
			return err
		}
	}
	if len(removed) > 0 {
		if err := l.dir.fs.SyncDir(l.Dir()); err != nil {
			return storageErr("sync directory", l.Dir(), err)
		}
	}
	if err := s.openTables(true); err != nil {
		return err
	}
	return s.cut(end, pos)
}

// cut removes what lies at or beyond end, which is at pos, from the segment and its indexes.
func (s *segment) cut(end wire.Offset, pos int64) error {
	s.complete = false
	rel := uint32(end - s.base)
	var buf [timeEntrySize]byte
	n, err := s.offsets.search(buf[:], func(b []byte) bool { return decodeOffsetEntry(b).rel < rel })
	if err != nil {
		return err
	}
	m, err := s.times.search(buf[:], func(b []byte) bool { return decodeTimeEntry(b).rel < rel })
	if err != nil {
		return err
	}
	if err := errors.Join(s.offsets.cut(n), s.times.cut(m), s.cutAborted(end)); err != nil {
		return err
	}
	s.lastIndexed = pos
	if pos == 0 {
		s.firstKnown, s.firstTime = false, wire.NoTimestamp
	}
	return s.truncate(pos)
}

// rewindLocked brings everything beside the bytes back to end; ended are the completed transactions before that. It may be run
// again after an error.
func (l *Log) rewindLocked(s *segment, end wire.Offset, ended []completedTxn) error {
	err := l.loadTimestamps(s)
	if errors.Is(err, ErrCorrupt) {
		l.logger.Warn("rebuilding the indexes of a segment", "file", s.path(suffixLog), "err", err)
		err = l.reindex(s)
	}
	if err != nil {
		return err
	}
	l.epochs.truncateEnd(end)
	if l.epochs.dirty {
		if err := l.noteEpochsLocked(); err != nil {
			return err
		}
	}
	names, err := l.removeSnapshotsLocked(func(o wire.Offset) bool { return o > end })
	if err != nil {
		return err
	}
	l.namesDirty = true // a snapshot that comes back would be believed below a later recovery point
	if planted.On(planted.ProducersNotRewound) {
		l.producers.end = end
		return nil
	}
	if err := l.loadProducers(names, end, nil); err != nil {
		return err
	}
	for _, t := range ended { // a marker that is left may still wait for the high watermark
		if t.last < end && !slices.Contains(l.producers.ended, t) {
			l.producers.ended = append(l.producers.ended, t)
		}
	}
	l.producers.sortEnded()
	l.noteUnstableLocked()
	if l.producers.end == l.snapshotEnd {
		return nil
	}
	if err := l.writeSnapshotLocked(); !Passing(err) {
		return err
	}
	return nil // a clean stop writes it; after another one an older snapshot and the log tell the same
}

// TruncateFullyAndStart removes everything and lets the log begin, empty, at o, as a follower does that lies wholly
// outside its leader's log.
func (l *Log) TruncateFullyAndStart(o wire.Offset) error {
	if err := l.Wake(); err != nil {
		return err
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.finish(); err != nil {
		return err
	}
	l.mu.Lock()
	err := l.usableLocked()
	if err == nil {
		l.beginRestartLocked(o)
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.finish()
}

// beginRestartLocked lets the log begin anew and empty at o for everybody but the disk, and undertakes the rest.
func (l *Log) beginRestartLocked(o wire.Offset) {
	l.emptyAt(o)
	l.undertakeLocked(unfinished{cut: true, do: func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.restartLocked(o)
	}})
}

// emptyAt lets the log begin and end at o.
func (l *Log) emptyAt(o wire.Offset) {
	l.leo.Store(int64(o))
	l.start.Store(int64(o))
	l.flushed.Store(int64(o))
}

// restartLocked gives a log that was begun anew its files. It may be run again after an error.
func (l *Log) restartLocked(o wire.Offset) error {
	old := l.view.Load().segments
	for i := len(old) - 1; i >= 0; i-- {
		if err := l.dropLocked(old[i]); err != nil {
			return err
		}
	}
	if _, err := l.removeSnapshotsLocked(func(wire.Offset) bool { return true }); err != nil {
		return err
	}
	if err := l.dir.fs.SyncDir(l.Dir()); err != nil { // nothing old may stand beside what follows
		return storageErr("sync directory", l.Dir(), err)
	}
	s := newSegment(l.dir, o, l.wall())
	if err := s.create(); err != nil {
		return errors.Join(err, s.discard())
	}
	l.setView([]*segment{s}, true)
	l.emptyAt(o)
	l.producers, l.snapshotEnd = newProducers(o), o
	l.noteUnstableLocked()
	l.epochs.entries, l.epochs.bare, l.epochs.dirty, l.namesDirty = nil, false, true, true
	l.prepared = false // the name of the new segment is not durable
	return l.noteEpochsLocked()
}

// dropLocked removes a segment's files at once.
func (l *Log) dropLocked(s *segment) error {
	err := s.close()
	for _, suffix := range []string{suffixLog, suffixIndex, suffixTimeIndex, suffixTxnIndex} {
		err = errors.Join(err, removeFile(l.dir.fs, s.path(suffix)))
	}
	return err
}

// IncrementStart moves the log start up to o; a lower o changes nothing. Bytes go when retention next passes. The caller
// makes the new start durable (checkpoint) before it promises it to anybody.
//
// Errors: *OffsetOutOfRangeError beyond the LEO, ErrClosed.
func (l *Log) IncrementStart(o wire.Offset) error {
	if err := l.lockForChange(); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if o > l.EndOffset() {
		return &OffsetOutOfRangeError{Offset: o, Start: l.StartOffset(), End: l.EndOffset()}
	}
	return l.failLocked(l.moveStartLocked(o))
}

func (l *Log) moveStartLocked(o wire.Offset) error {
	if o <= l.StartOffset() {
		return nil
	}
	l.start.Store(int64(o))
	l.producers.dropBelow(o)
	l.noteUnstableLocked()
	l.epochs.truncateStart(o)
	if !l.epochs.dirty {
		return nil
	}
	return l.noteEpochsLocked()
}
