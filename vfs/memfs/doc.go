// Package memfs is a vfs.FS in memory that knows what a power loss would leave.
//
// Each file keeps the bytes of its last Sync beside the current ones, with the set of 512-byte sectors that differ;
// each directory keeps the names of its last SyncDir beside the operations since. Crash makes a new file system out of
// it: every pending sector is kept, lost or garbled (the bytes in it that changed), and every pending name kept or lost,
// by a seeded coin. Operations on one name keep their order, and a rename is one step. What was synced (file and
// directory) is always there. A file may be left with any size that it had since its last Sync. Allows tells whether a
// state is one that a crash may leave: the tests hold it against what ext4 and XFS keep of the same calls.
//
// One mutex per FS covers short critical sections and is never held over anything that blocks. It starts no goroutine.
package memfs
