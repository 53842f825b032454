package log

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"slices"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// recover brings segments, producer state and epochs to one consistent end.
func (op *opening) recover(ctx context.Context) error {
	first := len(op.segments) // of the segments that are read again
	if op.proven {
		return op.settle(op.o.RecoveryPoint)
	}
	if op.o.Clean {
		end, err := op.tailOf(op.segments[first-1])
		if err == nil {
			return op.settle(end)
		}
		if !errors.Is(err, ErrCorrupt) || op.rested != nil {
			return err
		}
		op.logger.Warn("log was not closed cleanly after all", "dir", op.o.Dir, "err", err)
		op.rec.Unclean = true
		first--
	} else {
		for first > 0 && op.reaches(first-1) {
			first--
		}
	}
	if err := op.loadProducersAt(op.segments[first].base); err != nil {
		return err
	}
	// Snapshots and windows beyond were perhaps never durable, and what they replaced is gone: they are made anew.
	known := max(op.segments[first].base, op.o.RecoveryPoint)
	var err error
	if op.names, err = removeSnapshots(op.o.FS, op.o.Dir, op.names, func(o wire.Offset) bool { return o > known }); err != nil {
		return err
	}
	op.namesDirty = true
	// What is read again tells its epochs anew. The file may be ahead of it, and an old epoch assigned behind a newer one
	// would take the entries between away.
	op.told = slices.Clone(op.epochs.entries)
	op.epochs.truncateEnd(op.segments[first].base)
	op.epochs.dirty = true // the file need not be durable: it was perhaps written just before the stop
	end, err := op.readAgain(ctx, first)
	if err != nil {
		return err
	}
	if err := op.settle(end); err != nil {
		return err
	}
	op.flushed.Store(int64(min(max(op.o.RecoveryPoint, op.StartOffset()), op.EndOffset())))
	if op.o.DeferSync {
		return nil
	}
	return op.Flush()
}

// tailOf gives the end offset of a segment that is taken as it is; its last bytes must be a whole batch.
func (op *opening) tailOf(s *segment) (wire.Offset, error) {
	end := s.base
	n := s.offsets.entries()
	if n > 0 {
		var buf [offsetEntrySize]byte
		if err := s.offsets.entry(n-1, buf[:]); err != nil {
			return 0, err
		}
		end = s.base + wire.Offset(decodeOffsetEntry(buf[:]).rel)
	}
	next := wire.NoOffset
	step := func(h *header, _ int64) (bool, error) {
		next = h.last + 1
		return true, nil
	}
	err := op.walk(s, end, 1<<63-1, step)
	if err == nil && next == wire.NoOffset && n > 0 && op.rested != nil {
		return 0, op.rested.changed(op.o.Dir)
	}
	if err == nil && next == wire.NoOffset && n > 0 { // the index lies
		op.rec.IndexesRebuilt++
		if err = op.reindex(s); err == nil {
			err = op.walk(s, s.base, 1<<63-1, step)
		}
	}
	return max(next, s.base), err
}

// settle sets the end and start of the log and what hangs on them.
func (op *opening) settle(end wire.Offset) error {
	s := op.segments[len(op.segments)-1]
	op.setView(op.segments, false)
	op.leo.Store(int64(end))
	op.flushed.Store(int64(end))
	if start := op.StartOffset(); start > end {
		// The checkpointed start lies beyond what is left: nothing that is left may be read.
		op.mu.Lock()
		defer op.mu.Unlock()
		err := op.restartLocked(start)
		op.segments = op.view.Load().segments
		return err
	}
	if s.size.Load() > 0 {
		s.noteEnd(end, s.size.Load())
	}
	op.epochs.truncateEnd(end)
	op.epochs.truncateStart(op.StartOffset())
	if !op.epochs.settled() && !(op.o.DeferSync && op.rec.Unclean && op.epochs.lacksFrom(s.base)) {
		if err := op.writeEpochsLocked(); err != nil {
			return err
		}
	}
	if op.producers == nil || op.producers.end != end {
		if err := op.loadProducersAt(end); err != nil {
			return err
		}
	}
	if op.proven && !op.superfluous(end) {
		return nil
	}
	if err := op.keepSnapshot(end); err != nil {
		return err
	}
	return op.pruneSnapshots(end)
}

// keepSnapshot keeps the snapshot of the last clean stop, if nothing was appended since: it says what the batches say. That
// it is durable is not known.
func (op *opening) keepSnapshot(end wire.Offset) error {
	name, window := fileName(end, suffixSnapshot), fileName(end, suffixWindow)
	if op.snapshotEnd == end || op.producers.end != end || !op.found(name) {
		return nil
	}
	data := encodeSnapshot(op.producers)
	same, err := op.holdsFile(name, data)
	if err == nil && same {
		same, err = op.holdsFile(window, encodeWindow(op.producers, data))
	}
	if err != nil || !same {
		return err
	}
	op.snapshots, op.snapshotEnd, op.namesDirty = append(op.snapshots, name), end, true
	if op.found(window) {
		op.snapshots = append(op.snapshots, window)
	}
	return nil
}

// holdsFile reports whether the directory holds a file with this content, or none if that is nil.
func (op *opening) holdsFile(name string, want []byte) (bool, error) {
	if !op.found(name) {
		return want == nil, nil
	}
	data, err := vfs.ReadFile(op.o.FS, op.dir.join(name))
	if err != nil && !isNotExist(err) {
		return false, storageErr("read", name, err)
	}
	return err == nil && want != nil && bytes.Equal(data, want), nil
}

// loadFirstTime finds the timestamp that the age of a segment counts from. Only an append needs it.
func (l *Log) loadFirstTime(s *segment) error {
	if s.firstKnown || s.size.Load() == 0 {
		return nil
	}
	return l.walk(s, s.base, 1<<63-1, func(h *header, _ int64) (bool, error) {
		s.firstTime, s.firstKnown = h.maxTime, true
		return false, nil
	})
}

// readAgain reads the segments from index first on and gives the end of the last whole valid batch. What follows it is
// cut off, later segments are removed.
func (op *opening) readAgain(ctx context.Context, first int) (wire.Offset, error) {
	next := op.segments[first].base
	for i := first; i < len(op.segments); i++ {
		s := op.segments[i]
		if i > first && s.base >= next && s.base <= op.o.RecoveryPoint {
			// What lay between was durable once, so deletion or compaction took it.
			if err := op.takeOver(next, s.base); err != nil {
				return next, err
			}
			next = s.base
		}
		if s.base != next {
			// Below the recovery point compaction may leave gaps; above it, one means that bytes before it were lost.
			op.logger.Error("segment does not begin where the one before it ends and is removed", "file", s.path(suffixLog), "end", next)
			return next, op.dropFrom(i)
		}
		if i > first && op.snapshotEnd != s.base {
			if err := op.writeSnapshotLocked(); err != nil {
				return next, err
			}
		}
		end, whole, err := op.readSegment(ctx, i, next)
		if err != nil || !whole {
			return end, err
		}
		next = end
	}
	return next, nil
}

// takeOver lets the log go on at to, which is at most the recovery point, after from: with the epochs of what was deleted
// between, and with the producers that the snapshot at to holds. Both were durable before the recovery point came there,
// and know more than the batches before, if a half durable deletion has taken some of them or an older snapshot.
func (op *opening) takeOver(from, to wire.Offset) error {
	for _, e := range op.told {
		if e.start >= from && e.start < to {
			op.epochs.assign(e.epoch, e.start)
		}
	}
	ps, err := op.readSnapshot(fileName(to, suffixSnapshot), to)
	if errors.Is(err, ErrCorrupt) || isNotExist(err) {
		op.producers.end = to
		return nil // what the batches before the gap told is the best there is
	}
	if err != nil {
		return err
	}
	better := ps.enrich(op.producers)
	op.producers, op.snapshotEnd = ps, to
	op.noteUnstableLocked()
	if !better {
		return nil
	}
	return op.writeWindowLocked(encodeSnapshot(ps)) // the snapshot itself is good and stays
}

func (op *opening) dropFrom(i int) error {
	for j := len(op.segments) - 1; j >= i; j-- {
		op.rec.BytesTruncated += op.segments[j].size.Load()
		op.rec.SegmentsRemoved++
		if err := op.dropLocked(op.segments[j]); err != nil {
			return err
		}
	}
	if i < len(op.segments) {
		op.segments = op.segments[:i]
		op.namesDirty = true
		return storageErr("sync directory", op.o.Dir, op.o.FS.SyncDir(op.o.Dir))
	}
	return nil
}

// readSegment reads segment i whole. whole is false when it had to be cut, and later segments were removed.
func (op *opening) readSegment(ctx context.Context, i int, next wire.Offset) (end wire.Offset, whole bool, err error) {
	s := op.segments[i]
	if err := s.rebuildIndexes(); err != nil {
		return 0, false, err
	}
	if op.found(fileName(s.base, suffixTxnIndex)) {
		if err := removeFile(op.o.FS, s.path(suffixTxnIndex)); err != nil {
			return 0, false, err
		}
	}
	s.aborted, s.txnWritten = nil, 0
	h, err := s.open()
	if err != nil {
		return 0, false, err
	}
	size := s.size.Load()
	sc := &scanner{buf: make([]byte, min(size, fullScanBytes))}
	sc.reset(s, h.file, 0, size)
	pos, end, cause := op.replay(ctx, s, sc, next)
	op.rec.BytesRead += sc.read
	op.rec.IndexesRebuilt++
	s.dirty, s.sealedDirty = true, true
	var old *OldFormatError
	switch {
	case cause == nil:
		return end, true, s.seal()
	case !errors.Is(cause, ErrCorrupt) || errors.As(cause, &old):
		return 0, false, cause
	}
	op.logger.Warn("cutting off what is not a whole valid batch", "file", sc.name(), "size", size, "kept", pos, "err", cause)
	op.rec.BytesTruncated += size - pos
	// Later segments go first: a crash in between must not leave a gap that looks whole.
	if err := op.dropFrom(i + 1); err != nil {
		return 0, false, err
	}
	return end, false, errors.Join(s.truncate(pos), s.seal())
}

// replay takes the valid batches of a segment into its indexes and the log's state; it gives the position and offset
// where they end, and why they ended before the file did.
func (op *opening) replay(ctx context.Context, s *segment, sc *scanner, next wire.Offset) (int64, wire.Offset, error) {
	for {
		if err := ctx.Err(); err != nil {
			return sc.pos, next, err
		}
		h, b, at, err := sc.batch()
		if errors.Is(err, io.EOF) {
			return at, next, nil
		}
		if err == nil && (h.base < next || h.last-s.base > maxRelativeOffset) {
			err = &CorruptError{File: sc.name(), Pos: at, Reason: "offsets do not ascend"}
		}
		if err == nil && h.base > next { // compaction may have left a gap
			err = sc.misplaced(h, at, next)
		}
		if err == nil {
			op.epochs.assign(h.leaderEpoch, op.began(h.leaderEpoch, next, h.base))
			err = op.noteLocked(s, &h, b, at)
		}
		if err != nil {
			return at, next, err
		}
		next = h.last + 1
	}
}

// began is where an epoch begins whose first batch that is left lies at base, after others that end at end. Compaction may have
// taken its first records; the checkpoint has told then where they were.
func (op *opening) began(epoch wire.LeaderEpoch, end, base wire.Offset) wire.Offset {
	for _, e := range op.told {
		if e.epoch == epoch && e.start >= end && e.start < base {
			return e.start
		}
	}
	return base
}

// loadProducersAt loads the producer state as of end.
func (op *opening) loadProducersAt(end wire.Offset) error {
	if op.proven && end == op.o.RecoveryPoint {
		ps, err := op.readSnapshot(fileName(end, suffixSnapshot), end)
		if err == nil {
			op.producers, op.snapshotEnd = ps, end
			op.noteUnstableLocked()
			return nil
		}
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
	}
	return op.loadProducers(op.names, end, &op.rec)
}

// loadProducers rebuilds the producer state as of end from the newest good snapshot among names and the batches after it.
func (l *Log) loadProducers(names []string, end wire.Offset, rec *Recovery) error {
	ps, err := l.newestSnapshot(names, end)
	if err != nil {
		return err
	}
	l.producers, l.snapshotEnd = ps, ps.end
	defer l.noteUnstableLocked()
	if ps.end == end {
		return nil
	}
	v := l.view.Load()
	for i := v.find(ps.end); i < len(v.segments) && v.segments[i].base < end; i++ {
		if err := l.replayProducers(v.segments[i], end, rec); err != nil {
			return err
		}
	}
	l.producers.end = end
	return nil
}

func (l *Log) replayProducers(s *segment, end wire.Offset, rec *Recovery) error {
	from := l.producers.end
	return l.walk(s, max(from, s.base), end, func(h *header, pos int64) (bool, error) {
		if h.base < from || h.producerID < 0 {
			return true, nil
		}
		if rec != nil {
			rec.ProducersReplayed = true
		}
		if !h.control {
			l.producers.add(h)
			return true, nil
		}
		b, err := l.loadBatch(s, h, pos)
		if err != nil {
			return false, err
		}
		marker, ok, err := b.EndTxn(l.codecs)
		if err == nil && ok {
			l.producers.addMarker(h, marker)
		}
		return true, err
	})
}

// newestSnapshot reads the newest usable snapshot among names at or below end; without one the state is empty at the log
// start.
func (l *Log) newestSnapshot(names []string, end wire.Offset) (*producers, error) {
	for _, name := range slices.Backward(names) {
		o, suffix, ok := parseName(name)
		if !ok || suffix != suffixSnapshot || o > end || o < l.view.Load().segments[0].base {
			continue
		}
		ps, err := l.readSnapshot(name, o)
		if err == nil {
			return ps, nil
		}
		if !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		l.logger.Warn("removing an unusable producer snapshot", "err", err)
		if err := removeFile(l.dir.fs, l.dir.join(name)); err != nil {
			return nil, err
		}
	}
	return newProducers(min(l.view.Load().segments[0].base, end)), nil
}

func (l *Log) readSnapshot(name string, o wire.Offset) (*producers, error) {
	file := l.dir.join(name)
	data, err := vfs.ReadFile(l.dir.fs, file)
	if err != nil {
		return nil, storageErr("read", file, err)
	}
	ps, err := decodeSnapshot(file, data, o)
	if err != nil {
		return nil, err
	}
	if len(ps.byID) == 0 {
		return ps, nil // and no window would belong to it
	}
	window, err := vfs.ReadFile(l.dir.fs, l.dir.join(fileName(o, suffixWindow)))
	if errors.Is(err, fs.ErrNotExist) {
		return ps, nil
	}
	if err != nil {
		return nil, storageErr("read", fileName(o, suffixWindow), err)
	}
	if !applyWindow(ps, window, data) {
		l.logger.Warn("ignoring a producer window that does not belong to its snapshot", "file", fileName(o, suffixWindow))
	}
	return ps, nil
}

// superfluous reports whether there are snapshots that pruneSnapshots would remove, as far as the names at the start tell.
func (op *opening) superfluous(end wire.Offset) bool {
	return slices.ContainsFunc(op.names, func(name string) bool {
		o, suffix, ok := parseName(name)
		return ok && (suffix == suffixSnapshot || suffix == suffixWindow) && o != end &&
			!slices.ContainsFunc(op.segments, func(s *segment) bool { return s.base == o })
	})
}

// pruneSnapshots removes snapshots beyond the end and those that no segment begins at, but the newest.
func (op *opening) pruneSnapshots(end wire.Offset) error {
	bases := map[wire.Offset]bool{op.snapshotEnd: true}
	for _, s := range op.segments {
		bases[s.base] = true
	}
	_, err := removeSnapshots(op.o.FS, op.o.Dir, op.names, func(o wire.Offset) bool { return o > end || !bases[o] })
	return err
}

// loadEpochs reads the epoch checkpoint, or rebuilds it from the batches where it is missing or damaged.
func (op *opening) loadEpochs() error {
	name := op.dir.join(epochFile)
	held, err := op.readEpochs()
	if err == nil {
		op.epochs = held
		if err = op.epochsReachStart(name); err == nil {
			return nil
		}
	}
	if !errors.Is(err, ErrCorrupt) && !isNotExist(err) {
		return err
	}
	op.logger.Warn("rebuilding the leader-epoch checkpoint", "file", name, "err", err)
	op.epochs = epochs{}
	for i, s := range op.segments {
		if !op.o.Clean && op.reaches(i) {
			break // it is read again, with its checksums, and tells its epochs then
		}
		err := op.collectEpochs(&op.epochs, s, math.MaxInt32)
		if errors.Is(err, ErrCorrupt) && i == len(op.segments)-1 {
			break // recovery cuts it there
		}
		if err != nil {
			return err
		}
	}
	op.epochs.rebuilt()
	return op.writeEpochsLocked()
}

// readEpochs reads the epoch checkpoint. Errors: ErrCorrupt, fs.ErrNotExist, ErrStorage.
func (op *opening) readEpochs() (epochs, error) {
	name := op.dir.join(epochFile)
	data, err := vfs.ReadFile(op.o.FS, name)
	if err != nil {
		return epochs{}, storageErr("read", name, err)
	}
	c, err := decodeEpochs(name, data)
	c.file = c.entries
	return c, err
}

// epochsReachStart refuses a checkpoint that begins after the log does: the log start moved, the checkpoint with it, and
// after a crash only the checkpoint was durable.
func (op *opening) epochsReachStart(name string) error {
	if op.segments[0].size.Load() == 0 {
		return nil
	}
	if e := op.epochs.entries; len(e) > 0 && e[0].start > op.StartOffset() {
		return &CorruptError{File: name, Reason: "it begins after the log"}
	}
	return nil
}
