package stallfs

import "github.com/kajamq/kaja/vfs"

// file counts the calls that may reach the disk. What else a file can do, sendfile's descriptor included, is the wrapped
// one's.
type file struct {
	vfs.File
	disk *disk
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	f.disk.rest.begin()
	defer f.disk.rest.end()
	return f.File.ReadAt(p, off)
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	f.disk.rest.begin()
	defer f.disk.rest.end()
	return f.File.WriteAt(p, off)
}

// Write implements io.Writer.
func (f *file) Write(p []byte) (int, error) {
	f.disk.rest.begin()
	defer f.disk.rest.end()
	return f.File.Write(p)
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	f.disk.rest.begin()
	defer f.disk.rest.end()
	return f.File.Truncate(size)
}

// Allocate implements vfs.File.
func (f *file) Allocate(size int64) error {
	f.disk.rest.begin()
	defer f.disk.rest.end()
	return f.File.Allocate(size)
}

// Close implements io.Closer.
func (f *file) Close() error {
	f.disk.rest.begin()
	defer f.disk.rest.end()
	return f.File.Close()
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	f.disk.synced.begin()
	defer f.disk.synced.end()
	return f.File.Sync()
}
