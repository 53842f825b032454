package faultfs

import (
	"os"
	"syscall"

	"github.com/kajamq/kaja/vfs"
)

// file passes calls on to base unless a rule hits them.
type file struct {
	fs   *FS
	base vfs.File
	name string
	pos  int64 // of Write
}

var _ vfs.File = (*file)(nil)

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	hit := f.fs.hit(OpRead, f.name)
	if hit.err != nil {
		return 0, hit.err
	}
	n, err := f.base.ReadAt(p, off)
	if i := hit.flipAt - off; hit.flip != 0 && i >= 0 && i < int64(n) {
		p[i] ^= hit.flip
	}
	return n, err
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	hit := f.fs.hit(OpWrite, f.name)
	if hit.err != nil {
		short := min(max(hit.short, 0), len(p))
		if short == 0 {
			return 0, hit.err
		}
		n, err := f.base.WriteAt(p[:short], off)
		if err != nil {
			return n, err
		}
		return n, hit.err
	}
	size, err := f.base.Size()
	if err != nil {
		return 0, err
	}
	grow := max(off+int64(len(p))-max(size, off), 0)
	fits, noSpace := f.fs.take(grow)
	p = p[:int64(len(p))-(grow-fits)]
	if len(p) == 0 && noSpace != nil {
		return 0, noSpace
	}
	n, err := f.base.WriteAt(p, off)
	if err == nil {
		err = noSpace
	}
	return n, err
}

// Write implements io.Writer.
func (f *file) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if hit := f.fs.hit(OpSync, f.name); hit.err != nil {
		return hit.err
	}
	return f.base.Sync()
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	if hit := f.fs.hit(OpTruncate, f.name); hit.err != nil {
		return hit.err
	}
	return f.base.Truncate(size)
}

// Size implements vfs.File.
func (f *file) Size() (int64, error) {
	if hit := f.fs.hit(OpSize, f.name); hit.err != nil {
		return 0, hit.err
	}
	return f.base.Size()
}

// Allocate implements vfs.File. It fails if the budget of bytes has no room for what it adds, and takes nothing of it.
func (f *file) Allocate(size int64) error {
	if hit := f.fs.hit(OpAllocate, f.name); hit.err != nil {
		return hit.err
	}
	have, err := f.base.Size()
	if err != nil {
		return err
	}
	if !f.fs.fits(size - have) {
		return syscall.ENOSPC
	}
	return f.base.Allocate(size)
}

// SysFile implements vfs.File: a fault must be able to hit every read.
func (f *file) SysFile() (*os.File, bool) { return nil, false }

// Close implements io.Closer; the wrapped file is closed even when a rule hits.
func (f *file) Close() error {
	hit := f.fs.hit(OpClose, f.name)
	err := f.base.Close()
	if hit.err != nil {
		return hit.err
	}
	return err
}
