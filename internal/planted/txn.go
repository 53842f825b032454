package planted

// The bugs of transactions. Each comment says what the code then leaves out.
const (
	AbortedOffByOne       Bug = "aborted-index-off-by-one" // an aborted transaction begins with its first record
	AbortedOfOneSegment   Bug = "aborted-of-one-segment"   // the aborted transactions of a range are looked for in later segments, too
	StableIgnored         Bug = "stable-ignored"           // read_committed reads to the LSO, not to the high watermark
	RepliesTooSoon        Bug = "answer-before-commit"     // a coordinator answers once its record is committed
	MarkersForgotten      Bug = "markers-forgotten"        // a coordinator that takes over sends the markers that are owed
	EndEpochUnchecked     Bug = "end-epoch-unchecked"      // an EndTxn of an older incarnation is refused
	VerificationSkipped   Bug = "verification-skipped"     // a write to a transaction that its coordinator does not know is refused
	WriterEpochUnchecked  Bug = "writer-epoch-unchecked"   // the coordinator admits writes of the current incarnation only
	AnyEndRepeated        Bug = "any-end-is-a-repetition"  // an EndTxn that contradicts the outcome is refused
	TimeoutWithoutFence   Bug = "timeout-without-fence"    // the producer of a transaction that ran out of time is fenced
	InitKeepsOpen         Bug = "init-keeps-open"          // a new incarnation aborts what the old one left open
	OffsetsOnAbort        Bug = "offsets-on-abort"         // staged offsets go when their transaction aborts
	OffsetsForgotten      Bug = "offsets-forgotten"        // staged offsets are applied when it commits
	OffsetsAtOnce         Bug = "offsets-at-once"          // staged offsets are hidden until then
	DuplicateUnrecognised Bug = "duplicate-unrecognised"   // a batch that is sent again is not appended again
	MarkerToldTooSoon     Bug = "marker-told-too-soon"     // a marker is answered once it is below the high watermark
	GuardOutlivesLeader   Bug = "guard-outlives-leader"    // what a coordinator has admitted is not appended under a later leader epoch
	GuardOutlivesMarker   Bug = "guard-outlives-marker"    // nor after a marker
	LateMarkersTaken      Bug = "late-markers-taken"       // a marker that was given up is not taken after what was sent in its place
)

// TxnCluster lists the bugs of transactions that only several nodes show, or show in another way.
func TxnCluster() []Bug { return []Bug{MarkerToldTooSoon, MarkersForgotten} }

// TxnLoop lists the bugs of transactions that the event loop finds while leaders change. MarkerEpochUnchecked is not among them:
// markers that come late are kept out before their epoch is looked at.
func TxnLoop() []Bug {
	return []Bug{
		AbortedOffByOne, StableOffByOne, MarkersForgotten, EndEpochUnchecked, WriterEpochUnchecked, AnyEndRepeated, InitKeepsOpen,
		ProducersNotRewound, GuardOutlivesMarker, LateMarkersTaken,
	}
}

// Txn lists the bugs of transactions, those of the log among them. That markers are not sent before their decision is
// committed, and that nothing is complete before they are there, is shown by the exhaustive model (txn/state).
func Txn() []Bug {
	return []Bug{
		AbortedOffByOne, AbortedOfOneSegment, StableIgnored, StableOffByOne, RepliesTooSoon,
		MarkersForgotten, EndEpochUnchecked, VerificationSkipped, WriterEpochUnchecked, AnyEndRepeated, TimeoutWithoutFence,
		InitKeepsOpen, OffsetsOnAbort, OffsetsForgotten, OffsetsAtOnce, DuplicateUnrecognised, MarkerEpochUnchecked,
	}
}
