package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// What a start does with replicas that were being moved between log directories.

// surveyFuture notes the directory of a future replica, or finishes its deletion with its topic's.
func (m *Manager) surveyFuture(d *logDir, img *image.Image, found findings, name string, tp wire.TopicPartition) error {
	id, known := d.topicIDOf(name)
	if known && img.WasRemoved(id) {
		return m.finishDelete(d, name, tp, id)
	}
	found.futures[tp] = append(found.futures[tp], place{dir: d, id: id, name: name})
	return nil
}

// take gives the future replicas of a partition, once.
func (s findings) take(tp wire.TopicPartition) []place {
	futures := s.futures[tp]
	delete(s.futures, tp)
	return futures
}

// tellOrphans names the future replicas of partitions that are not here by the metadata; they are left alone.
func (m *Manager) tellOrphans(found findings) {
	for _, futures := range found.futures {
		for _, f := range futures {
			m.o.Logger.Warn("directory of a replica that was being moved is unknown to the metadata and left alone", "dir", f.dir.path, "name", f.name, "topic_id", f.id)
		}
	}
}

// promote finishes what swap was at when the last life of the node ended: no directory bears the partition's name, a copy with
// the mark is in the directory that the metadata names, or in the one that they name the replica was set aside. It is not believed while a log directory does not work: the replica itself may lie there, and the copy may lack
// what was acknowledged last (Kafka, which promotes it then, too: LogManager.recoverAbandonedFutureLogs).
func (m *Manager) promote(tp wire.TopicPartition, topic, said wire.UUID, futures, aside []place) (place, bool) {
	// The controller may have been told of the old directory again while swap tried to take its steps back.
	left := slices.ContainsFunc(aside, func(a place) bool {
		id, ok := a.dir.topicIDOf(a.name)
		return a.dir.id == said && ok && id == topic
	})
	i := slices.IndexFunc(futures, func(f place) bool {
		return f.id == topic && f.dir.marked(f.name) && (f.dir.id == said || left || m.o.AssignDirs == nil || f.dir.id.IsZero())
	})
	if i < 0 || len(m.OfflineDirs()) > 0 {
		return place{}, false
	}
	f := futures[i]
	err := f.dir.fs.Rename(path.Join(f.dir.path, f.name), path.Join(f.dir.path, tp.String()))
	if err == nil {
		err = f.dir.fs.SyncDir(f.dir.path)
	}
	if err != nil {
		f.dir.fail(fmt.Errorf("give the moved replica %s its name: %w", f.name, err))
		return place{}, false
	}
	m.o.Logger.Info("move of a replica to another log directory finished", "dir", f.dir.path, "name", tp.String())
	return place{dir: f.dir, id: f.id, copied: true}, true
}

// withdrawCopy decides between two directories of a partition of which one is the copy of a move that was called off at
// its very end (exchange): the copy goes, which the original has outgrown since.
func (m *Manager) withdrawCopy(tp wire.TopicPartition, topic wire.UUID, at place) place {
	if len(at.others) != 1 || at.id != topic || at.others[0].id != topic {
		return at
	}
	stays, goes := at, at.others[0]
	if at.dir.marked(tp.String()) {
		stays, goes = goes, stays
	}
	if stays.dir.marked(tp.String()) || !goes.dir.marked(tp.String()) {
		return at
	}
	goes.name = tp.String()
	if err := m.finishMove(goes, tp, topic); err != nil {
		goes.dir.fail(err)
		return at
	}
	stays.others = nil
	return stays
}

// withheld is a partition whose only copy here is not to be believed.
func (m *Manager) withheld(img *image.Image, t *image.Topic, meta *image.Partition, dir *logDir) *opening {
	p := m.newPartition(img, t, meta.ID, dir)
	m.o.Logger.Error("partition is refused: only the unfinished copy of a move was found", "topic", t.Name, "partition", meta.ID, "dir", dir.path)
	p.refuse(fmt.Errorf("%w: the replica of %s was being moved from there", ErrOffline, p.TP))
	return &opening{p: p, meta: meta}
}

// chooseFuture picks the copy with which the move of a replica that lies in home goes on: that in the directory which the
// metadata names, else the first. Others, left by moves that were replaced, are set aside.
func (m *Manager) chooseFuture(tp wire.TopicPartition, topic wire.UUID, home *logDir, said wire.UUID, futures []place) place {
	fits := func(f place) bool { return f.id == topic && f.dir != home }
	i := slices.IndexFunc(futures, func(f place) bool { return fits(f) && f.dir.id == said })
	if i < 0 {
		i = slices.IndexFunc(futures, fits)
	}
	for j, f := range futures {
		if j == i {
			continue
		}
		if f.id != topic && !f.id.IsZero() {
			m.o.Logger.Warn("directory of a replica that was being moved belongs to another topic and is left alone", "dir", f.dir.path, "name", f.name, "topic_id", f.id)
			continue
		}
		if err := m.finishMove(f, tp, topic); err != nil {
			f.dir.fail(err)
		}
	}
	if i < 0 {
		return place{}
	}
	return futures[i]
}

// finishMove sets aside a copy that nobody needs.
func (m *Manager) finishMove(f place, tp wire.TopicPartition, topic wire.UUID) error {
	to, err := f.dir.condemn(f.name, tp, topic)
	if err != nil {
		return fmt.Errorf("set aside %s: %w", f.name, err)
	}
	m.o.Logger.Info("copy of a replica that does not move any more set aside", "dir", f.dir.path, "name", f.name)
	m.house.removeAt(f.dir, to, nil, m.o.Now().Add(time.Minute))
	return nil
}

// openFuture opens the copy of a replica that is open. One that cannot be opened is begun anew.
func (m *Manager) openFuture(ctx context.Context, o *opening) *home {
	p, f := o.p, o.future
	to := &home{p: p, dir: f.dir}
	fut, _, err := f.dir.openCopy(ctx, p, f.name)
	switch {
	case err == nil:
		to.plog.Store(fut)
	case ctx.Err() != nil:
		return nil
	default:
		m.o.Logger.Warn("copy of a replica that was being moved cannot be opened and is begun anew", slog.String("dir", f.dir.path), slog.String("name", f.name), slog.Any("err", err))
		if err := to.failed(err); f.dir.failed() != nil {
			_ = err // logged
			return nil
		}
		if err := m.finishMove(f, p.TP, p.TopicID); err != nil {
			f.dir.fail(err)
			return nil
		}
	}
	return to
}

// marked reports whether the directory of this name was made by a move whose end is not certain.
func (d *logDir) marked(name string) bool {
	there, err := vfs.Exists(d.fs, path.Join(d.path, name, movingFile))
	return err == nil && there
}

// unmark makes a copy that has taken its place the replica for good. Should the mark come back with a crash, it counts only
// beside a directory without one.
func (h *home) unmark() {
	if err := h.dir.fs.Remove(path.Join(h.p.pathIn(h.dir), movingFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		h.p.world.logger.Warn("mark of a move stays", slog.String("dir", h.p.pathIn(h.dir)), slog.Any("err", err))
	}
}

var _ copied = (*log.Log)(nil)
