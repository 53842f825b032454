package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

func options(fs vfs.FS) Options {
	return Options{FS: fs, Dir: "/meta", ClusterID: "ours", Logger: slog.New(slog.DiscardHandler), Wal: hclog.NewNullLogger()}
}

func newFS(t testing.TB) *memfs.FS {
	t.Helper()
	fs := memfs.New(func() time.Time { return time.Unix(0, 0) })
	return fs
}

func open(t testing.TB, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(options(fs))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

func entry(i uint64) *raft.Log {
	return &raft.Log{
		Index: i, Term: 3, Type: raft.LogCommand, Data: fmt.Appendf(nil, "data of entry %d", i),
		Extensions: []byte{byte(i)}, AppendedAt: time.Unix(1, int64(i)),
	}
}

func fill(t testing.TB, s *Store, from, to uint64) {
	t.Helper()
	// as raft does before the first entry of a term
	if err := s.SetUint64([]byte(keyCurrentTerm), 3); err != nil {
		t.Fatal(err)
	}
	for i := from; i <= to; i++ {
		if err := s.StoreLog(entry(i)); err != nil {
			t.Fatalf("store entry %d: %v", i, err)
		}
	}
}

// checkEntries checks that exactly the entries from first to last are there, as written.
func checkEntries(t testing.TB, s *Store, first, last uint64) {
	t.Helper()
	gotFirst, err1 := s.FirstIndex()
	gotLast, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil || gotFirst != first || gotLast != last {
		t.Fatalf("entries %d to %d (%v), want %d to %d", gotFirst, gotLast, err, first, last)
	}
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			t.Fatalf("read entry %d: %v", i, err)
		}
		if d := cmp.Diff(*entry(i), l); d != "" {
			t.Fatalf("entry %d differs (-want +got):\n%s", i, d)
		}
	}
}

func snapshot(t testing.TB, s *Store, index uint64, data []byte) {
	t.Helper()
	sink, err := s.Snapshots().Create(1, index, 3, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestReopenInOneProcess(t *testing.T) {
	fs := newFS(t)
	s := open(t, fs)
	fill(t, s, 1, 50)
	if err := s.SetUint64([]byte(keyCurrentTerm), 3); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs)
	checkEntries(t, s, 1, 50)
	if term, err := s.GetUint64([]byte(keyCurrentTerm)); term != 3 || err != nil {
		t.Errorf("term = %d, %v, want 3", term, err)
	}
	fill(t, s, 51, 60)
	checkEntries(t, s, 1, 60)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSegmentsRotate(t *testing.T) {
	fs := newFS(t)
	s := open(t, fs)
	fill(t, s, 1, 0) // the term, without entries
	big := entry(1)
	big.Data = bytes.Repeat([]byte("x"), 3<<20)
	for i := uint64(1); i <= 5; i++ {
		big.Index = i
		if err := s.StoreLog(big); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteRange(4, 5); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs)
	if last, err := s.LastIndex(); last != 3 || err != nil {
		t.Errorf("last index = %d, %v, want 3", last, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// C1: whatever a crash leaves of the two steps of a vote, the term of the new vote never stands beside the candidate of
// an older one.
func TestVoteIsAtomic(t *testing.T) {
	for n := 0; ; n++ {
		base := newFS(t)
		s := open(t, base)
		for _, step := range []error{
			s.SetUint64([]byte(keyLastVoteTerm), 1), s.Set([]byte(keyLastVoteCand), []byte("old")),
		} {
			if step != nil {
				t.Fatal(step)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		ffs := faultfs.New(base)
		s = open(t, ffs)
		calls := 0
		var crashed []*memfs.FS
		ffs.Before(func(faultfs.Op, string) {
			if calls == n {
				for seed := range uint64(8) {
					crashed = append(crashed, base.Crash(memfs.Coin, seed))
				}
			}
			calls++
		})
		err1 := s.SetUint64([]byte(keyLastVoteTerm), 2)
		err2 := s.Set([]byte(keyLastVoteCand), []byte("new"))
		ffs.Before(nil)
		if err := errors.Join(err1, err2, s.Close()); err != nil {
			t.Fatal(err)
		}
		if crashed == nil {
			if n == 0 {
				t.Fatal("a vote does nothing to the disk")
			}
			crashed = append(crashed, base.Crash(memfs.Coin, 1))
		}
		for _, fs := range crashed {
			s := open(t, fs)
			term, err1 := s.GetUint64([]byte(keyLastVoteTerm))
			cand, err2 := s.Get([]byte(keyLastVoteCand))
			if err := errors.Join(err1, err2, s.Close()); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%d %s", term, cand); got != "1 old" && got != "2 new" {
				t.Fatalf("crash before call %d: vote is %q", n, got)
			}
			if n >= calls && term != 2 {
				t.Fatal("a vote that was written is gone")
			}
		}
		if n >= calls {
			return
		}
	}
}

// C2: a flipped bit in any file is found when the store opens, or changes nothing.
func TestBitFlips(t *testing.T) {
	base := newFS(t)
	s := open(t, base)
	fill(t, s, 1, 40)
	snapshot(t, s, 20, bytes.Repeat([]byte("s"), 300))
	if err := errors.Join(s.SetUint64([]byte(keyLastVoteTerm), 3), s.Set([]byte(keyLastVoteCand), []byte("me")), s.Close()); err != nil {
		t.Fatal(err)
	}
	detected, harmless := 0, 0
	for _, name := range files(t, base, "/meta") {
		size := min(fileSize(t, base, name), 6000)
		for off := int64(0); off < size; off += 11 + off%29 {
			fs := base.Crash(memfs.Keep, 0)
			flip(t, fs, name, off, byte(1)<<(off%8))
			s, err := Open(options(fs))
			var bad *CorruptError
			if err != nil {
				detected++
				if !errors.As(err, &bad) {
					t.Errorf("%s at %d: error does not say what to do: %v", name, off, err)
				}
				continue
			}
			harmless++
			checkEntries(t, s, 1, 40)
			term, err1 := s.GetUint64([]byte(keyLastVoteTerm))
			cand, err2 := s.Get([]byte(keyLastVoteCand))
			if term != 3 || string(cand) != "me" || err1 != nil || err2 != nil {
				t.Errorf("%s at %d: vote is %d %q", name, off, term, cand)
			}
			checkSnapshot(t, s, 20, bytes.Repeat([]byte("s"), 300))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if detected == 0 {
		t.Error("no flip was detected")
	}
	t.Logf("%d flips detected, %d harmless", detected, harmless)
}

func checkSnapshot(t testing.TB, s *Store, index uint64, want []byte) {
	t.Helper()
	metas, err := s.Snapshots().List()
	if err != nil || len(metas) == 0 || metas[0].Index != index {
		t.Fatalf("snapshots = %v, %v, want one of index %d first", metas, err, index)
	}
	_, r, err := s.Snapshots().Open(metas[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("snapshot holds %q, %v, want %q", got, err, want)
	}
}

func files(t testing.TB, fs vfs.FS, dir string) []string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		full := path.Join(dir, n)
		info, err := fs.Stat(full)
		if err != nil {
			t.Fatal(err)
		}
		if info.Dir {
			out = append(out, files(t, fs, full)...)
		} else {
			out = append(out, full)
		}
	}
	return out
}

func fileSize(t testing.TB, fs vfs.FS, name string) int64 {
	t.Helper()
	info, err := fs.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size
}

func flip(t testing.TB, fs vfs.FS, name string, off int64, bit byte) {
	t.Helper()
	f, err := fs.OpenRW(name)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	b[0] ^= bit
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// The older of the two snapshots and the log behind it stay, so that a damaged newer one costs nothing (C4).
func TestLogReachesBackToTheOlderSnapshot(t *testing.T) {
	fs := newFS(t)
	s := open(t, fs)
	fill(t, s, 1, 100)
	firsts := map[uint64]uint64{30: 1, 60: 31, 90: 61}
	for _, index := range []uint64{30, 60, 90} {
		snapshot(t, s, index, []byte("state"))
		if err := s.DeleteRange(1, index-5); err != nil {
			t.Fatal(err)
		}
		if first, err := s.FirstIndex(); err != nil || first != firsts[index] {
			t.Errorf("after the snapshot at %d the log begins at %d (%v), want %d", index, first, err, firsts[index])
		}
	}
	checkEntries(t, s, 61, 100)
	metas, err := s.Snapshots().List()
	if err != nil || len(metas) != 2 || metas[0].Index != 90 || metas[1].Index != 60 {
		t.Fatalf("snapshots = %+v, %v, want 90 and 60", metas, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	newest := "/meta/snapshots/" + metas[0].ID + snapshotSuffix
	flip(t, fs, newest, 40, 4)
	var bad *CorruptError
	if _, err := Open(options(fs)); !errors.As(err, &bad) || bad.File != newest {
		t.Fatalf("open = %v, want a complaint about %s", err, newest)
	}
	if err := fs.Remove(newest); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs)
	checkEntries(t, s, 61, 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove("/meta/snapshots/" + metas[1].ID + snapshotSuffix); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(options(fs)); !errors.As(err, &bad) {
		t.Errorf("open without snapshots = %v, want a refusal: the log begins at 61", err)
	}
}

// After the first failed write nothing is tried again (C5, C6).
func TestFirstErrorIsFinal(t *testing.T) {
	ffs := faultfs.New(newFS(t))
	s := open(t, ffs)
	fill(t, s, 1, 3)
	ffs.Add(faultfs.Rule{Op: faultfs.OpSync, Err: errors.New("disk"), Times: 1})
	err := s.StoreLog(entry(4))
	if err == nil {
		t.Fatal("append whose sync failed was acknowledged")
	}
	select {
	case <-s.Failed():
	default:
		t.Error("the owner was not told")
	}
	if again := s.StoreLog(entry(4)); again == nil || again.Error() != err.Error() {
		t.Errorf("next append = %v, want the first error", again)
	}
	if err := s.SetUint64([]byte(keyCurrentTerm), 9); err == nil {
		t.Error("a term was written after the failure")
	}
}

// Every entry whose append returned survives every crash, whole and in order. raft-wal appends within a sector that
// holds acknowledged entries and takes for granted that a power loss spoils only what was being written (power-safe
// overwrite), so no sector is garbled here.
func TestCrashKeepsAcknowledged(t *testing.T) {
	base := newFS(t)
	ffs := faultfs.New(base)
	acked := uint64(0)
	type clone struct {
		fs    *memfs.FS
		acked uint64
	}
	var clones []clone
	ffs.Before(func(faultfs.Op, string) {
		clones = append(clones, clone{base.Crash(memfs.Lose, 0), acked}, clone{base.Crash(memfs.Keep, 0), acked})
	})
	s := open(t, ffs)
	for i := uint64(1); i <= 12; i++ {
		fill(t, s, i, i)
		acked = i
	}
	ffs.Before(nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for n, c := range clones {
		s, err := Open(options(c.fs))
		if err != nil {
			t.Fatalf("crash %d: %v", n, err)
		}
		last, err := s.LastIndex()
		if err != nil || last < c.acked || last > c.acked+1 {
			t.Fatalf("crash %d: last entry %d (%v), acknowledged %d", n, last, err, c.acked)
		}
		if last > 0 {
			checkEntries(t, s, 1, last)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without its vote a node could vote twice in a term, and without the mark of the log's end a damaged tail would be cut:
// a store that misses either beside entries is refused, and so is one of another cluster.
func TestMissingFilesAndOtherClusters(t *testing.T) {
	for _, tt := range []struct {
		name string
		fs   func(t *testing.T, fs *memfs.FS)
		id   string
		want string
	}{
		{"whole", func(*testing.T, *memfs.FS) {}, "ours", ""},
		{"no vote", func(t *testing.T, fs *memfs.FS) { remove(t, fs, "/meta/VOTE") }, "ours", "/meta/VOTE"},
		{"no mark", func(t *testing.T, fs *memfs.FS) { remove(t, fs, "/meta/log/END") }, "ours", "/meta/log/END"},
		{"other cluster", func(*testing.T, *memfs.FS) {}, "theirs", `cluster "ours"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := newFS(t)
			s := open(t, fs)
			fill(t, s, 1, 3)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			tt.fs(t, fs)
			o := options(fs)
			o.ClusterID = tt.id
			s, err := Open(o)
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				checkEntries(t, s, 1, 3)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("open: %v, want a refusal that names %s", err, tt.want)
			}
		})
	}
}

func remove(t *testing.T, fs *memfs.FS, name string) {
	t.Helper()
	if err := fs.Remove(name); err != nil {
		t.Fatal(err)
	}
}
