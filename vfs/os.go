//go:build unix

package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
)

// ErrLocked is returned by FS.Lock when another holder has the lock.
var ErrLocked = errors.New("locked by another process")

// OS is the operating system's file system. Relative paths are resolved against the working directory.
type OS struct{}

var _ FS = OS{}

const (
	fileMode = 0o644
	dirMode  = 0o755
)

// Create implements FS.
func (OS) Create(name string) (File, error) {
	return open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

// Open implements FS.
func (OS) Open(name string) (File, error) { return open(name, os.O_RDONLY) }

// OpenRW implements FS.
func (OS) OpenRW(name string) (File, error) { return open(name, os.O_RDWR) }

// OpenAppend implements FS.
func (OS) OpenAppend(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return osFile{f}, nil
}

func open(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// Rename implements FS.
func (OS) Rename(oldName, newName string) error { return os.Rename(oldName, newName) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// MkdirAll implements FS.
func (OS) MkdirAll(dir string) error { return os.MkdirAll(dir, dirMode) }

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements FS; it follows symbolic links.
func (OS) Stat(name string) (Info, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: fi.Size(), Dir: fi.IsDir(), ModTime: fi.ModTime(), Spare: spare(fi)}, nil
}

// spare compares the blocks of a file with its length. A file system with large blocks, or that keeps its maps among them,
// makes it true without need.
func spare(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	const counted, block = 512, 4096
	return !ok || st.Blocks*counted > (fi.Size()+block-1)/block*block
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock implements FS: an flock on the file, which is made if missing and stays.
func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	return f, nil
}

// Usage implements FS.
func (OS) Usage(dir string) (total, free int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := int64(st.Bsize)
	return int64(st.Blocks) * size, int64(st.Bavail) * size, nil
}

// osFile is an *os.File; Sync is fdatasync where there is one.
type osFile struct{ *os.File }

// Sync implements File.
func (f osFile) Sync() error { return syncData(f.File) }

// Allocate implements File.
func (f osFile) Allocate(size int64) error { return allocate(f.File, size) }

// Size implements File.
func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

// SysFile implements File.
func (f osFile) SysFile() (*os.File, bool) { return f.File, true }

// DescriptorLimit is how many descriptors this process may have open, 0 if the system does not tell.
func DescriptorLimit() int {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		return 0
	}
	return int(min(uint64(r.Cur), 1<<30))
}
