package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

const (
	movePiece = 1 << 20 // bytes copied in one step
	// swapPieces is how many pieces may be left to copy while appends wait for the logs to change places.
	swapPieces = 4
	// maxAlignments bounds the cuts in a row by which a copy is brought back to its original: one for each epoch of it.
	maxAlignments = 10_000
	maxNameBytes  = 255 // of a file name
)

var (
	errBusy      = errors.New("log is being compacted")
	errMisfit    = errors.New("copy does not fit its original")
	errDirFailed = errors.New("a log directory has failed")
)

// futureDirName is where a replica that moves is filled: <topic>-<p>.<32 hex>-future.
func futureDirName(tp wire.TopicPartition, id wire.UUID) string {
	return fmt.Sprintf("%s-%d.%s-future", tp.Topic, tp.Partition, id.Hex())
}

func cleanPath(p string) string { return path.Clean(p) }

// move is a replica on its way into another log directory: the shell around moveState, and the future log.
type move struct {
	v      *mover
	p      *Partition
	to     *home           // the future home; its log is nil before there is a record to copy
	ctx    context.Context //nolint:containedctx // the life of the move
	cancel context.CancelFunc

	stepping xsync.Mutex // held over a step, file I/O included
	buf      []byte      // what a step has read; the goroutine's that runs it
	rewound  bool        // a truncation has taken the recovery point of the copy back, and this is not on disk yet

	// Guarded by mover.mu.
	state                  moveState
	queued, running, again bool
	backoff                time.Duration

	doomed atomic.Bool // its partition is deleted here, and the copy is to go
}

// step takes the move a piece further. more says that the next step may follow at once; without it the metadata's word
// is waited for. An error asks for another try after a while. stepping is held.
func (mv *move) step() (more bool, err error) {
	p := mv.p
	if p.Err() != nil || mv.to.dir.failed() != nil {
		return false, nil // whoever has ended the partition or the directory ends the move
	}
	if mv.v.m.clean.working(p) {
		return false, errBusy
	}
	from := p.at.Load()
	caughtUp, err := mv.copy(from)
	if err != nil {
		return false, mv.failed(from, err)
	}
	switch mv.v.next(mv, caughtUp) {
	case stepAnnounce:
		mv.v.m.assigner.tell(p)
		return true, nil
	case stepSwap:
		done, err := mv.swap(from)
		if err != nil {
			return false, mv.failed(from, err)
		}
		return !done, nil
	case stepWait:
		return false, nil
	}
	return true, nil
}

// blamed is an error of one of the two sides.
type blamed struct {
	error
	at *home
}

func (b blamed) Unwrap() error { return b.error }

// failed deals with an error of a step. stepping is held, no lock of the partition.
func (mv *move) failed(from *home, err error) error {
	if mv.ctx.Err() != nil || errors.Is(err, errDirFailed) {
		return nil
	}
	var b blamed
	if errors.As(err, &b) {
		if b.at == from && errors.Is(err, log.ErrCorrupt) && mv.p.at.Load() == from {
			mv.p.rotten(err)
			return nil
		}
		_ = b.at.failed(err) // it matters only to the directory
	}
	mv.v.m.world.logger.Warn("replica cannot be moved further yet", slog.String("topic", mv.p.TP.Topic), slog.Int("partition", int(mv.p.TP.Partition)),
		slog.String("from", from.dir.path), slog.String("to", mv.to.dir.path), slog.Any("err", err))
	return err
}

// copy copies one piece. caughtUp says that the future log has everything that the present one had when it was asked.
func (mv *move) copy(from *home) (caughtUp bool, err error) {
	cur := from.plog.Load()
	if cur == nil {
		return true, nil // there was never a record
	}
	fut, err := mv.open()
	if err != nil {
		return false, blamed{err, mv.to}
	}
	if err := cur.Wake(); err != nil {
		return false, blamed{err, from}
	}
	if err := mv.fit(cur, fut); err != nil {
		return false, err
	}
	end := cur.EndOffset()
	n, err := mv.piece(from, cur, fut, end, mv.v.piece(), mv.v.pace.wait)
	return n == 0 || fut.EndOffset() >= end, err
}

// open makes the future log if there is none.
func (mv *move) open() (*log.Log, error) {
	if fut := mv.to.plog.Load(); fut != nil {
		if fut.Err() == nil {
			return fut, nil
		}
		mv.discard() // it takes no writes any more, while its directory works: it is begun anew
		mv.to.plog.Store(nil)
	}
	d, p := mv.to.dir, mv.p
	id := p.TopicID
	for {
		taken, err := vfs.Exists(d.fs, path.Join(d.path, futureDirName(p.TP, id)))
		if err != nil {
			return nil, &log.StorageError{Op: "stat", File: d.path, Err: err}
		}
		if !taken {
			break
		}
		id[15]++
	}
	fut, err := d.newLog(mv.ctx, p, futureDirName(p.TP, id))
	if err != nil {
		return nil, err
	}
	mv.to.plog.Store(fut)
	// The checkpoints may still have what was here before under this name: a crash must not find it beside the copy.
	mv.rewound = true
	if err := d.checkpointLogStart(); err != nil {
		return nil, err
	}
	return fut, nil
}

// fit brings the copy back to what the original is now, and its start after the original's.
func (mv *move) fit(cur, fut *log.Log) error {
	for range maxAlignments {
		a := align(cur, fut)
		var err error
		switch {
		case a.restart != wire.NoOffset:
			mv.rewound = true
			err = fut.TruncateFullyAndStart(a.restart)
		case a.cut != wire.NoOffset:
			mv.rewound = true
			err = fut.TruncateTo(a.cut)
		default:
			return mv.followStart(cur, fut)
		}
		if err != nil {
			return blamed{err, mv.to}
		}
	}
	return fmt.Errorf("%w after %d cuts", errMisfit, maxAlignments)
}

// followStart moves the start of the copy after the original's and removes what lies below.
func (mv *move) followStart(cur, fut *log.Log) error {
	start := cur.StartOffset()
	if start <= fut.StartOffset() || start > fut.EndOffset() {
		return nil
	}
	now := mv.p.world.aged.now()
	err := fut.IncrementStart(start)
	if err == nil {
		_, err = fut.DeleteOld(now, start)
	}
	if err == nil {
		err = fut.RemoveDeleted(now)
	}
	if err != nil {
		return blamed{err, mv.to}
	}
	return nil
}

// settle writes down a recovery point that went back, before anything is appended (Partition.settleTruncation).
func (mv *move) settle() error {
	if !mv.rewound {
		return nil
	}
	if err := mv.to.dir.writeRecoveryPoints(); err != nil {
		return blamed{&log.StorageError{Op: "write the recovery point", File: mv.to.dir.path, Err: err}, mv.to}
	}
	mv.rewound = false
	return nil
}

// piece copies batches from the end of the copy up to end, about size bytes, once wait has let it, and gives their number
// of bytes; 0: there are none.
func (mv *move) piece(from *home, cur, fut *log.Log, end wire.Offset, size int, wait func(context.Context, int) error) (int, error) {
	at := fut.EndOffset()
	records, err := mv.read(cur, at, end, size)
	switch {
	case errors.Is(err, log.ErrOffsetOutOfRange):
		return 1, nil // cut or deleted just now: the next step looks again
	case err != nil:
		return 0, blamed{err, from}
	case len(records) == 0:
		return 0, nil
	}
	if err := wait(mv.ctx, len(records)); err != nil {
		return 0, err
	}
	if !image.IsInternal(mv.p.TP.Topic) {
		if err := mv.to.dir.space.take(int64(len(records))); err != nil {
			return 0, err
		}
	}
	if a := align(cur, fut); a.cut != wire.NoOffset || a.restart != wire.NoOffset {
		return 1, nil // cut before it was read: what was read does not follow what the copy has
	}
	if base := batch.Batch(records).BaseOffset(); base < at {
		if err := mv.makeRoom(fut, base); err != nil {
			return 0, blamed{err, mv.to}
		}
	}
	if err := mv.settle(); err != nil {
		return 0, err
	}
	got, err := fut.AppendAsFollower(records)
	switch {
	case errors.Is(err, log.ErrCorrupt):
		return 0, blamed{err, from}
	case err != nil:
		return 0, blamed{err, mv.to}
	}
	mv.p.world.metrics.movedBytes.Add(float64(len(records)))
	if got.Rolled { // so that not all of it is read again after a crash
		if err := fut.Flush(); err != nil {
			return 0, blamed{err, mv.to}
		}
	}
	return len(records), mv.followStart(cur, fut)
}

// makeRoom lets a copy take a batch that begins below its end: the original begins within it, or the copy was cut there.
func (mv *move) makeRoom(fut *log.Log, base wire.Offset) error {
	mv.rewound = true
	if fut.EndOffset() > fut.StartOffset() {
		return fut.TruncateTo(base)
	}
	return fut.TruncateFullyAndStart(base)
}

// read gives whole batches of the original, from the one that holds at; they are valid until the next call.
func (mv *move) read(cur *log.Log, at, end wire.Offset, size int) ([]byte, error) {
	if at >= end {
		return nil, nil
	}
	got, err := cur.Read(at, log.ReadOptions{Max: size, End: end, MinOne: true})
	if err != nil {
		return nil, err
	}
	defer wire.Release(got.Segments)
	if cap(mv.buf) < got.Size {
		mv.buf = make([]byte, got.Size)
	}
	buf, n := mv.buf[:got.Size], 0
	for _, s := range got.Segments {
		if _, err := s.File.ReadAt(buf[n:n+int(s.Len)], s.Off); err != nil {
			return nil, &log.StorageError{Op: "read", File: cur.Dir(), Err: err}
		}
		n += int(s.Len)
	}
	whole := 0
	for whole < n {
		b, _, err := batch.Next(buf[whole:n])
		if errors.Is(err, batch.ErrShort) {
			break
		}
		if err != nil {
			return nil, &log.CorruptError{File: cur.Dir(), Pos: int64(whole), Reason: err.Error()}
		}
		whole += len(b)
	}
	return buf[:whole], nil
}

// discard gives up the copy: its directory is set aside and removed after file.delete.delay.ms.
func (mv *move) discard() {
	fut := mv.to.plog.Load()
	if fut == nil || mv.to.dir.failed() != nil {
		return
	}
	to, err := mv.to.condemn(fut)
	if err != nil {
		mv.p.world.logger.Error("directory of a replica that moves no more stays", slog.String("dir", fut.Dir()), slog.Any("err", err))
		_ = mv.to.failed(err) // it matters only to the directory
		return
	}
	mv.v.m.house.removeAt(mv.to.dir, to, fut, mv.p.world.now().Add(mv.p.Config().FileDeleteDelay))
}
