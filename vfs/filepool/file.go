package filepool

import (
	"os"
	"path"

	"github.com/kajamq/kaja/vfs"
)

// file is open without always holding a descriptor. Its fields are guarded by FS.mu.
type file struct {
	fs       *FS
	readOnly bool
	pos      int64 // of Write; its owner orders writes

	name     string
	base     vfs.File // nil: no descriptor
	slot     int      // in FS.ring, -1: not there
	users    int      // calls under way, and holds
	touched  bool     // used since the hand passed
	dirty    bool     // written and not synced
	nameless bool     // the name is gone: the descriptor must stay
	closed   bool
	failed   error // of syncing or closing a descriptor that was taken
}

var (
	_ vfs.File   = (*file)(nil)
	_ vfs.Holder = (*file)(nil)
)

func pathErr(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

// use gives the descriptor, opening the file by its name if it has none. Release ends the use.
func (f *file) use(op string, writes bool) (vfs.File, error) {
	fs := f.fs
	for {
		fs.mu.Lock()
		name := f.name
		if f.closed {
			fs.mu.Unlock()
			return nil, pathErr(op, name, os.ErrClosed)
		}
		if f.base != nil {
			f.users++
			f.touched = true
			f.dirty = f.dirty || writes
			base := f.base
			fs.mu.Unlock()
			return base, nil
		}
		fs.mu.Unlock()
		revived, err := f.revive(path.Dir(name))
		if err != nil {
			return nil, err
		}
		if revived {
			defer f.Release() // what revive holds, after the next round's own use
		}
	}
}

// revive opens f by its name, if it still lies in dir and has no descriptor; then it is in use.
func (f *file) revive(dir string) (bool, error) {
	fs := f.fs
	s := &fs.shards[fs.shardOf(dir)]
	s.mu.Lock()
	defer s.mu.Unlock()
	fs.mu.Lock()
	done := f.base != nil || f.closed || path.Dir(f.name) != dir
	fs.mu.Unlock()
	if done {
		return false, nil
	}
	base, err := f.reopen()
	if err != nil {
		return false, err
	}
	return fs.give(f, base, false, true), nil
}

// reopen opens the file by its name. Its directory's shard is locked, so that the name is stable.
func (f *file) reopen() (vfs.File, error) {
	open := f.fs.FS.OpenRW
	if f.readOnly {
		open = f.fs.FS.Open
	}
	return f.fs.descriptor(f.name, open)
}

// Release implements vfs.Holder.
func (f *file) Release() {
	fs := f.fs
	fs.mu.Lock()
	f.users--
	var base vfs.File
	if f.closed && f.users == 0 && f.base != nil {
		base = f.base
		fs.takeLocked(f)
	}
	fs.mu.Unlock()
	if base != nil {
		_ = base.Close() // its owner has closed it before and was told nothing is wrong
	}
}

// Hold implements vfs.Holder.
func (f *file) Hold() error {
	_, err := f.use("hold", false)
	return err
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	base, err := f.use("read", false)
	if err != nil {
		return 0, err
	}
	defer f.Release()
	return base.ReadAt(p, off)
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	base, err := f.use("write", true)
	if err != nil {
		return 0, err
	}
	defer f.Release()
	return base.WriteAt(p, off)
}

// Write implements io.Writer.
func (f *file) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// Sync implements vfs.File. It also tells what went wrong when a descriptor was taken.
func (f *file) Sync() error {
	base, err := f.use("fsync", false)
	if err != nil {
		return err
	}
	defer f.Release()
	f.fs.mu.Lock()
	failed := f.failed
	f.dirty = false
	f.fs.mu.Unlock()
	if failed != nil {
		return failed
	}
	return base.Sync()
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	base, err := f.use("truncate", true)
	if err != nil {
		return err
	}
	defer f.Release()
	return base.Truncate(size)
}

// Allocate implements vfs.File.
func (f *file) Allocate(size int64) error {
	base, err := f.use("fallocate", true)
	if err != nil {
		return err
	}
	defer f.Release()
	return base.Allocate(size)
}

// Size implements vfs.File.
func (f *file) Size() (int64, error) {
	base, err := f.use("stat", false)
	if err != nil {
		return 0, err
	}
	defer f.Release()
	return base.Size()
}

// SysFile implements vfs.File: there is one while the file is held (vfs.Hold).
func (f *file) SysFile() (*os.File, bool) {
	f.fs.mu.Lock()
	base, held := f.base, f.users > 0
	f.fs.mu.Unlock()
	if base == nil || !held {
		return nil, false
	}
	return base.SysFile()
}

// Close implements io.Closer. The descriptor goes at once, or with the last call or hold that uses it.
func (f *file) Close() error {
	fs := f.fs
	fs.mu.Lock()
	name := f.name
	if f.closed {
		fs.mu.Unlock()
		return pathErr("close", name, os.ErrClosed)
	}
	f.closed = true
	var base vfs.File
	if f.base != nil && f.users == 0 {
		base = f.base
		fs.takeLocked(f)
	}
	fs.mu.Unlock()
	f.forget()
	if base == nil {
		return nil
	}
	return base.Close()
}

// forget takes a closed file out of its directory's list.
func (f *file) forget() {
	fs := f.fs
	for {
		fs.mu.Lock()
		dir := path.Dir(f.name)
		fs.mu.Unlock()
		s := &fs.shards[fs.shardOf(dir)]
		s.mu.Lock()
		_, there := s.dirs[dir][f]
		if there {
			s.remove(dir, f)
		}
		s.mu.Unlock()
		if there {
			return
		}
	}
}
