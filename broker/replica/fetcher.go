package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// fetchBackoffMin is the first wait after an error of a partition or of a whole source; it doubles up to
	// replica.fetch.backoff.ms. It is short because most errors are those of a leader that has not heard yet that it leads.
	fetchBackoffMin = 10 * time.Millisecond
	// fetchPatience is for how long an answer may take beyond the wait that was asked for.
	fetchPatience = 10 * time.Second
	// fetchErrorTold is the time between two log lines about one partition's error.
	fetchErrorTold = time.Minute
)

// FetchConfig bounds the fetches of followers; zero values are Kafka's defaults.
type FetchConfig struct {
	MinBytes          int           // replica.fetch.min.bytes, 1
	MaxBytes          int           // replica.fetch.response.max.bytes, 10 MiB
	MaxPartitionBytes int           // replica.fetch.max.bytes, 1 MiB
	Wait              time.Duration // replica.fetch.wait.max.ms, 500 ms
	Backoff           time.Duration // replica.fetch.backoff.ms, 1 s
}

func (c FetchConfig) withDefaults() FetchConfig {
	set := func(n *int, def int) {
		if *n <= 0 {
			*n = def
		}
	}
	set(&c.MinBytes, 1)
	set(&c.MaxBytes, 10<<20)
	set(&c.MaxPartitionBytes, 1<<20)
	if c.Wait <= 0 {
		c.Wait = 500 * time.Millisecond
	}
	if c.Backoff <= 0 {
		c.Backoff = time.Second
	}
	return c
}

// fetcher copies the partitions that one other broker leads. One goroutine: it asks, stores what comes, asks again; there
// is at most one request under way and no timer for any partition.
type fetcher struct {
	m       *Manager
	leader  wire.BrokerID
	session *sourceSession
	limits  fetchLimits
	wake    chan struct{}
	backoff time.Duration // of the whole source, after its last failure
	failing atomic.Int64  // entries in delayed

	// delayed are the entries in back-off.
	delayed map[*sourceEntry]bool
	// unsaved are the log directories in which log starts have moved and are not written down, and when that was tried last.
	unsaved map[*logDir]time.Time

	mu    sync.Mutex
	inbox map[*Partition]wire.LeaderEpoch // news; NoLeaderEpoch: not followed any more
}

func newFetcher(m *Manager, leader wire.BrokerID) *fetcher {
	c := m.o.Fetch
	return &fetcher{m: m, leader: leader, session: newSourceSession(m.o.NodeID), wake: make(chan struct{}, 1),
		limits:  fetchLimits{int32(c.MinBytes), int32(c.MaxBytes), int32(c.MaxPartitionBytes)},
		delayed: map[*sourceEntry]bool{}, unsaved: map[*logDir]time.Time{}, inbox: map[*Partition]wire.LeaderEpoch{}}
}

// tell hands the fetcher a partition to follow under epoch, or to forget. It never blocks.
func (f *fetcher) tell(p *Partition, epoch wire.LeaderEpoch) {
	f.mu.Lock()
	f.inbox[p] = epoch
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *fetcher) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		f.takeNews()
		next := f.wakeDelayed()
		if f.session.ready == 0 {
			timer.Reset(next)
			select {
			case <-ctx.Done():
			case <-f.wake:
			case <-timer.C:
			}
			continue
		}
		if err := f.round(ctx, min(next, f.m.o.Fetch.Wait)); err != nil && ctx.Err() == nil {
			f.failed(err)
			timer.Reset(f.backoff)
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
		}
	}
}

// takeNews takes what the metadata has said since the last round.
func (f *fetcher) takeNews() {
	f.mu.Lock()
	news := f.inbox
	if len(news) == 0 {
		f.mu.Unlock()
		return // the map stays the one that tell writes to
	}
	f.inbox = map[*Partition]wire.LeaderEpoch{}
	f.mu.Unlock()
	for p, epoch := range news {
		id := partitionID{p.TopicID, p.TP.Partition}
		if old := f.session.entries[id]; old != nil {
			if old.p != p && epoch == wire.NoLeaderEpoch {
				continue // the replica that came after it
			}
			f.undelay(old)
			f.session.remove(id)
		}
		if epoch == wire.NoLeaderEpoch {
			p.lag.Store(0)
			continue
		}
		e := &sourceEntry{p: p, epoch: epoch}
		f.session.put(e)
		f.refresh(e)
	}
}

// refresh looks how e stands; an entry that cannot be followed any more rests until the metadata says more.
func (f *fetcher) refresh(e *sourceEntry) {
	at, err := e.p.position(e.epoch)
	if err != nil {
		f.settle(e, err)
		return
	}
	if d := e.p.dir(); d.startsUnsaved.Load() {
		if saved := d.savedLogStart(e.p.TP, at.logStart); saved < at.logStart {
			at.logStart = saved
			if _, ok := f.unsaved[d]; !ok {
				f.unsaved[d] = f.m.world.now()
			}
		}
	}
	if at != e.want || !e.listed {
		e.want = at
		f.session.touch(e)
	}
	f.session.setReady(e, true)
}

// wakeDelayed ends the back-offs that are due and gives the time to the end of the next.
func (f *fetcher) wakeDelayed() time.Duration {
	next := time.Hour
	now := f.m.world.now()
	for e := range f.delayed {
		if left := e.until.Sub(now); left > 0 {
			next = min(next, max(left, time.Millisecond))
			continue
		}
		f.undelay(e)
		f.refresh(e)
	}
	return next
}

func (f *fetcher) undelay(e *sourceEntry) {
	if f.delayed[e] {
		delete(f.delayed, e)
		f.failing.Store(int64(len(f.delayed)))
	}
	e.until = time.Time{}
}

// delay takes e out of the requests for a while.
func (f *fetcher) delay(e *sourceEntry, err error) {
	now := f.m.world.now()
	e.backoff = min(max(2*e.backoff, fetchBackoffMin), f.m.o.Fetch.Backoff)
	e.until = now.Add(e.backoff)
	f.delayed[e] = true
	f.failing.Store(int64(len(f.delayed)))
	f.session.setReady(e, false)
	f.m.world.metrics.fetchFailed(err)
	if now.Sub(e.told) < fetchErrorTold && !e.told.IsZero() || expected(err) && e.backoff < f.m.o.Fetch.Backoff {
		return
	}
	e.told = now
	f.m.world.logger.Warn("partition cannot be replicated and is tried again", "topic", e.p.TP.Topic, "partition", e.p.TP.Partition,
		"leader", f.leader, "leader_epoch", e.epoch, "offset", e.want.offset, "err", err)
}

// expected reports whether err comes with every change of leaders, until the metadata has reached everybody.
func expected(err error) bool {
	for _, e := range []error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch, kerr.UnknownTopicID,
		kerr.UnknownTopicOrPartition, kerr.InconsistentTopicID, errUnflushed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// failed notes that the source did not answer.
func (f *fetcher) failed(err error) {
	if f.backoff == 0 {
		f.m.world.logger.Warn("leader cannot be fetched from and is tried again", "leader", f.leader, "partitions", f.session.ready, "err", err)
	}
	f.backoff = min(max(2*f.backoff, fetchBackoffMin), f.m.o.Fetch.Backoff)
	f.m.world.metrics.fetchFailed(err)
}

// round asks once and stores what comes. Its error is one of the whole source.
func (f *fetcher) round(ctx context.Context, wait time.Duration) error {
	s := f.session
	epoch := wire.NoBrokerEpoch
	if f.m.o.BrokerEpoch != nil {
		epoch = f.m.o.BrokerEpoch()
	}
	got, err := f.ask(ctx, wait+fetchPatience, s.request(epoch, f.limits, wait))
	resp, ok := got.(*kmsg.FetchResponse)
	if err == nil && !ok {
		err = fmt.Errorf("fetch was answered with a %T", got)
	}
	if err != nil {
		s.reset(true)
		return err
	}
	switch err := kerr.ErrorForCode(resp.ErrorCode); {
	case errors.Is(err, kerr.FetchSessionIDNotFound):
		s.reset(false)
		f.backoff = 0
		return nil // begins another at once
	case err != nil:
		s.reset(true)
		return err
	}
	f.backoff = 0
	s.done(resp.SessionID)
	f.store(ctx, resp)
	return nil
}

func (f *fetcher) ask(ctx context.Context, patience time.Duration, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return f.m.o.AskLeader(ctx, f.leader, req)
}

// store takes the partitions of a response. Each fails alone.
func (f *fetcher) store(ctx context.Context, resp *kmsg.FetchResponse) {
	var stray, flushing []*sourceEntry
	rewound, started := map[*logDir]bool{}, map[*logDir]bool{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			r := &t.Partitions[j]
			e := f.session.entries[partitionID{t.TopicID, wire.PartitionID(r.Partition)}]
			if e == nil || !e.ready {
				continue
			}
			moved, err := f.one(e, r)
			if moved {
				started[e.p.dir()] = true
			}
			switch {
			case errors.Is(err, kerr.OffsetOutOfRange):
				stray = append(stray, e)
			case err != nil:
				f.settle(e, err)
			default:
				if r.DivergingEpoch.EndOffset >= 0 {
					rewound[e.p.dir()] = true
				}
				e.backoff = 0
				flushing = append(flushing, e)
			}
		}
	}
	if len(stray) > 0 {
		f.reposition(ctx, stray, rewound)
	}
	for d := range rewound {
		_ = d.checkpointRecoveryPoint() // an error has taken the directory offline, or is met again before the next append
	}
	f.saveLogStarts(started)
	f.flushed(flushing)
	for _, e := range flushing {
		f.refresh(e)
	}
}

// saveAgain is the time between two tries to write the log starts of a directory down.
const saveAgain = time.Second

// saveLogStarts writes the log starts of the directories down in which some have moved, and of those where that has failed before: the
// leader answers DeleteRecords by what it is told, and it has to be durable then. An error but that of a full disk has taken the
// directory offline.
func (f *fetcher) saveLogStarts(moved map[*logDir]bool) {
	if len(moved)+len(f.unsaved) == 0 {
		return
	}
	saved, now := map[*logDir]bool{}, f.m.world.now()
	for d, tried := range f.unsaved {
		if now.Sub(tried) < saveAgain {
			continue
		}
		f.unsaved[d] = now
		if d.checkpointLogStart() == nil {
			delete(f.unsaved, d)
			saved[d] = true
		}
	}
	for d := range moved {
		if _, late := f.unsaved[d]; !late && !saved[d] && d.checkpointLogStart() != nil {
			f.unsaved[d] = now
		}
	}
	if len(saved) == 0 {
		return
	}
	for _, e := range f.session.entries {
		if e.ready && saved[e.p.dir()] {
			f.refresh(e)
		}
	}
}

// settle takes the outcome of a partition that was not stored.
func (f *fetcher) settle(e *sourceEntry, err error) {
	if errors.Is(err, errNotFollowing) || errors.Is(err, ErrOffline) {
		f.session.setReady(e, false) // until the metadata says more
		return
	}
	f.delay(e, err)
}

// one takes one partition of a response. It reports whether the log start has moved.
func (f *fetcher) one(e *sourceEntry, r *kmsg.FetchResponseTopicPartition) (started bool, err error) {
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return false, err
	}
	if d := r.DivergingEpoch; d.EndOffset >= 0 {
		return false, e.p.truncateAsFollower(e.epoch, EpochEnd{wire.LeaderEpoch(d.Epoch), wire.Offset(d.EndOffset)})
	}
	started, err = e.p.appendAsFollower(e.epoch, fetched{from: e.want.offset, records: r.RecordBatches,
		hw: wire.Offset(r.HighWatermark), logStart: wire.Offset(r.LogStartOffset)})
	if err == nil {
		e.p.lag.Store(max(0, r.HighWatermark-int64(e.p.Offsets().LEO)))
	}
	return started, err
}

// flushed returns when what was stored is as safe as kaja.fsync=always wants it; otherwise at once. The flushes run side by
// side and share the disk's commits.
func (f *fetcher) flushed(entries []*sourceEntry) {
	var wg sync.WaitGroup
	for _, e := range entries {
		e.p.whenHeld(&wg)
	}
	wg.Wait()
}

// whenHeld adds to wg what ends when this follower may tell its leader of all that it has, or when it no longer can.
func (p *Partition) whenHeld(wg *sync.WaitGroup) {
	p.mu.Lock()
	held := p.usableLocked() != nil || p.dir().failed() != nil || p.state.Held() >= p.state.leo
	known := false
	if !held {
		wg.Add(1)
		known = p.flushes.Push(p.generation, p.state.leo, func(error) { wg.Done() })
	}
	p.mu.Unlock()
	switch {
	case known:
		p.flushes.Drain()
	case !held:
		p.kick()
	}
}

// reposition finds out what the leader has of partitions whose offset it has refused, and cuts or starts over.
func (f *fetcher) reposition(ctx context.Context, entries []*sourceEntry, rewound map[*logDir]bool) {
	starts, err := f.listOffsets(ctx, entries, earliest)
	ends := map[partitionID]offsetAnswer(nil)
	if err == nil {
		ends, err = f.listOffsets(ctx, entries, latest)
	}
	for _, e := range entries {
		start, end := starts[e.id()], ends[e.id()]
		err := errors.Join(err, start.err, end.err)
		if err == nil {
			leo := e.p.Offsets().LEO
			if to, over := OutOfRange(leo, start.offset, end.offset); over {
				err = e.p.startOver(e.epoch, to)
			} else {
				err = e.p.truncateTo(e.epoch, to)
			}
			rewound[e.p.dir()] = true
		}
		if err != nil {
			f.settle(e, fmt.Errorf("offset %d is out of range: %w", e.want.offset, err))
			continue
		}
		e.backoff = 0
		f.refresh(e)
	}
}

// Special timestamps of ListOffsets.
const (
	latest   = -1
	earliest = -2
)

type offsetAnswer struct {
	offset wire.Offset
	err    error
}

// listOffsets asks the leader for one end of its logs.
func (f *fetcher) listOffsets(ctx context.Context, entries []*sourceEntry, timestamp int64) (map[partitionID]offsetAnswer, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = int32(f.m.o.NodeID)
	answers := make(map[partitionID]offsetAnswer, len(entries))
	byName := make(map[wire.TopicPartition]partitionID, len(entries))
	for _, e := range entries {
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != e.p.TP.Topic {
			t := kmsg.NewListOffsetsRequestTopic()
			t.Topic = e.p.TP.Topic
			req.Topics = append(req.Topics, t)
			n++
		}
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.Timestamp = int32(e.p.TP.Partition), int32(e.epoch), timestamp
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
		byName[e.p.TP] = e.id()
		answers[e.id()] = offsetAnswer{err: errors.New("no answer for the partition")}
	}
	got, err := f.ask(ctx, fetchPatience, req)
	resp, ok := got.(*kmsg.ListOffsetsResponse)
	if err == nil && !ok {
		err = fmt.Errorf("offsets were answered with a %T", got)
	}
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			id, asked := byName[wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p.Partition)}]
			if asked {
				answers[id] = offsetAnswer{wire.Offset(p.Offset), kerr.ErrorForCode(p.ErrorCode)}
			}
		}
	}
	return answers, nil
}

// kindOf is the kind of a fetch error for metrics.
func kindOf(err error) string {
	switch {
	case errors.Is(err, log.ErrCorrupt):
		return "corrupt"
	case errors.Is(err, log.ErrStorage):
		return "storage"
	case expected(err):
		return "metadata"
	}
	return "other"
}
