// Package raftstore keeps what hashicorp/raft must not lose: its log (raft-wal under a checksumming codec), its term and
// vote, and its snapshots, all over vfs.
//
// Directory layout:
//
//	log/          raft-wal's segments, and META, their list
//	log/END       a lower bound of the last index: entries that a damaged tail would cut off are missed
//	VOTE          term, vote term and candidate as one checksummed record
//	snapshots/    one checksummed file a snapshot, the newest two
//
// Everything read is verified by CRC32C. Whatever does not verify at Open is reported as *CorruptError, which names the
// file, and the store does not open. After the first failed write the store answers every call with that error: nothing
// is retried, and Failed tells the owner.
//
// Goroutines: raft-wal's segment rotation. Locks: one xsync.Mutex serialises callers before they reach raft-wal, so that
// nobody waits for raft-wal's own mutex while another does file I/O.
package raftstore
