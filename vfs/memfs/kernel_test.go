//go:build linux

package memfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/internal/loopdisk"
	"github.com/kajamq/kaja/vfs"
)

// Whatever the kernel keeps after a power cut is a state that the model allows: the same random scripts run on a file
// system of the kernel and on one in memory, the first is shut down by ioctl without writing anything more, mounted again
// and read. KAJA_KERNEL_SCRIPTS is how many scripts run on each, KAJA_SEED the first one.
func TestKernelKeepsWhatTheModelAllows(t *testing.T) {
	scripts, seed := envInt(t, "KAJA_KERNEL_SCRIPTS", 30), envInt(t, "KAJA_SEED", 1)
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			disk := loopdisk.New(t, kind, loopdisk.MinSize)
			var sum kernelStats
			for i := range scripts {
				runKernelScript(t, disk, uint64(seed+i), &sum)
			}
			t.Logf("%d scripts: %+v", scripts, sum)
			if sum.Damaged > scripts/10 {
				t.Fatal("the kernel damages its own file system too often for this to show much")
			}
			if scripts >= 20 && (sum.Lost == 0 || sum.Kept == 0) {
				t.Fatal("power cuts that lose nothing, or everything, show nothing")
			}
		})
	}
}

func envInt(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// kernelStats count calls, files that a power cut left shorter or with other bytes than they had or not at all, and others;
// and how often the file system itself was damaged, which tells nothing of the model: about once in 1,500 cuts ext4 leaves a
// file that it can't open (EIO).
type kernelStats struct{ Calls, Lost, Kept, Damaged int }

// kernelScript runs one random sequence of calls on both file systems.
type kernelScript struct {
	*loopdisk.Disk
	t     *testing.T
	rng   *rand.Rand
	model *FS
	dir   string // of the script: /s17 in the model, the same below the mount point
	open  map[string][2]vfs.File
	log   []string
}

func runKernelScript(t *testing.T, d *loopdisk.Disk, seed uint64, sum *kernelStats) {
	t.Helper()
	s := &kernelScript{Disk: d, t: t, rng: rand.New(rand.NewPCG(seed, 0x6b65726e)), model: New(nil),
		dir: fmt.Sprintf("/s%d", seed), open: map[string][2]vfs.File{}}
	s.both(func(fs vfs.FS, root string) error { return fs.MkdirAll(root) })
	s.must(s.model.SyncDir("/"))
	s.Sync()
	calls := 15 + s.rng.IntN(40)
	for range calls {
		s.step()
	}
	for name := range s.open {
		s.close(name)
	}
	before, err := s.tree()
	s.must(err)
	s.Shutdown()
	s.Remount()
	after, err := s.tree()
	if errors.Is(err, syscall.EIO) {
		t.Logf("seed %d: damaged by the power cut: %v", seed, err)
		sum.Damaged++
		s.Remake()
		return
	}
	s.must(err)
	if err := s.model.Allows(s.dir, after); err != nil {
		t.Errorf("seed %d: %v\n%s", seed, err, strings.Join(s.log, "\n"))
	}
	sum.Calls += calls
	for name, data := range before {
		if got, ok := after[name]; !ok || string(got) != string(data) {
			sum.Lost++
		} else {
			sum.Kept++
		}
	}
	s.must(os.RemoveAll(s.Mount + s.dir))
}

// both makes one call on both file systems, which must agree on whether it fails.
func (s *kernelScript) both(call func(fs vfs.FS, root string) error) {
	s.t.Helper()
	ours, kernels := call(s.model, s.dir), call(vfs.OS{}, s.Mount+s.dir)
	if (ours == nil) != (kernels == nil) {
		s.t.Fatalf("the model says %v, the kernel says %v\n%s", ours, kernels, strings.Join(s.log, "\n"))
	}
}

func (s *kernelScript) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

var kernelNames = []string{"a", "b", "c", "d", "x/a", "x/b", "y/a"}

func (s *kernelScript) step() {
	s.t.Helper()
	name := kernelNames[s.rng.IntN(len(kernelNames))]
	if len(s.model.pending) >= maxPendingNames-2 {
		for _, dir := range []string{"", "/x", "/y"} {
			s.note("syncdir %s", dir)
			s.both(func(fs vfs.FS, root string) error { return fs.SyncDir(root + dir) })
		}
	}
	switch s.rng.IntN(17) {
	case 0, 1, 2, 3, 4, 5:
		s.write(name)
	case 6, 7:
		if files, ok := s.open[name]; ok {
			s.note("fsync %s", name)
			s.files(files, func(f vfs.File) error { return f.Sync() })
		}
	case 8:
		if files, ok := s.open[name]; ok {
			size := s.rng.Int64N(20000)
			s.note("truncate %s %d", name, size)
			s.files(files, func(f vfs.File) error { return f.Truncate(size) })
		}
	case 9:
		s.close(name)
		s.note("remove %s", name)
		s.both(func(fs vfs.FS, root string) error { return fs.Remove(root + "/" + name) })
	case 10, 11:
		to := kernelNames[s.rng.IntN(len(kernelNames))]
		s.close(name)
		s.close(to)
		s.note("rename %s %s", name, to)
		s.both(func(fs vfs.FS, root string) error { return fs.Rename(root+"/"+name, root+"/"+to) })
	case 12:
		dir := path.Dir(name)
		s.note("syncdir %s", dir)
		s.both(func(fs vfs.FS, root string) error { return fs.SyncDir(path.Join(root, dir)) })
	case 13:
		dir := []string{"x", "y"}[s.rng.IntN(2)]
		s.note("mkdir %s", dir)
		s.both(func(fs vfs.FS, root string) error { return fs.MkdirAll(root + "/" + dir) })
	case 14:
		s.note("the kernel writes everything back")
		s.Sync()
	case 15:
		s.note("sync the volume")
		s.both(func(fs vfs.FS, root string) error {
			v, err := fs.Volume(root)
			if err != nil {
				s.t.Fatal(err)
			}
			return errors.Join(v.Sync(), v.Close())
		})
	case 16:
		s.close(name)
		s.note("create %s", name)
		s.openFile(name, vfs.FS.Create)
	}
}

func (s *kernelScript) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

// write puts random bytes at the end of a file or within it.
func (s *kernelScript) write(name string) {
	s.t.Helper()
	files, ok := s.open[name]
	if !ok {
		if files, ok = s.openFile(name, vfs.FS.OpenAppend); !ok {
			return
		}
	}
	size, err := files[0].Size()
	s.must(err)
	data := make([]byte, 1+s.rng.IntN(6000))
	for i := range data {
		data[i] = byte(1 + s.rng.IntN(255))
	}
	at := size
	if s.rng.IntN(3) == 0 {
		at = s.rng.Int64N(size + 1)
	}
	s.note("write %s %d bytes at %d of %d", name, len(data), at, size)
	s.files(files, func(f vfs.File) error {
		_, err := f.WriteAt(data, at)
		return err
	})
}

func (s *kernelScript) openFile(name string, open func(vfs.FS, string) (vfs.File, error)) ([2]vfs.File, bool) {
	s.t.Helper()
	var files []vfs.File
	s.both(func(fs vfs.FS, root string) error {
		f, err := open(fs, root+"/"+name)
		if err == nil {
			files = append(files, f)
		}
		return err
	})
	if len(files) < 2 { // the directory is not there
		return [2]vfs.File{}, false
	}
	s.open[name] = [2]vfs.File(files)
	return s.open[name], true
}

func (s *kernelScript) files(files [2]vfs.File, call func(vfs.File) error) {
	s.t.Helper()
	s.must(call(files[0]))
	s.must(call(files[1]))
}

func (s *kernelScript) close(name string) {
	s.t.Helper()
	if files, ok := s.open[name]; ok {
		s.files(files, vfs.File.Close)
		delete(s.open, name)
	}
}

// tree reads what is in the script's directory on the kernel's file system.
func (s *kernelScript) tree() (map[string][]byte, error) {
	root, out := s.Mount+s.dir, map[string][]byte{}
	return out, filepath.WalkDir(root, func(p string, e os.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		rel := strings.TrimPrefix(p, root+"/")
		if e.IsDir() {
			out[rel+"/"] = nil
			return nil
		}
		out[rel], err = os.ReadFile(p)
		return err
	})
}

// A checker counts once it has caught something: states that no crash may leave are refused.
func TestAllowsRefusesWhatNoCrashLeaves(t *testing.T) {
	fs := New(func() time.Time { return time.Time{} })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := fs.Create("/a")
	must(err)
	_, err = f.WriteAt([]byte("synced"), 0)
	must(err)
	must(f.Sync())
	must(fs.SyncDir("/"))
	_, err = f.WriteAt([]byte("more"), 6)
	must(err)
	must(fs.Rename("/a", "/b"))
	_, err = fs.Create("/c")
	must(err)
	for _, ok := range []map[string][]byte{
		{"a": []byte("synced")}, {"b": []byte("synced")}, {"b": []byte("syncedmore")}, {"a": []byte("synced\x00\x00")},
		{"a": []byte("syncedmore"), "c": {}}, {"b": []byte("syncedm"), "c": {}},
	} {
		if err := fs.Allows("/", ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []map[string][]byte{
		{}, {"a": []byte("sync")}, {"a": []byte("Synced")}, {"a": []byte("syncedmore!")}, {"c": {}},
		{"a": []byte("synced"), "b": []byte("synced")}, {"a": []byte("synced"), "d": {}}, {"a": []byte("synced"), "c": []byte("x")},
	} {
		if err := fs.Allows("/", bad); err == nil {
			t.Errorf("%q is allowed", bad)
		}
	}
}
