// Package stallfs wraps a vfs.FS and notices disks that hang: calls are under way, and none comes back.
//
// Every directory that it is told of is a disk of its own. Calls that reach the disk itself (Sync, SyncDir) are counted apart
// from those that the page cache may answer, since the latter go on for long on a disk that does nothing any more. A call
// that takes long while others come back is a slow disk, not a hanging one. The sync of a whole file system (Volume) is not
// counted: it waits for what other programs have written, too.
//
// It reads no clock: whoever calls Look at equal times counts. It starts no goroutine and holds no lock.
package stallfs
