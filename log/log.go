package log

import (
	"errors"
	"hash/fnv"
	"log/slog"
	"math"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// Log is one partition's log. Safe for concurrent use: one mutex orders everything that changes it, and readers do not
// take that mutex.
type Log struct {
	tp      wire.TopicPartition
	topicID wire.UUID
	dir     *directory
	wall    func() time.Time
	logger  *slog.Logger
	codecs  *compress.Codecs
	config  atomic.Pointer[Config]

	resting atomic.Pointer[Resting] // what the log is served as until it is woken; nil: it is awake, and has a view
	view    atomic.Pointer[view]
	start   atomic.Int64 // log start offset; never falls
	leo     atomic.Int64 // exclusive; moves after the bytes and indexes are in place
	flushed atomic.Int64 // everything below is durable; <= leo
	lacks   atomic.Int64 // from here on the epoch checkpoint may lack epochs of records that are durable; beyond every offset: nowhere
	// unstable is the first offset of a transaction that holds back the LSO, NoOffset if there is none.
	unstable atomic.Int64

	// flushMu is held over a flush, which syncs files without mu, and by everything that removes, cuts or renames files.
	// It is taken before mu.
	flushMu xsync.Mutex

	mu          xsync.Mutex // covers what follows and every change of files
	epochs      epochs
	producers   *producers
	namesDirty  bool        // the directory has entries that were not synced
	prepared    bool        // partition.metadata and the directory itself are durable
	snapshots   []string    // snapshot and window files that were not synced
	snapshotEnd wire.Offset // of the newest snapshot
	deleted     []deletedFile
	unfinished  []unfinished
	lastFlush   time.Time
	failed      error // final; every later write gets it
	completed   bool  // what only a clean stop leaves is written, and nothing may be appended
	closed      bool

	scanners sync.Pool // of *scanner
}

// view is the list of segments as readers see it; never empty, ascending, the last one is active. gen changes when
// bytes that were readable are cut off, so that a reader that began before can tell.
type view struct {
	segments []*segment
	gen      uint64
}

type deletedFile struct {
	name string // within the directory
	at   time.Time
}

func (v *view) active() *segment { return v.segments[len(v.segments)-1] }

// find gives the index of the last segment whose base is at most o, or 0.
func (v *view) find(o wire.Offset) int {
	i, found := slices.BinarySearchFunc(v.segments, o, func(s *segment, o wire.Offset) int {
		switch {
		case s.base < o:
			return -1
		case s.base > o:
			return 1
		}
		return 0
	})
	if found {
		return i
	}
	return max(i-1, 0)
}

// end is the exclusive offset bound of segment i: the next one's base, or leo for the active one.
func (v *view) end(i int, leo wire.Offset) wire.Offset {
	if i+1 < len(v.segments) {
		return v.segments[i+1].base
	}
	return leo
}

// TopicPartition names the partition.
func (l *Log) TopicPartition() wire.TopicPartition { return l.tp }

// TopicID is the topic's id as partition.metadata has it.
func (l *Log) TopicID() wire.UUID { return l.topicID }

// Dir is the partition's directory.
func (l *Log) Dir() string { return *l.dir.path.Load() }

// Config is the configuration in force; the holder must not change it.
func (l *Log) Config() *Config { return l.config.Load() }

// SetConfig puts another configuration into force, for appends and passes that begin later.
func (l *Log) SetConfig(c *Config) { l.config.Store(c) }

// EndOffset is the LEO: the exclusive end of what was appended.
func (l *Log) EndOffset() wire.Offset { return wire.Offset(l.leo.Load()) }

// StartOffset is the first offset that may be read; it never falls.
func (l *Log) StartOffset() wire.Offset { return wire.Offset(l.start.Load()) }

// FlushedOffset is the exclusive end of what is durable.
func (l *Log) FlushedOffset() wire.Offset { return wire.Offset(l.flushed.Load()) }

// RecoveryPoint is up to where a start after a crash need not read: the flushed offset, or the first record, within the
// active segment, of a leader epoch that only its records tell of yet.
func (l *Log) RecoveryPoint() wire.Offset {
	flushed := l.flushed.Load() // first: what is flushed lies beyond lacks once that is set
	return wire.Offset(min(flushed, l.lacks.Load()))
}

// FirstUnstableOffset is the first offset of a transaction that is open, or was completed by a marker not yet below the
// high watermark (see Replicated); false when there is none. The LSO is the smaller of it and the HW.
func (l *Log) FirstUnstableOffset() (wire.Offset, bool) {
	o := wire.Offset(l.unstable.Load())
	if o == wire.NoOffset {
		return o, false
	}
	return max(o, l.StartOffset()), true
}

// Replicated tells the log how far the high watermark has come, so that completed transactions below it stop holding
// back the LSO. It takes no lock while there is no transaction.
func (l *Log) Replicated(hw wire.Offset) {
	if o := wire.Offset(l.unstable.Load()); o == wire.NoOffset || o >= hw {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.replicated(hw)
	l.noteUnstableLocked()
}

// EndsPending reports whether a completed transaction will still hold back the LSO when the high watermark is hw.
func (l *Log) EndsPending(hw wire.Offset) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resting.Load() == nil && slices.ContainsFunc(l.producers.ended, func(t completedTxn) bool { return t.last >= hw })
}

// noteUnstableLocked follows every change of open or completed transactions.
func (l *Log) noteUnstableLocked() {
	o, ok := l.producers.firstUnstable()
	if !ok {
		o = wire.NoOffset
	} else if planted.On(planted.StableOffByOne) {
		o++
	}
	l.unstable.Store(int64(o))
}

// Size is the number of bytes of all .log files.
func (l *Log) Size() int64 {
	if r := l.resting.Load(); r != nil {
		return r.size()
	}
	var sum int64
	for _, s := range l.view.Load().segments {
		sum += s.size.Load()
	}
	return sum
}

// Segments is the number of segments, the active one included.
func (l *Log) Segments() int {
	if r := l.resting.Load(); r != nil {
		return len(r.Segments)
	}
	return len(l.view.Load().segments)
}

// SegmentBase gives the base offset of the segment that holds o; whether two offsets share a segment decides when a
// parked fetch is answered early.
func (l *Log) SegmentBase(o wire.Offset) wire.Offset {
	if r := l.resting.Load(); r != nil {
		return r.base(o)
	}
	v := l.view.Load()
	return v.segments[v.find(o)].base
}

// Err is the final storage error, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// usableLocked is nil when writes are allowed.
func (l *Log) usableLocked() error {
	if l.closed || l.completed {
		return ErrClosed
	}
	return l.failed
}

// failLocked makes a storage error final, unless it is Passing.
func (l *Log) failLocked(err error) error {
	if err != nil && errors.Is(err, ErrStorage) && !Passing(err) {
		l.breakLocked(err)
	}
	return err
}

// breakLocked refuses every later write with err.
func (l *Log) breakLocked(err error) {
	if l.failed != nil {
		return
	}
	l.failed = err
	l.logger.Error("log refuses writes after a storage error",
		"topic", l.tp.Topic, "partition", l.tp.Partition, "dir", l.Dir(), "err", err)
}

// segments are those of the view; a resting log has opened none.
func (l *Log) segments() []*segment {
	if v := l.view.Load(); v != nil {
		return v.segments
	}
	return nil
}

func (l *Log) setView(segments []*segment, cut bool) {
	next := &view{segments: segments}
	if old := l.view.Load(); old != nil {
		next.gen = old.gen
	}
	if cut {
		next.gen++
	}
	l.view.Store(next)
}

func (l *Log) scanner(seg *segment, h *handle, pos, end int64) *scanner {
	s, ok := l.scanners.Get().(*scanner)
	if !ok {
		s = &scanner{buf: make([]byte, headScanBytes)}
	}
	s.reset(seg, h.file, pos, end)
	return s
}

func (l *Log) putScanner(s *scanner) {
	s.src, s.seg = nil, nil
	if len(s.buf) == headScanBytes {
		l.scanners.Put(s)
	}
}

// jitter is how much earlier than SegmentAge the segment at base rolls: the same for the same segment, spread over
// partitions and segments.
func (l *Log) jitter(base wire.Offset, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.tp.Topic))
	_, _ = h.Write(strconv.AppendInt([]byte{'-'}, int64(l.tp.Partition), 10))
	_, _ = h.Write(strconv.AppendInt([]byte{'@'}, int64(base), 10))
	return time.Duration(h.Sum64() % uint64(limit))
}

// LatestEpoch is the leader epoch of the newest entry of the epoch cache, or NoLeaderEpoch.
func (l *Log) LatestEpoch() wire.LeaderEpoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, _ := l.epochs.latest()
	return last.epoch
}

// EndOffsetForEpoch gives the largest known epoch at or below e and its exclusive end; false where Kafka answers
// "undefined": no epoch is known, or e is beyond the newest.
func (l *Log) EndOffsetForEpoch(e wire.LeaderEpoch) (wire.LeaderEpoch, wire.Offset, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.restsFromLocked(func(first epochEntry) bool { return e >= first.epoch }) && l.wakeLocked() != nil { // Wake tells why
		return wire.NoLeaderEpoch, wire.NoOffset, false
	}
	return l.epochs.endOffset(e, l.EndOffset())
}

// EpochAt is the leader epoch that offset o was written in, or NoLeaderEpoch.
func (l *Log) EpochAt(o wire.Offset) wire.LeaderEpoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.restsFromLocked(func(first epochEntry) bool { return o >= first.start }) && l.wakeLocked() != nil { // Wake tells why
		return wire.NoLeaderEpoch
	}
	return l.epochs.at(o)
}

// restsFromLocked reports whether the log rests and the newest epochs, which is what it knows of them then, are enough: asked
// of the first that it knows.
func (l *Log) restsFromLocked(enough func(first epochEntry) bool) bool {
	return l.resting.Load() != nil && (len(l.epochs.entries) == 0 || enough(l.epochs.entries[0]))
}

// AssignEpochStart notes that a leader epoch begins at start, the end of the log, as a leader does when it takes over. The
// checkpoint file holds it from the first record of the epoch on.
func (l *Log) AssignEpochStart(e wire.LeaderEpoch, start wire.Offset) error {
	if l.noteResting(e, start) {
		return nil
	}
	if err := l.lockForChange(); err != nil {
		return err
	}
	defer l.mu.Unlock()
	l.epochs.note(e, start)
	if l.epochs.settled() || l.epochs.behind() {
		return nil
	}
	return l.noteEpochsLocked()
}

// noteResting notes the start of an epoch at the end of a resting log, which is not woken by it.
func (l *Log) noteResting(e wire.LeaderEpoch, start wire.Offset) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting.Load() == nil || start != l.EndOffset() || l.usableLocked() != nil {
		return false
	}
	l.epochs.note(e, start)
	return true
}

// RebuildEpochs takes the leader epochs from the batches, as a start does without a checkpoint. A batch with one above limit, which
// no checksum covers, counts for the epoch before it. Errors: ErrStorage, ErrCorrupt, ErrClosed.
func (l *Log) RebuildEpochs(limit wire.LeaderEpoch) error {
	if err := l.lockForChange(); err != nil {
		return err
	}
	defer l.mu.Unlock()
	c := epochs{file: l.epochs.file}
	for _, s := range l.view.Load().segments {
		if err := l.collectEpochs(&c, s, limit); err != nil {
			return l.failLocked(err)
		}
	}
	c.truncateStart(l.StartOffset())
	c.rebuilt()
	c.ahead, c.lacks = l.epochs.ahead, l.epochs.lacks // of what the file lacked before
	l.epochs = c
	return l.noteEpochsLocked()
}

// assignEpochLocked notes the epoch of a record that is appended. The checkpoint file gets it with the next Flush, or the first
// FlushRecords after a roll: until then a start reads the record again (RecoveryPoint), so nobody waits for the file.
func (l *Log) assignEpochLocked(e wire.LeaderEpoch, start wire.Offset) {
	l.epochs.assign(e, start)
	l.noteLacksLocked()
}

// noteLacksLocked follows every change of what the checkpoint file durably lacks.
func (l *Log) noteLacksLocked() {
	lacks := wire.Offset(math.MaxInt64)
	if l.epochs.ahead {
		lacks = l.epochs.lacks
	}
	l.lacks.Store(int64(lacks))
}

// collectEpochs assigns the leader epochs of a segment's batches that are at most limit.
func (l *Log) collectEpochs(c *epochs, s *segment, limit wire.LeaderEpoch) error {
	return l.walk(s, s.base, 1<<63-1, func(h *header, _ int64) (bool, error) {
		if h.leaderEpoch <= limit {
			c.assign(h.leaderEpoch, h.base)
		}
		return true, nil
	})
}

// noteEpochsLocked is writeEpochsLocked where nothing depends on it: without space or a descriptor the next flush writes them.
func (l *Log) noteEpochsLocked() error {
	if err := l.failLocked(l.writeEpochsLocked()); !Passing(err) {
		return err
	}
	return nil
}

// writeEpochsLocked writes the checkpoint so that a live reader of the directory sees it; Flush makes it durable before
// the recovery point passes what it describes.
func (l *Log) writeEpochsLocked() error {
	name := l.dir.join(epochFile)
	l.namesDirty = true
	if err := writeUnsynced(l.dir.fs, name, l.epochs.encode()); err != nil {
		return err
	}
	l.epochs.wrote()
	return nil
}

// ExpireProducers forgets producers that were silent for producer.id.expiration.ms and returns how many.
func (l *Log) ExpireProducers(now time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting.Load() != nil {
		return 0 // nobody has asked for them; they go after they are read
	}
	return l.producers.expire(now, l.Config().ProducerIDExpiration)
}

// InTransaction reports whether a transaction of the producer is open in this epoch.
func (l *Log) InTransaction(id wire.ProducerID, epoch wire.ProducerEpoch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resting.Load() != nil {
		return false
	}
	p := l.producers.byID[id]
	return p != nil && p.epoch == epoch && p.txnFirst != wire.NoOffset
}

// OpenTransaction is the oldest transaction that is open in a log.
type OpenTransaction struct {
	ProducerID wire.ProducerID
	First      wire.Offset
	Began      int64 // milliseconds: when it was opened here; after a restart the timestamp of a batch of it
}

// OldestTransaction gives the transaction that has been open for the most offsets; false if none is.
func (l *Log) OldestTransaction() (OpenTransaction, bool) {
	if l.unstable.Load() == int64(wire.NoOffset) {
		return OpenTransaction{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.producers.open) == 0 {
		return OpenTransaction{}, false
	}
	o := l.producers.open[0]
	return OpenTransaction{ProducerID: o.producerID, First: o.first, Began: o.began}, true
}

// ProducerState is what the log knows of one producer id.
type ProducerState struct {
	ID               wire.ProducerID
	Epoch            wire.ProducerEpoch
	LastSequence     int32 // NoSequence: none
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnFirst         wire.Offset // of the open transaction, NoOffset if none is open
}

// Producers gives the state of every known producer, by ascending id.
func (l *Log) Producers() []ProducerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wakeLocked() != nil { // Wake tells why
		return nil
	}
	out := make([]ProducerState, 0, len(l.producers.byID))
	for _, id := range l.producers.sortedIDs() {
		p := l.producers.byID[id]
		last := wire.NoSequence
		if b, ok := p.newest(); ok {
			last = b.lastSequence
		}
		out = append(out, ProducerState{
			ID: id, Epoch: p.epoch, LastSequence: last, LastTimestamp: p.lastTimestamp,
			CoordinatorEpoch: p.coordinatorEpoch, TxnFirst: p.txnFirst,
		})
	}
	return out
}

// Rename moves the directory, as deletion does before the files go. Open ranges stay readable.
func (l *Log) Rename(dir string) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.Dir()
	if err := l.renameLocked(old, dir); err != nil {
		return l.failLocked(storageErr("rename", old, err))
	}
	err := storageErr("sync directory", path.Dir(dir), l.dir.fs.SyncDir(path.Dir(dir)))
	if err == nil && path.Dir(dir) != path.Dir(old) {
		err = storageErr("sync directory", path.Dir(old), l.dir.fs.SyncDir(path.Dir(old)))
	}
	return l.failLocked(err)
}

// renameLocked renames the directory while no reader opens a file in it, which it would not find under the old name.
func (l *Log) renameLocked(old, dir string) error {
	for _, s := range l.segments() {
		s.openMu.Lock()
		defer s.openMu.Unlock()
	}
	if err := l.dir.fs.Rename(old, dir); err != nil {
		return err
	}
	l.dir.path.Store(&dir)
	return nil
}
