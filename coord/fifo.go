package coord

import "time"

// entry is one decision that was carried out: what leaves the shard once everything it could have seen is committed.
type entry[M Machine] struct {
	at        time.Time // of the decision
	append    bool      // it appended; otherwise it only waits for those before it
	committed bool
	replies   []Reply
	effects   []Effect
	timers    []*timer[M] // held until the entry is popped
	deadline  time.Time   // for the replies; zero when there are none
}

// fifo keeps the entries in the order of their decisions. Not safe for concurrent use.
type fifo[M Machine] struct {
	entries []*entry[M]
	next    int // index of the first entry whose append is not known to be committed
	expired int // entries before this index have no replies left to time out
}

func (f *fifo[M]) empty() bool { return len(f.entries) == 0 }

func (f *fifo[M]) push(e *entry[M]) { f.entries = append(f.entries, e) }

// commit marks the oldest append that is still open, and gives it, nil if there is none; appends commit in order.
func (f *fifo[M]) commit() *entry[M] {
	for f.next < len(f.entries) && !f.entries[f.next].append {
		f.next++
	}
	if f.next == len(f.entries) {
		return nil
	}
	e := f.entries[f.next]
	e.committed = true
	f.next++
	return e
}

// pop removes the head if nothing before or in it is open.
func (f *fifo[M]) pop() (*entry[M], bool) {
	if len(f.entries) == 0 {
		return nil, false
	}
	e := f.entries[0]
	if e.append && !e.committed {
		return nil, false
	}
	f.entries[0] = nil
	f.entries = f.entries[1:]
	f.next, f.expired = max(f.next-1, 0), max(f.expired-1, 0)
	return e, true
}

// timeout takes the replies whose deadline has passed; their entries stay.
func (f *fifo[M]) timeout(now time.Time) []Reply {
	var late []Reply
	for f.expired < len(f.entries) {
		e := f.entries[f.expired]
		if !e.deadline.IsZero() && e.deadline.After(now) {
			break
		}
		late = append(late, e.replies...)
		e.replies = nil
		f.expired++
	}
	return late
}

// deadline is when the next reply times out; false if none waits.
func (f *fifo[M]) deadline() (time.Time, bool) {
	for f.expired < len(f.entries) && f.entries[f.expired].deadline.IsZero() {
		f.expired++
	}
	if f.expired == len(f.entries) {
		return time.Time{}, false
	}
	return f.entries[f.expired].deadline, true
}
