package coord

import (
	"context"
	"time"

	"github.com/kajamq/kaja/wire"
)

// Record is one fact in a coordinator's log. A nil Value is a tombstone. The holder must not change the bytes.
type Record struct {
	Key, Value []byte
}

// Pos says where a replayed record stands.
type Pos struct {
	Offset        wire.Offset
	Timestamp     time.Time // of the record, wall clock
	ProducerID    wire.ProducerID
	ProducerEpoch wire.ProducerEpoch
	Transactional bool // the record becomes visible with its marker only
}

// Machine is what a core gives the runtime. Replay and ReplayMarker are the only ways its hard state changes, live and
// on load alike. They must not fail on records that this version wrote; a failure marks the shard FAILED.
type Machine interface {
	Replay(rec Record, at Pos) error
	ReplayMarker(id wire.ProducerID, epoch wire.ProducerEpoch, commit bool) error
}

// ProducerRef makes the records of a Batch one transactional batch of this producer.
type ProducerRef struct {
	ID    wire.ProducerID
	Epoch wire.ProducerEpoch
	// Guard vouches that the transaction's coordinator knows of this log (KIP-890); 0 is none. A log that asks for one
	// refuses the batch with INVALID_TXN_STATE unless it gave this guard and the transaction has not ended since, or has
	// the producer's transaction open already.
	Guard uint64
}

// Marker is an end-of-transaction marker to append instead of records.
type Marker struct {
	ProducerRef
	CoordinatorEpoch int32
	Commit           bool
	V2               bool // the epoch is later than that of the transaction's records
}

// Batch is what one append holds: records, or one marker.
type Batch struct {
	Records   []Record
	Producer  *ProducerRef
	Marker    *Marker
	Timestamp time.Time // of the records; Replay sees the same on the live path and on load
}

// Empty reports whether there is nothing to append.
func (b Batch) Empty() bool { return len(b.Records) == 0 && b.Marker == nil }

// Token stands for a request that waits for its reply; 0 is none. A core never sees more of a request than this.
type Token uint64

// Reply answers the request behind Token, which may be any parked one and not just the one that caused the decision.
// Body is what the facade that posted the op expects. Err is set instead of Body when the request failed as a whole.
type Reply struct {
	Token Token
	Body  any
	Err   error
}

// Effect is something that leaves the process after commit (a timer is one, too). Effects are idempotent and are
// derived again from state on load.
type Effect any

// Timer is the effect that posts Op at At unless a later Timer with the same Key replaced it or At is zero (cancel).
// Expiry re-checks the state, so a stale timer is harmless.
type Timer[M Machine] struct {
	Key string
	At  time.Time
	Op  Op[M]
}

// Decision is what an Op makes of a machine that it only reads.
type Decision struct {
	Batch
	// Soft changes soft state (who waits, which timers run) right after the append; err is why it was refused. It may
	// return further replies and timers. After a refusal only these count: Replies and Effects are dropped, the op's
	// own token is answered with err unless Soft answers it, and any other token stays parked, since nothing changed.
	Soft    func(err error) (replies []Reply, effects []Effect)
	Replies []Reply
	Effects []Effect
}

// Op reads m, never writes it. now is the runtime's clock: monotonic for deadlines, wall for record timestamps.
type Op[M Machine] func(m M, tok Token, now time.Time) Decision

// Log is implemented by a partition with leadership (broker/replica).
type Log interface {
	// Append refuses with an error and no effect (the error wraps the *kerr.Error that a producer would be told; any
	// other is unexpected), or accepts, giving the offset of the batch's first record; done then reports commit (err
	// nil, end exclusive) or loss, in append order, from any goroutine, never while Append runs and never under a lock
	// that Append needs.
	Append(epoch wire.LeaderEpoch, b Batch, done func(end wire.Offset, err error)) (base wire.Offset, err error)
	// Load replays the log from its start up to its end; end is exclusive. The first replies wait for HW >= end.
	Load(ctx context.Context, m Machine) (end wire.Offset, err error)
	// WaitCommitted calls done once HW >= end, or with an error when the leadership is lost first.
	WaitCommitted(end wire.Offset, done func(err error))
}
