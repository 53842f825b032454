// Package faultfs wraps a vfs.FS and makes calls fail or hang: by rule (operation, path, n-th call), by a budget of bytes
// (ENOSPC), and by what a reader sees (bit flips). It also counts calls and can run a hook before each one that changes
// the disk, which is how a test takes a crash clone between every two calls.
//
// One mutex covers the rules; it is not held over calls of the wrapped file system. It starts no goroutine.
package faultfs
