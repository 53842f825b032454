// Package filepool is a vfs.FS whose open files share a bounded number of descriptors.
//
// A file opened through it is open for as long as its owner says, but holds a descriptor only while it is used: when more
// than the budget are open, those that were not used for longest are closed, and opened again by name on next use. A
// rename takes the names of open files along, and a file whose name goes away keeps its descriptor, so that an open file
// stays what it is. One with bytes that were not synced is synced before its descriptor goes, and an error of that is the
// answer to the next Sync: no failed write-back is lost with a descriptor.
//
// Locks: shard.mu (several in ascending order; covers the file I/O of what changes names and of opening by name) → FS.mu
// (moments). It starts no goroutine.
package filepool
