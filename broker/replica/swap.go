package replica

import (
	"context"
	"fmt"
	"log/slog"
	"path"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
)

// How a replica's future log takes the place of its present one. The order is such that at any moment at most one
// directory bears the partition's name, and that it is whole:
//
//  1. the copy is durable, but for what was appended just now, and the checkpoints of its directory have it;
//     it bears a mark (movingFile);
//  2. appends wait; the rest is copied and made durable;
//  3. the old directory is set aside (-delete), durably;
//  4. the new one is given its name, durably;
//  5. appends go on, into the new one; the mark goes.
//
// Where 4 fails, 3 is taken back, and appends go on into the old directory. Then the name may be there twice after a crash,
// and the marked one is the copy that is out of date (Manager.withdrawCopy).
//
// A start that finds no directory of that name, and a marked copy in the directory that the metadata names, was interrupted
// between 3 and 4 and does 4 (Manager.promote); the metadata has named it before 1.

// movingFile marks the directory of a copy until the copy is the replica beyond doubt.
const movingFile = "kaja-moving"

// swap tries to end the move. It reports false when too much is left to copy while appends wait.
func (mv *move) swap(from *home) (done bool, err error) {
	p, to := mv.p, mv.to
	if fut := to.plog.Load(); fut != nil {
		if err := fut.Flush(); err != nil {
			return false, blamed{err, to}
		}
		for _, write := range []func() error{to.dir.checkpointRecoveryPoint, to.dir.checkpointHW, to.dir.checkpointLogStart, to.dir.checkpointCleaner} {
			if err := write(); err != nil {
				return false, blamed{err, to}
			}
		}
		from.unmark() // should an earlier move have left it
		if err := vfs.WriteAtomic(to.dir.fs, path.Join(fut.Dir(), movingFile), nil); err != nil {
			return false, blamed{&log.StorageError{Op: "mark", File: fut.Dir(), Err: err}, to}
		}
	}
	p.appendMu.Lock()
	gone, done, err := mv.exchange(from)
	if !done || err != nil {
		p.appendMu.Unlock()
		from.dir.announce() // if it was shut
		return false, err
	}
	p.mu.Lock()
	p.at.Store(to)
	n := note{mark: p.mark, generation: p.generation}
	if fut := to.plog.Load(); fut != nil {
		n = p.noteLocked(p.state.OnFlushed(fut.FlushedOffset(), p.world.now()))
	}
	p.mu.Unlock()
	p.rewound = mv.rewound
	p.appendMu.Unlock()
	mv.settled(from, gone, n)
	return true, nil
}

// exchange copies the rest and gives the directories their new names; gone is the old one's. appendMu is held, which keeps
// everybody else from changing either log, except retention, which removes whole segments of the old one.
func (mv *move) exchange(from *home) (gone string, done bool, err error) {
	p, to := mv.p, mv.to
	cur, fut := from.plog.Load(), to.plog.Load()
	switch {
	case p.usable() != nil || from.dir.failed() != nil || to.dir.failed() != nil || mv.ctx.Err() != nil:
		return "", false, errDirFailed
	case cur == nil:
		if gone, err = from.clear(); err != nil {
			return "", false, blamed{err, from}
		}
		return gone, true, nil
	case fut == nil: // the first record has come just now
		return "", false, nil
	}
	if caughtUp, err := mv.rest(from, cur, fut); err != nil || !caughtUp {
		return "", false, err
	}
	start := fut.StartOffset()
	if err := fut.Succeed(cur); err != nil {
		return "", false, blamed{err, to}
	}
	if err := fut.Flush(); err != nil {
		return "", false, blamed{err, to}
	}
	if start > 0 {
		if err := to.dir.writeLogStarts(); err != nil {
			return "", false, blamed{&log.StorageError{Op: "write the log start", File: to.dir.path, Err: err}, to}
		}
	}
	if gone, err = from.condemn(cur); err != nil {
		mv.putBack(from, cur)
		return "", false, blamed{err, from}
	}
	if err := fut.Rename(p.pathIn(to.dir)); err != nil {
		mv.putBack(from, cur)
		return "", false, blamed{err, to}
	}
	return gone, true, nil
}

// putBack takes step 3 back. Where nobody knows under which name the old directory will be found, nothing more may be
// written to it: whatever the next start takes for the replica has all that was acknowledged until now. appendMu is held.
func (mv *move) putBack(from *home, cur *log.Log) {
	name := mv.p.pathIn(from.dir)
	if cur.Dir() == name {
		return
	}
	if err := cur.Rename(name); err != nil {
		from.dir.shut(fmt.Errorf("take back the name of a replica that was to move: %w", err))
	}
}

// rest copies what was appended just now, unless it is much.
func (mv *move) rest(from *home, cur, fut *log.Log) (caughtUp bool, err error) {
	if err := cur.Wake(); err != nil {
		return false, blamed{err, from}
	}
	if err := mv.fit(cur, fut); err != nil {
		return false, err
	}
	end := cur.EndOffset()
	for range swapPieces {
		n, err := mv.piece(from, cur, fut, end, movePiece, func(context.Context, int) error { return nil })
		if err != nil {
			return false, err
		}
		if n == 0 || fut.EndOffset() >= end {
			return fut.StartOffset() == cur.StartOffset(), mv.settle()
		}
	}
	return false, nil
}

// settled does what follows a swap, without any lock of the partition.
func (mv *move) settled(from *home, gone string, n note) {
	p, to, m := mv.p, mv.to, mv.v.m
	mv.v.done(mv)
	from.leave()
	if fut := to.plog.Load(); fut != nil {
		to.unmark()
		fut.SetConfig(p.Config()) // it may have changed just now
	}
	p.tell(n)
	p.kick()
	if err := to.dir.failed(); err != nil {
		p.interrupt(err) // it failed before the replica was known to lie there
	}
	// Nothing of it is to be believed when the replica comes back into the old directory.
	for _, write := range []func() error{from.dir.checkpointRecoveryPoint, from.dir.checkpointLogStart, from.dir.checkpointHW, from.dir.checkpointCleaner} {
		_ = write() // an error has taken the directory offline or was logged
	}
	delay := p.Config().FileDeleteDelay
	if gone != "" {
		m.house.removeAt(from.dir, gone, from.plog.Load(), p.world.now().Add(delay))
	}
	m.house.cleanUpAt(p, p.world.now().Add(delay))
	p.world.metrics.moved.Inc()
	p.world.logger.Info("replica has moved to another log directory", slog.String("topic", p.TP.Topic), slog.Int("partition", int(p.TP.Partition)),
		slog.String("from", from.dir.path), slog.String("to", to.dir.path), slog.Int64("bytes", to.size()))
}
