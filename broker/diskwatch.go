package broker

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/stallfs"
)

// A disk that hangs tells nobody: no call fails. What rests on it is given up all the same: the broker asks to be fenced, and
// the node neither leads the metadata nor stands for it, until the disk has worked again for a while.

// hangLooks is how many looks at the disks fit into the time after which one that does nothing is taken to hang.
const hangLooks = 20

// hanging says whether a disk hangs, from what each look tells. It begins after hangLooks looks in a row at which nothing
// had happened, and ends after half as many in a row that were not half as bad: a disk that comes and goes must not take the
// leaderships along each time.
type hanging struct {
	on   bool
	calm int // looks
}

// look takes how many looks in a row the worst disk has done nothing, and reports whether on has changed.
func (h *hanging) look(stalled int) (changed bool) {
	switch {
	case stalled >= hangLooks:
		changed = !h.on
		h.on, h.calm = true, 0
	case stalled >= hangLooks/2:
		h.calm = 0
	case h.on:
		h.calm++
		changed = h.calm >= hangLooks/2
		h.on = !changed
	}
	return changed
}

// diskWatch looks at the disks of a node. Safe for concurrent use.
type diskWatch struct {
	fs     *stallfs.FS
	tick   time.Duration
	logger *slog.Logger
	told   atomic.Pointer[func()] // see Tell
	err    atomic.Pointer[error]
	stop   chan struct{}
	wg     sync.WaitGroup
}

// newDiskWatch watches the disks of dirs; one of them hangs when it does nothing for timeout. Whoever uses them does so by
// what FS gives.
func newDiskWatch(base vfs.FS, dirs []string, timeout time.Duration, logger *slog.Logger) *diskWatch {
	return &diskWatch{fs: stallfs.New(base, dirs...), tick: timeout / hangLooks, logger: logger, stop: make(chan struct{})}
}

// Tell has changed called, without a lock, whenever a disk begins or ceases to hang. A watch that is nil never does.
func (w *diskWatch) Tell(changed func()) {
	if w != nil {
		w.told.Store(&changed)
	}
}

// Start begins to look; one goroutine, joined by Close.
func (w *diskWatch) Start() { w.wg.Go(w.run) }

func (w *diskWatch) run() {
	tick := time.NewTicker(w.tick)
	defer tick.Stop()
	var h hanging
	for {
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		dir, looks := w.fs.Look()
		if !h.look(looks) {
			continue
		}
		if h.on {
			err := fmt.Errorf("the disk of %s hangs: nothing came back for %v", dir, time.Duration(looks)*w.tick)
			w.err.Store(&err)
			w.logger.Error("this node gives up its leaderships until its disk works again", slog.Any("err", err))
		} else {
			w.err.Store(nil)
			w.logger.Info("the disk works again")
		}
		if told := w.told.Load(); told != nil {
			(*told)()
		}
	}
}

// Err says which disk hangs; nil for none. A watch that is nil watches nothing.
func (w *diskWatch) Err() error {
	if w == nil {
		return nil
	}
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends the looking; what a disk has done last stands. It may be called on nil.
func (w *diskWatch) Close() {
	if w == nil {
		return
	}
	close(w.stop)
	w.wg.Wait()
}
