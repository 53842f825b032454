package log

import (
	"errors"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// Suffixes of the files of a segment and of those that are on their way out or in.
const (
	suffixLog       = ".log"
	suffixIndex     = ".index"
	suffixTimeIndex = ".timeindex"
	suffixTxnIndex  = ".txnindex"
	suffixSnapshot  = ".snapshot"
	suffixWindow    = ".kaja-window"
	suffixDeleted   = ".deleted"
	suffixCleaned   = ".cleaned"
	suffixSwap      = ".swap"
)

const maxRelativeOffset = 1<<31 - 1

// recentEnds is how many of the newest batch boundaries an active segment remembers.
const recentEnds = 64

// boundary is the offset that follows a batch, and the position where the batch ends.
type boundary struct {
	offset wire.Offset
	pos    int64
}

// segment is one .log file with its indexes. Fields without a lock of their own belong to the log's mutex.
type segment struct {
	dir  *directory
	base wire.Offset

	// size is the length in bytes of what readers may see; what lies beyond is an append in progress.
	size    atomic.Int64
	offsets table
	times   table

	openMu  xsync.Mutex // covers opening and closing files, since readers open them too
	gone    bool        // closed for good; covered by openMu
	current atomic.Pointer[handle]

	created     time.Time // wall clock
	firstTime   int64     // maxTimestamp of the first batch; NoTimestamp until known
	firstKnown  bool
	lastIndexed int64 // position at the last index entry
	dirty       bool  // .log bytes that were not synced
	reserved    bool  // space beyond size may be reserved
	ageTold     bool  // it was logged that its timestamps cannot be read
	futureTold  bool  // it was logged that its timestamps lie in the future
	sealedDirty bool  // sealed, and its indexes were not synced
	complete    bool  // its index files hold every entry, that of the largest timestamp included
	txnDirty    bool  // its transaction index was not synced
	txnWritten  int   // entries of aborted that are in the file
	torn        bool  // the file may have bytes beyond size: a failed write could not be cut off
	unnamed     bool  // the file took its name in a truncation, and the directory was not synced since

	mu       sync.Mutex // covers what follows; held for moments only
	timedBy  timeSource
	maxTime  int64
	maxLast  wire.Offset // last offset of the batch that has maxTime
	ends     []boundary  // at most recentEnds, then a ring
	endsNext int
	aborted  []abortedTxn
}

// timeSource is where the largest timestamp of a segment comes from.
type timeSource uint8

const (
	byBatches timeSource = iota
	byIndex              // the last time entry, and no batch was looked at
	byNothing            // not even that was read
)

// directory is where a log lies; it changes when the log is renamed.
type directory struct {
	fs   vfs.FS
	path atomic.Pointer[string]
}

func (d *directory) join(name string) string { return path.Join(*d.path.Load(), name) }

// fileName is Kafka's: the offset in 20 digits.
func fileName(base wire.Offset, suffix string) string {
	name := make([]byte, 20, 20+len(suffix))
	for i := len(name) - 1; i >= 0; i-- {
		name[i] = byte('0' + base%10)
		base /= 10
	}
	return string(append(name, suffix...))
}

func newSegment(d *directory, base wire.Offset, created time.Time) *segment {
	s := &segment{dir: d, base: base, created: created, firstTime: wire.NoTimestamp, maxTime: wire.NoTimestamp, maxLast: base}
	s.offsets = table{fs: d.fs, width: offsetEntrySize, name: func() string { return s.path(suffixIndex) }}
	s.times = table{fs: d.fs, width: timeEntrySize, name: func() string { return s.path(suffixTimeIndex) }}
	return s
}

func (s *segment) path(suffix string) string { return s.dir.join(fileName(s.base, suffix)) }

// open gives the current handle, opening the file on first use.
func (s *segment) open() (*handle, error) {
	if h := s.current.Load(); h != nil {
		return h, nil
	}
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if h := s.current.Load(); h != nil {
		return h, nil
	}
	if s.gone {
		return nil, ErrClosed
	}
	f, err := s.dir.fs.OpenRW(s.path(suffixLog))
	if err != nil {
		return nil, storageErr("open", s.path(suffixLog), err)
	}
	h := &handle{file: f}
	s.current.Store(h)
	return h, nil
}

// openTables makes the index files readable.
func (s *segment) openTables(create bool) error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	if s.gone {
		return ErrClosed
	}
	return errors.Join(s.offsets.open(create), s.times.open(create))
}

// create makes the files of a new segment.
func (s *segment) create() error {
	f, err := s.dir.fs.Create(s.path(suffixLog))
	if err != nil {
		return storageErr("create", s.path(suffixLog), err)
	}
	s.current.Store(&handle{file: f})
	if err := s.openTables(true); err != nil {
		return err
	}
	return errors.Join(s.offsets.cut(0), s.times.cut(0))
}

// close closes all files for good; pinned ranges stay readable.
func (s *segment) close() error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.gone = true
	return s.closeFiles()
}

// rest closes the files until somebody needs them.
func (s *segment) rest() error {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return s.closeFiles()
}

func (s *segment) closeFiles() error {
	var err error
	if h := s.current.Swap(nil); h != nil {
		err = storageErr("close", s.path(suffixLog), h.retire())
	}
	return errors.Join(err, s.offsets.close(), s.times.close())
}

// maxTimestamp gives the largest timestamp and the last offset of the first batch that has it.
func (s *segment) maxTimestamp() (int64, wire.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.maxTime, s.maxLast
}

func (s *segment) noteTimestamp(ts int64, last wire.Offset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ts > s.maxTime {
		s.maxTime, s.maxLast = ts, last
	}
}

// noteEnd remembers a batch boundary, so that a reader at the tail and the high watermark need no index.
func (s *segment) noteEnd(next wire.Offset, pos int64) {
	s.mu.Lock()
	if len(s.ends) < recentEnds {
		s.ends = append(s.ends, boundary{next, pos})
	} else {
		s.ends[s.endsNext%recentEnds] = boundary{next, pos}
	}
	s.endsNext++
	s.mu.Unlock()
}

func (s *segment) forgetEnds() {
	s.mu.Lock()
	s.ends, s.endsNext = s.ends[:0], 0
	s.mu.Unlock()
}

// positionOf gives where the batch starts whose base offset is o, if that boundary is remembered.
func (s *segment) positionOf(o wire.Offset) (int64, bool) {
	if o == s.base {
		return 0, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.ends) - 1; i >= 0; i-- {
		if s.ends[i].offset == o {
			return s.ends[i].pos, true
		}
	}
	return 0, false
}

// index adds index entries for the batch at pos if enough bytes were written since the last ones. Its timestamp must
// have been noted.
func (s *segment) index(h *header, pos int64, interval int) error {
	s.complete = false
	if pos-s.lastIndexed <= int64(interval) {
		return nil
	}
	var buf [timeEntrySize]byte
	entry := offsetEntry{rel: uint32(h.last - s.base), pos: uint32(pos)}
	if err := s.offsets.add(entry.append(buf[:0])); err != nil {
		return err
	}
	s.lastIndexed = pos
	if err := s.indexTime(); !Passing(err) {
		return err
	}
	return nil // the next entry, or sealing, has the same timestamp or a larger one
}

// indexTime adds a time index entry if the largest timestamp is beyond the last entry's.
func (s *segment) indexTime() error {
	ts, last := s.maxTimestamp()
	newest, ok, err := s.times.lastTime()
	if err != nil {
		return err
	}
	if ts < 0 || ok && ts <= newest.time {
		return nil
	}
	var buf [timeEntrySize]byte
	return s.times.add(timeEntry{time: ts, rel: uint32(last - s.base)}.append(buf[:0]))
}

// reserve sets space for a whole segment aside. Readers and recovery see nothing of it: the length stays.
func (s *segment) reserve(size int64) error {
	h, err := s.open()
	if err != nil {
		return err
	}
	s.reserved = true
	return storageErr("preallocate", s.path(suffixLog), h.file.Allocate(size))
}

// release gives back the space that was set aside and not used.
func (s *segment) release() error { return s.trim(&s.reserved) }

// discard removes a segment that was just made and never used.
func (s *segment) discard() error {
	err := s.close()
	for _, suffix := range []string{suffixLog, suffixIndex, suffixTimeIndex} {
		err = errors.Join(err, removeFile(s.dir.fs, s.path(suffix)))
	}
	return err
}

// mend cuts off what a failed write has left. Where that failed, too, it is done before the next write.
func (s *segment) mend() error { return s.trim(&s.torn) }

// trim cuts the file to the segment's size if more says that it takes more, which it does not afterwards.
func (s *segment) trim(more *bool) error {
	if !*more {
		return nil
	}
	h, err := s.open()
	if err != nil {
		return err
	}
	if err := h.file.Truncate(s.size.Load()); err != nil {
		return storageErr("truncate", s.path(suffixLog), err)
	}
	*more = false
	return nil
}

// seal writes what an inactive segment has: the last time entry and all waiting entries.
func (s *segment) seal() error {
	if err := s.mend(); err != nil {
		return err
	}
	if err := s.openTables(true); err != nil {
		return err
	}
	if err := s.indexTime(); err != nil {
		return err
	}
	if err := errors.Join(s.offsets.write(), s.times.write(), s.writeAborted()); err != nil {
		return err
	}
	if err := errors.Join(s.offsets.finish(), s.times.finish()); err != nil {
		return err
	}
	s.complete = true
	return nil
}

// syncLog makes the .log bytes durable; an active segment's indexes are rebuilt after a crash.
func (s *segment) syncLog(h *handle) error {
	if planted.On(planted.FsyncSkipped) {
		return nil
	}
	return storageErr("sync", s.path(suffixLog), h.file.Sync())
}

// full reports whether an index has no room for another entry; one slot of the time index is kept for sealing.
func (s *segment) full(indexBytes int) bool {
	return s.offsets.entries() >= indexBytes/offsetEntrySize || s.times.entries() >= indexBytes/timeEntrySize-1
}

// truncate cuts the .log file at pos. If a reader was promised bytes beyond, the kept ones are copied to a new file that
// takes the name, and the old file stays for that reader: promised bytes are never overwritten. The cut is durable when it
// returns: a later segment must never stand beside bytes that it replaces.
func (s *segment) truncate(pos int64) error {
	h, err := s.open()
	if err != nil {
		return err
	}
	s.size.Store(pos)
	s.forgetEnds()
	s.dirty = true
	if !h.pinnedBeyond(pos) {
		if err := h.file.Truncate(pos); err != nil {
			return storageErr("truncate", s.path(suffixLog), err)
		}
		s.torn = false
		if planted.On(planted.TruncateUnsynced) {
			return nil
		}
		if err := s.syncLog(h); err != nil {
			return err
		}
		return s.syncName()
	}
	name := s.path(suffixLog)
	fresh, err := copyPrefix(s.dir.fs, h.file, name+vfs.TempSuffix, pos)
	if err != nil {
		return storageErr("copy", name, err)
	}
	if err := s.dir.fs.Rename(name+vfs.TempSuffix, name); err != nil {
		return storageErr("rename", name, errors.Join(err, fresh.Close()))
	}
	s.current.Store(&handle{file: fresh})
	s.torn, s.unnamed = false, true
	return errors.Join(storageErr("close", name, h.retire()), s.syncName())
}

// syncName makes durable that the segment's name leads to its file.
func (s *segment) syncName() error {
	if !s.unnamed {
		return nil
	}
	if err := s.dir.fs.SyncDir(*s.dir.path.Load()); err != nil {
		return storageErr("sync directory of", s.path(suffixLog), err)
	}
	s.unnamed = false
	return nil
}

// copyPrefix writes the first n bytes of from to a new, synced file.
func copyPrefix(fs vfs.FS, from vfs.File, name string, n int64) (vfs.File, error) {
	to, err := fs.Create(name)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, min(n, 1<<20))
	for pos := int64(0); pos < n && err == nil; pos += int64(len(buf)) {
		buf = buf[:min(int64(len(buf)), n-pos)]
		if _, err = from.ReadAt(buf, pos); err == nil {
			_, err = to.WriteAt(buf, pos)
		}
	}
	if err == nil {
		err = vfs.Synced(to.Sync())
	}
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}
