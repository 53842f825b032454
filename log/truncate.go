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
// Errors: ErrStorage, ErrCorrupt, ErrClosed.
func (l *Log) TruncateTo(o wire.Offset) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if o >= l.EndOffset() {
		return l.failLocked(l.dropEmptyEpochsLocked())
	}
	if o <= l.StartOffset() {
		return l.failLocked(l.restartLocked(o))
	}
	if err := l.truncateLocked(o); err != nil {
		l.breakLocked(err) // half of it may have happened: only a new Open knows
		return err
	}
	return nil
}

// dropEmptyEpochsLocked drops the epochs that no record was written in (Kafka: UnifiedLog.truncateTo).
func (l *Log) dropEmptyEpochsLocked() error {
	l.epochs.truncateEnd(l.EndOffset())
	if !l.epochs.dirty {
		return nil
	}
	return l.writeEpochsLocked()
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
	removed := v.segments[keep+1:]
	l.setView(v.segments[:keep+1:keep+1], true)
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
	if err := s.cut(end, pos); err != nil {
		return err
	}
	return l.rewindLocked(s, end)
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

// rewindLocked brings everything beside the bytes back to end.
func (l *Log) rewindLocked(s *segment, end wire.Offset) error {
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
		if err := l.writeEpochsLocked(); err != nil {
			return err
		}
	}
	names, err := l.removeSnapshotsLocked(func(o wire.Offset) bool { return o > end })
	if err != nil {
		return err
	}
	l.namesDirty = true // a snapshot that comes back would be believed below a later recovery point
	ended := l.producers.ended
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
	return l.writeSnapshotLocked()
}

// TruncateFullyAndStart removes everything and lets the log begin, empty, at o, as a follower does that lies wholly
// outside its leader's log.
func (l *Log) TruncateFullyAndStart(o wire.Offset) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
	if err := l.restartLocked(o); err != nil {
		l.breakLocked(err)
		return err
	}
	return nil
}

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
		return err
	}
	l.setView([]*segment{s}, true)
	l.leo.Store(int64(o))
	l.start.Store(int64(o))
	l.flushed.Store(int64(o))
	l.producers, l.snapshotEnd = newProducers(o), o
	l.noteUnstableLocked()
	l.epochs.entries, l.epochs.dirty, l.namesDirty = nil, true, true
	l.prepared = false // the name of the new segment is not durable
	return l.writeEpochsLocked()
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return err
	}
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
	if err := l.writeEpochsLocked(); !errors.Is(err, ErrDiskFull) {
		return err
	}
	return nil // what is deleted gives space back, and the next flush writes it
}
