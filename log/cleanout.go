package log

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// segmentSuffixes are the files of a segment; .log is first: whoever finds it under its name knows that the others are, or still
// are .swap files.
var segmentSuffixes = [...]string{suffixLog, suffixIndex, suffixTimeIndex, suffixTxnIndex}

// cleaned is a segment that compaction writes, under names that end in .cleaned until it is complete.
type cleaned struct {
	*segment
	interval int
	files    map[string]vfs.File // by suffix
	endings  map[string]string   // of the names, by suffix
	buf      []byte              // of the .log, not yet written
	at       int64               // of buf in the file
	index    []byte              // entries of the .index
	timeline []byte              // entries of the .timeindex
	lastTime int64               // of the last time entry
}

// clean writes the group anew and puts the result in its place, unless it would be the same.
func (r *cleanRound) clean(f *filter, group []*segment) error {
	var size int64
	for _, s := range group {
		size += s.size.Load()
	}
	if size == 0 {
		return nil
	}
	c := &cleaned{segment: newSegment(r.l.dir, group[0].base, group[0].created), interval: r.l.Config().IndexIntervalBytes,
		files: map[string]vfs.File{}, endings: map[string]string{}, lastTime: wire.NoTimestamp}
	changed, err := r.write(f, c, group, size)
	if err == nil && (changed || len(group) > 1 || r.view.end(r.view.find(group[0].base), r.plan.End) > r.l.FlushedOffset()) {
		if err = c.complete(); err == nil {
			r.stats.SegmentsIn += len(group)
			r.stats.SegmentsOut++
			return r.swap(c, group)
		}
	}
	return errors.Join(err, r.discard(c), r.restAll(group))
}

// discard removes a result that is not wanted.
func (r *cleanRound) discard(c *cleaned) error {
	r.l.flushMu.Lock()
	defer r.l.flushMu.Unlock()
	return r.discardLocked(c)
}

// discardLocked is discard for who holds flushMu.
func (r *cleanRound) discardLocked(c *cleaned) error {
	r.l.mu.Lock()
	err := r.l.usableLocked()
	r.l.mu.Unlock()
	if err != nil {
		return c.discard()
	}
	return r.l.undertake(unfinished{do: c.discard, release: c.closeOutput})
}

// restAll closes the files of segments that stay as they are until somebody reads them.
func (r *cleanRound) restAll(group []*segment) error {
	r.l.flushMu.Lock()
	defer r.l.flushMu.Unlock()
	var err error
	for _, s := range group {
		err = errors.Join(err, s.rest())
	}
	return err
}

// write filters the batches of the group into c; size is the bytes of all of them.
func (r *cleanRound) write(f *filter, c *cleaned, group []*segment, size int64) (changed bool, err error) {
	if err := c.create(suffixLog); err != nil {
		return false, err
	}
	for _, s := range group {
		_, err := r.walk(s, 0, func(h *header, b batch.Batch) error {
			r.stats.BytesRead += int64(len(b))
			size -= int64(len(b))
			kept, err := f.batch(h, b, size == 0)
			if err != nil {
				return err
			}
			changed = changed || kept.changed
			if len(kept.bytes) == 0 {
				return nil
			}
			if kept.index != nil {
				c.aborted = append(c.aborted, *kept.index)
			}
			r.stats.BytesWritten += int64(len(kept.bytes))
			return r.add(c, kept.bytes)
		})
		if err != nil {
			return changed, err
		}
	}
	return changed, r.flush(c)
}

// add appends a batch to c and its indexes.
func (r *cleanRound) add(c *cleaned, raw []byte) error {
	h, pos := parseHeader(raw), c.size.Load()
	if pos+int64(len(raw)) > math.MaxInt32 || h.last-c.base > maxRelativeOffset {
		return fmt.Errorf("segment %d grows beyond what its index can name", c.base)
	}
	if !c.firstKnown {
		c.firstTime, c.firstKnown = h.maxTime, true
	}
	c.noteTimestamp(h.maxTime, h.last)
	if pos-c.lastIndexed > int64(c.interval) {
		c.index = offsetEntry{rel: uint32(h.last - c.base), pos: uint32(pos)}.append(c.index)
		c.lastIndexed = pos
		c.indexTime()
	}
	c.buf = append(c.buf, raw...)
	c.size.Store(pos + int64(len(raw)))
	if len(c.buf) < r.buf {
		return nil
	}
	return r.flush(c)
}

// flush writes what waits.
func (r *cleanRound) flush(c *cleaned) error {
	if err := r.throttle(len(c.buf)); err != nil {
		return err
	}
	if _, err := c.files[suffixLog].WriteAt(c.buf, c.at); err != nil {
		return storageErr("write", c.path(suffixLog+suffixCleaned), err)
	}
	c.at += int64(len(c.buf))
	c.buf = c.buf[:0]
	return nil
}

func (c *cleaned) indexTime() {
	if ts, last := c.maxTimestamp(); ts > c.lastTime {
		c.timeline = timeEntry{time: ts, rel: uint32(last - c.base)}.append(c.timeline)
		c.lastTime = ts
	}
}

func (c *cleaned) create(suffix string) error {
	f, err := c.dir.fs.Create(c.path(suffix + suffixCleaned))
	if err != nil {
		return storageErr("create", c.path(suffix+suffixCleaned), err)
	}
	c.files[suffix], c.endings[suffix] = f, suffixCleaned
	return nil
}

// complete writes the indexes and makes everything durable.
func (c *cleaned) complete() error {
	c.indexTime()
	var txns []byte
	for _, a := range c.aborted {
		txns = a.append(txns)
	}
	for _, side := range []struct {
		suffix string
		data   []byte
	}{{suffixIndex, c.index}, {suffixTimeIndex, c.timeline}, {suffixTxnIndex, txns}} {
		if side.suffix == suffixTxnIndex && len(txns) == 0 {
			continue
		}
		if err := c.create(side.suffix); err != nil {
			return err
		}
		if _, err := c.files[side.suffix].WriteAt(side.data, 0); err != nil {
			return storageErr("write", c.path(side.suffix+suffixCleaned), err)
		}
	}
	for suffix, f := range c.files {
		if err := f.Sync(); err != nil {
			return storageErr("sync", c.path(suffix+suffixCleaned), err)
		}
	}
	return c.syncDir()
}

// discard removes a result that is not wanted, whose .log is a .cleaned file yet: as long as that is there, a start drops the
// others. It may be run again after an error.
func (c *cleaned) discard() error {
	err, swap := c.closeOutput(), false
	for _, suffix := range segmentSuffixes[1:] {
		if ending, ok := c.endings[suffix]; ok {
			swap = swap || ending == suffixSwap
			err = errors.Join(err, removeFile(c.dir.fs, c.path(suffix+ending)))
		}
	}
	if err == nil && swap {
		err = c.syncDir()
	}
	if _, ok := c.endings[suffixLog]; err != nil || !ok {
		return err
	}
	return removeFile(c.dir.fs, c.path(suffixLog+suffixCleaned))
}

// closeOutput closes the files that no segment has been given.
func (c *cleaned) closeOutput() error {
	var err error
	for suffix, f := range c.files {
		delete(c.files, suffix)
		err = errors.Join(err, storageErr("close", c.path(suffix), f.Close()))
	}
	return err
}

func (c *cleaned) syncDir() error {
	return storageErr("sync directory of", c.path(suffixLog), c.dir.fs.SyncDir(*c.dir.path.Load()))
}

// adopt gives the segment its open files; from here on it is a segment like any other, though its files have their names
// only when the swap is done.
func (c *cleaned) adopt() error {
	c.current.Store(&handle{file: c.files[suffixLog]})
	c.offsets.file, c.offsets.written = c.files[suffixIndex], len(c.index)/offsetEntrySize
	c.times.file, c.times.written = c.files[suffixTimeIndex], len(c.timeline)/timeEntrySize
	c.txnWritten = len(c.aborted)
	f := c.files[suffixTxnIndex]
	c.files = nil
	if f == nil {
		return nil
	}
	if err := storageErr("close", c.path(suffixTxnIndex), f.Close()); !Passing(err) {
		return err
	}
	return nil // its bytes are synced
}

// swap puts c in the place of the group. The steps are durable one after the other, so that a crash finds out from the
// names how far it came (opening.finishSwaps): .cleaned files mean that nothing was replaced; a .log.swap that all must be; a
// .swap without a .log.swap that the .log is in place. From the .log.swap on there is no way back: what lacks space or a
// descriptor then is finished later. Flushes, truncation and deletion wait; appends wait only while the list of segments changes.
func (r *cleanRound) swap(c *cleaned, group []*segment) error {
	l := r.l
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	err := l.finish()
	if err == nil {
		l.mu.Lock()
		err = l.usableLocked()
		l.mu.Unlock()
	}
	if err == nil && !r.current(group) {
		err = ErrCleanAborted
	}
	if err == nil {
		err = c.rename(suffixSwap, suffixIndex, suffixTimeIndex, suffixTxnIndex, suffixLog)
	}
	if err != nil {
		return errors.Join(err, r.discardLocked(c))
	}
	steps := r.replacement(c, group)
	return l.undertake(unfinished{release: c.closeOutput, do: func() error {
		for len(steps) > 0 {
			if err := steps[0](); err != nil {
				return err
			}
			steps = steps[1:]
		}
		return nil
	}})
}

// rename gives the files with the suffixes another ending; those that have it already it leaves alone.
func (c *cleaned) rename(to string, suffixes ...string) error {
	for _, suffix := range suffixes {
		from, ok := c.endings[suffix]
		if !ok || from == to {
			continue
		}
		if err := c.dir.fs.Rename(c.path(suffix+from), c.path(suffix+to)); err != nil {
			return storageErr("rename", c.path(suffix+from), err)
		}
		c.endings[suffix] = to
	}
	return nil
}

// replacement gives the steps that finish a swap whose .swap files have their names. Each may be run again after an error.
func (r *cleanRound) replacement(c *cleaned, group []*segment) []func() error {
	l := r.l
	return []func() error{
		c.syncDir, // the .swap files
		c.adopt,
		func() error { r.enter(c.segment, group); return nil },
		func() error { return l.retireReplaced(group) },
		c.syncDir,
		func() error { return c.rename("", suffixLog) },
		c.syncDir,
		func() error { return c.rename("", suffixIndex, suffixTimeIndex, suffixTxnIndex) },
		c.syncDir,
		c.rest, // opened again by whoever reads it
	}
}

// enter puts next in the place of the group for readers.
func (r *cleanRound) enter(next *segment, group []*segment) {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.view.Load()
	at := v.find(group[0].base)
	l.setView(slices.Concat(v.segments[:at], []*segment{next}, v.segments[at+len(group):]), false)
	r.view = &view{segments: slices.Clone(l.view.Load().segments), gen: r.view.gen}
}

// retireReplaced gives the files of a replaced group the suffix .deleted; those of their producer snapshots go too, except where
// the group begins.
func (l *Log) retireReplaced(group []*segment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.wall()
	for i, s := range group {
		suffixes := segmentSuffixes[:]
		if i > 0 {
			suffixes = retiredSuffixes[:]
		}
		if err := l.retireLocked(s, now, suffixes); err != nil {
			return err
		}
	}
	return nil
}
