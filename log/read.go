package log

import (
	"errors"
	"io"
	"io/fs"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// ReadOptions bound a read.
type ReadOptions struct {
	Max    int         // bytes
	End    wire.Offset // exclusive bound: HW, LSO or LEO; must lie on a batch boundary to be reached
	MinOne bool        // the first batch is returned whole even if it is larger than Max
}

// ReadResult is a range of one segment. Whoever gets it calls Done of each Segment exactly once (wire.Release).
type ReadResult struct {
	Segments []wire.Segment // empty, or the batch that holds the offset and what follows; may end within a batch
	Size     int            // bytes of Segments
	// UpperBound is exclusive and at or beyond the offsets of every whole batch in Segments.
	UpperBound wire.Offset
	// TooLarge: there is data, but its first batch exceeds Max and MinOne was not set.
	TooLarge bool
}

// readAttempts is how often a read that collides with a truncation starts again before it waits for the log's mutex.
const readAttempts = 3

// Read gives the bytes from the batch that holds from up to o.End. The range stays readable, unchanged, until its Done is
// called, whatever happens to the log. Reading at the LEO gives nothing and no error.
//
// Errors: *OffsetOutOfRangeError outside [StartOffset, EndOffset], ErrStorage, ErrCorrupt, ErrClosed.
func (l *Log) Read(from wire.Offset, o ReadOptions) (ReadResult, error) {
	if err := l.Wake(); err != nil {
		return ReadResult{}, err
	}
	for range readAttempts {
		v := l.view.Load()
		res, err := l.readView(v, from, o)
		if l.settled(v, err) {
			return res, err
		}
		wire.Release(res.Segments)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readView(l.view.Load(), from, o)
}

// settled reports whether the outcome of a read of v stands: nothing was cut off meanwhile, and if it failed, not because
// a segment went away.
func (l *Log) settled(v *view, err error) bool {
	now := l.view.Load()
	if err == nil {
		return now.gen == v.gen
	}
	return now == v && !errors.Is(err, ErrClosed) && !errors.Is(err, fs.ErrClosed)
}

func (l *Log) readView(v *view, from wire.Offset, o ReadOptions) (ReadResult, error) {
	leo, start := l.EndOffset(), l.StartOffset()
	if from < start || from > leo {
		return ReadResult{}, &OffsetOutOfRangeError{Offset: from, Start: start, End: leo}
	}
	end := min(o.End, leo)
	for i := v.find(from); from < end && i < len(v.segments); i++ {
		s := v.segments[i]
		size := s.size.Load()
		first, pos, err := l.locate(s, size, from)
		if errors.Is(err, io.EOF) {
			continue // nothing at or beyond from in this segment: compaction left a gap
		}
		if err != nil {
			return ReadResult{}, err
		}
		if first.base >= end {
			return ReadResult{UpperBound: end}, nil
		}
		limit, upper := size, v.end(i, leo)
		if end < upper || i == len(v.segments)-1 {
			// An append that came after leo was read may be in size already, of the active segment at any time.
			upper = end
			if limit, err = l.endPosition(s, size, end); err != nil {
				return ReadResult{}, err
			}
		}
		return l.pinned(s, &first, pos, limit, upper, o)
	}
	return ReadResult{UpperBound: end}, nil
}

// pinned makes the result for the bytes of s from pos up to limit.
func (l *Log) pinned(s *segment, first *header, pos, limit int64, upper wire.Offset, o ReadOptions) (ReadResult, error) {
	n := min(limit-pos, int64(o.Max))
	if n < int64(first.size) {
		if !o.MinOne {
			return ReadResult{UpperBound: upper, TooLarge: limit > pos}, nil
		}
		n = min(int64(first.size), limit-pos)
	}
	if n <= 0 {
		return ReadResult{UpperBound: upper}, nil
	}
	h, err := s.open()
	if err != nil {
		return ReadResult{}, err
	}
	end := pos + n
	if !h.pin(end) {
		return ReadResult{}, ErrClosed
	}
	if err := vfs.Hold(h.file); err != nil {
		h.unpin(end)
		return ReadResult{}, storageErr("open", s.path(suffixLog), err)
	}
	seg := wire.Segment{File: h.file, Off: pos, Len: n, Done: func() { vfs.Release(h.file); h.unpin(end) }}
	return ReadResult{Segments: []wire.Segment{seg}, Size: int(n), UpperBound: upper}, nil
}

// locate finds the first batch of s, within size bytes, that ends at or beyond o: its header and position. io.EOF: none.
func (l *Log) locate(s *segment, size int64, o wire.Offset) (header, int64, error) {
	h, err := s.open()
	if err != nil {
		return header{}, 0, err
	}
	if pos, ok := s.positionOf(o); ok && pos <= size {
		sc := l.scanner(s, h, pos, size)
		defer l.putScanner(sc)
		return sc.head()
	}
	entry, err := l.lookup(s, o)
	if err != nil {
		return header{}, 0, err
	}
	sc := l.scanner(s, h, min(int64(entry.pos), size), size)
	defer l.putScanner(sc)
	if entry.pos != 0 {
		first, _, err := sc.head()
		if planted.On(planted.IndexTrusted) && err == nil {
			return sc.find(o)
		}
		if err != nil || first.last != s.base+wire.Offset(entry.rel) {
			l.logger.Warn("offset index does not fit its log, reading without it", "file", s.path(suffixIndex), "offset", o)
			sc.reset(s, h.file, 0, size)
		} else if first.last >= o {
			return first, int64(entry.pos), nil
		}
	}
	return sc.find(o)
}

func (l *Log) lookup(s *segment, o wire.Offset) (offsetEntry, error) {
	if err := s.openTables(false); err != nil {
		return offsetEntry{}, err
	}
	return s.offsets.lookupOffset(uint32(min(max(o-s.base, 0), maxRelativeOffset)))
}

// endPosition gives where the first batch begins that does not lie wholly below end, or size.
func (l *Log) endPosition(s *segment, size int64, end wire.Offset) (int64, error) {
	if pos, ok := s.positionOf(end); ok && pos <= size {
		return pos, nil
	}
	_, pos, err := l.locate(s, size, end)
	if errors.Is(err, io.EOF) {
		return size, nil
	}
	return pos, err
}

// Scan calls fn for every whole batch from the one that holds from up to end, exclusive, verifying checksums. The batch
// is valid until fn returns. fn's error ends the scan and is returned as it is.
func (l *Log) Scan(from, end wire.Offset, fn func(b batch.Batch) error) error {
	for from < end {
		res, err := l.Read(from, ReadOptions{Max: fullScanBytes, End: end, MinOne: true})
		if err != nil {
			return err
		}
		next := from
		for _, seg := range res.Segments {
			if next, err = scanSegment(seg, next, end, fn); err != nil {
				break
			}
		}
		wire.Release(res.Segments)
		if err != nil {
			return err
		}
		if next == from {
			return nil
		}
		from = next
	}
	return nil
}

// scanSegment walks the whole batches of a pinned range and gives the offset that follows them.
func scanSegment(seg wire.Segment, next, end wire.Offset, fn func(b batch.Batch) error) (wire.Offset, error) {
	buf := make([]byte, seg.Len)
	if _, err := seg.File.ReadAt(buf, seg.Off); err != nil {
		return next, storageErr("read", "segment", err)
	}
	for {
		b, rest, err := batch.Next(buf)
		if errors.Is(err, batch.ErrShort) {
			return next, nil
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			return next, &CorruptError{File: "segment", Pos: seg.Off + seg.Len - int64(len(buf)), Reason: err.Error()}
		}
		if b.BaseOffset() >= end {
			return next, nil
		}
		if err := fn(b); err != nil {
			return next, err
		}
		next, buf = b.NextOffset(), rest
	}
}
