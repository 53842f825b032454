package log

import (
	"errors"
	"slices"
	"time"

	"github.com/kajamq/kaja/wire"
)

// futureTolerance is how far a timestamp may lie ahead of the wall clock before retention warns of it.
const futureTolerance = time.Hour

// DeleteOld applies retention: segments wholly below the log start always, and with cleanup.policy delete the oldest ones
// beyond retention.bytes and retention.ms (the segment's largest timestamp counts, or where it has none the time of its
// last change). Only whole segments below hw go; when all of them must, the active one is rolled first. The files get
// the suffix .deleted and go with RemoveDeleted. It returns how many segments went, also with an error.
func (l *Log) DeleteOld(now time.Time, hw wire.Offset) (segments int, err error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.finish(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usableLocked(); err != nil {
		return 0, err
	}
	c := l.Config()
	if r := l.resting.Load(); r != nil && !r.due(c, now) {
		return 0, nil
	}
	if err := l.wakeLocked(); err != nil {
		return 0, err
	}
	rules := []func() func(*segment, wire.Offset) bool{
		func() func(*segment, wire.Offset) bool {
			return func(_ *segment, next wire.Offset) bool { return next <= l.StartOffset() }
		},
	}
	if c.Delete {
		rules = append(rules, func() func(*segment, wire.Offset) bool { return l.tooLarge(c) },
			func() func(*segment, wire.Offset) bool { return l.tooOld(c, now) })
	}
	for _, rule := range rules {
		n, err := l.deletePrefixLocked(now, hw, rule())
		if segments += n; err != nil {
			return segments, l.failLocked(err)
		}
	}
	return segments, nil
}

// due reports whether retention may find its first segment, before which none goes, to be deleted.
func (r *Resting) due(c *Config, now time.Time) bool {
	s := &r.Segments[0]
	if s.Size == 0 {
		return false
	}
	if len(r.Segments) > 1 && r.Segments[1].Base <= r.Start || len(r.Segments) == 1 && r.End <= r.Start {
		return true
	}
	if !c.Delete {
		return false
	}
	late := now.UnixMilli() - s.MaxTime
	return c.RetentionBytes >= 0 && r.size() > c.RetentionBytes ||
		c.RetentionAge >= 0 && (!s.Dated || s.MaxTime < 0 || late < 0 || late > c.RetentionAge.Milliseconds())
}

func (l *Log) tooLarge(c *Config) func(*segment, wire.Offset) bool {
	excess := int64(-1)
	if c.RetentionBytes >= 0 {
		excess = l.Size() - c.RetentionBytes
	}
	return func(s *segment, _ wire.Offset) bool {
		if excess -= s.size.Load(); excess < 0 {
			return false
		}
		return true
	}
}

func (l *Log) tooOld(c *Config, now time.Time) func(*segment, wire.Offset) bool {
	return func(s *segment, _ wire.Offset) bool {
		if c.RetentionAge < 0 {
			return false
		}
		if err := s.trustTimestamps(); err != nil {
			return l.ageUnknown(s, err)
		}
		newest, _ := s.maxTimestamp()
		if late := now.UnixMilli() - newest; late > c.RetentionAge.Milliseconds() || late < 0 {
			if err := l.proveTimestamps(s); err != nil {
				return l.ageUnknown(s, err)
			}
			newest, _ = s.maxTimestamp()
		}
		if newest < 0 {
			info, err := l.dir.fs.Stat(s.path(suffixLog))
			if err != nil {
				return l.ageUnknown(s, storageErr("stat", s.path(suffixLog), err))
			}
			newest = info.ModTime.UnixMilli()
		}
		l.warnOfFuture(s, newest, now)
		return now.UnixMilli()-newest > c.RetentionAge.Milliseconds()
	}
}

// ageUnknown keeps a segment, and everything after it, until the next pass finds its timestamps, and says so once of a segment.
func (l *Log) ageUnknown(s *segment, err error) bool {
	if !s.ageTold {
		s.ageTold = true
		l.logger.Warn("largest timestamp of a segment cannot be read: retention.ms does not delete it before that, retention.bytes does",
			"topic", l.tp.Topic, "partition", l.tp.Partition, "base_offset", s.base, "err", err)
	}
	return false
}

// warnOfFuture says once of a segment that its timestamps keep it, and everything after it, longer than retention.ms asks:
// producers that count microseconds are the usual reason.
func (l *Log) warnOfFuture(s *segment, newest int64, now time.Time) {
	if s.futureTold || newest-now.UnixMilli() <= futureTolerance.Milliseconds() {
		return
	}
	s.futureTold = true
	l.logger.Warn("segment has timestamps in the future: retention.ms does not delete it before then, retention.bytes does",
		"topic", l.tp.Topic, "partition", l.tp.Partition, "base_offset", s.base, "largest_timestamp_ms", newest)
}

// deletePrefixLocked deletes the oldest segments as long as due holds; next is the exclusive end of the segment.
func (l *Log) deletePrefixLocked(now time.Time, hw wire.Offset, due func(s *segment, next wire.Offset) bool) (int, error) {
	v, leo := l.view.Load(), l.EndOffset()
	n := 0
	for i, s := range v.segments {
		next := v.end(i, leo)
		if next > hw || s.size.Load() == 0 || !due(s, next) {
			break
		}
		n++
	}
	if n == 0 {
		return 0, nil
	}
	if n == len(v.segments) {
		if err := l.rollLocked(); err != nil && (n == 1 || !Passing(err)) {
			return 0, err
		} else if err != nil {
			n-- // what goes makes room for the new segment, and the next pass finds the last one
		}
	}
	if err := l.settleNamesLocked(); err != nil {
		return 0, err
	}
	v = l.view.Load() // it may have grown at its end
	if err := l.moveStartLocked(v.segments[n].base); err != nil {
		return 0, err
	}
	l.setView(slices.Clone(v.segments[n:]), false)
	l.namesDirty = true
	gone := v.segments[:n]
	err := l.retireAllLocked(gone, now)
	if Passing(err) {
		l.undertakeLocked(unfinished{do: func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.retireAllLocked(gone, now)
		}})
	}
	return n, err
}

// retireAllLocked retires deleted segments. It may be run again after an error.
func (l *Log) retireAllLocked(segments []*segment, now time.Time) error {
	for _, s := range segments {
		if err := l.retireLocked(s, now, retiredSuffixes[:]); err != nil {
			return err
		}
	}
	return nil
}

// settleNamesLocked makes durable what takes the place of files that are about to go: the name of the segment that becomes
// the first, and the snapshot that knows the producers of the deleted ones. Otherwise a crash could keep the removal, lose
// that segment and keep a later one, and the log would begin above records that were never deleted. A full disk does not
// keep anything from being deleted. The caller holds flushMu and mu; mu is free meanwhile.
func (l *Log) settleNamesLocked() error {
	if !l.namesDirty && len(l.snapshots) == 0 {
		return nil
	}
	l.mu.Unlock()
	err := l.flushAll(true)
	l.mu.Lock()
	if errors.Is(err, ErrDiskFull) {
		return l.failed
	}
	return err
}

// retiredSuffixes are the files that go with a segment.
var retiredSuffixes = [...]string{suffixLog, suffixIndex, suffixTimeIndex, suffixTxnIndex, suffixSnapshot, suffixWindow}

// retireLocked closes a segment that no reader finds any more and marks those of its files for removal that have one of
// the suffixes.
func (l *Log) retireLocked(s *segment, now time.Time, suffixes []string) error {
	err := s.close()
	for _, suffix := range suffixes {
		name := fileName(s.base, suffix)
		if suffix == suffixTxnIndex && len(s.aborted) == 0 {
			continue
		}
		renameErr := l.dir.fs.Rename(l.dir.join(name), l.dir.join(name+suffixDeleted))
		if isNotExist(renameErr) {
			continue
		}
		if renameErr != nil {
			err = errors.Join(err, storageErr("rename", l.dir.join(name), renameErr))
			continue
		}
		l.deleted = append(l.deleted, deletedFile{name: name + suffixDeleted, at: now})
	}
	return err
}

// RemoveDeleted removes the files that DeleteOld marked at least file.delete.delay.ms ago.
func (l *Log) RemoveDeleted(now time.Time) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	delay := l.Config().FileDeleteDelay
	var err error
	l.deleted = slices.DeleteFunc(l.deleted, func(d deletedFile) bool {
		if err != nil || now.Sub(d.at) < delay {
			return false
		}
		err = removeFile(l.dir.fs, l.dir.join(d.name))
		return err == nil
	})
	return err
}

// NextRemoval says how long after now the next of the files that DeleteOld marked may be removed, at most 0 if one may be
// already; false if there is none.
func (l *Log) NextRemoval(now time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.deleted) == 0 {
		return 0, false
	}
	oldest := l.deleted[0].at
	for _, d := range l.deleted[1:] {
		if d.at.Before(oldest) {
			oldest = d.at
		}
	}
	return oldest.Add(l.Config().FileDeleteDelay).Sub(now), true
}
