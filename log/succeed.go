package log

import (
	"fmt"
	"slices"

	"github.com/kajamq/kaja/wire"
)

// Succeed takes over from old, of which l is a copy, what batches alone don't tell: leader epochs that no record is left
// of, producers whose batches were deleted, and an end beyond the last batch. A new segment begins, so that the snapshot
// that a recovery starts from knows them, too. All of it is durable with the next Flush.
//
// The caller appends to neither of them meanwhile, and to old never again. l's start is old's; no batch of old lies
// beyond l's end. Errors: ErrStorage, ErrClosed.
func (l *Log) Succeed(old *Log) error {
	if err := old.Wake(); err != nil {
		return err
	}
	old.mu.Lock()
	entries, ps, end := slices.Clone(old.epochs.entries), old.producers.clone(), old.EndOffset()
	old.mu.Unlock()
	if err := l.lockForChange(); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if end < l.EndOffset() {
		return fmt.Errorf("log ends at %d, beyond the end %d of the one that it succeeds", l.EndOffset(), end)
	}
	if err := l.prepareLocked(); err != nil {
		return l.failLocked(err)
	}
	l.leo.Store(int64(end))
	l.epochs.entries, l.epochs.bare, l.epochs.dirty = entries, false, true
	l.producers = ps
	l.producers.end = end
	l.noteUnstableLocked()
	if err := l.writeEpochsLocked(); err != nil {
		return l.failLocked(err)
	}
	if l.view.Load().active().base == end {
		return l.failLocked(l.writeSnapshotLocked())
	}
	return l.failLocked(l.rollLocked())
}

// clone is a copy that shares nothing.
func (ps *producers) clone() *producers {
	out := &producers{byID: make(map[wire.ProducerID]*producer, len(ps.byID)), open: slices.Clone(ps.open), ended: slices.Clone(ps.ended), end: ps.end}
	for id, p := range ps.byID {
		c := *p
		out.byID[id] = &c
	}
	return out
}
