//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
)

// world stands in for testing.TB where disks are made (loopdisk.T). What it cannot do ends the run by a panic(failure).
type world struct {
	dir      string
	cleanups []func()
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
	dir, err := os.MkdirTemp("", "kaja-chaos-")
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
