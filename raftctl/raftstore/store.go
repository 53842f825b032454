package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"path"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/vfs"
)

// segmentBytes is the size a segment of the log is made with; one that grew beyond it takes no more entries.
const segmentBytes = 4 << 20

// Options says where a store lives.
type Options struct {
	FS  vfs.FS
	Dir string // made if missing
	// ClusterID is whose metadata it is; a store of another cluster is refused with *ClusterError.
	ClusterID string
	Logger    *slog.Logger
	Wal       hclog.Logger // for raft-wal
}

// Store is raft's LogStore and StableStore; Snapshots is its SnapshotStore. Safe for concurrent use.
type Store struct {
	fs        vfs.FS
	dir       string
	snapshots *Snapshots
	failed    chan struct{}

	mu     xsync.Mutex // covers file I/O
	wal    *wal.WAL
	stable *stable
	end    *endMark
	err    error // first failure; final
}

var (
	_ raft.LogStore          = (*Store)(nil)
	_ raft.StableStore       = (*Store)(nil)
	_ raft.MonotonicLogStore = (*Store)(nil)
)

// Open opens or makes the store and verifies every byte that raft will ever read of it. It returns an error that wraps
// *CorruptError for a file that is damaged; nothing was then changed beyond what recovery of an interrupted write does.
func Open(o Options) (*Store, error) {
	logDir := path.Join(o.Dir, "log")
	if err := makeDirs(o.FS, o.Dir, logDir, path.Join(o.Dir, "snapshots")); err != nil {
		return nil, err
	}
	s := &Store{fs: o.FS, dir: o.Dir, failed: make(chan struct{})}
	var err error
	if s.stable, err = openStable(o.FS, o.Dir, o.ClusterID); err != nil {
		return nil, err
	}
	if s.snapshots, err = openSnapshots(s, path.Join(o.Dir, "snapshots"), o.Logger); err != nil {
		return nil, err
	}
	marked, err := vfs.Exists(o.FS, path.Join(logDir, endName))
	if err != nil {
		return nil, fmt.Errorf("look for the mark of the log's end: %w", err)
	}
	if s.end, err = openEnd(o.FS, logDir); err != nil {
		return nil, err
	}
	s.wal, err = wal.Open(logDir,
		wal.WithCodec(newCodec()), wal.WithMetaStore(&metaStore{fs: o.FS}), wal.WithSegmentSize(segmentBytes),
		wal.WithSegmentFiler(filer{segment.NewFiler(logDir, walFS{o.FS})}), wal.WithLogger(o.Wal))
	if err != nil {
		return nil, errors.Join(corrupt(logDir, err), s.end.file.Close())
	}
	if err := s.verify(logDir, marked); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// makeDirs makes root and the directories in it, durably. A store whose vote was ever written has them: that came after.
func makeDirs(fs vfs.FS, root string, dirs ...string) error {
	voted, err := vfs.Exists(fs, path.Join(root, voteName))
	if err != nil || voted {
		return err
	}
	for _, dir := range append([]string{root}, dirs...) {
		if err := fs.MkdirAll(dir); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	for _, dir := range []string{path.Dir(root), root} {
		if err := fs.SyncDir(dir); err != nil {
			return fmt.Errorf("sync %s: %w", dir, err)
		}
	}
	return nil
}

// corrupt turns raft-wal's complaint into one that says what to do, unless it is one already.
func corrupt(logDir string, err error) error {
	var c *CorruptError
	if errors.As(err, &c) {
		return err
	}
	if errors.Is(err, wal.ErrCorrupt) || errors.Is(err, errEntry) {
		return &CorruptError{File: logDir, Reason: err.Error(), Advice: rebuild}
	}
	return fmt.Errorf("open the metadata log in %s: %w", logDir, err)
}

// verify reads every entry, and checks that none that was acknowledged is missing at either end.
// marked says that the mark of the log's end was there before this start.
func (s *Store) verify(logDir string, marked bool) error {
	first, err := s.wal.FirstIndex()
	if err != nil {
		return corrupt(logDir, err)
	}
	last, err := s.wal.LastIndex()
	if err != nil {
		return corrupt(logDir, err)
	}
	if (last > 0 || s.snapshots.oldest() > 0) && !s.stable.present {
		// raft writes its term before the first entry: without it this node could vote twice in one term.
		return &CorruptError{File: s.stable.file, Reason: "it is missing beside a log or a snapshot", Advice: rebuild}
	}
	if last > 0 && !marked {
		// Its name is durable before the log's first segment is.
		return &CorruptError{File: path.Join(logDir, endName), Reason: "it is missing beside a log", Advice: rebuild}
	}
	if last < s.end.last {
		reason := fmt.Sprintf("entries up to %d were written, the last one that can be read is %d", s.end.last, last)
		return &CorruptError{File: logDir, Reason: reason, Advice: rebuild}
	}
	if need := s.snapshots.oldest() + 1; first > need {
		reason := fmt.Sprintf("it begins at entry %d, but the snapshots reach only to %d", first, need-1)
		return &CorruptError{File: logDir, Reason: reason, Advice: rebuild}
	}
	var l raft.Log
	for i := first; i != 0 && i <= last; i++ {
		if err := s.read(i, &l); err != nil {
			return &CorruptError{File: logDir, Reason: err.Error(), Advice: rebuild}
		}
	}
	return nil
}

func (s *Store) read(index uint64, l *raft.Log) error {
	if err := s.wal.GetLog(index, l); err != nil {
		if errors.Is(err, raft.ErrLogNotFound) {
			return err // raft compares by identity
		}
		return fmt.Errorf("read entry %d: %w", index, err)
	}
	if l.Index != index {
		return fmt.Errorf("read entry %d: %w: it is entry %d", index, errEntry, l.Index)
	}
	return nil
}

// Snapshots is the store's SnapshotStore.
func (s *Store) Snapshots() *Snapshots { return s.snapshots }

// Failed is closed after the first failure; Err then says which.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err is the first failure, nil while there was none.
func (s *Store) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// failLocked makes err final.
func (s *Store) failLocked(err error) error {
	if err == nil || s.err != nil {
		return s.err
	}
	s.err = fmt.Errorf("metadata store in %s failed: %w", s.dir, err)
	close(s.failed)
	return s.err
}

// Close releases the files. It writes nothing: everything acknowledged is durable already.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.wal.Close(), s.end.file.Close())
}

// firstTerm is the term in which a cluster begins.
const firstTerm = 1

// HasState reports whether the store holds an entry, a snapshot, a vote or a later term than the first. Without any of these
// it has no members: it is new, or Bootstrap was interrupted on it, and Bootstrap may be called.
func (s *Store) HasState() (bool, error) {
	last, err := s.LastIndex()
	if err != nil {
		return false, err
	}
	snapshots, err := s.snapshots.List()
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.stable.durable
	return last > 0 || len(snapshots) > 0 || b.term > firstTerm || b.voteTerm > 0 || len(b.candidate) > 0, nil
}

// Bootstrap makes a new store that of a cluster with these members, as raft.BootstrapCluster does. It can be repeated where
// it was interrupted, by a crash or a full disk, which raft's own can't: its first step, the term, makes a store look used.
func (s *Store) Bootstrap(members raft.Configuration) error {
	used, err := s.HasState()
	if err != nil {
		return err
	}
	if used {
		return raft.ErrCantBootstrap
	}
	if err := s.SetUint64([]byte(keyCurrentTerm), firstTerm); err != nil {
		return err
	}
	return s.StoreLog(&raft.Log{Index: 1, Term: firstTerm, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(members)})
}

// FirstIndex implements raft.LogStore.
func (s *Store) FirstIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.wal.FirstIndex()
}

// LastIndex implements raft.LogStore.
func (s *Store) LastIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.wal.LastIndex()
}

// GetLog implements raft.LogStore. An entry that does not verify is a failure of the store.
func (s *Store) GetLog(index uint64, l *raft.Log) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	err := s.read(index, l)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return s.failLocked(err)
}

// StoreLog implements raft.LogStore.
func (s *Store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore. On an error the entries may be durable or not; the store then takes no more.
func (s *Store) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if err := s.wal.StoreLogs(logs); err != nil {
		return s.failLocked(fmt.Errorf("append entry %d: %w", logs[0].Index, err))
	}
	return s.failLocked(s.end.set(logs[len(logs)-1].Index, false))
}

// DeleteRange implements raft.LogStore. What is deleted from the front stops at the older of the two snapshots, so that
// a damaged newer one can be replaced by the older one and the log.
func (s *Store) DeleteRange(from, to uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	first, err := s.wal.FirstIndex()
	if err != nil {
		return s.failLocked(err)
	}
	last, err := s.wal.LastIndex()
	if err != nil {
		return s.failLocked(err)
	}
	switch {
	case to < last: // compaction
		to = min(to, s.snapshots.compactable())
		if to < from {
			return nil
		}
	case from <= first: // the whole log, after a snapshot was installed
		err = s.end.set(0, true)
	default: // entries that another leader replaces
		err = s.end.set(from-1, true)
	}
	if err == nil {
		err = s.wal.DeleteRange(from, to)
	}
	if err != nil {
		return s.failLocked(fmt.Errorf("delete entries %d to %d: %w", from, to, err))
	}
	return nil
}

// IsMonotonic tells raft that the log takes no gaps.
func (*Store) IsMonotonic() bool { return true }

// Set implements raft.StableStore for the candidate of a vote.
func (s *Store) Set(key, v []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return s.failLocked(s.stable.set(string(key), v))
}

// Get implements raft.StableStore.
func (s *Store) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	return s.stable.get(string(key))
}

// SetUint64 implements raft.StableStore for the current term and the term of a vote. The latter is durable only with
// its candidate (Set).
func (s *Store) SetUint64(key []byte, v uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	return s.failLocked(s.stable.setUint64(string(key), v))
}

// SkipTerms raises the current term to the next multiple of n.
func (s *Store) SkipTerms(n uint64) error {
	term, err := s.GetUint64([]byte(keyCurrentTerm))
	if err != nil {
		return err
	}
	return s.SetUint64([]byte(keyCurrentTerm), (term/n+1)*n)
}

// GetUint64 implements raft.StableStore.
func (s *Store) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	return s.stable.uint64(string(key))
}
