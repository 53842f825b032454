package stallfs

import (
	"path"
	"strings"
	"sync/atomic"

	"github.com/kajamq/kaja/vfs"
)

// FS is a vfs.FS that counts its calls. Safe for concurrent use, but for Look.
type FS struct {
	vfs.FS
	disks     []*disk
	elsewhere disk // of what lies in none of the directories; nobody looks at it
}

var _ vfs.FS = (*FS)(nil)

// New watches the calls in and below each of dirs; what lies elsewhere passes by.
func New(base vfs.FS, dirs ...string) *FS {
	fs := &FS{FS: base}
	for _, dir := range dirs {
		fs.disks = append(fs.disks, &disk{dir: path.Clean(dir)})
	}
	return fs
}

// disk is one directory and its calls.
type disk struct {
	dir    string
	synced calls // what the disk itself must have done
	rest   calls // what the page cache may have done
}

// calls are those of one kind.
type calls struct {
	running atomic.Int64
	ended   atomic.Uint64

	// Of Look.
	seen  uint64
	looks int
}

func (c *calls) begin() { c.running.Add(1) }

func (c *calls) end() {
	c.ended.Add(1)
	c.running.Add(-1)
}

// look counts the looks at which something was under way and nothing had come back since the one before: what is under way
// now was so then.
func (c *calls) look() int {
	ended := c.ended.Load()
	if c.running.Load() == 0 || ended != c.seen {
		c.seen, c.looks = ended, 0
		return 0
	}
	c.looks++
	return c.looks
}

// Look gives the directory whose disk has done nothing for the most looks in a row, this one included, although something
// was under way all the time, and how many these were; 0 for none. It is called by one goroutine, at equal times.
func (fs *FS) Look() (dir string, looks int) {
	for _, d := range fs.disks {
		if n := max(d.synced.look(), d.rest.look()); n > looks {
			dir, looks = d.dir, n
		}
	}
	return dir, looks
}

// of is the disk that a path is on: of the innermost directory.
func (fs *FS) of(name string) *disk {
	best := &fs.elsewhere
	name = path.Clean(name)
	for _, d := range fs.disks {
		below := strings.HasPrefix(name, strings.TrimSuffix(d.dir, "/")+"/")
		if (name == d.dir || below) && len(d.dir) > len(best.dir) {
			best = d
		}
	}
	return best
}

// Create implements vfs.FS.
func (fs *FS) Create(name string) (vfs.File, error) { return fs.open(name, fs.FS.Create) }

// Open implements vfs.FS.
func (fs *FS) Open(name string) (vfs.File, error) { return fs.open(name, fs.FS.Open) }

// OpenRW implements vfs.FS.
func (fs *FS) OpenRW(name string) (vfs.File, error) { return fs.open(name, fs.FS.OpenRW) }

// OpenAppend implements vfs.FS.
func (fs *FS) OpenAppend(name string) (vfs.File, error) { return fs.open(name, fs.FS.OpenAppend) }

func (fs *FS) open(name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	d := fs.of(name)
	d.rest.begin()
	defer d.rest.end()
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return &file{f, d}, nil
}

// Rename implements vfs.FS.
func (fs *FS) Rename(oldName, newName string) error {
	c := &fs.of(oldName).rest
	c.begin()
	defer c.end()
	return fs.FS.Rename(oldName, newName)
}

// Remove implements vfs.FS.
func (fs *FS) Remove(name string) error {
	c := &fs.of(name).rest
	c.begin()
	defer c.end()
	return fs.FS.Remove(name)
}

// MkdirAll implements vfs.FS.
func (fs *FS) MkdirAll(dir string) error {
	c := &fs.of(dir).rest
	c.begin()
	defer c.end()
	return fs.FS.MkdirAll(dir)
}

// List implements vfs.FS.
func (fs *FS) List(dir string) ([]string, error) {
	c := &fs.of(dir).rest
	c.begin()
	defer c.end()
	return fs.FS.List(dir)
}

// Stat implements vfs.FS.
func (fs *FS) Stat(name string) (vfs.Info, error) {
	c := &fs.of(name).rest
	c.begin()
	defer c.end()
	return fs.FS.Stat(name)
}

// SyncDir implements vfs.FS.
func (fs *FS) SyncDir(dir string) error {
	c := &fs.of(dir).synced
	c.begin()
	defer c.end()
	return fs.FS.SyncDir(dir)
}
