package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// home is where a replica's records lie: a log directory, the log in it, and its place in the directory's flusher. A replica
// that moves is given another home, so that whoever works on one, without a lock that the move waits for, blames the
// right directory for what fails.
type home struct {
	p      *Partition
	dir    *logDir
	plog   atomic.Pointer[log.Log] // nil before the first record
	made   atomic.Bool             // a try to make the log has left its directory
	ticket flushTicket             // guarded by dir.flusher.mu
}

// dir is the log directory that holds the replica.
func (p *Partition) dir() *logDir { return p.at.Load().dir }

// plog is the replica's log; nil before its first record.
func (p *Partition) plog() *log.Log { return p.at.Load().plog.Load() }

// errTaken says that the directory of a partition without records is there all the same: it was put there while this broker ran.
var errTaken = fmt.Errorf("the directory of a new partition exists already and is left alone: %w", kerr.InconsistentTopicID)

// makeLog makes the directory and the log of a partition that gets its first record. A partition whose directory is taken goes out of
// service. appendMu is held.
func (p *Partition) makeLog() (*log.Log, error) {
	h := p.at.Load()
	name := p.pathIn(h.dir)
	if !h.made.Load() {
		taken, err := vfs.Exists(h.dir.fs, name)
		if err != nil {
			return nil, &log.StorageError{Op: "stat", File: name, Err: err}
		}
		if taken {
			p.world.logger.Error("partition is refused", slog.String("dir", name), slog.Any("err", errTaken))
			h.dir.leaveAlone(p.TP)
			p.refuse(errTaken)
			p.world.damaged(p)
			return nil, errTaken
		}
	}
	plog, err := h.dir.newLog(context.Background(), p, p.TP.String())
	if err != nil && !h.made.Load() {
		there, serr := vfs.Exists(h.dir.fs, name)
		h.made.Store(serr == nil && there) // it was not a moment ago
	}
	return plog, err
}

// clear sets aside what a log that could not be made has left in its directory, which holds no records; gone is its new path, "" if there
// is nothing. appendMu is held.
func (h *home) clear() (gone string, err error) {
	if !h.made.Load() {
		return "", nil
	}
	name := h.p.pathIn(h.dir)
	there, err := vfs.Exists(h.dir.fs, name)
	if err == nil && there {
		gone, err = h.dir.condemn(h.p.TP.String(), h.p.TP, h.p.TopicID)
	}
	if err != nil {
		return "", &log.StorageError{Op: "set aside", File: name, Err: err}
	}
	return gone, nil
}

// kick has the replica flushed, and whoever waits for it told, soon. It never blocks.
func (p *Partition) kick() {
	h := p.at.Load()
	h.dir.flusher.kick(h)
}

// failed is storageFailed of the home's directory. A log whose files are not those that the start has found takes its partition
// offline.
func (h *home) failed(err error) error {
	if errors.Is(err, log.ErrNotAsLeft) && h.p.usable() == nil {
		h.p.rotten(err)
	}
	if errors.Is(err, log.ErrStorage) && !log.Passing(err) {
		h.dir.fail(err)
	}
	return err
}

// enter makes h known to its directory.
func (h *home) enter() {
	h.dir.mu.Lock()
	defer h.dir.mu.Unlock()
	h.dir.homes[h.p.TP] = h
}

// leave makes h unknown to its directory.
func (h *home) leave() {
	h.dir.mu.Lock()
	defer h.dir.mu.Unlock()
	if h.dir.homes[h.p.TP] == h {
		delete(h.dir.homes, h.p.TP)
	}
}

// size is the number of bytes of the log's segments.
func (h *home) size() int64 {
	if plog := h.plog.Load(); plog != nil {
		return plog.Size()
	}
	return 0
}

// end is the exclusive end of the log.
func (h *home) end() wire.Offset {
	if plog := h.plog.Load(); plog != nil {
		return plog.EndOffset()
	}
	return 0
}

// serve runs on a goroutine of the directory's flusher.
func (h *home) serve() {
	if h.p.at.Load() != h {
		h.p.kick() // it has moved since
		return
	}
	h.p.serve(h)
}
