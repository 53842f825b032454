package memfs_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, fs vfs.FS, name, data string, sync bool) {
	t.Helper()
	f, err := fs.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(data), 0)
	must(t, err)
	if sync {
		must(t, f.Sync())
	}
	must(t, f.Close())
}

func TestLoseDropsWhatWasNotSynced(t *testing.T) {
	fs := memfs.New(nil)
	write(t, fs, "/named", "abc", true)
	must(t, fs.SyncDir("/"))
	write(t, fs, "/unnamed", "abc", true)
	f, err := fs.OpenRW("/named")
	must(t, err)
	_, err = f.WriteAt([]byte("XYZ123"), 0)
	must(t, err)

	after := fs.Crash(memfs.Lose, 1)
	names, err := after.List("/")
	if err != nil || !slices.Equal(names, []string{"named"}) {
		t.Fatalf("names %q, %v", names, err)
	}
	got, err := vfs.ReadFile(after, "/named")
	if err != nil || string(got) != "abc" {
		t.Fatalf("read %q, %v", got, err)
	}
	if size, err := fs.SyncedSize("/named"); err != nil || size != 3 {
		t.Fatalf("synced size %d, %v", size, err)
	}
	kept, err := vfs.ReadFile(fs.Crash(memfs.Keep, 1), "/named")
	if err != nil || string(kept) != "XYZ123" {
		t.Fatalf("kept %q, %v", kept, err)
	}
	if fs.Syncs() != 2 || fs.DirSyncs() != 1 {
		t.Fatalf("counted %d syncs and %d of directories", fs.Syncs(), fs.DirSyncs())
	}
}

func TestCoinKeepsSyncedSectorsAndVariesTheOthers(t *testing.T) {
	fs := memfs.New(nil)
	f, err := fs.Create("/f")
	must(t, err)
	base := bytes.Repeat([]byte{'a'}, 4*memfs.SectorSize)
	_, err = f.WriteAt(base, 0)
	must(t, err)
	must(t, f.Sync())
	must(t, fs.SyncDir("/"))
	_, err = f.WriteAt(bytes.Repeat([]byte{'b'}, memfs.SectorSize), memfs.SectorSize) // second sector only
	must(t, err)
	lost, kept, garbled := 0, 0, 0
	for seed := range uint64(200) {
		got, err := vfs.ReadFile(fs.Crash(memfs.Coin, seed), "/f")
		must(t, err)
		again, err := vfs.ReadFile(fs.Crash(memfs.Coin, seed), "/f")
		if err != nil || !bytes.Equal(got, again) {
			t.Fatalf("seed %d gives two results", seed)
		}
		if len(got) != len(base) || !bytes.Equal(got[:512], base[:512]) || !bytes.Equal(got[1024:], base[1024:]) {
			t.Fatalf("seed %d changed synced sectors", seed)
		}
		switch sector := got[512:1024]; {
		case bytes.Equal(sector, bytes.Repeat([]byte{'a'}, 512)):
			lost++
		case bytes.Equal(sector, bytes.Repeat([]byte{'b'}, 512)):
			kept++
		default:
			garbled++
		}
	}
	if lost == 0 || kept == 0 || garbled == 0 {
		t.Fatalf("lost %d, kept %d, garbled %d: each must happen", lost, kept, garbled)
	}
}

// A rename is one step, and changes of one name keep their order: what was durable under either name never vanishes.
func TestCoinNeverLosesADurableFileByRename(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(200) {
		fs := memfs.New(nil)
		must(t, fs.MkdirAll("/d1"))
		must(t, fs.MkdirAll("/d2"))
		must(t, fs.SyncDir("/"))
		write(t, fs, "/d1/a", "old", true)
		must(t, fs.SyncDir("/d1"))
		must(t, fs.Rename("/d1/a", "/d2/b"))
		write(t, fs, "/d1/a", "new", true)
		after := fs.Crash(memfs.Coin, seed)
		state := ""
		for _, name := range []string{"/d1/a", "/d2/b"} {
			data, err := vfs.ReadFile(after, name)
			if err != nil {
				data = []byte("-")
			}
			state += name + "=" + string(data) + " "
		}
		seen[state] = true
	}
	want := []string{"/d1/a=- /d2/b=old ", "/d1/a=new /d2/b=old ", "/d1/a=old /d2/b=- "}
	got := make([]string, 0, len(seen))
	for s := range seen {
		got = append(got, s)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("states %q, want %q", got, want)
	}
}

func TestSyncDirTakesTheOtherEndOfARenameAlong(t *testing.T) {
	fs := memfs.New(nil)
	must(t, fs.MkdirAll("/d1"))
	must(t, fs.MkdirAll("/d2"))
	must(t, fs.SyncDir("/"))
	write(t, fs, "/d1/a", "x", true)
	must(t, fs.Rename("/d1/a", "/d2/b"))
	must(t, fs.SyncDir("/d2"))
	after := fs.Crash(memfs.Lose, 0)
	d1, err := after.List("/d1")
	must(t, err)
	d2, err := after.List("/d2")
	must(t, err)
	if len(d1) != 0 || !slices.Equal(d2, []string{"b"}) {
		t.Fatalf("left %q and %q", d1, d2)
	}
}
