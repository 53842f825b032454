// Package planted holds bugs that are put into the code on purpose, one switch each, in builds with the tag "planted"
// only. A test that cannot find a planted bug proves nothing: `go test -tags planted -run Planted ./log` demands that
// each is found, and tells after how many cases. Without the tag On is constant and the compiler drops the branches. The
// wall clock of a process with the tag can be put wrong, too.
package planted

// Bug names a planted bug.
type Bug string

// The bugs of the log. Each comment says what the code then leaves out.
const (
	ProducersNotRewound   Bug = "producers-not-rewound"    // truncation takes the producer state back
	WindowOfOne           Bug = "window-of-one"            // five batches per producer are remembered, not one
	MarkerEpochUnchecked  Bug = "marker-epoch-unchecked"   // a marker of an older producer epoch is refused
	StableOffByOne        Bug = "stable-off-by-one"        // the LSO is the first offset of the oldest open transaction
	FsyncSkipped          Bug = "fsync-skipped"            // the recovery point moves after the fsync of the data
	DirSyncSkipped        Bug = "directory-sync-skipped"   // a new segment's name is durable before the recovery point passes it
	ChecksumUnchecked     Bug = "checksum-unchecked"       // recovery checks the checksum of each batch
	FollowerUnchecked     Bug = "follower-unchecked"       // so does a follower with what it fetched
	IndexTrusted          Bug = "index-trusted"            // an index entry is compared with the batch that it names
	TimeIndexTrusted      Bug = "time-index-trusted"       // and so is a time index entry
	TxnIndexNotCut        Bug = "transaction-index-stays"  // truncation takes aborted transactions out of the index
	EpochsNotCut          Bug = "epochs-not-cut"           // truncation takes leader epochs back
	TruncateUnsynced      Bug = "truncation-not-durable"   // a truncation is durable when it returns
	StartForgotten        Bug = "log-start-forgotten"      // a restart begins at the checkpointed log start
	FailedWriteStays      Bug = "failed-write-stays"       // a failed write is cut off again
	RecoveryStartsTooLate Bug = "recovery-starts-too-late" // the segment that the recovery point lies in is read again
)

// Log lists the bugs of the log.
func Log() []Bug {
	return []Bug{
		ProducersNotRewound, WindowOfOne, MarkerEpochUnchecked, StableOffByOne, FsyncSkipped, DirSyncSkipped, ChecksumUnchecked,
		FollowerUnchecked, IndexTrusted, TimeIndexTrusted, TxnIndexNotCut, EpochsNotCut, TruncateUnsynced, StartForgotten,
		FailedWriteStays, RecoveryStartsTooLate,
	}
}
