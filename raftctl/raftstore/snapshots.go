package raftstore

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/vfs"
)

// Snapshot files: magic, u32 length of the metadata, metadata (JSON of raft.SnapshotMeta), data, u64 length of the data,
// u32 CRC32C of all before. Big endian. The name is index-term.snapshot with 20 digits each, so that names sort by age.
const (
	snapshotMagic    = "KAJASNP1"
	snapshotSuffix   = ".snapshot"
	snapshotTrailer  = 8 + 4
	snapshotsKept    = 2
	snapshotMetaMax  = 1 << 20
	snapshotBuffered = 64 << 10
)

// Snapshots implements raft.SnapshotStore. Safe for concurrent use.
type Snapshots struct {
	store  *Store
	fs     vfs.FS
	dir    string
	logger *slog.Logger

	mu    xsync.Mutex          // covers file I/O
	metas []*raft.SnapshotMeta // newest first
}

var _ raft.SnapshotStore = (*Snapshots)(nil)

func openSnapshots(store *Store, dir string, logger *slog.Logger) (*Snapshots, error) {
	s := &Snapshots{store: store, fs: store.fs, dir: dir, logger: logger}
	names, err := s.fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	slices.Reverse(names)
	for _, name := range names {
		full := path.Join(dir, name)
		if strings.HasSuffix(name, vfs.TempSuffix) {
			if err := s.fs.Remove(full); err != nil {
				return nil, fmt.Errorf("remove unfinished snapshot: %w", err)
			}
			continue
		}
		id, ok := strings.CutSuffix(name, snapshotSuffix)
		if !ok {
			continue
		}
		meta, err := s.check(id)
		if err != nil {
			return nil, err
		}
		s.metas = append(s.metas, meta)
	}
	return s, nil
}

// check reads a whole snapshot.
func (s *Snapshots) check(id string) (*raft.SnapshotMeta, error) {
	meta, r, err := s.open(id)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
		err = errors.Join(err, r.Close())
	}
	if err != nil {
		return nil, &CorruptError{
			File: s.file(id), Reason: err.Error(),
			Advice: "move the file away and start again: the older snapshot and the log behind it hold the same metadata",
		}
	}
	return meta, nil
}

func (s *Snapshots) file(id string) string { return path.Join(s.dir, id+snapshotSuffix) }

// oldest is the index of the oldest snapshot that is kept; 0 when there is none.
func (s *Snapshots) oldest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.metas) == 0 {
		return 0
	}
	return s.metas[min(len(s.metas), snapshotsKept)-1].Index
}

// compactable is the last entry that the log may lose: what the older of two snapshots holds. With one snapshot it is
// none, so that a damaged first snapshot can be made again from the log.
func (s *Snapshots) compactable() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.metas) < snapshotsKept {
		return 0
	}
	return s.metas[snapshotsKept-1].Index
}

// List implements raft.SnapshotStore: newest first.
func (s *Snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*raft.SnapshotMeta, len(s.metas))
	for i, m := range s.metas {
		c := *m
		out[i] = &c
	}
	return out, nil
}

// Open implements raft.SnapshotStore. The reader verifies while it reads: a damaged snapshot ends in an error.
func (s *Snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.open(id)
	if err != nil {
		return nil, nil, fmt.Errorf("open snapshot %s: %w", s.file(id), err)
	}
	return meta, r, nil
}

func (s *Snapshots) open(id string) (*raft.SnapshotMeta, *snapshotReader, error) {
	f, err := s.fs.Open(s.file(id))
	if err != nil {
		return nil, nil, err
	}
	meta, r, err := readSnapshot(f, id)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return meta, r, nil
}

var errSnapshot = errors.New("snapshot does not verify")

func readSnapshot(f vfs.File, id string) (*raft.SnapshotMeta, *snapshotReader, error) {
	size, err := f.Size()
	if err != nil {
		return nil, nil, err
	}
	head := make([]byte, 12)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errSnapshot, err)
	}
	n := int64(binary.BigEndian.Uint32(head[8:]))
	if string(head[:8]) != snapshotMagic || n > snapshotMetaMax || 12+n+snapshotTrailer > size {
		return nil, nil, fmt.Errorf("%w: bad header", errSnapshot)
	}
	text, trailer := make([]byte, n), make([]byte, snapshotTrailer)
	if _, err := f.ReadAt(text, 12); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if _, err := f.ReadAt(trailer, size-snapshotTrailer); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	length := size - 12 - n - snapshotTrailer
	if binary.BigEndian.Uint64(trailer) != uint64(length) {
		return nil, nil, fmt.Errorf("%w: it holds %d bytes, not %d", errSnapshot, length, binary.BigEndian.Uint64(trailer))
	}
	meta := &raft.SnapshotMeta{}
	if err := json.Unmarshal(text, meta); err != nil || meta.ID != id {
		return nil, nil, fmt.Errorf("%w: bad metadata", errSnapshot)
	}
	meta.Size = length
	crc := crc32.Update(0, castagnoli(), head)
	crc = crc32.Update(crc, castagnoli(), text)
	return meta, &snapshotReader{
		file: f, data: bufio.NewReaderSize(io.NewSectionReader(f, 12+n, length), snapshotBuffered),
		crc: crc, trailer: trailer,
	}, nil
}

// snapshotReader gives a snapshot's data and, in place of io.EOF, an error if it does not verify.
type snapshotReader struct {
	file    vfs.File
	data    io.Reader
	crc     uint32
	trailer []byte
}

func (r *snapshotReader) Read(p []byte) (int, error) {
	n, err := r.data.Read(p)
	r.crc = crc32.Update(r.crc, castagnoli(), p[:n])
	if errors.Is(err, io.EOF) {
		if crc := crc32.Update(r.crc, castagnoli(), r.trailer[:8]); crc != binary.BigEndian.Uint32(r.trailer[8:]) {
			return n, fmt.Errorf("%w: checksum does not match", errSnapshot)
		}
	}
	return n, err
}

func (r *snapshotReader) Close() error { return r.file.Close() }

// Create implements raft.SnapshotStore. The snapshot exists once its sink was closed without an error.
func (s *Snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	if version != 1 {
		return nil, fmt.Errorf("snapshot version %d is not supported", version)
	}
	meta := &raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%020d-%020d", index, term), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return nil, fmt.Errorf("encode snapshot metadata: %w", err)
	}
	tmp := s.file(meta.ID) + vfs.TempSuffix
	f, err := s.fs.Create(tmp)
	if err != nil {
		return nil, s.fail(fmt.Errorf("create snapshot: %w", err))
	}
	sink := &snapshotSink{snapshots: s, meta: meta, file: f, tmp: tmp, buf: bufio.NewWriterSize(f, snapshotBuffered)}
	head := append([]byte(snapshotMagic), 0, 0, 0, 0)
	binary.BigEndian.PutUint32(head[8:], uint32(len(text)))
	if err := errors.Join(sink.write(head), sink.write(text)); err != nil {
		return nil, errors.Join(s.fail(err), sink.Cancel())
	}
	return sink, nil
}

func (s *Snapshots) fail(err error) error {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.failLocked(err)
}

// add makes a finished snapshot known and removes those that are not kept.
func (s *Snapshots) add(meta *raft.SnapshotMeta) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metas = slices.DeleteFunc(s.metas, func(m *raft.SnapshotMeta) bool { return m.ID == meta.ID })
	s.metas = append(s.metas, meta)
	slices.SortFunc(s.metas, func(a, b *raft.SnapshotMeta) int { return strings.Compare(b.ID, a.ID) })
	for len(s.metas) > snapshotsKept {
		last := s.metas[len(s.metas)-1]
		if err := s.fs.Remove(s.file(last.ID)); err != nil {
			return fmt.Errorf("remove old snapshot: %w", err)
		}
		s.metas = s.metas[:len(s.metas)-1]
	}
	return s.fs.SyncDir(s.dir)
}

type snapshotSink struct {
	snapshots *Snapshots
	meta      *raft.SnapshotMeta
	file      vfs.File
	tmp       string
	buf       *bufio.Writer
	crc       uint32
	size      int64
	ended     bool
}

func (k *snapshotSink) ID() string { return k.meta.ID }

func (k *snapshotSink) write(p []byte) error {
	k.crc = crc32.Update(k.crc, castagnoli(), p)
	_, err := k.buf.Write(p)
	return err
}

func (k *snapshotSink) Write(p []byte) (int, error) {
	if err := k.write(p); err != nil {
		return 0, k.snapshots.fail(fmt.Errorf("write snapshot: %w", err))
	}
	k.size += int64(len(p))
	return len(p), nil
}

// Close makes the snapshot durable.
func (k *snapshotSink) Close() error {
	if k.ended {
		return nil
	}
	k.ended = true
	s := k.snapshots
	err := k.write(binary.BigEndian.AppendUint64(nil, uint64(k.size)))
	if err == nil {
		_, err = k.buf.Write(binary.BigEndian.AppendUint32(nil, k.crc))
	}
	if err == nil {
		err = k.buf.Flush()
	}
	if err == nil {
		err = k.file.Sync()
	}
	err = errors.Join(err, k.file.Close())
	if err == nil {
		err = s.fs.Rename(k.tmp, s.file(k.meta.ID))
	}
	if err == nil {
		err = s.fs.SyncDir(s.dir)
	}
	if err == nil {
		k.meta.Size = k.size
		err = s.add(k.meta)
	}
	if err != nil {
		return s.fail(fmt.Errorf("finish snapshot %s: %w", k.meta.ID, err))
	}
	return nil
}

// Cancel throws the snapshot away.
func (k *snapshotSink) Cancel() error {
	if k.ended {
		return nil
	}
	k.ended = true
	return errors.Join(k.file.Close(), k.snapshots.fs.Remove(k.tmp))
}
