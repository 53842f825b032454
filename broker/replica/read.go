package replica

import (
	"errors"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ReadOptions say what a consumer wants of a partition.
type ReadOptions struct {
	Offset           wire.Offset
	LeaderEpoch      wire.LeaderEpoch // NoLeaderEpoch: not compared
	LastFetchedEpoch wire.LeaderEpoch // NoLeaderEpoch: no check for divergence
	Max              int              // bytes
	MinOne           bool             // the first batch comes whole however small Max is
	Committed        bool             // read_committed: up to the LSO, with aborted transactions
	anyReplica       bool             // a follower answers, too
}

// ReadResult is what Read found. The segments are pinned until their Done is called.
type ReadResult struct {
	Segments  []wire.Segment
	Size      int64
	HW, LSO   wire.Offset // exclusive
	LogStart  wire.Offset
	Aborted   []log.AbortedTransaction
	Diverging *EpochEnd // then nothing was read
	Withheld  bool      // there is data, but its first batch exceeds Max
	Mark      purgatory.Mark
	Bound     purgatory.Bound
	end       bool   // there was nothing to read
	moved     uint64 // Partition.moved then
}

// bounds is a consistent look at a partition.
type bounds struct {
	hw, lso, start, leo wire.Offset
	epoch               wire.LeaderEpoch
	epochStart          wire.Offset
	mark                purgatory.Mark
	moved               uint64
}

// look checks that this replica may answer as the leader and takes its bounds.
func (p *Partition) look(epoch wire.LeaderEpoch) (bounds, error) {
	return p.lookIf(func(s *State) error { return s.CheckLeader(epoch) })
}

// lookIf takes the bounds of a replica that passes a check.
func (p *Partition) lookIf(check func(*State) error) (bounds, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.usableLocked(); err != nil {
		return bounds{}, err
	}
	if err := check(p.state); err != nil {
		return bounds{}, err
	}
	s := p.state
	return bounds{hw: s.hw, lso: s.LSO(), start: s.logStart, leo: s.leo, epoch: s.assignment.LeaderEpoch, epochStart: s.epochStart, mark: p.mark,
		moved: p.moved.Load()}, nil
}

// Read reads for a consumer. Between the bound (HW or LSO) and the log end there is nothing to read and no error; outside
// of the log it is kerr.OffsetOutOfRange, at which clients begin anew where they are told to. So a leader that may have been replaced
// without its knowing answers what lies beyond its log with kerr.NotLeaderForPartition, other than Kafka's: its successor may
// have it. Other errors: those of CheckLeader, ErrOffline, the log's.
func (p *Partition) Read(o ReadOptions) (ReadResult, error) {
	bound := purgatory.UpToHW
	if o.Committed {
		bound = purgatory.UpToLSO
	}
	r, _, err := p.readAs(o, bound)
	return r, err
}

// ReadReplica is Read for a tool that compares replicas (replica id -2 of a Fetch): one that follows answers as well, up to the high
// watermark that it knows. Errors: those of CheckEpoch, kerr.OffsetOutOfRange, ErrOffline, the log's.
func (p *Partition) ReadReplica(o ReadOptions) (ReadResult, error) {
	o.anyReplica = true
	return p.Read(o)
}

// StillEnd reports whether r had nothing to read and reading again would find nothing else: nothing has been appended or committed
// since, the log has not lost its beginning, and nobody else leads. It takes no lock, so that a fetch that has waited with
// thousands of partitions is answered for what has changed in one.
func (p *Partition) StillEnd(r *ReadResult) bool { return r.end && r.moved == p.moved.Load() }

// readAs reads up to a bound.
func (p *Partition) readAs(o ReadOptions, bound purgatory.Bound) (ReadResult, bounds, error) {
	b, err := p.lookIf(func(s *State) error {
		if o.anyReplica {
			return s.CheckEpoch(o.LeaderEpoch)
		}
		return s.CheckLeader(o.LeaderEpoch)
	})
	if err != nil {
		return ReadResult{}, b, err
	}
	r := ReadResult{HW: b.hw, LSO: b.lso, LogStart: b.start, Mark: b.mark, Bound: bound, moved: b.moved}
	end := [...]wire.Offset{purgatory.UpToHW: b.hw, purgatory.UpToLSO: b.lso, purgatory.UpToLEO: b.leo}[bound]
	if planted.On(planted.StableIgnored) && bound == purgatory.UpToLSO {
		end = b.hw
	}
	at := p.at.Load()
	plog := at.plog.Load()
	if o.LastFetchedEpoch != wire.NoLeaderEpoch {
		if r.Diverging, err = p.divergence(plog, b, o); errors.Is(err, kerr.OffsetOutOfRange) {
			return ReadResult{}, b, p.beyond(bound)
		}
		if err != nil || r.Diverging != nil {
			return r, b, err
		}
	}
	switch {
	case o.Offset < b.start:
		return ReadResult{}, b, kerr.OffsetOutOfRange
	case o.Offset > b.leo:
		return ReadResult{}, b, p.beyond(bound)
	}
	if o.Offset >= end || plog == nil {
		r.end = true
		return r, b, nil
	}
	got, err := plog.Read(o.Offset, log.ReadOptions{Max: o.Max, End: end, MinOne: o.MinOne})
	if err != nil {
		return ReadResult{}, b, at.readFailed(err)
	}
	r.Segments, r.Size, r.Withheld = got.Segments, int64(got.Size), got.TooLarge
	if bound != purgatory.UpToLEO {
		p.world.metrics.read(r.Size)
	}
	if o.Committed && got.Size > 0 {
		r.Aborted = plog.AbortedTransactions(o.Offset, got.UpperBound)
	}
	return r, b, nil
}

// beyond is the answer to a reader that knows of more than this log has.
func (p *Partition) beyond(bound purgatory.Bound) error {
	if bound != purgatory.UpToLEO && p.world.unsure() {
		return kerr.NotLeaderForPartition
	}
	return kerr.OffsetOutOfRange
}

func (h *home) readFailed(err error) error {
	if errors.Is(err, log.ErrOffsetOutOfRange) {
		return kerr.OffsetOutOfRange
	}
	return h.failed(err)
}

// divergence compares the reader's last epoch with this leader's history.
func (p *Partition) divergence(plog *log.Log, b bounds, o ReadOptions) (*EpochEnd, error) {
	if err := p.knowsEpoch(plog, o.LastFetchedEpoch); err != nil {
		return nil, err
	}
	e, diverges, err := Divergence(historyOf(plog), b.epoch, b.leo, o.Offset, o.LastFetchedEpoch)
	if err != nil || !diverges {
		return nil, err
	}
	return &e, nil
}

// knowsEpoch makes sure that the log, nil for none, can be asked for the end of an epoch.
func (p *Partition) knowsEpoch(plog *log.Log, epoch wire.LeaderEpoch) error {
	if plog == nil {
		return nil
	}
	if err := plog.WakeForEpoch(epoch); err != nil {
		return p.storageFailed(err)
	}
	return nil
}

// historyOf keeps a partition without a log from looking like one with.
func historyOf(plog *log.Log) History {
	if plog == nil {
		return nil
	}
	return plog
}

// WatchRead parks f until this partition has more to read for r than it had. room is how many more bytes of this
// partition may count.
func (p *Partition) WatchRead(f *purgatory.Fetch, r ReadResult, room int64) {
	p.readers.Watch(f, r.Mark, r.Bound, room)
}

// EpochEnd answers OffsetForLeaderEpoch; an epoch that is not known gives NoLeaderEpoch and NoOffset without an error, or
// kerr.NotLeaderForPartition from a leader that may have been replaced without its knowing (see Read).
func (p *Partition) EpochEnd(current, epoch wire.LeaderEpoch) (EpochEnd, error) {
	b, err := p.look(current)
	if err != nil {
		return EpochEnd{}, err
	}
	plog := p.plog()
	if err := p.knowsEpoch(plog, epoch); err != nil {
		return EpochEnd{}, err
	}
	e, ok := epochEnd(historyOf(plog), b.epoch, b.leo, epoch)
	switch {
	case ok:
		return e, nil
	case p.world.unsure():
		return EpochEnd{}, kerr.NotLeaderForPartition
	}
	return EpochEnd{wire.NoLeaderEpoch, wire.NoOffset}, nil
}

// TimestampOffset is a record's position and time.
type TimestampOffset struct {
	Timestamp int64 // milliseconds; -1: none was asked for
	Offset    wire.Offset
	Epoch     wire.LeaderEpoch
}

// nowhere is the answer of a search that found nothing.
func nowhere() TimestampOffset {
	return TimestampOffset{wire.NoTimestamp, wire.NoOffset, wire.NoLeaderEpoch}
}

// Isolation is up to where a search sees records.
type Isolation uint8

// What consumers of either isolation level see, and what replicas and debugging tools see.
const (
	ReadUncommitted Isolation = iota
	ReadCommitted
	ReadAll
)

// settled checks that a consumer may be told an end: not before this leader's high watermark has reached the start of
// its epoch, or it would see the end go back (KIP-207).
func (b bounds) settled(i Isolation) (end wire.Offset, err error) {
	switch i {
	case ReadAll:
		return b.leo, nil
	case ReadCommitted:
		end = b.lso
	default:
		end = b.hw
	}
	if b.hw < b.epochStart {
		return end, kerr.OffsetNotAvailable
	}
	return end, nil
}

// Latest is the end that a reader sees.
func (p *Partition) Latest(current wire.LeaderEpoch, i Isolation) (TimestampOffset, error) {
	b, err := p.look(current)
	if err != nil {
		return TimestampOffset{}, err
	}
	end, err := b.settled(i)
	if err != nil {
		return TimestampOffset{}, err
	}
	return TimestampOffset{wire.NoTimestamp, end, b.epoch}, nil
}

// Earliest is the log start.
func (p *Partition) Earliest(current wire.LeaderEpoch) (TimestampOffset, error) {
	b, err := p.look(current)
	if err != nil {
		return TimestampOffset{}, err
	}
	t := TimestampOffset{wire.NoTimestamp, b.start, wire.NoLeaderEpoch}
	if plog := p.plog(); plog != nil {
		if err := plog.Wake(); err != nil {
			return TimestampOffset{}, p.storageFailed(err)
		}
		t.Epoch = plog.EpochAt(b.start)
	} else {
		t.Epoch = b.epoch
	}
	return t, nil
}

// AtTimestamp is the first record whose timestamp is at least ts, in milliseconds, if a reader sees it.
func (p *Partition) AtTimestamp(current wire.LeaderEpoch, i Isolation, ts int64) (TimestampOffset, error) {
	return p.search(current, i, func(plog *log.Log, end wire.Offset) (log.TimestampOffset, bool, error) {
		return plog.OffsetForTimestamp(ts, end)
	})
}

// AtMaxTimestamp is the first record that holds the largest timestamp, if a reader sees it.
func (p *Partition) AtMaxTimestamp(current wire.LeaderEpoch, i Isolation) (TimestampOffset, error) {
	return p.search(current, i, func(plog *log.Log, end wire.Offset) (log.TimestampOffset, bool, error) {
		return plog.MaxTimestamp(end)
	})
}

func (p *Partition) search(current wire.LeaderEpoch, i Isolation, find func(*log.Log, wire.Offset) (log.TimestampOffset, bool, error)) (TimestampOffset, error) {
	b, err := p.look(current)
	if err != nil {
		return TimestampOffset{}, err
	}
	at := p.at.Load()
	plog := at.plog.Load()
	end, unsettled := b.settled(i)
	if plog == nil {
		return nowhere(), unsettled
	}
	t, ok, err := find(plog, b.leo)
	switch {
	case err != nil:
		return TimestampOffset{}, at.failed(err)
	case !ok || t.Offset >= end:
		return nowhere(), unsettled
	}
	return TimestampOffset{t.Timestamp, t.Offset, t.LeaderEpoch}, nil
}

// Offsets are a replica's offsets, for listings and metrics.
type Offsets struct {
	LogStart, HW, LSO, LEO wire.Offset
	Leading                bool
	LeaderEpoch            wire.LeaderEpoch
}

// Offsets are the offsets now.
func (p *Partition) Offsets() Offsets {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state
	return Offsets{s.logStart, s.hw, s.LSO(), s.leo, s.Leading(), s.assignment.LeaderEpoch}
}

// Size is the number of bytes of the partition's log segments.
func (p *Partition) Size() int64 { return p.at.Load().size() }
