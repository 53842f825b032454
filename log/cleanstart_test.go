package log

import (
	"strings"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

// watched counts the bytes that are read of .log files.
type watched struct {
	vfs.FS
	read int64
}

type watchedFile struct {
	vfs.File
	fs *watched
}

func (w *watched) OpenRW(name string) (vfs.File, error) {
	f, err := w.FS.OpenRW(name)
	if err == nil && strings.HasSuffix(name, suffixLog) {
		f = &watchedFile{f, w}
	}
	return f, err
}

func (f *watchedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.fs.read += int64(n)
	return n, err
}

// A clean start reads no byte of any segment; one after a crash reads what lies above the recovery point, and says so.
func TestCleanStartReadsNoSegment(t *testing.T) {
	b := newBench(t, memfs.New(nil), func(c *Config) { c.SegmentBytes = 2000 })
	for range 60 {
		b.append(spec{n: 2, size: 100})
	}
	b.must(b.log.Flush())
	flushed := b.log.FlushedOffset()
	for range 3 {
		b.append(spec{n: 2, size: 100})
	}
	crashed := &watched{FS: b.fs.(*memfs.FS).Crash(memfs.Keep, 1)}
	b.must(b.log.Close())
	w := &watched{FS: b.fs}
	c := b.on(t, w)
	c.open(true, b.log.EndOffset())
	if w.read != 0 || c.rec.BytesRead != 0 || c.log.EndOffset() != b.log.EndOffset() {
		t.Fatalf("a clean start read %d bytes, end %d", w.read, c.log.EndOffset())
	}
	if a := c.append(spec{n: 1}); a.First != b.log.EndOffset() {
		t.Fatalf("append went to %d", a.First)
	}
	d := b.on(t, crashed)
	d.open(false, flushed)
	if d.rec.BytesRead == 0 || d.rec.BytesRead > 3*2000 || d.log.EndOffset() != b.log.EndOffset() {
		t.Fatalf("after a crash: %+v, end %d", d.rec, d.log.EndOffset())
	}
}
