package loop

import (
	"errors"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// part is one replica: the pure state over a real log, as broker/replica's Partition holds them.
type part struct {
	n     *node
	i     int
	plog  *log.Log
	state *replica.State

	known    bool
	meta     replica.Assignment
	recovers bool // the leadership began with an unclean election and has not been settled
	waits    []wait
	flushing bool
	retry    time.Duration // a follower that met an error asks again then
	shard    *shard        // of the offsets partition's leader
	txns     *txnShard     // of the leader of the transactions' partition
	guards   replica.Guards
	joins    wire.BrokerID // a replica that has fetched and may join the ISR; 0 none
	floor    wire.Offset   // the least the HW may be in this leader epoch
	stable   wire.Offset   // the least the LSO may be in this leader epoch
}

// wait is a produce that waits for the high watermark, or for a flush.
type wait struct {
	end   wire.Offset
	flush bool
	done  func(err error)
}

func (p *part) leads() bool { return p.state.Leading() }

// apply takes the metadata's word.
func (p *part) apply(m *image.Partition) {
	c := p.n.c
	a := replica.Assignment{Leader: m.Leader, LeaderEpoch: m.LeaderEpoch, PartitionEpoch: m.PartitionEpoch, Replicas: m.Replicas, ISR: m.ISR}
	fresh, ch := p.state.Apply(a, c.time())
	if !fresh && m.PartitionEpoch < p.meta.PartitionEpoch {
		return
	}
	p.known, p.meta, p.recovers = true, a, m.Recovering
	c.note("apply", int64(p.n.id), int64(p.i), int64(m.Leader), int64(m.LeaderEpoch))
	c.say("pe=%d isr=%v elr=%v leo=%d hw=%d", m.PartitionEpoch, m.ISR, m.ELR, p.plog.EndOffset(), p.state.HW())
	if fresh {
		p.fail(kerr.NotLeaderForPartition)
		p.floor, p.stable = 0, 0
		p.n.kick()
		if p.leads() {
			if err := p.plog.AssignEpochStart(a.LeaderEpoch, p.plog.EndOffset()); err != nil {
				c.violated("node %d: epoch start: %v", p.n.id, err)
			}
			c.check.elected(p)
		}
		p.coordinate()
	}
	p.moved(ch)
	p.n.fetchAll()
}

// coordinate ends the coordinator of a former leadership, and begins one if there is a new leadership.
func (p *part) coordinate() {
	if p.shard != nil {
		p.shard.end()
		p.shard = nil
	}
	if p.txns != nil {
		p.txns.end()
		p.txns = nil
	}
	switch {
	case p.leads() && p.i == offsetsPartition:
		p.shard = newShard(p)
	case p.leads() && p.i == txnPartition:
		p.txns = newTxnShard(p)
	}
}

// unstable is the first offset of a transaction that is open, or whose end is not known to be below the high watermark.
func (p *part) unstable() wire.Offset {
	if o, open := p.plog.FirstUnstableOffset(); open {
		return o
	}
	return wire.NoOffset
}

// settleTxns tells the log that the high watermark has moved, which may end transactions for good.
func (p *part) settleTxns() {
	was := p.unstable()
	p.plog.Replicated(p.state.HW())
	if now := p.unstable(); now != was {
		p.state.OnAppend(p.plog.EndOffset(), now, p.n.c.time())
		p.n.c.check.part(p)
	}
}

// fail tells whoever waits.
func (p *part) fail(err error) {
	waits := p.waits
	p.waits = nil
	for _, w := range waits {
		w.done(err)
	}
}

// moved is what follows from a change of the state.
func (p *part) moved(ch replica.Change) {
	c := p.n.c
	c.check.part(p)
	if p.state.NeedsFlush() && !p.flushing {
		p.flushing = true
		p.n.later(c.flushTime(), p.flush)
	}
	if ch.HW {
		p.settleTxns()
	}
	if ch.HW && p.shard != nil {
		p.shard.later()
	}
	if ch.HW && p.txns != nil {
		p.txns.later()
	}
	if !ch.HW && !ch.LEO && len(p.waits) == 0 {
		return
	}
	var outcome error
	if p.state.MaximalISR() < p.state.MinISR() {
		outcome = kerr.NotEnoughReplicasAfterAppend
	}
	var done, rest []wait
	for _, w := range p.waits {
		if w.flush && p.plog.FlushedOffset() >= w.end || !w.flush && p.state.HW() >= w.end {
			done = append(done, w)
		} else {
			rest = append(rest, w)
		}
	}
	p.waits = rest
	for _, w := range done {
		w.done(outcome)
	}
	p.n.kick()
}

func (p *part) flush() {
	p.flushing = false
	if err := p.plog.FlushRecords(); err != nil {
		p.n.c.violated("node %d: flush: %v", p.n.id, err)
		return
	}
	p.moved(p.state.OnFlushed(p.plog.FlushedOffset(), p.n.c.time()))
	p.n.fetchAll()
}

// append is a leader's: batch is patched. done is told when the answer may leave.
func (p *part) append(v *log.Validated, epoch wire.LeaderEpoch, acks int16, done func(a log.Appended, err error)) (log.Appended, error) {
	c := p.n.c
	if err := p.state.CheckLeader(epoch); err != nil {
		return log.Appended{}, err
	}
	if acks == -1 && p.state.UnderMinISR() {
		return log.Appended{}, kerr.NotEnoughReplicas
	}
	got, err := p.plog.AppendAsLeader(v, p.meta.LeaderEpoch)
	if err != nil {
		return got, err
	}
	if v.Batch.Transactional() && !got.Duplicate {
		p.guards.Spend(v.Batch)
	}
	c.note("append", int64(p.n.id), int64(p.i), int64(got.First), int64(got.Last))
	c.say("duplicate %v acks %d", got.Duplicate, acks)
	w := wait{end: got.Last + 1, done: func(err error) { done(got, err) }}
	ch := p.state.OnAppend(p.plog.EndOffset(), p.unstable(), c.time())
	switch {
	case acks == -1:
		p.waits = append(p.waits, w)
	case acks == 1 && p.state.AckWaitsForFlush():
		w.flush = true
		p.waits = append(p.waits, w)
	default:
		defer done(got, nil)
	}
	p.moved(ch)
	return got, nil
}

// deleteTo is DeleteRecords.
func (p *part) deleteTo(o wire.Offset) {
	if err := p.plog.IncrementStart(o); err != nil {
		p.n.c.violated("node %d: delete records up to %d: %v", p.n.id, o, err)
		return
	}
	p.n.write(p)
	p.moved(p.state.OnLogStart(o))
}

// cutTo is a follower's truncation.
func (p *part) cutTo(o wire.Offset) {
	p.n.c.note("truncate", int64(p.n.id), int64(p.i), int64(o), int64(p.plog.EndOffset()))
	p.n.c.check.truncates(p, o)
	if err := p.plog.TruncateTo(o); err != nil {
		p.n.c.violated("node %d: truncate partition %d to %d: %v", p.n.id, p.i, o, err)
		return
	}
	p.cut()
}

// restartAt throws the whole log away.
func (p *part) restartAt(o wire.Offset) {
	p.n.c.note("restart", int64(p.n.id), int64(p.i), int64(o), int64(p.plog.EndOffset()))
	p.n.c.check.truncates(p, min(o, p.plog.StartOffset()))
	if err := p.plog.TruncateFullyAndStart(o); err != nil {
		p.n.c.violated("node %d: start partition %d anew at %d: %v", p.n.id, p.i, o, err)
		return
	}
	p.cut()
}

func (p *part) cut() {
	ch := p.state.OnTruncate(p.plog.StartOffset(), p.plog.EndOffset(), p.unstable())
	p.n.write(p)
	p.n.c.check.rewound(p)
	p.moved(ch)
}

// bytes reads batches from an offset up to end.
func (p *part) bytes(from, end wire.Offset, most int) ([]byte, error) {
	data, _, err := p.read(from, end, most)
	return data, err
}

// read is bytes, and gives the exclusive bound of the offsets that it has looked at.
func (p *part) read(from, end wire.Offset, most int) ([]byte, wire.Offset, error) {
	res, err := p.plog.Read(from, log.ReadOptions{Max: most, End: end, MinOne: true})
	if err != nil {
		return nil, wire.NoOffset, err
	}
	defer wire.Release(res.Segments)
	var out []byte
	for _, s := range res.Segments {
		b := make([]byte, s.Len)
		if s.File != nil {
			if _, err := s.File.ReadAt(b, s.Off); err != nil {
				return nil, wire.NoOffset, err
			}
		} else {
			copy(b, s.Bytes)
		}
		out = append(out, b...)
	}
	return out, res.UpperBound, nil
}

// outOfRange reports whether err says that a read lies outside of the log.
func outOfRange(err error) bool {
	_, ok := errors.AsType[*log.OffsetOutOfRangeError](err)
	return ok
}
