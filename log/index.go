package log

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/kajamq/kaja/vfs"
)

const (
	offsetEntrySize = 8  // i32 relative offset, i32 position
	timeEntrySize   = 12 // i64 timestamp, i32 relative offset
	// maxPendingEntries is how many index entries wait in memory before they go to the file in one write.
	maxPendingEntries = 512
)

// table is a file of fixed-size entries that is only appended to and cut: the offset and the time index of a segment.
//
// The newest entries wait in memory, so that an append costs one write; they reach the file in groups, and all of them
// at a flush, a roll and a close. Readers take mu for a moment and never over a read of the file: written entries do not
// change until the table is cut, and whoever cuts it first tells readers by the log's generation.
type table struct {
	fs    vfs.FS
	name  func() string // the path may change with the directory
	width int

	mu      sync.Mutex
	file    vfs.File // nil until needed
	written int      // entries in the file
	pending []byte   // entries after them
	dirty   bool     // the file has bytes that were not synced
	uncut   bool     // the file may be longer than written says: a cut of it failed
	old     int64    // length of the file while it is rebuilt: what it holds already is not written again
}

func (t *table) entries() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.written + len(t.pending)/t.width
}

// open makes sure that the file is there. Callers hold the log's mutex or the segment's open lock.
func (t *table) open(create bool) error {
	t.mu.Lock()
	have := t.file != nil
	t.mu.Unlock()
	if have {
		return nil
	}
	open := t.fs.OpenRW
	if create {
		open = t.fs.OpenAppend
	}
	f, err := open(t.name())
	if err != nil {
		return storageErr("open", t.name(), err)
	}
	t.mu.Lock()
	t.file = f
	t.mu.Unlock()
	return nil
}

// entry copies entry i into buf, which has the table's width.
func (t *table) entry(i int, buf []byte) error {
	t.mu.Lock()
	written, file := t.written, t.file
	if i >= written {
		off := (i - written) * t.width
		if off+t.width > len(t.pending) {
			t.mu.Unlock()
			return fmt.Errorf("%s: entry %d is gone", t.name(), i)
		}
		copy(buf, t.pending[off:off+t.width])
		t.mu.Unlock()
		return nil
	}
	t.mu.Unlock()
	if file == nil {
		return ErrClosed // the segment went away under a reader
	}
	if _, err := file.ReadAt(buf[:t.width], int64(i)*int64(t.width)); err != nil {
		return storageErr("read", t.name(), err)
	}
	return nil
}

// add appends an entry; it reaches the file when enough wait. While there is no space or no descriptor it waits on: the index is
// complete in memory, and sealing tells if that lasts.
func (t *table) add(entry []byte) error {
	t.mu.Lock()
	t.pending = append(t.pending, entry...)
	full := len(t.pending) >= maxPendingEntries*t.width
	t.mu.Unlock()
	if !full {
		return nil
	}
	if err := t.write(); !Passing(err) {
		return err
	}
	return nil
}

// write puts the waiting entries into the file.
func (t *table) write() error {
	t.mu.Lock()
	file, at, data, old := t.file, int64(t.written)*int64(t.width), t.pending, t.old
	t.mu.Unlock()
	if len(data) == 0 {
		return nil
	}
	if at+int64(len(data)) > old || !holds(file, data, at) {
		if _, err := file.WriteAt(data, at); err != nil {
			return storageErr("write", t.name(), err)
		}
	}
	t.mu.Lock()
	t.written += len(data) / t.width
	t.pending = t.pending[:0]
	t.dirty = true
	t.mu.Unlock()
	return nil
}

// holds reports whether data lies at position at of the file. One that can't be read holds nothing.
func holds(file vfs.File, data []byte, at int64) bool {
	have := make([]byte, len(data))
	n, _ := file.ReadAt(have, at)
	return n == len(data) && bytes.Equal(have, data)
}

// rebuild begins the table anew, over the entries that the file holds: whoever knows that they are right, mostly, spares
// writing them. finish ends it. Until then the file is of use to nobody.
func (t *table) rebuild() error {
	size, err := t.file.Size()
	if err != nil {
		return storageErr("stat", t.name(), err)
	}
	t.mu.Lock()
	t.written, t.pending, t.old, t.uncut = 0, nil, size, false
	t.mu.Unlock()
	return nil
}

// finish cuts off what a rebuild has left of the entries before it. All were written.
func (t *table) finish() error {
	t.mu.Lock()
	file, size, old := t.file, int64(t.written)*int64(t.width), t.old
	t.mu.Unlock()
	if old > size {
		if err := file.Truncate(size); err != nil {
			return storageErr("truncate", t.name(), err)
		}
	}
	t.mu.Lock()
	t.old, t.dirty = 0, t.dirty || old > size
	t.mu.Unlock()
	return nil
}

// cut keeps the first n entries.
func (t *table) cut(n int) error {
	t.mu.Lock()
	file, written := t.file, t.written
	if n >= written && !t.uncut {
		t.pending = t.pending[:min(len(t.pending), (n-written)*t.width)]
		t.mu.Unlock()
		return nil
	}
	t.pending, t.written, t.uncut = t.pending[:max(0, min(len(t.pending), (n-written)*t.width))], min(n, written), true
	written = t.written
	t.mu.Unlock()
	if err := file.Truncate(int64(written) * int64(t.width)); err != nil {
		return storageErr("truncate", t.name(), err)
	}
	t.mu.Lock()
	t.dirty, t.uncut = true, false
	t.mu.Unlock()
	return nil
}

// sync writes and syncs what is not durable.
func (t *table) sync() error {
	if err := t.write(); err != nil {
		return err
	}
	t.mu.Lock()
	file, dirty := t.file, t.dirty
	t.dirty = false
	t.mu.Unlock()
	if !dirty {
		return nil
	}
	err := storageErr("sync", t.name(), file.Sync())
	if Passing(err) { // not begun
		t.mu.Lock()
		t.dirty = true
		t.mu.Unlock()
	}
	return err
}

// unsynced reports whether the file has bytes that are not durable.
func (t *table) unsynced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dirty
}

// synced notes that everything in the file is durable.
func (t *table) synced() {
	t.mu.Lock()
	t.dirty = false
	t.mu.Unlock()
}

func (t *table) close() error {
	t.mu.Lock()
	file := t.file
	t.file = nil
	t.mu.Unlock()
	if file == nil {
		return nil
	}
	return storageErr("close", t.name(), file.Close())
}

// search gives the number of entries for which before holds; it must hold for a prefix.
func (t *table) search(buf []byte, before func(entry []byte) bool) (int, error) {
	lo, hi := 0, t.entries()
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if err := t.entry(mid, buf); err != nil {
			return 0, err
		}
		if before(buf) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// offsetEntry is one entry of a .index: the last offset of the batch that starts at pos, relative to the segment.
type offsetEntry struct{ rel, pos uint32 }

func decodeOffsetEntry(b []byte) offsetEntry {
	return offsetEntry{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

func (e offsetEntry) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, e.rel), e.pos)
}

// timeEntry is one entry of a .timeindex: the largest timestamp so far and the last offset of the batch that set it.
type timeEntry struct {
	time int64
	rel  uint32
}

func decodeTimeEntry(b []byte) timeEntry {
	return timeEntry{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
}

func (e timeEntry) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(e.time)), e.rel)
}

// lookupOffset gives the last entry whose offset is at most rel, or the zero entry.
func (t *table) lookupOffset(rel uint32) (offsetEntry, error) {
	var buf [offsetEntrySize]byte
	n, err := t.search(buf[:], func(b []byte) bool { return decodeOffsetEntry(b).rel <= rel })
	if err != nil || n == 0 {
		return offsetEntry{}, err
	}
	if err := t.entry(n-1, buf[:]); err != nil {
		return offsetEntry{}, err
	}
	return decodeOffsetEntry(buf[:]), nil
}

// lookupTime gives the last entry whose timestamp is at most ts; ok is false when there is none.
func (t *table) lookupTime(ts int64) (e timeEntry, ok bool, err error) {
	var buf [timeEntrySize]byte
	n, err := t.search(buf[:], func(b []byte) bool { return decodeTimeEntry(b).time <= ts })
	if err != nil || n == 0 {
		return timeEntry{}, false, err
	}
	err = t.entry(n-1, buf[:])
	return decodeTimeEntry(buf[:]), err == nil, err
}

// lastTime gives the newest entry; ok is false when the table is empty.
func (t *table) lastTime() (e timeEntry, ok bool, err error) {
	n := t.entries()
	if n == 0 {
		return timeEntry{}, false, nil
	}
	var buf [timeEntrySize]byte
	err = t.entry(n-1, buf[:])
	return decodeTimeEntry(buf[:]), err == nil, err
}
