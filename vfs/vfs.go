package vfs

import (
	"io"
	"os"
	"time"
)

// FS is a file system as the log, the raft store and the identity need it: nothing more. Paths use '/', are relative to
// the root of the FS or absolute, and errors satisfy errors.Is against os.ErrNotExist, os.ErrExist and syscall.Errno
// as the operating system's do. Safe for concurrent use.
type FS interface {
	// Create makes an empty file, or empties an existing one, open for reading and writing.
	Create(name string) (File, error)
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// OpenRW opens an existing file for reading and writing.
	OpenRW(name string) (File, error)
	// OpenAppend opens a file for reading and writing, making it if missing; Write goes to the end.
	OpenAppend(name string) (File, error)
	// Rename replaces newName if it exists. It is durable only after SyncDir of the parent(s).
	Rename(oldName, newName string) error
	// Remove deletes a file or an empty directory. Open files stay readable.
	Remove(name string) error
	MkdirAll(dir string) error
	// List gives the names in dir, sorted.
	List(dir string) ([]string, error)
	Stat(name string) (Info, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Volume gives the file system that holds dir as a whole. errors.ErrUnsupported where it is not known that one call
	// makes all of it durable.
	Volume(dir string) (Volume, error)
	// Lock takes an exclusive lock that dies with the process; ErrLocked if another holds it.
	Lock(name string) (io.Closer, error)
	// Usage gives the bytes of the file system that holds dir; free is what an unprivileged user may still write.
	Usage(dir string) (total, free int64, err error)
}

// Volume is a file system as a whole.
type Volume interface {
	io.Closer
	// Sync makes everything durable that was written to it before the call, by anybody: contents, sizes and names, as Sync
	// of each file and SyncDir of each directory would. It also tells of what failed to be written since Volume was called.
	// An error is final, as that of File.Sync.
	Sync() error
	// Holds reports whether dir lies on the file system: a link or a mount may lead to another one.
	Holds(dir string) (bool, error)
}

// Info is what Stat tells.
type Info struct {
	Size    int64
	Dir     bool
	ModTime time.Time
	Spare   bool // of a file: more space than its length needs is reserved, or may be
}

// File is an open file. ReadAt and WriteAt are safe for concurrent use; the rest follows the owner's locking.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Writer
	io.Closer
	// Sync makes the file's bytes and size durable (not its name: SyncDir). An error is final: the caller never retries.
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
	// Allocate reserves space for the first size bytes without changing the file's length; Truncate gives back what lies
	// beyond the length. After an error part of it may be reserved. Where a file system cannot do it, nothing happens.
	Allocate(size int64) error
	// SysFile is for sendfile only; false for memfs and faultfs.
	SysFile() (*os.File, bool)
}

// Holder is a File that may give its descriptor away between calls (package filepool). Whoever hands the file on to
// somebody who asks for SysFile holds it meanwhile.
type Holder interface {
	// Hold keeps the descriptor until Release, which is called once for each Hold that succeeded.
	Hold() error
	Release()
}

// Hold holds f if it is a Holder.
func Hold(f File) error {
	if h, ok := f.(Holder); ok {
		return h.Hold()
	}
	return nil
}

// Release ends a Hold of f.
func Release(f File) {
	if h, ok := f.(Holder); ok {
		h.Release()
	}
}
