package log

import (
	"errors"
	"path"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// Flush makes everything up to the LEO of the moment of the call durable: data, names, the epoch checkpoint, and what
// sealed segments have besides. Appends go on meanwhile; concurrent flushes follow one another, and one whose work was
// done by the previous one costs nothing. An error is final unless it is Passing, which leaves everything to the next flush.
func (l *Log) Flush() error { return l.flush(true) }

// FlushRecords is Flush, but leaves epochs of records in the active segment to a later one: FlushedOffset moves, and
// RecoveryPoint not beyond the first of those records. The first record of a leader epoch costs no more than any other then.
func (l *Log) FlushRecords() error { return l.flush(false) }

func (l *Log) flush(epochs bool) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if l.resting.Load() != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closed {
			return ErrClosed
		}
		return l.failed
	}
	if err := l.finish(); err != nil {
		l.mu.Lock()
		uncut := l.uncutLocked()
		l.mu.Unlock()
		if uncut || !Passing(err) {
			return err
		}
	}
	return l.flushAll(epochs)
}

// work is what one flush has to sync: taken under the log's mutex, done outside of it. Nothing else removes or cuts
// files meanwhile, because that takes flushMu.
type work struct {
	leo       wire.Offset
	logs      []*segment
	handles   []*handle
	sealed    []*segment
	snapshots []string
	names     bool
}

// flushAll does one flush, with all epochs or as few as may be; the caller holds flushMu and not mu.
func (l *Log) flushAll(epochs bool) error {
	w, err := l.takeWork(epochs)
	if err != nil {
		return err
	}
	err = l.syncWork(&w)
	l.mu.Lock()
	defer l.mu.Unlock()
	if Passing(err) { // no sync has failed
		l.putBackLocked(w)
		return err
	}
	if err != nil {
		l.breakLocked(err)
		return err
	}
	l.flushed.Store(max(int64(w.leo), l.flushed.Load()))
	l.lastFlush = l.wall()
	return nil
}

// takeWork writes the epoch checkpoint, if epochs says so or the recovery point must move beyond what it lacks, and collects
// the rest.
func (l *Log) takeWork(epochs bool) (work, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return work{}, ErrClosed
	}
	if l.failed != nil {
		return work{}, l.failed
	}
	if l.epochs.dirty || l.epochs.ahead && (epochs || l.epochs.lacks < l.view.Load().active().base) {
		name := l.dir.join(epochFile)
		if err := storageErr("write", name, vfs.WriteAtomic(l.dir.fs, name, l.epochs.encode())); err != nil {
			return work{}, l.failLocked(err)
		}
		l.epochs.wrote()
		l.epochs.durable()
		l.noteLacksLocked()
	}
	v := l.view.Load()
	w := work{leo: l.EndOffset(), names: l.namesDirty}
	for i, s := range v.segments {
		if s.dirty {
			h, err := s.open()
			if err != nil {
				return w, l.failLocked(err)
			}
			w.logs, w.handles = append(w.logs, s), append(w.handles, h)
		}
		if i < len(v.segments)-1 && s.sealedDirty {
			w.sealed = append(w.sealed, s)
		}
	}
	for _, s := range w.logs {
		s.dirty = false
	}
	for _, s := range w.sealed {
		s.sealedDirty = false
	}
	w.snapshots, l.snapshots = l.snapshots, nil
	l.namesDirty = false
	return w, nil
}

// putBackLocked leaves w to the next flush.
func (l *Log) putBackLocked(w work) {
	for _, s := range w.logs {
		s.dirty = true
	}
	for _, s := range w.sealed {
		s.sealedDirty = true
	}
	l.snapshots = append(w.snapshots, l.snapshots...)
	l.namesDirty = l.namesDirty || w.names
}

func (l *Log) syncWork(w *work) error {
	for i, s := range w.logs {
		if err := s.syncLog(w.handles[i]); err != nil {
			return err
		}
	}
	for _, s := range w.sealed {
		for _, step := range []func() error{func() error { return s.openTables(true) }, s.offsets.sync, s.times.sync, s.syncTxnIndex} {
			if err := step(); err != nil {
				return err // alone: a failed sync must not hide behind a file that could not be opened
			}
		}
	}
	for _, name := range w.snapshots {
		if err := syncFile(l.dir.fs, l.dir.join(name)); err != nil {
			return err
		}
	}
	if !w.names || planted.On(planted.DirSyncSkipped) {
		return nil
	}
	return storageErr("sync directory", l.Dir(), l.dir.fs.SyncDir(l.Dir()))
}

// NeedsFlush reports whether flush.messages or flush.ms asks for a flush, or a sealed segment waits for one.
func (l *Log) NeedsFlush(now time.Time) bool {
	leo, flushed := l.EndOffset(), l.FlushedOffset()
	if leo <= flushed {
		return false
	}
	c := l.Config()
	if int64(leo-flushed) >= c.FlushMessages {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.lastFlush) >= c.FlushInterval || l.view.Load().active().base > flushed
}

// Close ends the log cleanly: everything durable, the producer state in a snapshot at the end, the active segment's
// indexes complete. A later Open with Clean reads nothing again. Pinned ranges stay readable. An error means that the
// stop was not clean. A second call does nothing.
func (l *Log) Close() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	err := l.complete()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	if err == nil && l.resting.Load() == nil {
		err = l.syncComplete()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	err = errors.Join(err, l.releaseLocked())
	for _, s := range l.segments() {
		err = errors.Join(err, s.close())
	}
	return err
}

// Complete is the part of Close before anything is synced: it ends appending and writes what only a clean stop leaves. Who
// stops many logs completes them all, syncs their file system as a whole, and then calls Durable and Close of each. Files are
// closed here already: those that share descriptors would be synced one by one, whenever a descriptor is taken from one.
func (l *Log) Complete() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.complete(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting.Load() != nil {
		return nil
	}
	if !l.epochs.settled() { // with a full disk the file lacks some
		if err := l.failLocked(l.writeEpochsLocked()); err != nil {
			return err
		}
	}
	var err error
	for _, s := range l.view.Load().segments {
		err = errors.Join(err, s.rest())
	}
	return l.failLocked(err)
}

// Durable tells the log that its file system was synced as a whole (vfs.Volume) after Open with DeferSync, or after
// Complete, and that nothing has changed the log since that sync began. Nothing is left to be flushed then.
func (l *Log) Durable() {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.failed != nil || l.resting.Load() != nil {
		return
	}
	for _, s := range l.view.Load().segments {
		s.dirty, s.sealedDirty, s.txnDirty = false, false, false
		s.offsets.synced()
		s.times.synced()
	}
	l.snapshots, l.namesDirty = nil, false
	l.epochs.synced()
	l.noteLacksLocked()
	l.prepared = true
	l.flushed.Store(l.leo.Load())
	l.lastFlush = l.wall()
}

// Idle reports whether a clean stop would have nothing to write or to sync.
func (l *Log) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting.Load() != nil {
		return l.failed == nil
	}
	s := l.view.Load().active()
	return l.flushed.Load() == l.leo.Load() && s.complete && !s.dirty && !s.reserved && l.producers.end == l.snapshotEnd &&
		!l.namesDirty && !l.epochs.dirty && !l.epochs.ahead && len(l.snapshots) == 0 && len(l.unfinished) == 0
}

// complete writes what only a clean stop leaves.
func (l *Log) complete() error {
	unfinished := l.finish()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.completed && !l.closed {
		return l.failed
	}
	if err := l.usableLocked(); err != nil {
		return err
	}
	if l.resting.Load() != nil {
		l.completed = true
		return nil
	}
	s := l.view.Load().active()
	err := unfinished
	if err == nil && !s.complete {
		err = s.seal()
	}
	err = errors.Join(err, s.release())
	if err == nil && l.producers.end != l.snapshotEnd {
		err = l.writeSnapshotLocked()
	}
	if err != nil {
		l.breakLocked(err)
	}
	l.completed = true
	return err
}

// syncComplete makes what complete has written durable, with all that was appended.
func (l *Log) syncComplete() error {
	s := l.view.Load().active()
	var err error
	if s.offsets.unsynced() || s.times.unsynced() { // a recovered segment rests with its files closed
		err = s.openTables(true)
	}
	if err == nil {
		err = errors.Join(s.offsets.sync(), s.times.sync(), s.syncTxnIndex())
	}
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.breakLocked(err)
		return err
	}
	return l.flushAll(true)
}

// Delete closes the log without a flush and removes its directory. Pinned ranges stay readable.
func (l *Log) Delete() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if !l.closed {
		l.closed = true
		err = l.releaseLocked()
		for _, s := range l.segments() {
			err = errors.Join(err, s.close())
		}
	}
	dir := l.Dir()
	err = errors.Join(err, storageErr("remove", dir, vfs.RemoveAll(l.dir.fs, dir)))
	return errors.Join(err, storageErr("sync directory", path.Dir(dir), l.dir.fs.SyncDir(path.Dir(dir))))
}
