package replica

import (
	"errors"
	"fmt"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What a partition does as a follower. Only its source's fetcher calls these.

// errNotFollowing says that this replica does not follow under the epoch that it was asked about: the metadata has moved
// on, and with it whoever fetches.
var errNotFollowing = errors.New("replica does not follow under this leader epoch")

// errUnflushed says that kaja.fsync=always wants a flush before the leader may be told of what was stored.
var errUnflushed = errors.New("replica has not flushed what it stored")

// position is what a follower tells its leader of itself.
type position struct {
	offset   wire.Offset      // everything below it is held; as safe as kaja.fsync wants it
	last     wire.LeaderEpoch // the newest epoch of the log; NoLeaderEpoch: none
	logStart wire.Offset
}

// followsLocked checks that this replica follows under epoch and may write. mu is held.
func (p *Partition) followsLocked(epoch wire.LeaderEpoch) error {
	switch err := p.usableLocked(); {
	case err != nil:
		return err
	case p.state.Leading() || p.state.assignment.LeaderEpoch != epoch:
		return errNotFollowing
	}
	return p.dir().failed()
}

func (p *Partition) follows(epoch wire.LeaderEpoch) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.followsLocked(epoch)
}

// position is where this follower stands. Errors: errNotFollowing, ErrOffline; errUnflushed, and then a flush was asked for.
func (p *Partition) position(epoch wire.LeaderEpoch) (position, error) {
	p.mu.Lock()
	err := p.followsLocked(epoch)
	at := position{offset: p.state.Held(), last: wire.NoLeaderEpoch, logStart: p.state.logStart}
	unflushed := at.offset < p.state.leo
	p.mu.Unlock()
	if err == nil && unflushed {
		p.kick()
		return at, errUnflushed
	}
	if plog := p.plog(); plog != nil && err == nil {
		at.last = plog.LatestEpoch()
	}
	return at, err
}

// fetched is what a leader has sent for one partition.
type fetched struct {
	from         wire.Offset // that was asked for
	records      []byte      // whole batches, and perhaps a piece of one; not kept
	hw, logStart wire.Offset // the leader's
}

// appendAsFollower stores what the leader of epoch has sent, as it is, and takes over its high watermark and log start.
// A batch that is damaged, out of order or of an impossible epoch is not stored, nor is anything that came with it.
//
// It reports whether the log start has moved, which the caller makes durable before the leader is told of it.
//
// Errors: errNotFollowing, *log.CorruptError, kerr.OffsetOutOfRange when the leader's log begins beyond this one's end,
// ErrOffline, those of log.AppendAsFollower.
func (p *Partition) appendAsFollower(epoch wire.LeaderEpoch, f fetched) (started bool, err error) {
	p.appendMu.Lock()
	n, err := p.takeFetched(epoch, f)
	p.appendMu.Unlock()
	if err != nil {
		return false, p.storageFailed(err)
	}
	if n.plog != nil && len(f.records) > 0 {
		p.flushByConfig(n.plog, &n.note)
	}
	p.tell(n.note)
	return n.started, nil
}

type followerNote struct {
	note
	plog    *log.Log
	started bool
}

// takeFetched is appendAsFollower with appendMu held.
func (p *Partition) takeFetched(epoch wire.LeaderEpoch, f fetched) (followerNote, error) {
	if err := p.follows(epoch); err != nil {
		return followerNote{}, err
	}
	plog, got := p.plog(), stored{}
	if len(f.records) > 0 {
		var err error
		if plog, err = p.writable(plog, f.from); err != nil {
			return followerNote{}, err
		}
		if got, err = p.store(plog, epoch, f); err != nil {
			if got.restarted { // or not even that; and nothing was appended
				unstable := p.firstUnstable(plog)
				p.mu.Lock()
				p.noteLocked(p.state.OnTruncate(plog.StartOffset(), plog.EndOffset(), unstable))
				p.mu.Unlock()
			}
			return followerNote{}, err
		}
	}
	before := wire.Offset(0)
	if plog != nil {
		before = plog.StartOffset()
	}
	start, err := p.followStart(plog, f.logStart)
	if err != nil {
		return followerNote{}, err
	}
	unstable := wire.NoOffset
	if plog != nil {
		unstable = p.firstUnstable(plog)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := Change{}
	if got.restarted {
		c = p.state.OnTruncate(start, got.base, wire.NoOffset)
	}
	if got.size > 0 {
		end := plog.EndOffset()
		p.trail.append(end, got.size)
		p.world.metrics.replicated(got.size)
		c = c.and(p.state.OnAppend(end, unstable, p.world.now()))
	}
	c = c.and(p.state.OnLeaderHW(f.hw)).and(p.onLogStartLocked(start))
	return followerNote{p.noteLocked(c), plog, start > before}, nil
}

// writable is the log, made if need be, with its recovery point on disk if a truncation has taken it back. appendMu is
// held.
func (p *Partition) writable(plog *log.Log, end wire.Offset) (*log.Log, error) {
	if err := p.settleTruncation(); err != nil {
		return nil, err
	}
	if plog != nil {
		return plog, nil
	}
	plog, err := p.makeLog()
	if err != nil {
		return nil, err
	}
	if end > 0 {
		if err := plog.TruncateFullyAndStart(end); err != nil {
			return nil, errors.Join(err, plog.Close())
		}
	}
	p.at.Load().plog.Store(plog)
	return plog, nil
}

// settleTruncation writes down a recovery point that a truncation has taken back: until then nothing may be appended, or
// a crash would leave new records below the old recovery point, which recovery does not read. appendMu is held.
func (p *Partition) settleTruncation() error {
	if !p.rewound {
		return nil
	}
	if err := p.dir().writeRecoveryPoints(); err != nil {
		return &log.StorageError{Op: "write the recovery point", File: p.dir().path, Err: err}
	}
	p.rewound = false
	return nil
}

// stored is what store has done.
type stored struct {
	size      int64 // bytes
	restarted bool  // the log was begun anew, a little earlier than it ended, at base
	base      wire.Offset
}

// store appends the whole batches of f. appendMu is held.
func (p *Partition) store(plog *log.Log, epoch wire.LeaderEpoch, f fetched) (stored, error) {
	size, kinds, err := checkFetched(f.records, plog.LatestEpoch(), epoch)
	if err != nil || size == 0 {
		return stored{}, err
	}
	end := plog.EndOffset()
	if end != f.from {
		return stored{}, fmt.Errorf("log ends at %d and not at %d: %w", end, f.from, errNotFollowing)
	}
	if !image.IsInternal(p.TP.Topic) {
		if err := p.dir().space.take(size); err != nil {
			return stored{}, err
		}
	}
	got := stored{size: size, base: batch.Batch(f.records).BaseOffset()}
	if got.base < end && end <= max(plog.StartOffset(), f.logStart) {
		if got.restarted, err = true, p.restartAt(plog, got.base, f.records); err != nil {
			return got, err
		}
	}
	if kinds.txn {
		p.hasTxns.Store(true)
	}
	if kinds.control {
		p.ending.Store(true)
	}
	_, err = plog.AppendAsFollower(f.records)
	return got, err
}

// restartAt begins a log anew at base, below its end: the leader's log starts within a batch (DeleteRecords), which comes
// whole (Kafka: Partition.appendRecordsToFollowerOrFutureReplica). What the log holds, if anything, lies before the leader's
// start: a former leader that was cut back to there, where its own batches end elsewhere than the leader's. appendMu is held.
func (p *Partition) restartAt(plog *log.Log, base wire.Offset, records []byte) error {
	if b, _, err := batch.Next(records); err != nil || b.LastOffset() < plog.EndOffset() || b.CheckCRC() != nil {
		return &log.CorruptError{File: "fetched records", Reason: fmt.Sprintf("a batch at %d does not hold offset %d", base, plog.EndOffset())}
	}
	p.rewound = true
	if err := plog.TruncateFullyAndStart(base); err != nil {
		return err
	}
	return p.settleTruncation()
}

// batchKinds says what batches were met.
type batchKinds struct{ txn, control bool }

// checkFetched looks at the headers of what a leader of epoch has sent to a log whose newest epoch is last: epochs never
// fall, and none is beyond the leader's own (Kafka: UnifiedLog.append). It gives the size of the whole batches. What their
// checksums cover, and their offsets, are checked by the log.
func checkFetched(records []byte, last, epoch wire.LeaderEpoch) (size int64, k batchKinds, err error) {
	for rest := records; ; {
		b, r, err := batch.Next(rest)
		pos := int64(len(records) - len(rest))
		if errors.Is(err, batch.ErrShort) {
			return pos, k, nil
		}
		if err != nil {
			return 0, k, &log.CorruptError{File: "fetched records", Pos: pos, Reason: err.Error()}
		}
		e := b.LeaderEpoch()
		if e < last || e > epoch {
			return 0, k, &log.CorruptError{File: "fetched records", Pos: pos,
				Reason: fmt.Sprintf("leader epoch %d of a batch after epoch %d, from a leader in epoch %d", e, last, epoch)}
		}
		last = e
		k.txn = k.txn || b.Transactional()
		k.control = k.control || b.Control() && b.Transactional()
		rest = r
	}
}

// followStart moves the log start up to the leader's, which may not lie beyond the end of this log. appendMu is held.
func (p *Partition) followStart(plog *log.Log, leaderStart wire.Offset) (wire.Offset, error) {
	if plog == nil {
		if leaderStart > 0 {
			return 0, kerr.OffsetOutOfRange
		}
		return 0, nil
	}
	if leaderStart <= plog.StartOffset() {
		return plog.StartOffset(), nil
	}
	if leaderStart > plog.EndOffset() {
		return 0, kerr.OffsetOutOfRange
	}
	err := plog.IncrementStart(leaderStart)
	return plog.StartOffset(), err
}

// truncateAsFollower cuts the log where its history and that of the leader of epoch part.
func (p *Partition) truncateAsFollower(epoch wire.LeaderEpoch, d EpochEnd) error {
	return p.cut(epoch, func(plog *log.Log) error {
		if err := plog.Wake(); err != nil {
			return err
		}
		return plog.TruncateTo(TruncationOffset(plog, d))
	})
}

// truncateTo cuts the log to end.
func (p *Partition) truncateTo(epoch wire.LeaderEpoch, end wire.Offset) error {
	return p.cut(epoch, func(plog *log.Log) error { return plog.TruncateTo(end) })
}

// startOver gives up everything and goes on at start, where the leader's log begins.
func (p *Partition) startOver(epoch wire.LeaderEpoch, start wire.Offset) error {
	return p.cut(epoch, func(plog *log.Log) error { return plog.TruncateFullyAndStart(start) })
}

// cut runs a truncation and brings everything that rests on the log back with it. Whoever reads looks again; what was
// promised to slow readers stays as it was (log.TruncateTo).
func (p *Partition) cut(epoch wire.LeaderEpoch, do func(*log.Log) error) error {
	p.appendMu.Lock()
	tell, err := p.cutLocked(epoch, do)
	p.appendMu.Unlock()
	tell()
	if err != nil {
		return p.storageFailed(err)
	}
	return nil
}

// cutLocked is cut with appendMu held; tell is called without it, whatever err is.
func (p *Partition) cutLocked(epoch wire.LeaderEpoch, do func(*log.Log) error) (tell func(), err error) {
	if err := p.follows(epoch); err != nil {
		return func() {}, err
	}
	plog, err := p.writable(p.plog(), 0)
	if err != nil {
		return func() {}, err
	}
	flushed := plog.FlushedOffset()
	err = do(plog)
	p.rewound = p.rewound || err != nil || plog.FlushedOffset() < flushed
	if err != nil && !log.Passing(err) {
		return func() {}, err
	}
	return p.wentBack(plog), err // an error that passes leaves no more to do than files
}

// wentBack brings everything that rests on the log back to where that ends now. appendMu is held; tell is called without it.
func (p *Partition) wentBack(plog *log.Log) (tell func()) {
	end, unstable := plog.EndOffset(), p.firstUnstable(plog)
	p.cleaned.Store(min(p.cleaned.Load(), int64(end)))
	p.mu.Lock()
	hw, leo := p.state.hw, p.state.leo
	c := p.state.OnTruncate(plog.StartOffset(), end, unstable)
	p.trail.truncate(end)
	m := p.endGenerationLocked(kerr.NotLeaderForPartition)
	n := p.noteLocked(c)
	p.mu.Unlock()
	if end != leo {
		p.world.truncated(p, hw, leo, end)
	}
	return func() {
		p.tellEnd(m)
		p.tell(n)
	}
}

// finishCut finishes a truncation that lacked space or a descriptor, before this replica leads, and looks at the log anew. A log
// that can't takes no writes any more. appendMu is held; tell is called without it, whatever err is.
func (p *Partition) finishCut(leader wire.BrokerID) (tell func(), err error) {
	plog := p.plog()
	if leader != p.state.self || plog == nil {
		return func() {}, nil
	}
	if finished, err := plog.FinishCut(); err != nil || !finished {
		return func() {}, err
	}
	return p.wentBack(plog), nil
}

// truncated tells of a truncation. Records below the high watermark go only after an election of a replica that was not in
// sync, or when a follower starts over at the start of its leader's log.
func (w *world) truncated(p *Partition, hw, leo, end wire.Offset) {
	w.metrics.truncations.Inc()
	if end < hw {
		w.logger.Warn("log was cut below its high watermark: the leader does not have these records", "topic", p.TP.Topic,
			"partition", p.TP.Partition, "hw", hw, "end_offset", end, "was", leo)
		return
	}
	w.logger.Info("log was cut to its leader's history", "topic", p.TP.Topic, "partition", p.TP.Partition, "end_offset", end, "was", leo)
}
