package filepool_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/filepool"
	"github.com/kajamq/kaja/vfs/memfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// counting counts the descriptors of a file system.
type counting struct {
	vfs.FS
	mu        sync.Mutex
	open, top int
	limit     int // 0: none; then EMFILE
}

type counted struct {
	vfs.File
	fs *counting
}

func (c *counting) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit > 0 && c.open >= c.limit {
		return nil, errors.Join(syscall.EMFILE, f.Close())
	}
	c.open++
	c.top = max(c.top, c.open)
	return &counted{f, c}, nil
}

func (c *counting) Open(name string) (vfs.File, error)       { return c.wrap(c.FS.Open(name)) }
func (c *counting) OpenRW(name string) (vfs.File, error)     { return c.wrap(c.FS.OpenRW(name)) }
func (c *counting) Create(name string) (vfs.File, error)     { return c.wrap(c.FS.Create(name)) }
func (c *counting) OpenAppend(name string) (vfs.File, error) { return c.wrap(c.FS.OpenAppend(name)) }

func (f *counted) Close() error {
	f.fs.mu.Lock()
	f.fs.open--
	f.fs.mu.Unlock()
	return f.File.Close()
}

// pair is one file opened on a plain file system and through the pool.
type pair struct{ want, got vfs.File }

// Random operations on a pool of two descriptors do exactly what they do without it: files that were renamed, replaced
// or removed while open included.
func TestPoolIsInvisible(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		plain := memfs.New(nil)
		under := &counting{FS: memfs.New(nil)}
		pool := filepool.New(under, 2)
		var files []pair
		check := func(what string, want, got error) {
			if (want == nil) != (got == nil) || want != nil && errors.Is(want, os.ErrNotExist) != errors.Is(got, os.ErrNotExist) {
				t.Fatalf("seed %d: %s: %v, want %v", seed, what, got, want)
			}
		}
		dir := func() string { return fmt.Sprintf("/d%d", rng.IntN(2)) }
		name := func() string { return fmt.Sprintf("%s/f%d", dir(), rng.IntN(3)) }
		for _, d := range []string{"/d0", "/d1"} {
			must(t, plain.MkdirAll(d))
			must(t, pool.MkdirAll(d))
		}
		for range 120 {
			op := rng.IntN(12)
			if op >= 5 && op < 11 && len(files) == 0 {
				continue
			}
			switch op {
			case 0, 1:
				n := name()
				w, wantErr := plain.OpenAppend(n)
				g, gotErr := pool.OpenAppend(n)
				check("open "+n, wantErr, gotErr)
				files = append(files, pair{w, g})
			case 2:
				n := name()
				w, wantErr := plain.Create(n)
				g, gotErr := pool.Create(n)
				check("create "+n, wantErr, gotErr)
				files = append(files, pair{w, g})
			case 3:
				from, to := name(), name()
				check("rename "+from+" "+to, plain.Rename(from, to), pool.Rename(from, to))
			case 4:
				n := name()
				check("remove "+n, plain.Remove(n), pool.Remove(n))
			case 5, 6, 7:
				f := files[rng.IntN(len(files))]
				data := bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, 1+rng.IntN(9))
				off := rng.Int64N(20)
				_, wantErr := f.want.WriteAt(data, off)
				_, gotErr := f.got.WriteAt(data, off)
				check("write", wantErr, gotErr)
			case 8:
				f := files[rng.IntN(len(files))]
				check("sync", f.want.Sync(), f.got.Sync())
			case 9:
				f := files[rng.IntN(len(files))]
				n := rng.Int64N(20)
				check("truncate", f.want.Truncate(n), f.got.Truncate(n))
			case 10:
				i := rng.IntN(len(files))
				check("close", files[i].want.Close(), files[i].got.Close())
				files = append(files[:i], files[i+1:]...)
			case 11:
				if rng.IntN(4) == 0 {
					check("move directory", plain.Rename("/d1", "/x"), pool.Rename("/d1", "/x"))
					check("move back", plain.Rename("/x", "/d1"), pool.Rename("/x", "/d1"))
				}
			}
			for i, f := range files {
				size, err := f.want.Size()
				must(t, err)
				want, got := make([]byte, size), make([]byte, size+1)
				if size > 0 {
					_, err = f.want.ReadAt(want, 0)
					must(t, err)
				}
				n, _ := f.got.ReadAt(got, 0)
				if !bytes.Equal(got[:n], want) {
					t.Fatalf("seed %d: file %d reads %q, want %q", seed, i, got[:n], want)
				}
			}
		}
		for _, f := range files {
			must(t, f.got.Close())
		}
		if under.open != 0 || pool.Descriptors() != 0 {
			t.Fatalf("seed %d: %d descriptors are left, the pool says %d", seed, under.open, pool.Descriptors())
		}
	}
}

// A thousand files share ten descriptors, whoever uses them at once; held ones stay.
func TestBudget(t *testing.T) {
	under := &counting{FS: memfs.New(nil)}
	pool := filepool.New(under, 10)
	files := make([]vfs.File, 1000)
	for i := range files {
		f, err := pool.Create(fmt.Sprintf("/%d", i))
		must(t, err)
		_, err = f.WriteAt([]byte{byte(i)}, 0)
		must(t, err)
		files[i] = f
	}
	must(t, vfs.Hold(files[7]))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for range 3000 {
				i := rng.IntN(len(files))
				var b [1]byte
				if _, err := files[i].ReadAt(b[:], 0); err != nil || b[0] != byte(i) {
					t.Errorf("file %d: %d, %v", i, b[0], err)
					return
				}
			}
		})
	}
	wg.Wait()
	if under.top > 10+8+1 || under.open > 10 {
		t.Fatalf("%d descriptors at most, %d now", under.top, under.open)
	}
	vfs.Release(files[7])
}

// When the system has no descriptor left, the pool gives some of its own back and goes on.
func TestSystemRunsOut(t *testing.T) {
	under := &counting{FS: memfs.New(nil), limit: 20}
	pool := filepool.New(under, 1000)
	for i := range 200 {
		f, err := pool.Create(fmt.Sprintf("/%d", i))
		must(t, err)
		_, err = f.WriteAt([]byte("x"), 0)
		must(t, err)
	}
}

// What is not synced is synced before a descriptor goes, and a failure of that is not lost with it.
func TestFailedSyncIsNotLostWithADescriptor(t *testing.T) {
	faults := faultfs.New(memfs.New(nil))
	pool := filepool.New(faults, 1)
	f, err := pool.Create("/f")
	must(t, err)
	_, err = f.WriteAt([]byte("x"), 0)
	must(t, err)
	faults.Add(faultfs.Rule{Op: faultfs.OpSync, Times: 1, Err: syscall.EIO})
	for i := range 3 {
		other, err := pool.Create(fmt.Sprintf("/other%d", i))
		must(t, err)
		must(t, other.Close())
		_, err = pool.Create(fmt.Sprintf("/more%d", i))
		must(t, err)
	}
	for range 2 {
		if err := f.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("sync after the descriptor went: %v", err)
		}
	}
}
