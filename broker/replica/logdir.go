package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// Dir is one of log.dirs.
type Dir struct {
	Path string
	ID   wire.UUID // directory.id of its meta.properties; zero if that could not be read
	// Err says that the directory could not be used at the start: it is offline from the beginning.
	Err error
}

// logDir is one log directory: its partitions, its checkpoints, its flushers, whether it works.
type logDir struct {
	path    string
	id      wire.UUID
	fs      vfs.FS
	world   *world
	flusher *flusher
	space   space
	hwDirty atomic.Bool // a high watermark has moved since the last checkpoint
	// unopened: a log was found here and could not be opened. It is as the last stop left it, which was perhaps no clean
	// one, so the next stop of the directory must not be called clean.
	unopened atomic.Bool

	volume vfs.Volume // its file system as a whole; nil: each log is synced by itself

	err       atomic.Pointer[offlineError] // why the directory is offline; final
	announced atomic.Bool                  // that it is, was told

	mu     sync.Mutex
	homes  map[wire.TopicPartition]*home // what lies here
	left   map[wire.TopicPartition]bool  // what lies here and is not served: the checkpoints keep what they say of it
	onFail func(d *logDir, err error)

	// checkpointMu orders writes of checkpoint files. It is held over file I/O; written is what each file holds.
	checkpointMu xsync.Mutex
	written      map[string]map[wire.TopicPartition]wire.Offset
	// startsUnsaved says that the last try to write the log starts down has failed; it changes under checkpointMu.
	startsUnsaved atomic.Bool

	// What Open has read.
	clean          bool
	recoveryPoints map[wire.TopicPartition]wire.Offset
	logStarts      map[wire.TopicPartition]wire.Offset
	hws            map[wire.TopicPartition]wire.Offset
	cleaned        map[wire.TopicPartition]wire.Offset
	resting        map[wire.TopicPartition]*log.Resting // how a clean stop has left logs; until they are opened
}

func newLogDir(d Dir, fs vfs.FS, w *world, reserve int64) *logDir {
	return &logDir{path: d.Path, id: d.ID, fs: fs, world: w, flusher: newFlusher(),
		space: space{fs: fs, dir: d.Path, want: reserve, now: w.now, logger: w.logger},
		homes: map[wire.TopicPartition]*home{}, left: map[wire.TopicPartition]bool{}, written: map[string]map[wire.TopicPartition]wire.Offset{}}
}

// leaveAlone notes that a directory of a partition lies here that is not opened in this life. The next one may: after a repair, or with
// other metadata.
func (d *logDir) leaveAlone(tp wire.TopicPartition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left[tp] = true
}

// leftAlone reports whether leaveAlone was called.
func (d *logDir) leftAlone(tp wire.TopicPartition) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.left[tp]
}

// saysLocked is what a checkpoint file says. checkpointMu is held.
func (d *logDir) saysLocked(file string) map[wire.TopicPartition]wire.Offset {
	if was, ok := d.written[file]; ok {
		return was
	}
	return map[string]map[wire.TopicPartition]wire.Offset{
		recoveryPointFile: d.recoveryPoints, logStartFile: d.logStarts, hwFile: d.hws, cleanerFile: d.cleaned}[file]
}

// offlineError is why a directory is offline.
type offlineError struct {
	dir   string
	cause error
}

func (e *offlineError) Error() string {
	return fmt.Sprintf("log directory %s is offline: %v", e.dir, e.cause)
}
func (e *offlineError) Unwrap() error        { return e.cause }
func (e *offlineError) Is(target error) bool { return target == ErrOffline }

func (d *logDir) failed() error {
	if err := d.err.Load(); err != nil {
		return err
	}
	return nil
}

// fail takes the directory offline, once and for all. The caller must hold none of its partitions' locks.
func (d *logDir) fail(cause error) {
	d.shut(cause)
	d.announce()
}

// shut lets nothing more be written to the directory. Whoever has called it calls announce once it holds no lock.
func (d *logDir) shut(cause error) { d.err.CompareAndSwap(nil, &offlineError{d.path, cause}) }

// announce tells everybody that the directory is offline, if it is and nobody was told.
func (d *logDir) announce() {
	err := d.err.Load()
	if err == nil || d.announced.Swap(true) {
		return
	}
	d.mu.Lock()
	homes := slices.Collect(maps.Values(d.homes))
	d.mu.Unlock()
	d.world.logger.Error("FATAL: log directory is offline until the next start; its partitions take no writes", "dir", d.path, "partitions", len(homes), "err", err.cause)
	for _, h := range homes {
		if h.p.at.Load() == h { // and not a copy of what lies elsewhere
			h.p.interrupt(err)
		}
	}
	if d.onFail != nil {
		d.onFail(d, err.cause)
	}
}

// read takes in the checkpoints and the clean-shutdown file, and makes the removal of the latter durable: whatever is
// written from here on belongs to the new life. previous is the broker epoch of the last registration, NoBrokerEpoch if
// the metadata knows of none: a file of another epoch was restored from somewhere and proves nothing (R9).
func (d *logDir) read(previous wire.BrokerEpoch) error {
	if err := d.make(); err != nil {
		return fmt.Errorf("make log directory %s: %w", d.path, err)
	}
	c, ok := readCleanShutdown(d.fs, d.path)
	d.clean = ok && (previous == wire.NoBrokerEpoch || c.BrokerEpoch == previous)
	if ok && !d.clean {
		d.world.logger.Warn("clean-shutdown file is of another incarnation: recovering as after a crash", "dir", d.path, "broker_epoch", c.BrokerEpoch, "want", previous)
	}
	for _, f := range []struct {
		name string
		into *map[wire.TopicPartition]wire.Offset
	}{{recoveryPointFile, &d.recoveryPoints}, {logStartFile, &d.logStarts}, {hwFile, &d.hws}} {
		var err error
		if *f.into, err = readCheckpoint(d.fs, path.Join(d.path, f.name)); err != nil {
			return err
		}
	}
	var err error
	if d.cleaned, err = readCheckpoint(d.fs, path.Join(d.path, cleanerFile)); err != nil {
		// Without it every log is compacted from its start once more, which is slow and right.
		d.world.logger.Warn("cleaner checkpoint is not usable", slog.String("dir", d.path), slog.Any("err", err))
	}
	if d.clean {
		d.readResting(c.BrokerEpoch)
		d.written[recoveryPointFile] = d.recoveryPoints // the stop has made it durable before its last file
	}
	return removeCleanShutdown(d.fs, d.path)
}

// make makes the directory durably if it is missing: a record is no safer than the names of the directories above it.
func (d *logDir) make() error {
	there, err := vfs.Exists(d.fs, d.path)
	if err != nil || there {
		return err
	}
	if err := d.fs.MkdirAll(d.path); err != nil {
		return err
	}
	return d.fs.SyncDir(path.Dir(path.Clean(d.path)))
}

// logOptions are what a log in d is opened with.
func (d *logDir) logOptions(p *Partition) log.Options {
	return log.Options{FS: d.fs, Dir: path.Join(d.path, p.TP.String()), TP: p.TP, TopicID: p.TopicID, Config: p.Config(),
		Wall: d.world.wall, Logger: d.world.logger, Codecs: d.world.codecs}
}

// newLog makes a log of a partition, or of its copy that moves here, in a directory of this name, which nothing but an earlier try of
// the same has made.
func (d *logDir) newLog(ctx context.Context, p *Partition, name string) (*log.Log, error) {
	if err := d.forget(p.TP); err != nil {
		return nil, err
	}
	o := d.logOptions(p)
	o.Dir, o.Clean = path.Join(d.path, name), true
	l, _, err := log.Open(ctx, o)
	return l, err
}

// openLog opens a log that Open has found.
func (d *logDir) openLog(ctx context.Context, found *opening) (*log.Log, log.Recovery, error) {
	tp, o := found.p.TP, d.logOptions(found.p)
	o.Clean, o.Changed, o.RecoveryPoint, o.LogStartOffset = d.clean, found.changed, d.recoveryPoints[tp], d.logStarts[tp]
	o.Verified, o.DeferSync = found.verified, found.deferred
	return log.Open(ctx, o)
}

// openCopy opens one that Open has found.
func (d *logDir) openCopy(ctx context.Context, p *Partition, name string) (*log.Log, log.Recovery, error) {
	o := d.logOptions(p)
	o.Dir = path.Join(d.path, name)
	o.Clean, o.RecoveryPoint, o.LogStartOffset = d.clean, d.recoveryPoints[p.TP], d.logStarts[p.TP]
	return log.Open(ctx, o)
}

// list gives what lies here, ordered.
func (d *logDir) list() []*home {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Collect(maps.Values(d.homes))
	slices.SortFunc(out, func(a, b *home) int { return compareTP(a.p.TP, b.p.TP) })
	return out
}

// checkpoint writes one checkpoint file if its content has changed. An error takes the directory offline, except for
// lack of space.
func (d *logDir) checkpoint(file string, offset func(h *home) (wire.Offset, bool)) (err error) {
	d.checkpointMu.Lock()
	defer d.checkpointMu.Unlock()
	if file == logStartFile {
		defer func() { d.startsUnsaved.Store(err != nil) }()
	}
	if err := d.failed(); err != nil {
		return err
	}
	says := d.saysLocked(file)
	d.mu.Lock()
	homes := slices.Collect(maps.Values(d.homes))
	offsets := make(map[wire.TopicPartition]wire.Offset, len(homes))
	for tp := range d.left {
		if o, ok := says[tp]; ok {
			offsets[tp] = o
		}
	}
	d.mu.Unlock()
	for _, h := range homes {
		if o, ok := offset(h); ok {
			offsets[h.p.TP] = o
		}
	}
	if was, ok := d.written[file]; ok && maps.Equal(was, offsets) {
		return nil
	}
	if err := vfs.WriteAtomic(d.fs, path.Join(d.path, file), encodeCheckpoint(offsets)); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	d.written[file] = offsets
	return nil
}

// forget takes what the checkpoints hold of a deleted partition out of them, before another of its name gets a log: after a
// crash its log start would cut the other's records off, its high watermark show what is not committed, its recovery point
// vouch for what is not on disk. (Kafka: LogManager.asyncDelete writes the checkpoints at the deletion; a crash in between
// leaves them.)
func (d *logDir) forget(tp wire.TopicPartition) error {
	d.mu.Lock()
	delete(d.left, tp)
	d.mu.Unlock()
	for _, c := range []struct {
		file  string
		write func() error
	}{{recoveryPointFile, d.writeRecoveryPoints}, {logStartFile, d.writeLogStarts}, {hwFile, d.writeHWs}, {cleanerFile, d.writeCleaned}} {
		d.checkpointMu.Lock()
		_, named := d.saysLocked(c.file)[tp]
		d.checkpointMu.Unlock()
		if !named {
			continue
		}
		if err := c.write(); err != nil {
			return &log.StorageError{Op: "forget a deleted partition's checkpoint", File: path.Join(d.path, c.file), Err: err}
		}
	}
	return nil
}

// checkpointed is checkpoint with its error dealt with; it is called without any lock.
func (d *logDir) checkpointed(err error) error {
	switch {
	case err == nil || errors.Is(err, ErrOffline):
	case log.Passing(err):
		d.world.logger.Warn("no space or no descriptor for a checkpoint", "dir", d.path, "err", err)
		err = &log.StorageError{Op: "checkpoint", File: d.path, Err: err}
	default:
		d.fail(err)
		err = d.failed()
	}
	return err
}

func (d *logDir) checkpointHW() error { return d.checkpointed(d.writeHWs()) }

// writeHWs is checkpointHW with its error not dealt with.
func (d *logDir) writeHWs() error {
	return d.checkpoint(hwFile, func(h *home) (wire.Offset, bool) {
		plog := h.plog.Load()
		if plog == nil {
			return 0, false
		}
		return min(h.p.Offsets().HW, plog.EndOffset()), true
	})
}

func (d *logDir) checkpointLogStart() error { return d.checkpointed(d.writeLogStarts()) }

// savedLogStart is what is durable of the partition's log start. It may wait for file I/O.
func (d *logDir) savedLogStart(tp wire.TopicPartition, start wire.Offset) wire.Offset {
	d.checkpointMu.Lock()
	defer d.checkpointMu.Unlock()
	return min(start, d.saysLocked(logStartFile)[tp])
}

// keepLogStart is checkpointLogStart unless the file has the partition's start at to or beyond, durably, already: who has moved it
// there may not have written it yet, or have found the disk full.
func (d *logDir) keepLogStart(tp wire.TopicPartition, to wire.Offset) error {
	d.checkpointMu.Lock()
	kept := d.written[logStartFile][tp] >= to
	d.checkpointMu.Unlock()
	if kept {
		return nil
	}
	return d.checkpointLogStart()
}

// writeLogStarts is checkpointLogStart with its error not dealt with.
func (d *logDir) writeLogStarts() error {
	return d.checkpoint(logStartFile, func(h *home) (wire.Offset, bool) {
		plog := h.plog.Load()
		if plog == nil {
			return 0, false
		}
		o := plog.StartOffset()
		return o, o > 0
	})
}

func (d *logDir) checkpointCleaner() error { return d.checkpointed(d.writeCleaned()) }

// writeCleaned is checkpointCleaner with its error not dealt with.
func (d *logDir) writeCleaned() error {
	return d.checkpoint(cleanerFile, func(h *home) (wire.Offset, bool) {
		o := wire.Offset(h.p.cleaned.Load())
		return o, o != wire.NoOffset
	})
}

func (d *logDir) checkpointRecoveryPoint() error { return d.checkpointed(d.writeRecoveryPoints()) }

// writeRecoveryPoints is checkpointRecoveryPoint with its error not dealt with.
func (d *logDir) writeRecoveryPoints() error {
	return d.checkpoint(recoveryPointFile, func(h *home) (wire.Offset, bool) {
		plog := h.plog.Load()
		if plog == nil {
			return 0, false
		}
		return plog.RecoveryPoint(), true
	})
}

// topicIDOf reads partition.metadata of a partition's directory; ok is false if it is missing or says nothing.
func (d *logDir) topicIDOf(name string) (wire.UUID, bool) {
	id, err := log.ReadTopicID(d.fs, path.Join(d.path, name))
	return id, err == nil
}

// condemn renames a partition's directory so that it can be removed later, and makes that durable. It gives the new
// path.
func (d *logDir) condemn(name string, tp wire.TopicPartition, id wire.UUID) (string, error) {
	to, err := d.condemnedPath(tp, id)
	if err != nil {
		return "", err
	}
	if err := d.fs.Rename(path.Join(d.path, name), to); err != nil {
		return "", err
	}
	return to, d.fs.SyncDir(d.path)
}

// condemnedPath is a free path for the directory of a partition that is to be removed.
func (d *logDir) condemnedPath(tp wire.TopicPartition, id wire.UUID) (string, error) {
	for {
		to := path.Join(d.path, deletedDirName(tp, id))
		if taken, err := vfs.Exists(d.fs, to); err != nil || !taken {
			return to, err
		}
		id[15]++ // one that was deleted before, or came back and went again, is not removed yet
	}
}

// DirInfo describes a log directory.
type DirInfo struct {
	Path        string
	ID          wire.UUID
	Err         error // ErrOffline, or why its size is not known
	Total, Free int64 // bytes of its file system; -1 unknown
	Partitions  []PartitionInfo
}

// PartitionInfo describes a replica in a log directory.
type PartitionInfo struct {
	TP        wire.TopicPartition
	Size      int64 // bytes of its segments
	OffsetLag int64 // what it lacks of its high watermark; of a future replica: of the present one's end
	Future    bool  // it is filled here and lies elsewhere until it has caught up
}

func (d *logDir) info() DirInfo {
	i := DirInfo{Path: d.path, ID: d.id, Total: -1, Free: -1, Err: d.failed()}
	if i.Err != nil {
		return i
	}
	if i.Total, i.Free, i.Err = d.fs.Usage(d.path); i.Err != nil {
		return i
	}
	for _, h := range d.list() {
		o, part := h.p.Offsets(), PartitionInfo{TP: h.p.TP, Size: h.size(), Future: h.p.at.Load() != h}
		if part.OffsetLag = int64(max(0, o.HW-o.LEO)); part.Future {
			part.OffsetLag = int64(max(0, o.LEO-h.end()))
		}
		i.Partitions = append(i.Partitions, part)
	}
	return i
}

// since is the attribute of how long something took.
func since(w *world, began time.Time) slog.Attr { return slog.Duration("took", w.now().Sub(began)) }
