package eos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// retryPause is how long a producer waits before it asks again.
	retryPause = 20 * time.Millisecond
	// replacedFor is how long a coordinator or a leader that has been replaced may not know it.
	replacedFor = 5 * time.Second
	// longTimeout is the timeout of transactions that are not meant to run out of time, shortTimeout of those that are.
	longTimeout  = 6 * time.Minute
	shortTimeout = time.Second
	// lateOffset is what late messages try to stage.
	lateOffset = int64(1) << 40
)

// producer is one transactional id and its program.
type producer struct {
	load *Load
	h    *History
	rng  *rand.Rand
	incarnation
	late   *client // a connection of its own for what comes late
	group  string
	seq    map[wire.TopicPartition]int32
	old    []ident // incarnations whose time is over
	ending ident   // the last one, while markers of its transaction may be under way: its requests may still count for that
	tps    []wire.TopicPartition
	budget int   // records to send still
	offset int64 // what the group's offset must be; -1: none
	sure   bool  // that it is
	broken bool  // a violation ended the program
}

func newProducer(l *Load, h *History, name string, i int) *producer {
	return &producer{
		load: l, h: h, rng: rand.New(rand.NewPCG(l.Seed, uint64(i)+1)), group: "g-" + name, late: newClient(l.Dial, l.Seeds, name+"-late"),
		incarnation: incarnation{c: newClient(l.Dial, l.Seeds, name), txnID: name, v2: i%2 == 1},
		seq:         map[wire.TopicPartition]int32{}, tps: l.partitions(), budget: l.Records / l.Producers, offset: -1, sure: true,
	}
}

// run sends the producer's records and leaves nothing open.
func (p *producer) run(ctx context.Context) {
	defer p.c.close()
	defer p.late.close()
	p.init(ctx, longTimeout)
	for p.budget > 0 && !p.load.ended() && !p.over(ctx) {
		switch k := p.rng.IntN(100); {
		case k < 4:
			p.abandon(ctx)
		case k < 7:
			p.race(ctx)
		case k < 9:
			p.runOut(ctx)
		default:
			p.transact(ctx)
		}
	}
	if !p.over(ctx) {
		p.init(ctx, longTimeout)
	}
}

func (p *producer) over(ctx context.Context) bool {
	return p.broken || ctx.Err() != nil || p.h.Failed()
}

func (p *producer) fail(format string, args ...any) {
	p.broken = true
	p.h.Fail("%s: %s; it is %d/%d:\n%s", p.txnID, fmt.Sprintf(format, args...), p.id, p.epoch, strings.Join(p.c.trace, "\n"))
}

// retriable says which codes leave a request to be sent again.
func retriable(code int16) bool {
	switch code {
	case unknown, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code, kerr.ConcurrentTransactions.Code,
		kerr.NotLeaderForPartition.Code, kerr.LeaderNotAvailable.Code, kerr.UnknownTopicOrPartition.Code, kerr.RequestTimedOut.Code,
		kerr.NotEnoughReplicas.Code, kerr.NotEnoughReplicasAfterAppend.Code, kerr.KafkaStorageError.Code, kerr.UnstableOffsetCommit.Code,
		kerr.FencedLeaderEpoch.Code, kerr.UnknownLeaderEpoch.Code:
		return true
	}
	return false
}

// insist asks until the answer is final, and gives it; doubt says that an earlier try may have had an effect unseen.
func (p *producer) insist(ctx context.Context, what string, ask func() int16) (code int16, doubt bool) {
	began := time.Now()
	for {
		if code = ask(); !retriable(code) {
			return code, doubt
		}
		switch code {
		case unknown, kerr.RequestTimedOut.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code, kerr.NotEnoughReplicasAfterAppend.Code,
			kerr.NotLeaderForPartition.Code, kerr.KafkaStorageError.Code:
			doubt = true
		}
		if time.Since(began) > p.load.Patience {
			p.fail("stuck: %s is answered %d for %v", what, code, p.load.Patience)
			return code, true
		}
		if !pause(ctx, retryPause) {
			return unknown, true
		}
	}
}

// insistOnCurrent is insist for what nobody may refuse who is the coordinator or the leader now. One that has been replaced and has not heard
// of it may, in the moment in which its place is taken; the one that took it has the last word.
func (p *producer) insistOnCurrent(ctx context.Context, c *client, what string, ask func() int16) (code int16, doubt bool) {
	code, doubt = p.insist(ctx, what, ask)
	first := code
	for began := time.Now(); refused(code) && len(p.load.Seeds) > 1 && time.Since(began) < replacedFor; {
		c.forget()
		if !pause(ctx, retryPause) {
			return unknown, true
		}
		var again bool
		code, again = p.insist(ctx, what, ask)
		doubt = doubt || again
	}
	if refused(first) && !refused(code) {
		p.h.outdated()
	}
	return code, doubt
}

// refused says which codes mean that who was asked knows another incarnation, other batches, or no such transaction.
func refused(code int16) bool {
	switch code {
	case kerr.ProducerFenced.Code, kerr.InvalidProducerEpoch.Code, kerr.InvalidTxnState.Code, kerr.InvalidProducerIDMapping.Code,
		kerr.OutOfOrderSequenceNumber.Code:
		return true
	}
	return false
}

// pause waits; false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// init takes the next incarnation.
func (p *producer) init(ctx context.Context, timeout time.Duration) {
	before := p.ident
	code, _ := p.insist(ctx, "InitProducerId", func() int16 { return p.initProducer(ctx, timeout) })
	if code != 0 {
		if ctx.Err() == nil && !p.broken {
			p.fail("InitProducerId is answered %d", code)
		}
		return
	}
	p.succeeded(before)
	p.completed()
}

// succeeded notes that before ends, if there is another incarnation now.
func (p *producer) succeeded(before ident) {
	if before == p.ident {
		return
	}
	p.completed() // of the one before: the coordinator gives nobody a new incarnation earlier
	if p.id != 0 {
		p.ending = before
	}
	clear(p.seq)
}

// completed notes that the last transaction has all its markers: the coordinator let the next incarnation begin. Until
// then a partition without the marker holds the transaction open and takes what its epoch sends, as Kafka does
// (UnifiedLog.maybeStartTransactionVerification asks nobody about a transaction that is open).
func (p *producer) completed() {
	if p.ending != (ident{}) {
		p.old = append(p.old, p.ending)
		if len(p.old) > 8 {
			p.old = p.old[1:]
		}
	}
	p.ending = ident{}
}

// write begins a transaction and sends its records and perhaps an offset. It gives the code of what was refused, or 0.
func (p *producer) write(ctx context.Context) (*Txn, int16) {
	t := p.h.Begin(p.txnID)
	p.rng.Shuffle(len(p.tps), func(i, j int) { p.tps[i], p.tps[j] = p.tps[j], p.tps[i] })
	parts := p.tps[:1+p.rng.IntN(len(p.tps))]
	if !p.v2 {
		if code, _ := p.insistOnCurrent(ctx, p.c, "AddPartitionsToTxn", func() int16 { return p.addPartitions(ctx, parts) }); code != 0 {
			return t, code
		}
	}
	for range 1 + p.rng.IntN(2*len(parts)) {
		if p.rng.IntN(8) == 0 {
			p.comeLate(ctx)
		}
		if code := p.sendBatch(ctx, t, parts[p.rng.IntN(len(parts))]); code != 0 {
			return t, code
		}
	}
	if p.rng.IntN(2) == 0 {
		return t, p.stageNext(ctx, t)
	}
	return t, 0
}

// sendBatch sends records of one batch, and now and then the same batch again.
func (p *producer) sendBatch(ctx context.Context, t *Txn, tp wire.TopicPartition) int16 {
	n := 1
	if p.rng.IntN(4) > 0 {
		n += p.rng.IntN(p.load.Batch)
	}
	values := make([]string, n)
	for i := range values {
		values[i] = p.h.Send(t, tp)
	}
	p.budget -= n
	var base wire.Offset
	code, _ := p.insistOnCurrent(ctx, p.c, "Produce", func() (code int16) {
		code, base = p.produce(ctx, tp, p.seq[tp], values)
		return code
	})
	if code != 0 {
		return code
	}
	p.completed()
	p.h.Acked(t, tp, values, base)
	if p.rng.IntN(20) == 0 {
		if code, again := p.produce(ctx, tp, p.seq[tp], values); code == 0 && again != base {
			p.fail("twice: a batch at %d in %s, sent again, is at %d", base, tp, again)
		}
	}
	p.seq[tp] += int32(n)
	return 0
}

// stageNext stages an offset that tells the transaction.
func (p *producer) stageNext(ctx context.Context, t *Txn) int16 {
	if !p.v2 {
		if code, _ := p.insistOnCurrent(ctx, p.c, "AddOffsetsToTxn", func() int16 { return p.addOffsets(ctx, p.group) }); code != 0 {
			return code
		}
	}
	offset := int64(t.n) + 1
	p.h.Stage(t, offset)
	code, _ := p.insistOnCurrent(ctx, p.c, "TxnOffsetCommit", func() int16 { return p.stage(ctx, p.group, p.load.input(), offset) })
	if code == 0 {
		p.completed()
	}
	return code
}

// transact is a transaction as it should be: nothing may be refused.
func (p *producer) transact(ctx context.Context) {
	t, code := p.write(ctx)
	if p.over(ctx) {
		return
	}
	if code != 0 {
		p.fail("a request within %s is answered %d", t, code)
		return
	}
	commit := p.rng.IntN(10) < 7
	p.finish(ctx, t, commit)
	if p.over(ctx) {
		return
	}
	if p.rng.IntN(4) == 0 {
		p.comeLate(ctx)
	}
	if p.rng.IntN(3) == 0 {
		p.checkOffset(ctx)
	}
}

// finish ends a transaction; it has to work, unless the producer dies meanwhile.
func (p *producer) finish(ctx context.Context, t *Txn, commit bool) {
	if commit {
		p.h.AskCommit(t)
	}
	before := p.ident
	code := p.end(ctx, commit)
	if code == unknown && p.rng.IntN(2) == 0 { // as if it had died with its question: another incarnation goes on
		p.sure = p.sure && (t.offset == 0 || !commit)
		p.init(ctx, longTimeout)
		return
	}
	if retriable(code) || refused(code) {
		code, _ = p.insistOnCurrent(ctx, p.c, "EndTxn", func() int16 { return p.end(ctx, commit) })
	}
	if p.over(ctx) {
		return
	}
	if code != 0 {
		p.fail("the end of %s (commit %v) is answered %d", t, commit, code)
		return
	}
	p.settled(t, commit)
	if p.v2 && p.rng.IntN(10) == 0 {
		p.repeatEnd(ctx, before, commit)
	}
	p.succeeded(before)
}

func (p *producer) settled(t *Txn, committed bool) {
	if !committed {
		p.h.End(t, Aborted)
		return
	}
	p.h.End(t, Committed)
	if t.offset > 0 {
		p.offset, p.sure = t.offset, true
	}
}

// repeatEnd sends the end again, and the other end: the first is answered with the same incarnation, the second refused.
func (p *producer) repeatEnd(ctx context.Context, before ident, commit bool) {
	again := incarnation{c: p.late, txnID: p.txnID, v2: p.v2, ident: before}
	code, _ := p.insistOnCurrent(ctx, p.late, "EndTxn again", func() int16 { return again.end(ctx, commit) })
	if !p.over(ctx) && (code != 0 || again.ident != p.ident) {
		p.fail("the same end, sent again, is answered %d and %v, want %v", code, again.ident, p.ident)
	}
	again.ident = before
	code, _ = p.insist(ctx, "the other EndTxn", func() int16 { return again.end(ctx, !commit) })
	if !p.over(ctx) && code == 0 {
		p.fail("a transaction was ended with commit %v, and then with %v", commit, !commit)
	}
}

// abandon leaves a transaction open; the next incarnation aborts it.
func (p *producer) abandon(ctx context.Context) {
	t, code := p.write(ctx)
	if !p.over(ctx) && code != 0 {
		p.fail("a request within %s is answered %d", t, code)
	}
	p.init(ctx, longTimeout)
	if p.over(ctx) {
		return
	}
	for range 3 {
		p.comeLate(ctx)
	}
	p.checkOffset(ctx)
}

// race lets the commit of a transaction meet the next incarnation: one of them wins.
func (p *producer) race(ctx context.Context) {
	t, code := p.write(ctx)
	if p.over(ctx) {
		return
	}
	if code != 0 {
		p.fail("a request within %s is answered %d", t, code)
		return
	}
	p.h.AskCommit(t)
	zombie := incarnation{c: p.late, txnID: p.txnID, v2: p.v2, ident: p.ident}
	ended := make(chan int16, 1)
	go func() { ended <- zombie.end(ctx, true) }()
	p.init(ctx, longTimeout)
	switch code := <-ended; code {
	case 0:
		p.settled(t, true)
	case unknown, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
		p.sure = p.sure && t.offset == 0
	default:
		p.h.End(t, Aborted)
	}
	p.checkOffset(ctx)
}

// runOut lets a transaction run out of time, or nearly so, before it is committed.
func (p *producer) runOut(ctx context.Context) {
	p.init(ctx, shortTimeout)
	t, _ := p.write(ctx)
	if p.over(ctx) {
		return
	}
	pause(ctx, time.Duration(p.rng.Int64N(int64(2*shortTimeout))))
	p.h.AskCommit(t)
	before := p.ident
	code, doubt := p.insist(ctx, "EndTxn", func() int16 { return p.end(ctx, true) })
	switch {
	case ctx.Err() != nil:
		return
	case code == 0:
		p.settled(t, true)
	case doubt:
		p.sure = p.sure && t.offset == 0
	default:
		p.h.End(t, Aborted)
	}
	p.succeeded(before)
	p.init(ctx, longTimeout)
	p.checkOffset(ctx)
}

// comeLate sends something that belongs to an incarnation whose time is over. Nobody may ever see it.
func (p *producer) comeLate(ctx context.Context) {
	if len(p.old) == 0 {
		return
	}
	z := incarnation{c: p.late, txnID: p.txnID, v2: p.v2, ident: p.old[p.rng.IntN(len(p.old))]}
	tp := p.tps[p.rng.IntN(len(p.tps))]
	was := z.ident
	switch p.rng.IntN(6) {
	case 0, 1:
		value := p.h.Late(p.txnID)
		if code, _ := z.produce(ctx, tp, int32(p.rng.IntN(3)), []string{value}); code == 0 {
			p.fail("a batch of epoch %d/%d is taken by %s, the producer is at %d/%d", was.id, was.epoch, tp, p.id, p.epoch)
		}
	case 2:
		z.end(ctx, p.rng.IntN(2) == 0)
	case 3:
		if code := z.stage(ctx, p.group, p.load.input(), lateOffset); code == 0 {
			p.fail("an offset of epoch %d/%d is taken, the producer is at %d/%d", was.id, was.epoch, p.id, p.epoch)
		}
	case 4:
		z.mark(ctx, tp, p.rng.IntN(2) == 0)
	default:
		if !p.v2 {
			z.addPartitions(ctx, p.tps[:1])
		}
	}
}

// checkOffset asks for the offset of the group as a consumer that goes on from it does: it waits for open transactions.
func (p *producer) checkOffset(ctx context.Context) {
	var offset int64
	code, _ := p.insist(ctx, "OffsetFetch", func() (code int16) {
		code, offset = groupOffset(ctx, p.c, p.group, p.load.input(), true)
		return code
	})
	switch {
	case p.over(ctx):
	case code != 0:
		p.fail("OffsetFetch is answered %d", code)
	case p.sure && offset != p.offset:
		p.fail("offset: %d of the group is stable, its last commit was %d", offset, p.offset)
	default:
		p.h.SawOffset(p.txnID, offset)
		p.offset, p.sure = offset, true
	}
}
