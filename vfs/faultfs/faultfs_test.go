package faultfs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestNthCallFailsOnce(t *testing.T) {
	fs := faultfs.New(memfs.New(nil))
	rule := fs.Add(faultfs.Rule{Op: faultfs.OpSync, Path: "*.log", Nth: 2, Times: 1, Err: syscall.EIO})
	f, err := fs.Create("/0.log")
	must(t, err)
	must(t, f.Sync())
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("second sync: %v", err)
	}
	must(t, f.Sync())
	if rule.Hits() != 1 || fs.Calls(faultfs.OpSync) != 3 {
		t.Fatalf("%d hits of %d calls", rule.Hits(), fs.Calls(faultfs.OpSync))
	}
}

func TestSpaceRunsOut(t *testing.T) {
	fs := faultfs.New(memfs.New(nil))
	f, err := fs.Create("/f")
	must(t, err)
	fs.SetSpace(10)
	_, err = f.WriteAt([]byte("12345678"), 0)
	must(t, err)
	n, err := f.WriteAt([]byte("abcdefgh"), 6) // two bytes replaced, two fit
	if n != 4 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	fs.SetSpace(-1)
	got, err := vfs.ReadFile(fs, "/f")
	if err != nil || string(got) != "123456abcd" {
		t.Fatalf("read %q, %v", got, err)
	}
}

func TestShortWriteAndFlippedRead(t *testing.T) {
	fs := faultfs.New(memfs.New(nil))
	f, err := fs.Create("/f")
	must(t, err)
	fs.Add(faultfs.Rule{Op: faultfs.OpWrite, Times: 1, Short: 2, Err: syscall.EIO})
	if n, err := f.WriteAt([]byte("abcd"), 0); n != 2 || !errors.Is(err, syscall.EIO) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	_, err = f.Write([]byte("CDe"))
	must(t, err)
	fs.Add(faultfs.Rule{Op: faultfs.OpRead, Flip: 0x20, FlipAt: 2})
	got, err := vfs.ReadFile(fs, "/f")
	if err != nil || string(got) != "CDE" {
		t.Fatalf("read %q, %v", got, err)
	}
}
