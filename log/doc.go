// Package log is one partition's log in Kafka's own files: segments with sparse offset and time indexes, aborted
// transactions, producer state, leader-epoch cache, validation, recovery, truncation and retention. docs/storage-format.md
// draws every file.
//
// It knows no network, no request type and no leadership; it starts no goroutine and reads no clock but the one it is
// given.
//
// Locks, in order: Log.flushMu (a flush, which syncs without the next one; and everything that removes, cuts or renames
// files), Log.mu (everything that changes the log, file I/O included), segment.openMu (opening files on first use), and
// the plain mutexes of a segment, a table and a handle, held for moments. Readers take neither of the first two: they
// load the list of segments and pin a range of one file; bytes that were promised to a reader are never overwritten
// (segment.truncate), and a reader that collides with a truncation starts again. The first use of a log that rests after a
// clean stop (rest.go), a read included, opens its files under Log.mu.
package log
