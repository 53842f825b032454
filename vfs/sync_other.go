//go:build unix && !linux

package vfs

import "os"

func syncData(f *os.File) error { return f.Sync() }
