// Package vfs is the one way to the disk: a small file-system interface with the operating system's implementation,
// and the atomic write that every state file uses.
//
// vfs/memfs is the same interface in memory with crash clones (what survives a power loss), vfs/faultfs makes any call
// fail. Nothing above this package imports os for files. It starts no goroutine.
package vfs
