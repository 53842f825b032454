//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// mounts is where disks are mounted, in the process's own mounts only.
const mounts = "/run/kaja-chaos"

// world stands in for testing.TB where disks are made (loopdisk.T). What it cannot do ends the run by a panic(failure).
type world struct {
	dir      string // for logs and results, of this run alone
	cleanups []func()
}

// newWorld takes the directory of a run, which another run may not have, and makes the place for its disks. netns.Enter comes first.
func newWorld(dir string) (*world, error) {
	w := &world{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory for logs: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the directory for logs: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("another run is using %s, give this one its own by -dir: %w", dir, err), lock.Close())
	}
	w.Cleanup(func() { _ = lock.Close() })
	if err := os.MkdirAll(mounts, 0o755); err != nil {
		return nil, fmt.Errorf("make the place for disks: %w", err)
	}
	if err := syscall.Mount("none", mounts, "tmpfs", 0, "size=1m"); err != nil {
		return nil, fmt.Errorf("mount on %s: %w", mounts, err)
	}
	return w, nil
}

// own gives a copy of a program in the run's directory: who builds the program anew meanwhile changes nothing.
func (w *world) own(program string) (name string, err error) {
	from, err := os.Open(program)
	if err != nil {
		return "", fmt.Errorf("copy a program: %w", err)
	}
	defer func() { _ = from.Close() }() // it was only read
	if name, err = filepath.Abs(filepath.Join(w.dir, filepath.Base(program))); err != nil {
		return "", fmt.Errorf("copy a program: %w", err)
	}
	_ = os.Remove(name) // of an earlier run
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return "", fmt.Errorf("copy a program: %w", err)
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return "", fmt.Errorf("copy %s: %w", program, err)
	}
	return name, nil
}

// failure is why a run could not be made.
type failure struct{ why string }

// Helper does nothing.
func (w *world) Helper() {}

// Fatal ends the run.
func (w *world) Fatal(args ...any) { panic(failure{fmt.Sprint(args...)}) }

// Fatalf ends the run.
func (w *world) Fatalf(format string, args ...any) { panic(failure{fmt.Sprintf(format, args...)}) }

// Skip ends the run.
func (w *world) Skip(args ...any) { w.Fatal(args...) }

// TempDir makes a directory that is gone in the end.
func (w *world) TempDir() string {
	dir, err := os.MkdirTemp(mounts, "disk-")
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = os.Remove(dir) })
	return dir
}

// Cleanup runs f in the end, the last one first.
func (w *world) Cleanup(f func()) { w.cleanups = append(w.cleanups, f) }

// end runs what is to be run in the end, each whatever comes of the others.
func (w *world) end() {
	for _, f := range slices.Backward(w.cleanups) {
		func() {
			defer func() {
				if r := recover(); r != nil {
					fmt.Fprintln(os.Stderr, "chaos: cleaning up:", r)
				}
			}()
			f()
		}()
	}
}
