package log

import "errors"

// unfinished is the rest of a change of files that a lack of space or of descriptors has interrupted: a truncation, a swap of
// compacted segments, the removal of files. What the log holds for its readers is settled; the directory is between two states
// that a start would tell apart and finish, too.
type unfinished struct {
	// do goes on where it failed. It runs with flushMu held and mu not.
	do func() error
	// cut says that bytes beyond the log's end may still be in files: nothing may be appended or made durable before.
	cut bool
	// release closes what do would still need, when the log is closed before; nil: nothing.
	release func() error
}

// undertakeLocked puts a change of files on the list of what has to be done before the next one.
func (l *Log) undertakeLocked(u unfinished) { l.unfinished = append(l.unfinished, u) }

// undertake is undertakeLocked and finish in one.
func (l *Log) undertake(u unfinished) error {
	l.mu.Lock()
	l.undertakeLocked(u)
	l.mu.Unlock()
	return l.finish()
}

// finish does what is undertaken, in order. An error that is Passing leaves the rest to the next call, any other is final. The
// caller holds flushMu and not mu.
func (l *Log) finish() error {
	for {
		l.mu.Lock()
		if len(l.unfinished) == 0 || l.failed != nil || l.closed {
			err := l.failed
			l.mu.Unlock()
			return err
		}
		do := l.unfinished[0].do
		l.mu.Unlock()
		err := do()
		l.mu.Lock()
		if err == nil {
			l.unfinished = l.unfinished[1:]
		} else if !Passing(err) {
			l.breakLocked(err) // half of it has happened: only a new Open knows
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// FinishCut finishes a truncation that lacked space or a descriptor (Passing), if there is one. A lack that lasts is final here:
// the caller wants to append, and to know that it can.
func (l *Log) FinishCut() (finished bool, err error) {
	l.mu.Lock()
	uncut := l.failed == nil && !l.closed && l.uncutLocked()
	l.mu.Unlock()
	if !uncut {
		return false, nil
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	err = l.finish()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil || !l.uncutLocked() {
		return l.failed == nil, l.failed
	}
	l.breakLocked(&StorageError{Op: "finish a truncation in", File: l.Dir(), Err: errors.New(err.Error())}) // not Passing any more
	return false, l.failed
}

// releaseLocked gives up what is not finished: the log is closed, and the next start deals with it.
func (l *Log) releaseLocked() error {
	var err error
	for _, u := range l.unfinished {
		if u.release != nil {
			err = errors.Join(err, u.release())
		}
	}
	l.unfinished = nil
	return err
}

// uncutLocked reports whether a truncation is not finished.
func (l *Log) uncutLocked() bool {
	for _, u := range l.unfinished {
		if u.cut {
			return true
		}
	}
	return false
}

// lockForChange takes mu for an operation that builds on the log's end, once it is awake and no truncation is left to be finished. Without an
// error the caller unlocks it.
func (l *Log) lockForChange() error {
	l.mu.Lock()
	for {
		err := l.wakeLocked()
		if err == nil {
			err = l.usableLocked()
		}
		uncut := l.uncutLocked()
		if err == nil && !uncut {
			return nil
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		l.flushMu.Lock()
		err = l.finish()
		l.flushMu.Unlock()
		if err != nil {
			return err
		}
		l.mu.Lock()
	}
}
