package log

import (
	"errors"
	"fmt"
	"io"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// TimestampOffset is a record found by timestamp.
type TimestampOffset struct {
	Timestamp   int64 // milliseconds
	Offset      wire.Offset
	LeaderEpoch wire.LeaderEpoch
}

// OffsetForTimestamp gives the first record below end with a timestamp of at least ts; false when there is none.
func (l *Log) OffsetForTimestamp(ts int64, end wire.Offset) (found TimestampOffset, ok bool, err error) {
	err = l.stable(func(v *view) (err error) {
		found, ok, err = l.offsetForTimestamp(v, ts, end)
		return err
	})
	return found, ok, err
}

// stable runs a read again when bytes were cut off meanwhile, and in the end under the log's mutex.
func (l *Log) stable(read func(v *view) error) error {
	if err := l.Wake(); err != nil {
		return err
	}
	for range readAttempts {
		v := l.view.Load()
		if err := read(v); l.settled(v, err) {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return read(l.view.Load())
}

func (l *Log) offsetForTimestamp(v *view, ts int64, end wire.Offset) (TimestampOffset, bool, error) {
	start := l.StartOffset()
	end = min(end, l.EndOffset())
	for i := v.find(start); i < len(v.segments); i++ {
		s := v.segments[i]
		if s.base >= end {
			break
		}
		if err := l.proveTimestamps(s); err != nil {
			return TimestampOffset{}, false, err
		}
		if newest, _ := s.maxTimestamp(); newest < ts {
			continue
		}
		found, ok, err := l.timestampIn(s, ts, start, end)
		if err != nil || ok {
			return found, ok && found.Offset < end, err
		}
	}
	return TimestampOffset{}, false, nil
}

// timestampIn searches one segment, beginning where the time index says that nothing before can match.
func (l *Log) timestampIn(s *segment, ts int64, start, end wire.Offset) (TimestampOffset, bool, error) {
	if err := s.openTables(false); err != nil {
		return TimestampOffset{}, false, err
	}
	from := start
	if e, ok, err := s.times.lookupTime(ts - 1); err != nil {
		return TimestampOffset{}, false, err
	} else if ok {
		at, err := l.timeEntryOffset(s, e)
		if err != nil {
			return TimestampOffset{}, false, err
		}
		from = max(from, at)
	}
	var found TimestampOffset
	hit := false
	err := l.walk(s, from, end, func(h *header, pos int64) (more bool, err error) {
		if h.maxTime >= ts {
			found, hit, err = l.timestampInBatch(s, h, pos, ts, start)
		}
		return !hit, err
	})
	return found, hit, err
}

// timeEntryOffset gives the offset of a time entry if the batch there bears it out, else the segment's base.
func (l *Log) timeEntryOffset(s *segment, e timeEntry) (wire.Offset, error) {
	o := s.base + wire.Offset(e.rel)
	if planted.On(planted.TimeIndexTrusted) {
		return o, nil
	}
	h, _, err := l.locate(s, s.size.Load(), o)
	if errors.Is(err, io.EOF) || err == nil && (h.last != o || h.maxTime != e.time) {
		l.logger.Warn("time index does not fit its log, searching without it", "file", s.path(suffixTimeIndex), "offset", o)
		return s.base, nil
	}
	return o, err
}

// walk calls fn for the header of each batch of s from the one that holds from, while it begins below end.
func (l *Log) walk(s *segment, from, end wire.Offset, fn func(h *header, pos int64) (more bool, err error)) error {
	size := s.size.Load()
	first, pos, err := l.locate(s, size, from)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := s.open()
	if err != nil {
		return err
	}
	sc := l.scanner(s, f, pos+int64(first.size), size)
	defer l.putScanner(sc)
	for h := first; h.base < end; {
		more, err := fn(&h, pos)
		if err != nil || !more {
			return err
		}
		if h, pos, err = sc.head(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// timestampInBatch finds the first record of one batch with a timestamp of at least ts, at or beyond start.
func (l *Log) timestampInBatch(s *segment, h *header, pos, ts int64, start wire.Offset) (TimestampOffset, bool, error) {
	b, err := l.loadBatch(s, h, pos)
	if err != nil {
		return TimestampOffset{}, false, err
	}
	payload, err := b.Records(l.codecs, nil, l.Config().MaxDecompressedBytes)
	if err != nil {
		return TimestampOffset{}, false, fmt.Errorf("%s: batch at %d: %w", s.path(suffixLog), pos, err)
	}
	it := batch.Iterate(payload, b.Count())
	for it.Next() {
		o, t := h.base+wire.Offset(it.Record.OffsetDelta), it.Record.Timestamp(b)
		if t >= ts && o >= start {
			return TimestampOffset{Timestamp: t, Offset: o, LeaderEpoch: h.leaderEpoch}, true, nil
		}
	}
	return TimestampOffset{}, false, it.Err()
}

func (l *Log) loadBatch(s *segment, h *header, pos int64) (batch.Batch, error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, h.size)
	if _, err := f.file.ReadAt(buf, pos); err != nil {
		return nil, storageErr("read", s.path(suffixLog), err)
	}
	b := batch.Batch(buf)
	if err := b.CheckCRC(); err != nil {
		return nil, &CorruptError{File: s.path(suffixLog), Pos: pos, Reason: err.Error()}
	}
	return b, nil
}

// MaxTimestamp gives the first record below end that has the largest timestamp; false when there is no record with one.
func (l *Log) MaxTimestamp(end wire.Offset) (found TimestampOffset, ok bool, err error) {
	err = l.stable(func(v *view) (err error) {
		found, ok, err = l.newest(v, end)
		return err
	})
	return found, ok, err
}

func (l *Log) newest(v *view, end wire.Offset) (TimestampOffset, bool, error) {
	start := l.StartOffset()
	end = min(end, l.EndOffset())
	best := TimestampOffset{Timestamp: wire.NoTimestamp}
	for i := v.find(start); i < len(v.segments) && v.segments[i].base < end; i++ {
		s := v.segments[i]
		if err := l.proveTimestamps(s); err != nil {
			return best, false, err
		}
		newest, last := s.maxTimestamp()
		if newest <= best.Timestamp {
			continue
		}
		if last >= end || last < start {
			var err error
			if newest, err = l.newestBetween(s, start, end); err != nil {
				return best, false, err
			}
			if newest <= best.Timestamp {
				continue
			}
		}
		found, ok, err := l.timestampIn(s, newest, start, end)
		if err != nil {
			return best, false, err
		}
		if ok && found.Offset < end {
			best = found
		}
	}
	return best, best.Timestamp >= 0, nil
}

// newestBetween is the largest batch timestamp of a segment within [start, end).
func (l *Log) newestBetween(s *segment, start, end wire.Offset) (int64, error) {
	newest := wire.NoTimestamp
	err := l.walk(s, start, end, func(h *header, _ int64) (bool, error) {
		if h.last < end {
			newest = max(newest, h.maxTime)
		}
		return true, nil
	})
	return newest, err
}
