package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

const testCluster = "5L6g3nShT-eMCtK--X86sw"

func newMem() *memfs.FS {
	return memfs.New(func() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) })
}

// options is a node 1 with the given directories; ids count from 1000 up.
func options(fs vfs.FS, dirs ...string) IdentityOptions {
	next := uint64(1000)
	return IdentityOptions{FS: fs, LogDirs: dirs, MetadataDir: dirs[0], NodeID: 1, NewUUID: func() wire.UUID {
		next++
		var u wire.UUID
		binary.BigEndian.PutUint64(u[8:], next)
		return u
	}}
}

func uuid(n uint64) wire.UUID {
	var u wire.UUID
	binary.BigEndian.PutUint64(u[8:], n)
	return u
}

func put(t *testing.T, fs vfs.FS, name, content string) {
	t.Helper()
	if err := fs.MkdirAll(path.Dir(name)); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteAtomic(fs, name, []byte(content)); err != nil {
		t.Fatal(err)
	}
}

func meta(node int, dir uint64, cluster string) string {
	return fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\ndirectory.id=%s\n", cluster, node, uuid(dir+200))
}

// tree is every file under root with its content, but lock files.
func tree(t *testing.T, fs vfs.FS, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	names, err := fs.List(root)
	if err != nil {
		return out
	}
	for _, n := range names {
		p := path.Join(root, n)
		info, err := fs.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		if info.Dir {
			out[p+"/"] = ""
			for k, v := range tree(t, fs, p) {
				out[k] = v
			}
			continue
		}
		data, err := vfs.ReadFile(fs, p)
		if err != nil {
			t.Fatal(err)
		}
		out[p] = string(data)
	}
	return out
}

func open(t *testing.T, o IdentityOptions) *Identity {
	t.Helper()
	id, err := OpenIdentity(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	})
	return id
}

func TestIdentityOfAnEmptyDirectory(t *testing.T) {
	fs := newMem()
	id := open(t, options(fs, "/data/a", "/data/b"))
	if id.ClusterID != uuid(1001).String() || id.NodeID != 1 || !id.MayBootstrap || !id.New || id.RaftDir() != "/data/a/raft" {
		t.Errorf("%+v", id)
	}
	dirs := []DataDir{{"/data/a", uuid(1002)}, {"/data/b", uuid(1003)}}
	if diff := cmp.Diff(dirs, id.Dirs); diff != "" {
		t.Error(diff)
	}
	if id.Metadata != dirs[0] {
		t.Errorf("metadata %v", id.Metadata)
	}
	want := "#\n#\nnode.id=1\ndirectory.id=" + uuid(1003).String() + "\nversion=1\ncluster.id=" + id.ClusterID + "\n"
	if got, err := vfs.ReadFile(fs, "/data/b/meta.properties"); err != nil || string(got) != want {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
	for _, after := range []*memfs.FS{fs, fs.Crash(memfs.Lose, 1)} {
		again := open(t, options(after, "/data/a", "/data/b"))
		if again.ClusterID != id.ClusterID || !slices.Equal(again.Dirs, id.Dirs) || !again.MayBootstrap || again.New {
			t.Errorf("the second start sees %+v", again)
		}
	}
}

func TestIdentityTakesOver(t *testing.T) {
	const inner = "/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
	static := string(formatted(t, "static"))
	tests := []struct {
		name  string
		files map[string]string
		by    []string
	}{
		{"what kafka-storage format leaves", map[string]string{
			"/a/meta.properties": "#\n#Sun Nov 29 21:10:45 UTC 2026\n" + meta(1, 7, testCluster), inner: static, "/b/meta.properties": meta(1, 8, testCluster),
		}, []string{inner}},
		{"what older ones leave", map[string]string{
			"/a/meta.properties": meta(1, 7, testCluster), "/a/bootstrap.checkpoint": static, "/b/meta.properties": meta(1, 8, testCluster), "/b/bootstrap.checkpoint": static,
		}, []string{"/a/bootstrap.checkpoint", "/b/bootstrap.checkpoint"}},
		{"an interrupted start", map[string]string{
			"/a/meta.properties": meta(1, 7, testCluster), "/b/meta.properties.tmp": "half", "/b/lost+found/x": "",
		}, nil},
		{"no directory id", map[string]string{
			"/a/meta.properties": "version=1\ncluster.id=" + testCluster + "\nnode.id=1\n", "/b/meta.properties": meta(1, 8, testCluster),
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fs := newMem()
			for name, content := range tt.files {
				put(t, fs, name, content)
			}
			id := open(t, options(fs, "/a", "/b"))
			if id.ClusterID != testCluster || !id.MayBootstrap || id.Dirs[0].ID.IsZero() || id.Dirs[1].ID.IsZero() {
				t.Errorf("%+v", id)
			}
			if diff := cmp.Diff(tt.by, id.FormattedBy); diff != "" {
				t.Error(diff)
			}
			want := map[string]int16{"metadata.version": 33, "eligible.leader.replicas.version": 1, "transaction.version": 2}
			if tt.by == nil {
				want = nil
			}
			if diff := cmp.Diff(want, id.levels()); diff != "" {
				t.Error(diff)
			}
			for name := range tt.files {
				if strings.HasSuffix(name, ".checkpoint") {
					if ok, err := vfs.Exists(fs, name); !ok || err != nil {
						t.Errorf("%s is gone (%v)", name, err)
					}
				}
			}
		})
	}
}

func TestIdentityWithARaftStore(t *testing.T) {
	fs := newMem()
	put(t, fs, "/a/meta.properties", meta(1, 7, testCluster))
	put(t, fs, "/m/meta.properties", meta(1, 9, testCluster))
	put(t, fs, "/m/raft/wal", "x")
	o := options(fs, "/a")
	o.MetadataDir = "/m"
	id := open(t, o)
	if !id.MayBootstrap || id.Metadata != (DataDir{"/m", uuid(209)}) || len(id.Dirs) != 1 || id.RaftDir() != "/m/raft" {
		t.Errorf("%+v", id)
	}
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, fs, "/a/orders-0/00000000000000000000.log", "x")
	if id := open(t, o); id.MayBootstrap {
		t.Error("a node with records may not bootstrap itself")
	}
}

func TestIdentityRefuses(t *testing.T) {
	a := meta(1, 7, testCluster)
	tests := []struct {
		name    string
		files   map[string]string
		cluster string
		want    string
	}{
		{"somebody's files", map[string]string{"/a/photo.jpg": "x"}, "", "use directory /a: it is not empty and there is no metadata store in /a/raft; found photo.jpg"},
		{"a partition", map[string]string{"/a/meta.properties": a, "/b/orders-0/00000000000000000000.log": "x"}, "", "use directory /b: it is not empty and there is no metadata store in /a/raft; found orders-0"},
		{"a used Kafka", map[string]string{"/a/meta.properties": a, "/a/__cluster_metadata-0/00000000000000000000.log": "x", "/a/recovery-point-offset-checkpoint": ""}, "",
			"use directory /a: it is not empty and there is no metadata store in /a/raft; found __cluster_metadata-0/00000000000000000000.log, recovery-point-offset-checkpoint"},
		{"a raft store at the wrong place", map[string]string{"/b/raft/x": ""}, "", "use directory /b: it is not empty and there is no metadata store in /a/raft; found raft"},
		{"an emptied raft store", map[string]string{"/a/meta.properties": a, "/a/raft/x": "", "/b/orders-0/00000000000000000000.log": "x"}, "",
			"use directory /b: it is not empty and there is no metadata store in /a/raft; found orders-0"},
		{"another node's", map[string]string{"/a/meta.properties": meta(2, 7, testCluster)}, "", "use directory /a: it belongs to node 2, and this is node 1"},
		{"two clusters", map[string]string{"/a/meta.properties": a, "/b/meta.properties": meta(1, 8, "other")}, "", "use directory /b: it belongs to cluster other, but /a/meta.properties says " + testCluster},
		{"configured cluster", map[string]string{"/a/meta.properties": a}, "xyz", "use directory /a: it belongs to cluster " + testCluster + ", but the setting kaja.cluster.id says xyz"},
		{"a copy", map[string]string{"/a/meta.properties": a, "/b/meta.properties": a}, "", "use directory /b: it has the same directory.id as /a: one is a copy of the other"},
		{"lost disk", map[string]string{"/a/meta.properties": a, "/a/raft/x": ""}, "", "use directory /b: it has no meta.properties, but the node's metadata store in /a/raft exists"},
		{"lost identity", map[string]string{"/a/raft/x": ""}, "", "use directory /a: it has no meta.properties, but the node's metadata store in /a/raft exists"},
		{"old version", map[string]string{"/a/meta.properties": "version=0\nbroker.id=1\n"}, "", `read /a/meta.properties: version is "", want 1`},
		{"no node", map[string]string{"/a/meta.properties": "version=1\ncluster.id=x\n"}, "", `read /a/meta.properties: node.id is "", want a number from 0 on`},
		{"reserved", map[string]string{"/a/meta.properties": "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=" + uuid(99).String()}, "", "read /a/meta.properties: directory.id " + uuid(99).String() + " is reserved"},
		{"a file in the way", map[string]string{"/a": "x"}, "", "list directory /a: readdir /a: not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fs := newMem()
			for name, content := range tt.files {
				put(t, fs, name, content)
			}
			if tt.name == "old version" {
				tt.want = strings.Replace(tt.want, `""`, `"0"`, 1)
			}
			if tt.name == "an emptied raft store" {
				if err := fs.Remove("/a/raft/x"); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, fs, "/")
			o := options(fs, "/a", "/b")
			o.ClusterID = tt.cluster
			id, err := OpenIdentity(o)
			if err == nil {
				t.Fatalf("accepted as %+v", id)
			}
			if err.Error() != tt.want {
				t.Errorf("\n got %s\nwant %s", err, tt.want)
			}
			if e, ok := errors.AsType[*StartError](err); !ok || e.Todo == "" {
				t.Errorf("no word on what to do: %#v", err)
			}
			if diff := cmp.Diff(before, tree(t, fs, "/")); diff != "" {
				t.Errorf("the directories changed: %s", diff)
			}
		})
	}
}

func TestIdentityListsAtMostTenStrangers(t *testing.T) {
	fs := newMem()
	for i := range 12 {
		put(t, fs, fmt.Sprintf("/a/f%02d", i), "")
	}
	_, err := OpenIdentity(options(fs, "/a"))
	if err == nil || !strings.HasSuffix(err.Error(), "found f00, f01, f02, f03, f04, f05, f06, f07, f08, f09 and 2 more") {
		t.Error(err)
	}
}

func TestIdentityIsLocked(t *testing.T) {
	fs := newMem()
	id := open(t, options(fs, "/a"))
	_, err := OpenIdentity(options(fs, "/a"))
	if err == nil || err.Error() != "lock directory /a: another process uses it" {
		t.Errorf("second process: %v", err)
	}
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, options(fs, "/a"))
}

func TestIdentityOnAFullDisk(t *testing.T) {
	fs := faultfs.New(newMem())
	fs.SetSpace(10)
	_, err := OpenIdentity(options(fs, "/a"))
	e, ok := errors.AsType[*StartError](err)
	if !ok || !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(e.Todo, "Free some space on the disk of /a") {
		t.Errorf("%v (%+v)", err, e)
	}
	if got := tree(t, fs, "/a"); len(got) != 1 {
		t.Errorf("left behind: %v", got)
	}
}

// What the operating system says of a directory that can't be used comes with what to do about it, and leaves nothing behind.
func TestIdentityWhereNothingCanBeWritten(t *testing.T) {
	for _, tt := range []struct {
		err  syscall.Errno
		todo string
	}{
		{syscall.EACCES, "Make /a writable for the user that runs kaja"},
		{syscall.EPERM, "Make /a writable for the user that runs kaja"},
		{syscall.EROFS, "Make /a writable for the user that runs kaja"},
		{syscall.EDQUOT, "Free some space on the disk of /a"},
		{syscall.ENOTDIR, "Choose a directory with log.dirs; there is a file in the way."},
		{syscall.EIO, "Check the directory and the disk, then start again."},
	} {
		for _, op := range []faultfs.Op{faultfs.OpMkdir, faultfs.OpCreate, faultfs.OpWrite, faultfs.OpLock} {
			mem := newMem()
			fs := faultfs.New(mem)
			rule := fs.Add(faultfs.Rule{Op: op, Err: tt.err})
			_, err := OpenIdentity(options(fs, "/a"))
			e, ok := errors.AsType[*StartError](err)
			if rule.Hits() == 0 || !ok || !errors.Is(err, tt.err) || !strings.HasPrefix(e.Todo, tt.todo) {
				t.Errorf("%s: %v (hit %d): %v (%+v)", op, tt.err, rule.Hits(), err, e)
			}
			if m, err := readMeta(mem, "/a"); m != nil || err != nil {
				t.Errorf("%s: %v: left an identity: %v, %v", op, tt.err, m, err)
			}
		}
	}
}

// Every call of the first start fails once. Afterwards, and after a crash at that point, each directory has no identity
// or a whole one, nothing strange lies about, and the next start works.
func TestIdentityWhenAnyCallFails(t *testing.T) {
	for _, times := range []int{1, 0} { // this call alone; this call and all after it
		for n := 1; ; n++ {
			mem := newMem()
			fs := faultfs.New(mem)
			rule := fs.Add(faultfs.Rule{Nth: n, Times: times, Err: syscall.EIO})
			id, err := OpenIdentity(options(fs, "/data/a", "/data/b"))
			hit := rule.Hits() > 0
			if !hit {
				if err != nil {
					t.Fatal(err)
				}
				if n < 20 {
					t.Errorf("only %d calls were tried", n)
				}
				break
			}
			if err == nil {
				t.Logf("call %d: the failure did not matter", n)
				if err := id.Close(); err != nil {
					t.Logf("call %d: close: %v", n, err)
				}
			}
			for i, fate := range []memfs.Fate{memfs.Lose, memfs.Keep, memfs.Coin} {
				after := mem.Crash(fate, uint64(n))
				for _, dir := range []string{"/data/a", "/data/b"} {
					checkWhole(t, after, dir, n)
				}
				again, err := OpenIdentity(options(after, "/data/a", "/data/b"))
				if err != nil {
					t.Fatalf("call %d, fate %d: the next start: %v", n, i, err)
				}
				if !again.MayBootstrap || again.ClusterID == "" {
					t.Errorf("call %d: the next start: %+v", n, again)
				}
				if err := again.Close(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func checkWhole(t *testing.T, fs vfs.FS, dir string, n int) {
	t.Helper()
	m, err := readMeta(fs, dir)
	if err != nil {
		t.Errorf("call %d: %s: half an identity: %v", n, dir, err)
	}
	if m != nil && m.directoryID.IsZero() {
		t.Errorf("call %d: %s: no directory id", n, dir)
	}
}
