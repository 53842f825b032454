package log

import (
	"errors"
	"fmt"
	"time"

	"github.com/kajamq/kaja/internal/invariant"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// Appended tells where an append went.
type Appended struct {
	First, Last   wire.Offset // both inclusive
	LogAppendTime int64       // milliseconds, NoTimestamp for topics with CreateTime; of a duplicate always that of the first append
	LogStart      wire.Offset // at the time of the append
	Duplicate     bool        // the batch was there already, at First to Last; nothing was written
	Rolled        bool        // a new segment was begun
}

// AppendAsLeader writes a validated batch at the log's end in the given leader epoch. It patches base offset and epoch
// into v's bytes, which belong to the log until it returns and are not kept.
//
// Errors: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED (as
// *kerr.Error, wrapped), ErrStorage (nothing of the batch remains), ErrClosed. After any error the log is as before.
func (l *Log) AppendAsLeader(v *Validated, epoch wire.LeaderEpoch) (Appended, error) {
	if err := l.lockForChange(); err != nil {
		return Appended{}, err
	}
	defer l.mu.Unlock()
	b := v.Batch
	b.SetBaseOffset(l.EndOffset())
	b.SetLeaderEpoch(epoch)
	h := parseHeader(b)
	if v.marker {
		if err := l.producers.checkMarker(&h, v.end, v.Txn.V2); err != nil {
			return Appended{}, err
		}
	} else if h.producerID >= 0 && h.baseSequence < 0 {
		if err := l.producers.checkUnsequenced(&h, &v.Txn); err != nil {
			return Appended{}, err
		}
	} else if h.producerID >= 0 {
		dup, isDup, err := l.producers.check(&h, &v.Txn)
		if err != nil {
			return Appended{}, err
		}
		if isDup {
			return l.duplicate(dup), nil
		}
	}
	out := Appended{First: h.base, Last: h.last, LogAppendTime: v.LogAppendTime, LogStart: l.StartOffset()}
	w := write{bytes: b, last: h.last, maxTime: h.maxTime}
	var err error
	out.Rolled, err = l.appendLocked(w)
	return out, err
}

// duplicate answers with the first append, whose timestamp Kafka gives here also for topics with CreateTime.
func (l *Log) duplicate(b batchMeta) Appended {
	return Appended{First: b.firstOffset(), Last: b.lastOffset, LogAppendTime: b.timestamp, LogStart: l.StartOffset(), Duplicate: true}
}

// AppendAsFollower writes batches as a leader sent them, unchanged. They must follow the log's end without overlap; a
// trailing piece of a batch is ignored. The bytes are not kept.
//
// Errors: *CorruptError for a damaged batch or offsets that overlap, ErrStorage, ErrClosed. After any error the log is
// as before.
func (l *Log) AppendAsFollower(records []byte) (Appended, error) {
	whole, first, w, err := checkFollower(records)
	if err != nil || len(whole) == 0 {
		return Appended{First: l.EndOffset(), Last: l.EndOffset() - 1, LogAppendTime: wire.NoTimestamp, LogStart: l.StartOffset()}, err
	}
	if err := l.lockForChange(); err != nil {
		return Appended{}, err
	}
	defer l.mu.Unlock()
	if first < l.EndOffset() {
		return Appended{}, &CorruptError{File: "fetched records", Reason: fmt.Sprintf("base offset %d lies before the end %d", first, l.EndOffset())}
	}
	out := Appended{First: first, Last: w.last, LogAppendTime: wire.NoTimestamp, LogStart: l.StartOffset()}
	out.Rolled, err = l.appendLocked(w)
	return out, err
}

// checkFollower verifies every batch and gives the whole ones.
func checkFollower(records []byte) (whole []byte, first wire.Offset, w write, err error) {
	next := wire.Offset(0)
	w.maxTime = wire.NoTimestamp
	for rest := records; ; {
		b, r, err := batch.Next(rest)
		if errors.Is(err, batch.ErrShort) {
			w.bytes = records[:len(records)-len(rest)]
			return w.bytes, first, w, nil
		}
		if err == nil && !planted.On(planted.FollowerUnchecked) {
			err = b.CheckCRC()
		}
		pos := int64(len(records) - len(rest))
		if err != nil {
			return nil, 0, w, &CorruptError{File: "fetched records", Pos: pos, Reason: err.Error()}
		}
		h := parseHeader(b)
		if h.base < next || h.last < h.base {
			return nil, 0, w, &CorruptError{File: "fetched records", Pos: pos, Reason: "offsets do not ascend"}
		}
		if pos == 0 {
			first = h.base
		}
		next = h.last + 1
		w.last, w.maxTime = h.last, max(w.maxTime, h.maxTime)
		rest = r
	}
}

// write is one set of whole batches on its way to the active segment.
type write struct {
	bytes   []byte
	last    wire.Offset
	maxTime int64
}

// appendLocked writes w with one call and then takes each of its batches into indexes, producer state and epochs. If the
// write fails, what it left is cut off again.
func (l *Log) appendLocked(w write) (rolled bool, err error) {
	if err := l.prepareLocked(); err != nil {
		return false, l.failLocked(err)
	}
	rolled, err = l.rollIfDueLocked(&w)
	if err != nil {
		return rolled, l.failLocked(err)
	}
	s := l.view.Load().active()
	h, err := s.open()
	if err == nil {
		err = errors.Join(s.mend(), s.openTables(true))
	}
	if err != nil {
		return rolled, l.failLocked(err)
	}
	at := s.size.Load()
	if _, err := h.file.WriteAt(w.bytes, at); err != nil {
		return rolled, l.undoLocked(s, storageErr("write", s.path(suffixLog), err))
	}
	s.dirty = true
	pos := at
	for rest := w.bytes; len(rest) > 0 && err == nil; {
		h := parseHeader(rest)
		l.assignEpochLocked(h.leaderEpoch, h.base)
		err = l.noteLocked(s, &h, rest[:h.size], pos)
		pos += int64(h.size)
		rest = rest[h.size:]
	}
	if taken := pos - at; err == nil && taken != int64(len(w.bytes)) {
		invariant.Must(false, "append of %d bytes took %d", len(w.bytes), taken) // within the if: its arguments allocate
	}
	if err != nil { // after the batch was taken in: memory and disk no longer agree
		l.breakLocked(err)
		return rolled, err
	}
	s.size.Store(pos)
	s.noteEnd(w.last+1, pos)
	l.leo.Store(int64(w.last + 1))
	return rolled, nil
}

// undoLocked cuts a failed write off, at the latest before the next one: no reader looks beyond the size, and a start cuts off
// what is not a whole batch.
func (l *Log) undoLocked(s *segment, cause error) error {
	if planted.On(planted.FailedWriteStays) {
		return l.failLocked(cause)
	}
	s.dirty = true // the cut must be durable before the recovery point passes it, too
	s.torn, s.complete = true, false
	return l.failLocked(errors.Join(cause, s.mend()))
}

// noteLocked takes one written batch into the segment's indexes and the log's state, the epochs apart.
func (l *Log) noteLocked(s *segment, h *header, b []byte, pos int64) error {
	if !s.firstKnown {
		s.firstTime, s.firstKnown = h.maxTime, true
	}
	s.noteTimestamp(h.maxTime, h.last)
	if err := s.index(h, pos, l.Config().IndexIntervalBytes); err != nil {
		return err
	}
	return l.stateLocked(s, h, b)
}

// stateLocked takes a batch into the producer state, and an aborted transaction into the segment's index.
func (l *Log) stateLocked(s *segment, h *header, b []byte) error {
	if !h.control || h.producerID < 0 {
		l.producers.add(h)
		if h.txn {
			l.producers.began(h, l.wall())
			l.noteUnstableLocked()
		}
		return nil
	}
	end, ok, err := batch.Batch(b).EndTxn(l.codecs)
	if err != nil {
		return &CorruptError{File: s.path(suffixLog), Reason: err.Error()}
	}
	if !ok {
		l.producers.end = h.last + 1
		return nil
	}
	txn, done := l.producers.addMarker(h, end)
	l.noteUnstableLocked()
	if !done || !txn.aborted {
		return nil
	}
	l.namesDirty = true
	return s.addAborted(abortedTxn{producerID: txn.producerID, first: txn.first, last: txn.last, stable: l.producers.stableWith(txn)})
}

// rollIfDueLocked begins a new segment when w must not or should not go into the active one (Kafka: LogSegment.shouldRoll).
func (l *Log) rollIfDueLocked(w *write) (bool, error) {
	s, c := l.view.Load().active(), l.Config()
	if err := errors.Join(l.loadFirstTime(s), l.proveTimestamps(s)); err != nil {
		return false, err
	}
	size := s.size.Load()
	due := size > c.SegmentBytes-int64(len(w.bytes)) || w.last-s.base > maxRelativeOffset ||
		s.full(c.SegmentIndexBytes) || l.aged(s, w.maxTime, c)
	if size == 0 {
		// An empty segment is as good as a new one, unless the offsets have run away from its base.
		due = w.last-s.base > maxRelativeOffset && l.EndOffset() > s.base
	}
	if !due {
		return false, nil
	}
	return true, l.rollLocked()
}

// aged reports whether a batch with this largest timestamp finds the segment too old: by the timestamp of its first
// batch, or where that has none by the wall clock since its creation.
func (l *Log) aged(s *segment, maxTime int64, c *Config) bool {
	limit := c.SegmentAge - l.jitter(s.base, min(c.SegmentJitter, c.SegmentAge))
	if s.firstKnown && s.firstTime >= 0 {
		return time.Duration(maxTime-s.firstTime) > limit/time.Millisecond
	}
	return l.wall().Sub(s.created) > limit
}

// rollLocked seals the active segment and begins the next one at the log's end.
func (l *Log) rollLocked() error {
	old, base := l.view.Load(), l.EndOffset()
	s := old.active()
	if s.base == base {
		return nil
	}
	if err := errors.Join(s.seal(), s.release()); err != nil {
		return err
	}
	s.sealedDirty = true
	if err := l.writeSnapshotLocked(); err != nil {
		return err
	}
	next := newSegment(l.dir, base, l.wall())
	err := next.create()
	if c := l.Config(); err == nil && c.Preallocate {
		err = next.reserve(c.SegmentBytes)
	}
	if err != nil {
		return errors.Join(err, next.discard())
	}
	l.namesDirty = true
	l.setView(append(old.segments[:len(old.segments):len(old.segments)], next), false)
	return nil
}

// Roll begins a new segment unless the active one is empty.
func (l *Log) Roll() error {
	if err := l.lockForChange(); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if l.view.Load().active().size.Load() == 0 {
		return nil
	}
	return l.failLocked(l.rollLocked())
}
