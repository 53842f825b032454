package faultfs

import (
	"errors"
	"io"
	"path"
	"sync"
	"syscall"

	"github.com/kajamq/kaja/vfs"
)

// Op names a call.
type Op string

// The calls that can fail. OpWrite covers Write and WriteAt.
const (
	OpCreate   Op = "create"
	OpOpen     Op = "open" // Open, OpenRW and OpenAppend
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpMkdir    Op = "mkdir"
	OpList     Op = "list"
	OpStat     Op = "stat"
	OpSyncDir  Op = "syncdir"
	OpVolume   Op = "volume"
	OpSyncAll  Op = "syncall" // Volume.Sync
	OpLock     Op = "lock"
	OpUsage    Op = "usage"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpSync     Op = "sync"
	OpTruncate Op = "truncate"
	OpSize     Op = "size"
	OpClose    Op = "close"
	OpAllocate Op = "allocate"
)

// changes reports whether op alters what a crash would leave.
func (op Op) changes() bool {
	switch op {
	case OpCreate, OpRename, OpRemove, OpMkdir, OpSyncDir, OpSyncAll, OpWrite, OpSync, OpTruncate, OpAllocate:
		return true
	}
	return false
}

// Rule makes calls fail or reads lie.
type Rule struct {
	Op Op // empty: any
	// Path is a path.Match pattern for the last element of the file's name (of the old name for a rename); empty: any.
	Path string
	// Nth is the first matching call that is hit, counted from 1; 0 means 1.
	Nth int
	// Times is how many matching calls are hit from there on; 0 means all.
	Times int
	// Err is returned. The call does not reach the wrapped file system, except for Short.
	Err error
	// Short is how many bytes a hit write still writes.
	Short int
	// Hang, if not nil, makes a hit call wait until it is closed, before it does anything. In a bubble of testing/synctest
	// that needs the tag sim (internal/xsync).
	Hang <-chan struct{}
	// Flip, if not 0 and Err is nil, is XORed into the byte at file position FlipAt whenever a hit read covers it.
	Flip   byte
	FlipAt int64

	seen, hits int
	last       Op
}

// Hits is how many calls the rule has hit; read it with no call in flight.
func (r *Rule) Hits() int { return r.hits }

// Last is the call that the rule has hit last, empty if none; read it with no call in flight.
func (r *Rule) Last() Op { return r.last }

// FS is a vfs.FS with faults. Safe for concurrent use.
type FS struct {
	base   vfs.FS
	mu     sync.Mutex
	rules  []*Rule
	budget int64 // bytes that files may still grow; < 0: no limit
	calls  map[Op]int
	before func(op Op, name string)
}

var _ vfs.FS = (*FS)(nil)

// New wraps base; without rules everything passes.
func New(base vfs.FS) *FS { return &FS{base: base, budget: -1, calls: map[Op]int{}} }

// Add puts a rule into force and gives it back for Remove and Hits.
func (fs *FS) Add(r Rule) *Rule {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	rule := &r
	fs.rules = append(fs.rules, rule)
	return rule
}

// Clear removes all rules and the budget.
func (fs *FS) Clear() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.rules, fs.budget = nil, -1
}

// SetSpace lets files grow by at most n bytes more; then writes fill what is left and fail with ENOSPC. Negative: no
// limit. Space that is given back is not counted.
func (fs *FS) SetSpace(n int64) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.budget = n
}

// Calls is the number of calls of op so far, failed ones included; an empty op means all.
func (fs *FS) Calls(op Op) int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if op != "" {
		return fs.calls[op]
	}
	sum := 0
	for _, n := range fs.calls {
		sum += n
	}
	return sum
}

// Before sets a hook that runs before every call that changes the disk; nil removes it. It may use the wrapped file
// system, not this one.
func (fs *FS) Before(hook func(op Op, name string)) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.before = hook
}

// fault is what a rule does to one call.
type fault struct {
	hang   <-chan struct{}
	err    error
	short  int
	flip   byte
	flipAt int64
}

func (fs *FS) hit(op Op, name string) fault {
	fs.mu.Lock()
	fs.calls[op]++
	hook := fs.before
	var out fault
	for _, r := range fs.rules {
		if r.Op != "" && r.Op != op {
			continue
		}
		if ok, err := path.Match(r.Path, path.Base(name)); r.Path != "" && (err != nil || !ok) {
			continue
		}
		r.seen++
		if r.seen < max(r.Nth, 1) || r.Times > 0 && r.hits >= r.Times {
			continue
		}
		r.hits++
		r.last = op
		if out == (fault{}) {
			out = fault{hang: r.Hang, err: r.Err, short: r.Short, flip: r.Flip, flipAt: r.FlipAt}
		}
	}
	fs.mu.Unlock()
	if hook != nil && op.changes() {
		hook(op, name)
	}
	if out.hang != nil {
		<-out.hang
	}
	return out
}

// take gives how many of n bytes of growth fit the budget.
func (fs *FS) take(n int64) (int64, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.budget < 0 || n <= fs.budget {
		if fs.budget >= 0 {
			fs.budget -= n
		}
		return n, nil
	}
	left := fs.budget
	fs.budget = 0
	return left, syscall.ENOSPC
}

// fits reports whether n more bytes are within the budget.
func (fs *FS) fits(n int64) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.budget < 0 || n <= fs.budget
}

// Create implements vfs.FS.
func (fs *FS) Create(name string) (vfs.File, error) {
	f, err := fs.open(OpCreate, name, fs.base.Create)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Open implements vfs.FS.
func (fs *FS) Open(name string) (vfs.File, error) {
	f, err := fs.open(OpOpen, name, fs.base.Open)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenRW implements vfs.FS.
func (fs *FS) OpenRW(name string) (vfs.File, error) {
	f, err := fs.open(OpOpen, name, fs.base.OpenRW)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenAppend implements vfs.FS.
func (fs *FS) OpenAppend(name string) (vfs.File, error) {
	f, err := fs.open(OpOpen, name, fs.base.OpenAppend)
	if err != nil {
		return nil, err
	}
	if f.pos, err = f.base.Size(); err != nil {
		return nil, errors.Join(err, f.base.Close())
	}
	return f, nil
}

func (fs *FS) open(op Op, name string, open func(string) (vfs.File, error)) (*file, error) {
	if f := fs.hit(op, name); f.err != nil {
		return nil, f.err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &file{fs: fs, base: f, name: name}, nil
}

// Rename implements vfs.FS.
func (fs *FS) Rename(oldName, newName string) error {
	if f := fs.hit(OpRename, oldName); f.err != nil {
		return f.err
	}
	return fs.base.Rename(oldName, newName)
}

// Remove implements vfs.FS.
func (fs *FS) Remove(name string) error {
	if f := fs.hit(OpRemove, name); f.err != nil {
		return f.err
	}
	return fs.base.Remove(name)
}

// MkdirAll implements vfs.FS.
func (fs *FS) MkdirAll(dir string) error {
	if f := fs.hit(OpMkdir, dir); f.err != nil {
		return f.err
	}
	return fs.base.MkdirAll(dir)
}

// List implements vfs.FS.
func (fs *FS) List(dir string) ([]string, error) {
	if f := fs.hit(OpList, dir); f.err != nil {
		return nil, f.err
	}
	return fs.base.List(dir)
}

// Stat implements vfs.FS.
func (fs *FS) Stat(name string) (vfs.Info, error) {
	if f := fs.hit(OpStat, name); f.err != nil {
		return vfs.Info{}, f.err
	}
	return fs.base.Stat(name)
}

// SyncDir implements vfs.FS.
func (fs *FS) SyncDir(dir string) error {
	if f := fs.hit(OpSyncDir, dir); f.err != nil {
		return f.err
	}
	return fs.base.SyncDir(dir)
}

// Volume implements vfs.FS.
func (fs *FS) Volume(dir string) (vfs.Volume, error) {
	if f := fs.hit(OpVolume, dir); f.err != nil {
		return nil, f.err
	}
	v, err := fs.base.Volume(dir)
	if err != nil {
		return nil, err
	}
	return volume{v, fs, dir}, nil
}

type volume struct {
	vfs.Volume
	fs  *FS
	dir string
}

// Sync implements vfs.Volume.
func (v volume) Sync() error {
	if f := v.fs.hit(OpSyncAll, v.dir); f.err != nil {
		return f.err
	}
	return v.Volume.Sync()
}

// Lock implements vfs.FS.
func (fs *FS) Lock(name string) (io.Closer, error) {
	if f := fs.hit(OpLock, name); f.err != nil {
		return nil, f.err
	}
	return fs.base.Lock(name)
}

// Usage implements vfs.FS; with a budget, free is at most what is left of it.
func (fs *FS) Usage(dir string) (total, free int64, err error) {
	if f := fs.hit(OpUsage, dir); f.err != nil {
		return 0, 0, f.err
	}
	total, free, err = fs.base.Usage(dir)
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.budget >= 0 {
		free = min(free, fs.budget)
	}
	return total, free, err
}
