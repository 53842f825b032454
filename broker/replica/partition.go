package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ErrOffline matches the error of everything in a log directory that failed, or in none.
var ErrOffline = errors.New("log directory is offline")

// world is what all partitions of a Manager share.
type world struct {
	now     func() time.Time // monotonic, for lag and deadlines
	wall    func() time.Time
	aged    *clock // for what deletes by age
	logger  *slog.Logger
	codecs  *compress.Codecs
	metrics *metrics
	isr     *isrKeeper
	// unsure says that this broker may have been replaced as a leader without its knowing.
	unsure func() bool
	// timed notes a partition that wants a flush by its flush.ms at the given time.
	timed func(p *Partition, at time.Time)
	// damaged is told of a partition that rot has put out of service.
	damaged func(p *Partition)
}

// Partition is one replica on this broker: its state, its log, and who waits for it. Safe for concurrent use.
//
// Until the first append there may be no log: the directory of a partition that never held a record does not exist.
type Partition struct {
	TP      wire.TopicPartition
	TopicID wire.UUID

	world  *world
	at     atomic.Pointer[home] // changes under appendMu and mu
	config atomic.Pointer[log.Config]
	// coordinates says that Elected was called and Resigned not yet; of the goroutine that calls Open and Apply.
	coordinates bool
	// cleaned is where the last compaction ended, NoOffset if there was none.
	cleaned atomic.Int64
	lag     atomic.Int64 // of a follower: records up to its leader's high watermark, at the last fetch

	guards Guards

	// appendMu orders appends, changes of leadership and of the log's start. It is held over file I/O.
	appendMu xsync.Mutex
	// rewound says that a truncation has taken the recovery point back and that this is not on disk yet; under appendMu.
	rewound bool

	// hasTxns says that transactional records were seen, so that the log has to be asked for its first unstable offset.
	hasTxns atomic.Bool
	// ending says that a marker may not be below the high watermark yet, so that a move of that has to be told to the log.
	ending atomic.Bool

	// moved grows, under mu, with what a reader may have to be told: the log's bounds, who leads, the end of service.
	moved atomic.Uint64

	mu         sync.Mutex // guards what follows; held for moments
	state      *State
	trail      trail
	mark       purgatory.Mark
	generation uint64
	broken     error       // why the partition serves nothing: ErrOffline, kerr.InconsistentTopicID, …
	lowWanted  wire.Offset // up to which somebody waits for the low watermark; 0: nobody
	flushAsked bool        // flush.messages or flush.ms wants a flush
	proposeAt  time.Time   // no ISR is proposed before: the controller has just refused one

	readers purgatory.Readers
	commits purgatory.Commits // wait for the high watermark
	flushes purgatory.Commits // acks=1 that wait for this replica's own flush
	lows    purgatory.Commits // DeleteRecords that wait for the low watermark
}

// Appended is the result of an append, and the ticket to wait with.
type Appended struct {
	First, End    wire.Offset // End is exclusive
	LogAppendTime int64       // milliseconds, -1 for CreateTime
	LogStart      wire.Offset
	Duplicate     bool
	generation    uint64
	wait          waitFor
	ownFlush      bool
}

type waitFor uint8

const (
	waitNone waitFor = iota
	waitHW
	waitFlush
)

// Waits reports whether the answer has to wait (Watch).
func (a Appended) Waits() bool { return a.wait != waitNone }

// OwnFlush reports whether the wait is for this broker's own disk.
func (a Appended) OwnFlush() bool { return a.ownFlush }

// note is what has to be told once the locks are released.
type note struct {
	mark       purgatory.Mark
	generation uint64
	hw         wire.Offset
	flushed    wire.Offset
	outcome    error
	change     Change
	kick       bool
}

// fullDiskRetry is how long a flush that found the disk full, or no descriptor, waits before it is tried again.
const fullDiskRetry = time.Second

// Config is the topic's configuration. It must not be changed.
func (p *Partition) Config() *log.Config { return p.config.Load() }

// CheckProduce says whether this replica would take an append now: leadership, and for acks=-1 enough replicas in sync.
// It lets a request be refused before its records are looked at.
func (p *Partition) CheckProduce(acks int16) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writableLocked(wire.NoLeaderEpoch, acks)
}

func (p *Partition) writableLocked(epoch wire.LeaderEpoch, acks int16) error {
	if err := p.usableLocked(); err != nil {
		return err
	}
	if err := p.dir().failed(); err != nil {
		return err
	}
	if err := p.state.CheckLeader(epoch); err != nil {
		return err
	}
	if acks == -1 && p.state.UnderMinISR() {
		return kerr.NotEnoughReplicas
	}
	return nil
}

// usableLocked is nil while the partition is served. A log directory that failed ends writing (writableLocked), not
// reading: a sole replica stays the leader and gives out what it holds below its high watermark.
func (p *Partition) usableLocked() error { return p.broken }

// AppendAsLeader appends what log.Validate has made of a request's records. It takes v's bytes as they are: they may be
// reused when it has returned. epoch NoLeaderEpoch is the current one, anything else must be it.
//
// Errors: kerr.NotLeaderForPartition, FencedLeaderEpoch, UnknownLeaderEpoch, NotEnoughReplicas, ErrOffline and those of
// log.AppendAsLeader; NotLeaderForPartition instead of one that rests on what the log knows of the producer, from a leader that
// may have been replaced without its knowing.
func (p *Partition) AppendAsLeader(v *log.Validated, epoch wire.LeaderEpoch, acks int16) (Appended, error) {
	return p.append(v, epoch, acks, nil)
}

// append is AppendAsLeader with a callback for a coordinator, which is queued before anybody else can append.
func (p *Partition) append(v *log.Validated, epoch wire.LeaderEpoch, acks int16, done func(end wire.Offset, err error)) (Appended, error) {
	return p.appendAdmitted(v, epoch, acks, 0, done)
}

// appendAdmitted is append with the guard that vouches for a transaction.
func (p *Partition) appendAdmitted(v *log.Validated, epoch wire.LeaderEpoch, acks int16, guard uint64, done func(end wire.Offset, err error)) (Appended, error) {
	p.appendMu.Lock()
	p.mu.Lock()
	err := p.writableLocked(epoch, acks)
	epoch = p.state.assignment.LeaderEpoch
	start := p.state.epochStart
	p.mu.Unlock()
	if err != nil {
		p.appendMu.Unlock()
		return Appended{}, err
	}
	if !image.IsInternal(p.TP.Topic) {
		if err := p.dir().space.take(int64(len(v.Batch))); err != nil {
			p.appendMu.Unlock()
			return Appended{}, err
		}
	}
	plog := p.plog()
	if plog == nil {
		plog, err = p.openLog(epoch, start)
	} else if p.rewound {
		err = p.settleTruncation()
	}
	if err != nil {
		p.appendMu.Unlock()
		return Appended{}, p.storageFailed(err)
	}
	if guard != 0 && v.Txn.MustBeOpen {
		p.guards.Admit(v, guard, epoch)
	}
	got, err := plog.AppendAsLeader(v, epoch)
	if err == nil && v.Batch.Transactional() && !got.Duplicate {
		p.guards.Spend(v.Batch)
	}
	if err != nil {
		p.appendMu.Unlock()
		return Appended{}, p.refused(err)
	}
	a := Appended{First: got.First, End: got.Last + 1, LogAppendTime: got.LogAppendTime, LogStart: got.LogStart, Duplicate: got.Duplicate}
	if v.Batch.Transactional() {
		p.hasTxns.Store(true)
		if v.Batch.Control() {
			p.ending.Store(true)
		}
	}
	n, err := p.noteAppend(plog, int64(len(v.Batch)), acks, &a, done)
	p.appendMu.Unlock()
	if err != nil {
		return Appended{}, err
	}
	p.flushByConfig(plog, &n)
	if done != nil {
		p.tellLater(n)
	} else {
		p.tell(n)
	}
	return a, nil
}

// Unsure reports whether this broker may have been replaced as the partition's leader without its knowing.
func (p *Partition) Unsure() bool { return p.world.unsure() }

// refused is the answer to a batch that the log has not taken. What a log knows of a producer ends where its leadership did: a
// leader that may have been replaced without its knowing must not call wrong what may be right for its successor.
func (p *Partition) refused(err error) error {
	for _, of := range []error{kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidTxnState, kerr.TransactionCoordinatorFenced} {
		if errors.Is(err, of) && p.world.unsure() {
			return fmt.Errorf("%w: this broker may have been replaced; its log says: %s", kerr.NotLeaderForPartition, err.Error())
		}
	}
	return p.storageFailed(err)
}

// openLog makes the directory and the log of a partition that gets its first record.
func (p *Partition) openLog(epoch wire.LeaderEpoch, start wire.Offset) (*log.Log, error) {
	plog, err := p.makeLog()
	if err != nil {
		return nil, err
	}
	if err := plog.AssignEpochStart(epoch, start); err != nil {
		return nil, errors.Join(err, plog.Close())
	}
	p.at.Load().plog.Store(plog)
	return plog, nil
}

// noteAppend takes an append into the state. appendMu is held. It fails when the directory has failed since the append
// was let in: whoever waited then was told by fail, and this one would wait in a generation that nothing moves any more.
func (p *Partition) noteAppend(plog *log.Log, size int64, acks int16, a *Appended, done func(end wire.Offset, err error)) (note, error) {
	unstable := p.firstUnstable(plog)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.dir().failed(); err != nil {
		return note{}, err
	}
	a.generation, a.ownFlush = p.generation, p.state.CountsFlushed() || p.state.AckWaitsForFlush()
	if !a.Duplicate {
		p.trail.append(a.End, size)
		p.world.metrics.appended(size, int64(a.End-a.First))
	}
	c := p.state.OnAppend(plog.EndOffset(), unstable, p.world.now())
	switch {
	case done != nil || acks == -1:
		a.wait = waitHW
	case acks == 1 && p.state.AckWaitsForFlush():
		a.wait = waitFlush
	}
	if done != nil {
		end := a.End
		p.commits.Push(a.generation, end, func(err error) { done(end, err) })
	} else if (a.wait == waitHW && p.state.hw >= a.End) || (a.wait == waitFlush && p.state.flushed >= a.End) {
		a.wait = waitNone
	}
	return p.noteLocked(c), nil
}

// noteLocked turns a change of the state into what has to be told.
func (p *Partition) noteLocked(c Change) note {
	s := p.state
	if c.any() {
		p.moved.Add(1)
		p.mark.Bytes[purgatory.UpToLEO] = p.trail.total()
		if c.HW {
			p.dir().hwDirty.Store(true)
			p.mark.Bytes[purgatory.UpToHW] = p.trail.at(s.hw)
		}
		if lso := s.LSO(); c.LSO || lso == s.hw {
			p.mark.Bytes[purgatory.UpToLSO] = max(p.mark.Bytes[purgatory.UpToLSO], p.trail.at(lso))
			p.trail.forget(lso)
		}
	}
	n := note{mark: p.mark, generation: p.generation, hw: s.hw, flushed: s.flushed, change: c, kick: s.NeedsFlush()}
	if s.MaximalISR() < s.MinISR() {
		n.outcome = kerr.NotEnoughReplicasAfterAppend
	}
	return n
}

// onLogStartLocked takes a new start of the log.
func (p *Partition) onLogStartLocked(start wire.Offset) Change {
	if start > p.state.logStart {
		p.moved.Add(1)
	}
	return p.state.OnLogStart(start)
}

// tell wakes who waits. The caller holds no lock.
func (p *Partition) tell(n note) {
	if n.kick {
		p.kick()
	}
	if n.change.any() {
		p.readers.Advance(n.mark)
	}
	if n.change.HW {
		p.settleTxns(n.hw) // first: who is told that a marker is committed finds the LSO behind it
		p.commits.Advance(n.generation, n.hw, n.outcome)
	}
}

// tellLater is tell for a coordinator's append, whose callbacks must not run before the append has returned: the
// flusher's goroutine calls them.
func (p *Partition) tellLater(n note) {
	if n.change.any() {
		p.readers.Advance(n.mark)
	}
	if n.change.HW {
		p.commits.Move(n.generation, n.hw, n.outcome)
	}
	if n.kick || n.change.HW {
		p.kick()
	}
}

// flushByConfig honours flush.messages and flush.ms.
func (p *Partition) flushByConfig(plog *log.Log, n *note) {
	cfg := p.Config()
	if plog.NeedsFlush(p.world.wall()) {
		n.kick = true
		p.forceFlush()
	} else if cfg.FlushInterval < log.Forever && p.world.timed != nil {
		p.world.timed(p, p.world.now().Add(cfg.FlushInterval))
	}
}

// serve runs on a flusher's goroutine.
func (p *Partition) serve(h *home) {
	p.mu.Lock()
	plog := h.plog.Load()
	need := plog != nil && (p.state.NeedsFlush() || p.flushAsked) && p.usableLocked() == nil && h.dir.failed() == nil
	p.flushAsked = false
	p.mu.Unlock()
	if need {
		if err := p.flush(h, plog); err != nil {
			return // storageFailed has told everybody
		}
	}
	p.settleTxns(p.Offsets().HW)
	p.commits.Drain()
	p.flushes.Drain()
}

func (p *Partition) flush(h *home, plog *log.Log) error {
	began := p.world.now()
	err := plog.FlushRecords()
	if errors.Is(err, log.ErrClosed) {
		return err // the partition was deleted meanwhile, which has told everybody, or has moved, and its log is flushed
	}
	p.world.metrics.flushed(p.world.now().Sub(began))
	if err != nil {
		p.flushFailed(h, plog, err)
		return err
	}
	p.mu.Lock()
	c := p.state.OnFlushed(plog.FlushedOffset(), p.world.now())
	n := p.noteLocked(c)
	p.mu.Unlock()
	p.flushes.Advance(n.generation, n.flushed, nil)
	p.tell(n)
	return nil
}

// flushFailed ends writing to the directory, because nobody knows what was written, a sync that found no space included. Only
// where nothing but space or descriptors were missing (log.Passing) the log goes on: whoever waits is told, and the flush is
// tried again when they may be back.
func (p *Partition) flushFailed(h *home, plog *log.Log, err error) {
	if !log.Passing(err) || plog.Err() != nil {
		h.dir.fail(err)
		return
	}
	p.interrupt(err)
	p.forceFlush()
	if p.world.timed != nil {
		p.world.timed(p, p.world.now().Add(fullDiskRetry))
	}
}

func (p *Partition) forceFlush() {
	p.mu.Lock()
	p.flushAsked = true
	p.mu.Unlock()
}

// storageFailed takes the log directory offline when err says that the disk failed: nobody knows what it holds, so
// nothing after it may be acknowledged, and no fsync is tried again. A full disk or a lack of descriptors only refuses.
func (p *Partition) storageFailed(err error) error { return p.at.Load().failed(err) }

// Watch makes c wait, as its index-th partition, for what the answer to a rests on.
func (p *Partition) Watch(c *purgatory.Commit, index int, a Appended) {
	if a.wait == waitFlush {
		p.flushes.Watch(c, index, a.generation, a.End)
		return
	}
	p.commits.Watch(c, index, a.generation, a.End)
}

// endGenerationLocked starts a new generation, in which nobody waits yet: whoever waits is to be told err and readers
// are to look again, which the caller has done with tellEnd once it has released its locks.
func (p *Partition) endGenerationLocked(err error) purgatory.Mark {
	p.moved.Add(1)
	p.generation++
	p.mark.Generation = p.generation
	p.commits.End(p.generation, p.state.hw, err)
	p.flushes.End(p.generation, p.state.flushed, err)
	p.lows.End(p.generation, wire.NoOffset, err)
	p.lowWanted = 0
	return p.mark
}

func (p *Partition) tellEnd(m purgatory.Mark) {
	p.readers.Interrupt(m)
	p.commits.Drain()
	p.flushes.Drain()
	p.lows.Drain()
}

// applied is what came of an assignment.
type applied struct {
	fresh       bool // the leader epoch is new
	leads, led  bool // this replica is, and was, the leader
	newFollower bool // of this leader: somebody has to begin to fetch
	renews      bool // the log holds a later leader epoch, and the controller is to be asked for one above
}

// apply takes the metadata's word.
func (p *Partition) apply(a Assignment) (applied, error) {
	p.appendMu.Lock()
	tellCut, err := p.finishCut(a.Leader)
	newest, rebuilt, epochErr := p.logEpoch(a)
	err = errors.Join(err, epochErr)
	p.mu.Lock()
	x := applied{led: p.state.Leading()}
	under, replicas, before := p.state.UnderMinISR(), len(p.state.assignment.Replicas), p.state.standing()
	fresh, c := p.state.Apply(a, p.world.now())
	after := p.state.standing()
	x.fresh, x.leads = fresh, p.state.Leading()
	x.newFollower = x.leads && (fresh || len(a.Replicas) > replicas)
	var m purgatory.Mark
	if fresh {
		m = p.endGenerationLocked(kerr.NotLeaderForPartition)
		p.proposeAt = time.Time{}
	} else if !under {
		p.refuseLocked()
	}
	if fresh || rebuilt {
		p.state.OnLogEpoch(newest)
	}
	x.renews = p.proposeLocked(p.state.Renewal())
	p.moveLowLocked()
	n := p.noteLocked(c)
	epoch, start := p.state.assignment.LeaderEpoch, p.state.epochStart
	p.mu.Unlock()
	if plog := p.plog(); plog != nil && (fresh || rebuilt) && x.leads && err == nil {
		err = plog.AssignEpochStart(epoch, start)
	}
	p.appendMu.Unlock()
	tellCut()
	if fresh {
		p.tellEnd(m)
	} else {
		p.commits.Drain()
		p.lows.Drain()
	}
	p.tell(n)
	p.countISR(before, after)
	if x.renews {
		p.world.logger.Warn("log holds a later leader epoch than the partition has, as that of another cluster: asking the controller for one above",
			"topic", p.TP.Topic, "partition", p.TP.Partition, "leader_epoch", epoch, "log_epoch", newest)
		p.world.isr.propose(p)
	}
	if err != nil {
		err = p.storageFailed(err)
	}
	return x, err
}

// logEpoch is the newest leader epoch in the log. One that is above a's and that no elections count up to is damage: before this
// replica leads, the log takes its epochs from its batches then, up to a's. appendMu is held.
func (p *Partition) logEpoch(a Assignment) (newest wire.LeaderEpoch, rebuilt bool, err error) {
	plog := p.plog()
	if plog == nil {
		return wire.NoLeaderEpoch, false, nil
	}
	newest = plog.LatestEpoch()
	if newest <= max(wire.MaxLogEpoch, a.LeaderEpoch) || a.Leader != p.state.self {
		return newest, false, nil
	}
	p.world.logger.Error("leader epoch of a log is beyond what there can be: rebuilding its epochs from its batches",
		"topic", p.TP.Topic, "partition", p.TP.Partition, "leader_epoch", a.LeaderEpoch, "log_epoch", newest)
	if err := plog.RebuildEpochs(a.LeaderEpoch); err != nil {
		return newest, false, err
	}
	return plog.LatestEpoch(), true, nil
}

// refuseLocked tells the producers that wait that too few replicas are in sync to ever commit what they sent, if that is
// so: the high watermark stands still until the ISR has grown again (KIP-966).
func (p *Partition) refuseLocked() {
	if p.state.Leading() && p.state.UnderMinISR() {
		p.commits.Refuse(p.generation, kerr.NotEnoughReplicasAfterAppend)
	}
}

// setConfig takes a new configuration of the topic.
func (p *Partition) setConfig(cfg *log.Config, fsync FSync) {
	p.config.Store(cfg)
	p.mu.Lock()
	changed := p.state.fsync != fsync
	p.state.fsync = fsync
	n := p.noteLocked(p.state.SetMinISR(cfg.MinInSyncReplicas, p.world.now()))
	if changed { // whoever was made to wait for a flush gets it, also when nobody would have to wait from now on
		p.flushAsked, n.kick = true, true
	}
	p.mu.Unlock()
	if plog := p.plog(); plog != nil {
		plog.SetConfig(cfg)
	}
	p.tell(n)
}

// stop ends the service of the partition: whoever waits or comes later is told err. It returns when no append is under
// way any more.
func (p *Partition) stop(err error) {
	p.appendMu.Lock()
	p.mu.Lock()
	if p.broken == nil {
		p.broken = err
	}
	m := p.endGenerationLocked(err)
	p.mu.Unlock()
	p.appendMu.Unlock()
	p.tellEnd(m)
}

// interrupt tells whoever waits that the directory has failed. It does not wait for an append that hangs in the disk.
func (p *Partition) interrupt(err error) {
	p.mu.Lock()
	m := p.endGenerationLocked(err)
	p.mu.Unlock()
	p.tellEnd(m)
}

// refuse keeps a partition that has no log, and nobody who waits for what it would hold, out of service.
func (p *Partition) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken == nil {
		p.broken = err
	}
}

// adopt gives a partition that was not published yet the log that was found for it.
func (p *Partition) adopt(plog *log.Log, hw wire.Offset) {
	p.at.Load().plog.Store(plog)
	plog.Replicated(hw) // what was read again ends transactions below the high watermark, which need not move for that
	unstable, open := plog.FirstUnstableOffset()
	p.hasTxns.Store(open)
	p.ending.Store(open)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	p.state = NewState(s.self, s.fsync, s.lag, s.min, plog.StartOffset(), plog.EndOffset(), plog.FlushedOffset(), hw)
	p.state.JudgeBy(s.mayJoin)
	if open {
		p.state.unstable = unstable
	}
}

// Err is why the partition takes no writes, or nil. With a failed log directory it may still be read.
func (p *Partition) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usableLocked(); err != nil {
		return err
	}
	return p.dir().failed()
}

// usable is why the partition is not served at all, or nil.
func (p *Partition) usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usableLocked()
}

// leading reports whether this replica leads, and under which epoch.
func (p *Partition) leading() (bool, wire.LeaderEpoch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Leading(), p.state.assignment.LeaderEpoch
}

func (p *Partition) underMinISR() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Leading() && p.state.UnderMinISR()
}

func (p *Partition) underReplicated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Leading() && len(p.state.assignment.ISR) < len(p.state.assignment.Replicas)
}

func (p *Partition) pathIn(d *logDir) string { return path.Join(d.path, p.TP.String()) }
