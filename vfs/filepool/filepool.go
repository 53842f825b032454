package filepool

import (
	"errors"
	"hash/maphash"
	"path"
	"slices"
	"sync"
	"syscall"

	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/vfs"
)

const shards = 64

// FS shares descriptors among the files opened through it. Safe for concurrent use.
type FS struct {
	vfs.FS
	budget int
	seed   maphash.Seed
	shards [shards]shard

	mu   sync.Mutex // guards what follows and the fields of files; held for moments
	ring []*file    // the files that hold a descriptor
	hand int        // the next candidate to lose it
}

// shard holds the open files of some directories. Its lock orders changes of names with opening by name.
type shard struct {
	mu   xsync.Mutex
	dirs map[string]map[*file]struct{}
}

var _ vfs.FS = (*FS)(nil)

// New wraps base. budget is how many descriptors may be open; it is exceeded only while more files are in use at once, or
// have lost their names.
func New(base vfs.FS, budget int) *FS {
	return &FS{FS: base, budget: max(budget, 1), seed: maphash.MakeSeed()}
}

// Descriptors is how many are open.
func (fs *FS) Descriptors() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.ring)
}

// Open implements vfs.FS.
func (fs *FS) Open(name string) (vfs.File, error) { return fs.open(name, fs.FS.Open, true) }

// OpenRW implements vfs.FS.
func (fs *FS) OpenRW(name string) (vfs.File, error) { return fs.open(name, fs.FS.OpenRW, false) }

// Create implements vfs.FS.
func (fs *FS) Create(name string) (vfs.File, error) { return fs.open(name, fs.FS.Create, false) }

// OpenAppend implements vfs.FS.
func (fs *FS) OpenAppend(name string) (vfs.File, error) {
	f, err := fs.open(name, fs.FS.OpenAppend, false)
	if err != nil {
		return nil, err
	}
	if f.pos, err = f.Size(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (fs *FS) shardOf(dir string) int { return int(maphash.String(fs.seed, dir) % shards) }

func (fs *FS) open(name string, open func(string) (vfs.File, error), readOnly bool) (*file, error) {
	name = path.Clean(name)
	dir := path.Dir(name)
	s := &fs.shards[fs.shardOf(dir)]
	s.mu.Lock()
	defer s.mu.Unlock()
	base, err := fs.descriptor(name, open)
	if err != nil {
		return nil, err
	}
	f := &file{fs: fs, name: name, readOnly: readOnly, slot: -1}
	s.add(dir, f)
	fs.mu.Lock()
	victims := fs.giveLocked(f, base)
	fs.mu.Unlock()
	fs.retire(victims)
	return f, nil
}

// descriptor opens name; when the system has no descriptor left, it takes some from files that are not in use.
func (fs *FS) descriptor(name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	f, err := open(name)
	if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
		return f, err
	}
	fs.mu.Lock()
	victims := fs.shrinkLocked(len(fs.ring) - len(fs.ring)/8 - 1)
	fs.mu.Unlock()
	fs.retire(victims)
	return open(name)
}

// giveLocked gives f its descriptor and takes those of others if there are too many.
func (fs *FS) giveLocked(f *file, base vfs.File) []victim {
	f.base, f.touched = base, true
	f.slot = len(fs.ring)
	fs.ring = append(fs.ring, f)
	return fs.shrinkLocked(fs.budget)
}

// give is giveLocked for a file that was opened again and may have been closed meanwhile.
// With use it is in use, so that it does not lose the descriptor again before it was of use.
func (fs *FS) give(f *file, base vfs.File, nameless, use bool) bool {
	fs.mu.Lock()
	var victims []victim
	closed := f.closed
	if closed {
		victims = []victim{{f, base, false}}
	} else {
		f.nameless = nameless
		if use {
			f.users++
		}
		victims = fs.giveLocked(f, base)
	}
	fs.mu.Unlock()
	fs.retire(victims)
	return !closed
}

// victim is a descriptor that was taken from its file.
type victim struct {
	file  *file
	base  vfs.File
	dirty bool
}

// shrinkLocked takes descriptors that were not used for longest until limit are left, or two rounds have found no more.
func (fs *FS) shrinkLocked(limit int) []victim {
	var out []victim
	for looks := 2 * len(fs.ring); len(fs.ring) > limit && looks > 0; looks-- {
		fs.hand %= len(fs.ring)
		f := fs.ring[fs.hand]
		switch {
		case f.users > 0 || f.nameless:
			fs.hand++
		case f.touched:
			f.touched = false
			fs.hand++
		default:
			out = append(out, victim{f, f.base, f.dirty})
			fs.takeLocked(f)
		}
	}
	return out
}

// takeLocked takes f's descriptor out of the ring.
func (fs *FS) takeLocked(f *file) {
	last := len(fs.ring) - 1
	fs.ring[f.slot] = fs.ring[last]
	fs.ring[f.slot].slot = f.slot
	fs.ring[last] = nil
	fs.ring = fs.ring[:last]
	f.base, f.slot, f.dirty = nil, -1, false
}

// retire closes descriptors that were taken. What fails is the answer to the file's next Sync.
func (fs *FS) retire(victims []victim) {
	for _, v := range victims {
		var err error
		if v.dirty {
			err = v.base.Sync()
		}
		if err = errors.Join(err, v.base.Close()); err != nil {
			fs.mu.Lock()
			v.file.failed = errors.Join(v.file.failed, err)
			fs.mu.Unlock()
		}
	}
}

func (s *shard) add(dir string, f *file) {
	if s.dirs == nil {
		s.dirs = map[string]map[*file]struct{}{}
	}
	if s.dirs[dir] == nil {
		s.dirs[dir] = map[*file]struct{}{}
	}
	s.dirs[dir][f] = struct{}{}
}

func (s *shard) remove(dir string, f *file) {
	delete(s.dirs[dir], f)
	if len(s.dirs[dir]) == 0 {
		delete(s.dirs, dir)
	}
}

// Remove implements vfs.FS.
func (fs *FS) Remove(name string) error {
	name = path.Clean(name)
	defer fs.lock(path.Dir(name))()
	if err := fs.unnameFiles(name); err != nil {
		return err
	}
	return fs.FS.Remove(name)
}

// Rename implements vfs.FS.
func (fs *FS) Rename(oldName, newName string) error {
	oldName, newName = path.Clean(oldName), path.Clean(newName)
	defer fs.lock(path.Dir(oldName), path.Dir(newName), oldName, newName)()
	if oldName != newName {
		if err := fs.unnameFiles(newName); err != nil {
			return err
		}
	}
	if err := fs.FS.Rename(oldName, newName); err != nil {
		return err
	}
	dir := path.Dir(oldName)
	for _, f := range fs.named(dir, oldName) {
		fs.move(f, dir, newName)
	}
	for f := range fs.shards[fs.shardOf(oldName)].dirs[oldName] { // it was a directory
		fs.move(f, oldName, path.Join(newName, path.Base(f.name)))
	}
	return nil
}

// lock takes the shards of dirs, in order, and gives what releases them.
func (fs *FS) lock(dirs ...string) func() {
	at := make([]int, 0, len(dirs))
	for _, d := range dirs {
		at = append(at, fs.shardOf(d))
	}
	slices.Sort(at)
	at = slices.Compact(at)
	for _, i := range at {
		fs.shards[i].mu.Lock()
	}
	return func() {
		for _, i := range at {
			fs.shards[i].mu.Unlock()
		}
	}
}

// named lists the open files of that name. The shard of dir is locked.
func (fs *FS) named(dir, name string) []*file {
	var out []*file
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for f := range fs.shards[fs.shardOf(dir)].dirs[dir] {
		if f.name == name && !f.nameless {
			out = append(out, f)
		}
	}
	return out
}

// unnameFiles makes the open files of that name keep a descriptor, because the name is about to go.
func (fs *FS) unnameFiles(name string) error {
	for _, f := range fs.named(path.Dir(name), name) {
		fs.mu.Lock()
		have := f.base != nil
		f.nameless = f.nameless || have
		fs.mu.Unlock()
		if have {
			continue
		}
		base, err := f.reopen()
		if err != nil {
			return err
		}
		fs.give(f, base, true, false)
	}
	return nil
}

// move gives f another name. The shards of both directories are locked.
func (fs *FS) move(f *file, dir, name string) {
	fs.shards[fs.shardOf(dir)].remove(dir, f)
	to := path.Dir(name)
	fs.shards[fs.shardOf(to)].add(to, f)
	fs.mu.Lock()
	f.name = name
	fs.mu.Unlock()
}
