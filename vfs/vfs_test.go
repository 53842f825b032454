package vfs_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

// each runs test on every implementation, in a directory of its own.
func each(t *testing.T, test func(t *testing.T, fs vfs.FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, vfs.OS{}, filepath.ToSlash(t.TempDir())) })
	mem := func(t *testing.T) *memfs.FS {
		fs := memfs.New(nil)
		if err := fs.MkdirAll("/data"); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	t.Run("memfs", func(t *testing.T) { test(t, mem(t), "/data") })
	t.Run("faultfs", func(t *testing.T) { test(t, faultfs.New(mem(t)), "/data") })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFileOperations(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS, dir string) {
		name := dir + "/a"
		f, err := fs.Create(name)
		must(t, err)
		_, err = f.WriteAt([]byte("world"), 6)
		must(t, err)
		_, err = f.WriteAt([]byte("hello"), 0)
		must(t, err)
		must(t, f.Sync())
		must(t, fs.SyncDir(dir))
		must(t, f.Close())

		f, err = fs.OpenAppend(name)
		must(t, err)
		_, err = f.Write([]byte("!"))
		must(t, err)
		must(t, fs.Remove(name))
		buf := make([]byte, 20)
		n, err := f.ReadAt(buf, 0)
		if !errors.Is(err, io.EOF) || string(buf[:n]) != "hello\x00world!" {
			t.Fatalf("read %q, %v of a removed open file", buf[:n], err)
		}
		must(t, f.Truncate(5))
		if size, err := f.Size(); err != nil || size != 5 {
			t.Fatalf("size %d, %v after truncation, want 5", size, err)
		}
		must(t, f.Close())
	})
}

func TestErrorsAreThoseOfTheSystem(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS, dir string) {
		_, err := fs.Open(dir + "/none")
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("open of a missing file: %v", err)
		}
		if err := fs.Rename(dir+"/none", dir+"/other"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("rename of a missing file: %v", err)
		}
		if err := fs.Remove(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("remove of a missing file: %v", err)
		}
		must(t, fs.MkdirAll(dir+"/sub/deep"))
		if err := fs.Remove(dir + "/sub"); !errors.Is(err, syscall.ENOTEMPTY) {
			t.Errorf("remove of a full directory: %v", err)
		}
		f, err := fs.Create(dir + "/file")
		must(t, err)
		must(t, f.Close())
		if err := f.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
		f, err = fs.Open(dir + "/file")
		must(t, err)
		if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EBADF) {
			t.Errorf("write to a file opened for reading: %v", err)
		}
		must(t, f.Close())
	})
}

func TestLockExcludes(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS, dir string) {
		l, err := fs.Lock(dir + "/.lock")
		must(t, err)
		if _, err := fs.Lock(dir + "/.lock"); !errors.Is(err, vfs.ErrLocked) {
			t.Fatalf("second lock: %v", err)
		}
		must(t, l.Close())
		l, err = fs.Lock(dir + "/.lock")
		must(t, err)
		must(t, l.Close())
	})
}

func TestHelpers(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS, dir string) {
		name := dir + "/state"
		if ok, err := vfs.Exists(fs, name); ok || err != nil {
			t.Fatalf("exists = %v, %v before the write", ok, err)
		}
		must(t, vfs.WriteAtomic(fs, name, []byte("one")))
		must(t, vfs.WriteAtomic(fs, name, []byte("two two")))
		got, err := vfs.ReadFile(fs, name)
		if err != nil || string(got) != "two two" {
			t.Fatalf("read %q, %v", got, err)
		}
		must(t, fs.MkdirAll(dir+"/x/y"))
		must(t, vfs.WriteAtomic(fs, dir+"/x/y/z", nil))
		names, err := fs.List(dir)
		if err != nil || !slices.Equal(names, []string{"state", "x"}) {
			t.Fatalf("list = %q, %v", names, err)
		}
		must(t, vfs.RemoveAll(fs, dir+"/x"))
		must(t, vfs.RemoveAll(fs, dir+"/x"))
		if ok, err := vfs.Exists(fs, dir+"/x"); ok || err != nil {
			t.Fatalf("exists = %v, %v after RemoveAll", ok, err)
		}
		total, free, err := fs.Usage(dir)
		if err != nil || total <= 0 || free <= 0 || free > total {
			t.Fatalf("usage = %d, %d, %v", total, free, err)
		}
	})
}

// At every point of WriteAtomic, whatever a crash keeps, the old or the new content is there, whole.
func TestWriteAtomicSurvivesACrashAtAnyCall(t *testing.T) {
	mem := memfs.New(nil)
	must(t, mem.MkdirAll("/data"))
	must(t, mem.SyncDir("/"))
	fs := faultfs.New(mem)
	old, fresh := string(make([]byte, 1500)), "new"
	must(t, vfs.WriteAtomic(fs, "/data/state", []byte(old)))
	calls := 0
	check := func(want ...string) {
		for seed := range uint64(50) {
			got, err := vfs.ReadFile(mem.Crash(memfs.Coin, seed), "/data/state")
			if err != nil || !slices.Contains(want, string(got)) {
				t.Fatalf("before call %d, seed %d: read %d bytes, %v", calls, seed, len(got), err)
			}
		}
		calls++
	}
	fs.Before(func(faultfs.Op, string) { check(old, fresh) })
	must(t, vfs.WriteAtomic(fs, "/data/state", []byte(fresh)))
	check(fresh)
	if calls != 6 { // create, write, sync, rename, syncdir, and after
		t.Fatalf("checked %d points, want 6", calls)
	}
}

func TestWriteAtomicKeepsTheOldContentOnError(t *testing.T) {
	for _, op := range []faultfs.Op{faultfs.OpCreate, faultfs.OpWrite, faultfs.OpSync, faultfs.OpClose, faultfs.OpRename} {
		t.Run(string(op), func(t *testing.T) {
			fs := faultfs.New(memfs.New(nil))
			must(t, vfs.WriteAtomic(fs, "/state", []byte("old")))
			fs.Add(faultfs.Rule{Op: op, Path: "state.tmp", Err: syscall.EIO})
			if err := vfs.WriteAtomic(fs, "/state", []byte("new")); !errors.Is(err, syscall.EIO) {
				t.Fatalf("error %v, want EIO", err)
			}
			got, err := vfs.ReadFile(fs, "/state")
			if err != nil || string(got) != "old" {
				t.Fatalf("read %q, %v", got, err)
			}
			names, err := fs.List("/")
			if err != nil || !slices.Equal(names, []string{"state"}) {
				t.Fatalf("left %q, %v", names, err)
			}
		})
	}
}

// A volume's sync makes everything durable, files that are closed again and names included.
func TestVolumeSyncLeavesNothingToLose(t *testing.T) {
	mem := memfs.New(nil)
	must(t, mem.MkdirAll("/data/sub"))
	v, err := faultfs.New(mem).Volume("/data")
	must(t, err)
	for _, name := range []string{"/data/a", "/data/sub/b", "/c"} {
		f, err := mem.Create(name)
		must(t, err)
		_, err = f.WriteAt([]byte("of "+name), 0)
		must(t, err)
		must(t, f.Close())
	}
	must(t, mem.Rename("/c", "/data/c"))
	must(t, mem.Remove("/data/a"))
	must(t, v.Sync())
	must(t, v.Close())
	left := mem.Crash(memfs.Lose, 0)
	for name, want := range map[string]string{"/data/sub/b": "of /data/sub/b", "/data/c": "of /c"} {
		got, err := vfs.ReadFile(left, name)
		if err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", name, got, err)
		}
	}
	names, err := left.List("/data")
	if err != nil || !slices.Equal(names, []string{"c", "sub"}) {
		t.Errorf("names %q, %v", names, err)
	}
}

// The system's volume syncs, or says that it can't.
func TestVolumeOfTheSystem(t *testing.T) {
	v, err := vfs.OS{}.Volume(t.TempDir())
	if errors.Is(err, errors.ErrUnsupported) {
		return
	}
	must(t, err)
	must(t, v.Sync())
	must(t, v.Close())
	if _, err := (vfs.OS{}).Volume(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a volume of a missing directory: %v", err)
	}
}

// Spare tells of space that was reserved beyond a file's length.
func TestSpare(t *testing.T) {
	each(t, func(t *testing.T, fs vfs.FS, dir string) {
		name := dir + "/f"
		f, err := fs.Create(name)
		must(t, err)
		spare := func(after string, want bool) {
			t.Helper()
			info, err := fs.Stat(name)
			must(t, err)
			if info.Spare != want {
				t.Errorf("after %s: %v", after, info.Spare)
			}
		}
		_, err = f.WriteAt(make([]byte, 100), 0)
		must(t, err)
		spare("a write", false)
		must(t, f.Allocate(1<<20))
		spare("a reservation", dir == "/data" || runtime.GOOS == "linux")
		must(t, f.Truncate(100))
		spare("a truncation", false)
		must(t, f.Close())
	})
}
