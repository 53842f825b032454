package stallfs_test

import (
	"errors"
	"io"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/vfs/stallfs"
)

// watched is a file system with the directories /a and /b, watched, and a file in each.
func watched(t *testing.T) (faults *faultfs.FS, fs *stallfs.FS, a, b vfs.File) {
	t.Helper()
	faults = faultfs.New(memfs.New(nil))
	fs = stallfs.New(faults, "/a", "/b")
	var files []vfs.File
	for _, dir := range []string{"/a", "/b"} {
		if err := fs.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		f, err := fs.Create(dir + "/" + dir[1:])
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return faults, fs, files[0], files[1]
}

// hung starts call, which a rule lets hang, and returns once it does; end lets it go on, and waits.
func hung(t *testing.T, faults *faultfs.FS, op faultfs.Op, name string, call func() error) (end func()) {
	t.Helper()
	hang, done, before := make(chan struct{}), make(chan error, 1), faults.Calls(op)
	faults.Add(faultfs.Rule{Op: op, Path: name, Times: 1, Hang: hang})
	go func() { done <- call() }()
	for faults.Calls(op) == before {
	}
	return func() {
		t.Helper()
		close(hang)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func wantLook(t *testing.T, fs *stallfs.FS, dir string, looks int) {
	t.Helper()
	if d, n := fs.Look(); d != dir || n != looks {
		t.Errorf("%q has done nothing at %d looks, want %q and %d", d, n, dir, looks)
	}
}

// A sync that hangs is seen although writes come back; each disk counts for itself; what has ended is forgotten.
func TestHangIsSeen(t *testing.T) {
	faults, fs, a, b := watched(t)
	wantLook(t, fs, "", 0)
	end := hung(t, faults, faultfs.OpSync, "a", a.Sync)
	fs.Look() // what came back before the hang
	for i := range 3 {
		if _, err := a.WriteAt([]byte("x"), 0); err != nil {
			t.Fatal(err)
		}
		if err := b.Sync(); err != nil {
			t.Fatal(err)
		}
		wantLook(t, fs, "/a", i+2)
	}
	end()
	wantLook(t, fs, "", 0)
	wantLook(t, fs, "", 0)
}

// One call that takes long while others of its kind come back is a slow disk.
func TestSlowIsNoHang(t *testing.T) {
	faults, fs, a, _ := watched(t)
	defer hung(t, faults, faultfs.OpSync, "a", a.Sync)()
	for range 5 {
		if err := fs.SyncDir("/a"); err != nil {
			t.Fatal(err)
		}
		wantLook(t, fs, "", 0)
	}
	wantLook(t, fs, "/a", 1)
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Every call that may wait for the disk is counted, and none that lies elsewhere.
func TestEveryCallIsCounted(t *testing.T) {
	for _, c := range []struct {
		op   faultfs.Op
		name string
		call func(fs *stallfs.FS, f vfs.File) error
	}{
		{faultfs.OpCreate, "new", func(fs *stallfs.FS, _ vfs.File) error { _, err := fs.Create("/a/new"); return err }},
		{faultfs.OpOpen, "a", func(fs *stallfs.FS, _ vfs.File) error { _, err := fs.Open("/a/a"); return err }},
		{faultfs.OpOpen, "a", func(fs *stallfs.FS, _ vfs.File) error { _, err := fs.OpenRW("/a/a"); return err }},
		{faultfs.OpOpen, "a", func(fs *stallfs.FS, _ vfs.File) error { _, err := fs.OpenAppend("/a/a"); return err }},
		{faultfs.OpRename, "a", func(fs *stallfs.FS, _ vfs.File) error { return fs.Rename("/a/a", "/a/z") }},
		{faultfs.OpRemove, "a", func(fs *stallfs.FS, _ vfs.File) error { return fs.Remove("/a/a") }},
		{faultfs.OpMkdir, "new", func(fs *stallfs.FS, _ vfs.File) error { return fs.MkdirAll("/a/new") }},
		{faultfs.OpList, "a", func(fs *stallfs.FS, _ vfs.File) error { _, err := fs.List("/a"); return err }},
		{faultfs.OpStat, "a", func(fs *stallfs.FS, _ vfs.File) error { _, err := fs.Stat("/a/a"); return err }},
		{faultfs.OpSyncDir, "a", func(fs *stallfs.FS, _ vfs.File) error { return fs.SyncDir("/a") }},
		{faultfs.OpRead, "a", func(_ *stallfs.FS, f vfs.File) error { _, err := f.ReadAt(nil, 0); return noEOF(err) }},
		{faultfs.OpWrite, "a", func(_ *stallfs.FS, f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err }},
		{faultfs.OpWrite, "a", func(_ *stallfs.FS, f vfs.File) error { _, err := f.Write([]byte("x")); return err }},
		{faultfs.OpSync, "a", func(_ *stallfs.FS, f vfs.File) error { return f.Sync() }},
		{faultfs.OpTruncate, "a", func(_ *stallfs.FS, f vfs.File) error { return f.Truncate(0) }},
		{faultfs.OpAllocate, "a", func(_ *stallfs.FS, f vfs.File) error { return f.Allocate(1) }},
		{faultfs.OpClose, "a", func(_ *stallfs.FS, f vfs.File) error { return f.Close() }},
	} {
		t.Run(string(c.op), func(t *testing.T) {
			faults, fs, a, _ := watched(t)
			fs.Look()
			end := hung(t, faults, c.op, c.name, func() error { return c.call(fs, a) })
			wantLook(t, fs, "/a", 1)
			end()
			wantLook(t, fs, "", 0)
			if err := fs.MkdirAll("/else"); err != nil {
				t.Fatal(err)
			}
			defer hung(t, faults, faultfs.OpSyncDir, "else", func() error { return fs.SyncDir("/else") })()
			wantLook(t, fs, "", 0)
		})
	}
}
