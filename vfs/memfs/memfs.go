package memfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kajamq/kaja/vfs"
)

// FS is a file system in memory. Safe for concurrent use.
type FS struct {
	mu      sync.Mutex
	now     func() time.Time
	stamped time.Time // the newest modification time that was given
	root    *node
	pending []nameOp // not yet durable changes of names, in order
	locks   map[string]*lock
	total   int64
	syncs   int
	dirs    int
	volumes int
}

var _ vfs.FS = (*FS)(nil)

// DefaultTotal is the size in bytes that Usage reports.
const DefaultTotal = 1 << 40

// New makes an empty file system whose root directory exists. now gives modification times (see stamp); nil means time.Now.
func New(now func() time.Time) *FS {
	if now == nil {
		now = time.Now
	}
	return &FS{now: now, root: newDir(now()), locks: map[string]*lock{}, total: DefaultTotal}
}

// stamp gives a modification time: that of the clock, and always a later one, as if time passed between any two changes.
// The caller holds mu.
func (fs *FS) stamp() time.Time {
	now := fs.now()
	if !now.After(fs.stamped) {
		now = fs.stamped.Add(1)
	}
	fs.stamped = now
	return now
}

// Syncs counts the calls of File.Sync so far.
func (fs *FS) Syncs() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.syncs
}

// DirSyncs counts the calls of SyncDir so far.
func (fs *FS) DirSyncs() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.dirs
}

// SyncedSize is the size that name had at its last Sync, 0 if it was never synced.
func (fs *FS) SyncedSize(name string) (int64, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("stat", name)
	if err != nil {
		return 0, err
	}
	return int64(len(n.synced)), nil
}

// Allocated is the number of bytes that Allocate has reserved for name and no Truncate has given back.
func (fs *FS) Allocated(name string) (int64, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("stat", name)
	if err != nil {
		return 0, err
	}
	return n.allocated, nil
}

func clean(name string) []string {
	p := path.Clean("/" + name)
	if p == "/" {
		return nil
	}
	return strings.Split(p[1:], "/")
}

func pathErr(op, name string, err error) error { return &os.PathError{Op: op, Path: name, Err: err} }

func (fs *FS) find(op, name string) (*node, error) {
	n := fs.root
	for _, part := range clean(name) {
		if n.names == nil {
			return nil, pathErr(op, name, syscall.ENOTDIR)
		}
		child, ok := n.names[part]
		if !ok {
			return nil, pathErr(op, name, syscall.ENOENT)
		}
		n = child
	}
	return n, nil
}

// parent gives the directory that holds name, and its last element.
func (fs *FS) parent(op, name string) (*node, string, error) {
	parts := clean(name)
	if len(parts) == 0 {
		return nil, "", pathErr(op, name, syscall.EBUSY)
	}
	dir, err := fs.find(op, strings.Join(parts[:len(parts)-1], "/"))
	if err != nil {
		return nil, "", pathErr(op, name, errors.Unwrap(err))
	}
	if dir.names == nil {
		return nil, "", pathErr(op, name, syscall.ENOTDIR)
	}
	return dir, parts[len(parts)-1], nil
}

// Create implements vfs.FS.
func (fs *FS) Create(name string) (vfs.File, error) {
	f, err := fs.open(name, true, true)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open implements vfs.FS.
func (fs *FS) Open(name string) (vfs.File, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.names != nil {
		return nil, pathErr("open", name, syscall.EISDIR)
	}
	return &file{fs: fs, node: n, name: name, readOnly: true}, nil
}

// OpenRW implements vfs.FS.
func (fs *FS) OpenRW(name string) (vfs.File, error) {
	f, err := fs.open(name, false, false)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenAppend implements vfs.FS.
func (fs *FS) OpenAppend(name string) (vfs.File, error) {
	f, err := fs.open(name, true, false)
	if err != nil {
		return nil, err
	}
	f.pos = int64(len(f.node.data))
	return f, nil
}

func (fs *FS) open(name string, create, truncate bool) (*file, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	dir, base, err := fs.parent("open", name)
	if err != nil {
		return nil, err
	}
	n, ok := dir.names[base]
	switch {
	case !ok && !create:
		return nil, pathErr("open", name, syscall.ENOENT)
	case !ok:
		n = &node{modTime: fs.stamp()}
		dir.names[base], dir.modTime = n, n.modTime
		fs.pending = append(fs.pending, nameOp{addDir: dir, addName: base, node: n})
	case n.names != nil:
		return nil, pathErr("open", name, syscall.EISDIR)
	}
	if truncate && len(n.data) > 0 {
		n.truncate(0)
		n.modTime = fs.stamp()
	}
	return &file{fs: fs, node: n, name: name}, nil
}

// Rename implements vfs.FS.
func (fs *FS) Rename(oldName, newName string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	from, fromBase, err := fs.parent("rename", oldName)
	if err != nil {
		return err
	}
	n, ok := from.names[fromBase]
	if !ok {
		return pathErr("rename", oldName, syscall.ENOENT)
	}
	to, toBase, err := fs.parent("rename", newName)
	if err != nil {
		return err
	}
	if old, ok := to.names[toBase]; ok {
		if old == n {
			return nil
		}
		if (old.names != nil) != (n.names != nil) {
			return pathErr("rename", newName, syscall.EEXIST)
		}
		if len(old.names) > 0 {
			return pathErr("rename", newName, syscall.ENOTEMPTY)
		}
	}
	delete(from.names, fromBase)
	to.names[toBase] = n
	from.modTime = fs.stamp()
	to.modTime = from.modTime
	fs.pending = append(fs.pending, nameOp{delDir: from, delName: fromBase, addDir: to, addName: toBase, node: n})
	return nil
}

// Remove implements vfs.FS.
func (fs *FS) Remove(name string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	dir, base, err := fs.parent("remove", name)
	if err != nil {
		return err
	}
	n, ok := dir.names[base]
	if !ok {
		return pathErr("remove", name, syscall.ENOENT)
	}
	if len(n.names) > 0 {
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	delete(dir.names, base)
	dir.modTime = fs.stamp()
	fs.pending = append(fs.pending, nameOp{delDir: dir, delName: base, node: n})
	return nil
}

// MkdirAll implements vfs.FS.
func (fs *FS) MkdirAll(dir string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.root
	for _, part := range clean(dir) {
		if n.names == nil {
			return pathErr("mkdir", dir, syscall.ENOTDIR)
		}
		child, ok := n.names[part]
		if !ok {
			child = newDir(fs.stamp())
			n.names[part], n.modTime = child, child.modTime
			fs.pending = append(fs.pending, nameOp{addDir: n, addName: part, node: child})
		}
		n = child
	}
	if n.names == nil {
		return pathErr("mkdir", dir, syscall.ENOTDIR)
	}
	return nil
}

// List implements vfs.FS.
func (fs *FS) List(dir string) ([]string, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("open", dir)
	if err != nil {
		return nil, err
	}
	if n.names == nil {
		return nil, pathErr("readdir", dir, syscall.ENOTDIR)
	}
	names := make([]string, 0, len(n.names))
	for name := range n.names {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements vfs.FS.
func (fs *FS) Stat(name string) (vfs.Info, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("stat", name)
	if err != nil {
		return vfs.Info{}, err
	}
	return vfs.Info{Size: int64(len(n.data)), Dir: n.names != nil, ModTime: n.modTime, Spare: n.allocated > 0}, nil
}

// SyncDir implements vfs.FS.
func (fs *FS) SyncDir(dir string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n, err := fs.find("fsync", dir)
	if err != nil {
		return err
	}
	if n.names == nil {
		return pathErr("fsync", dir, syscall.ENOTDIR)
	}
	fs.dirs++
	fs.commitNames(n)
	return nil
}

// volume is the whole of an FS.
type volume struct{ fs *FS }

// Volume implements vfs.FS.
func (fs *FS) Volume(dir string) (vfs.Volume, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if _, err := fs.find("open", dir); err != nil {
		return nil, err
	}
	return volume{fs}, nil
}

// Sync implements vfs.Volume.
func (v volume) Sync() error {
	v.fs.mu.Lock()
	defer v.fs.mu.Unlock()
	v.fs.volumes++
	for _, op := range v.fs.pending {
		op.apply()
	}
	v.fs.pending = nil
	v.fs.root.syncAll()
	return nil
}

// Holds implements vfs.Volume: there is only one.
func (v volume) Holds(string) (bool, error) { return true, nil }

// Close implements io.Closer.
func (v volume) Close() error { return nil }

// VolumeSyncs counts the calls of Volume.Sync so far.
func (fs *FS) VolumeSyncs() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.volumes
}

// lock is held until Close.
type lock struct {
	fs   *FS
	name string
}

// Lock implements vfs.FS. A crash clone holds no lock.
func (fs *FS) Lock(name string) (io.Closer, error) {
	f, err := fs.open(name, true, false)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	key := path.Clean("/" + name)
	if fs.locks[key] != nil {
		return nil, fmt.Errorf("lock %s: %w", name, vfs.ErrLocked)
	}
	l := &lock{fs: fs, name: key}
	fs.locks[key] = l
	return l, nil
}

// Close frees the lock; a second call does nothing.
func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.fs.locks[l.name] == l {
		delete(l.fs.locks, l.name)
	}
	return nil
}

// Usage implements vfs.FS: DefaultTotal less the bytes of all files.
func (fs *FS) Usage(dir string) (total, free int64, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if _, err := fs.find("statfs", dir); err != nil {
		return 0, 0, err
	}
	return fs.total, fs.total - fs.root.size(), nil
}
