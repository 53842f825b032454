package raftstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
	"github.com/kajamq/kaja/vfs"
)

// walFS is vfs as raft-wal wants it.
type walFS struct{ fs vfs.FS }

func (w walFS) ListDir(dir string) ([]string, error) { return w.fs.List(dir) }

// Create refuses an existing file, and gives the new one its size at once, so that the appends do not change it. The name
// becomes durable with the file's first Sync.
func (w walFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	full := path.Join(dir, name)
	exists, err := vfs.Exists(w.fs, full)
	if err != nil {
		return nil, err
	}
	if exists {
		return nil, fmt.Errorf("create %s: %w", full, os.ErrExist)
	}
	f, err := w.fs.Create(full)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("size %s: %w", full, err), f.Close())
	}
	return &walFile{File: f, fs: w.fs, dir: dir}, nil
}

func (w walFS) Delete(dir, name string) error {
	if err := w.fs.Remove(path.Join(dir, name)); err != nil {
		return err
	}
	return w.fs.SyncDir(dir)
}

func (w walFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	f, err := w.fs.Open(path.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenWriter opens the tail after a restart. Its name may not be durable yet: the crash may have come before the first
// Sync, and what it then held was never acknowledged.
func (w walFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := w.fs.OpenRW(path.Join(dir, name))
	if err != nil {
		return nil, err
	}
	return &walFile{File: f, fs: w.fs, dir: dir}, nil
}

// walFile syncs its directory with its first Sync. raft-wal has one writer a file and does not call Sync concurrently.
type walFile struct {
	vfs.File
	fs    vfs.FS
	dir   string
	named bool // the name is durable
}

func (f *walFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return err
	}
	if f.named {
		return nil
	}
	if err := f.fs.SyncDir(f.dir); err != nil {
		return err
	}
	f.named = true
	return nil
}

var _ io.ReaderAt = (*walFile)(nil)

// filer hides a fault of raft-wal 0.4.0: it writes the number of its own codec into every new segment, whichever codec it
// was given, and then refuses the segment when it opens it with that codec. metaStore gives the segments their right
// number, filer takes it away again where the file's header is compared. That the entries are codec's is what metaMagic
// stands for.
type filer struct{ *segment.Filer }

func (f filer) Create(i types.SegmentInfo) (types.SegmentWriter, error) {
	i.Codec = wal.CodecBinaryV1
	return f.Filer.Create(i)
}

func (f filer) RecoverTail(i types.SegmentInfo) (types.SegmentWriter, error) {
	i.Codec = wal.CodecBinaryV1
	return f.Filer.RecoverTail(i)
}

func (f filer) Open(i types.SegmentInfo) (types.SegmentReader, error) {
	i.Codec = wal.CodecBinaryV1
	return f.Filer.Open(i)
}
