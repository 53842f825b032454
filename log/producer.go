package log

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// windowSize is how many batches of a producer are remembered to recognise a retry (Kafka: NUM_BATCHES_TO_RETAIN).
const windowSize = 5

// batchMeta is one remembered batch of a producer.
type batchMeta struct {
	lastSequence int32
	lastOffset   wire.Offset
	offsetDelta  int32
	timestamp    int64
}

func (b batchMeta) firstSequence() int32 {
	const top = 1<<31 - 1
	if b.lastSequence < b.offsetDelta {
		return top - (b.offsetDelta - b.lastSequence) + 1
	}
	return b.lastSequence - b.offsetDelta
}

func (b batchMeta) firstOffset() wire.Offset { return b.lastOffset - wire.Offset(b.offsetDelta) }

// producer is what a partition knows of one producer id.
type producer struct {
	epoch            wire.ProducerEpoch
	n                int8                  // valid batches
	batches          [windowSize]batchMeta // oldest first
	lastTimestamp    int64
	coordinatorEpoch int32
	txnFirst         wire.Offset // of the open transaction; NoOffset: none is open
}

func (p *producer) newest() (batchMeta, bool) {
	if p.n == 0 {
		return batchMeta{}, false
	}
	return p.batches[p.n-1], true
}

func (p *producer) setEpoch(e wire.ProducerEpoch) {
	if p.epoch != e {
		p.epoch, p.n = e, 0
	}
}

func (p *producer) push(b batchMeta) {
	if planted.On(planted.WindowOfOne) {
		p.n = 0
	}
	if p.n == windowSize {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = b
	p.n++
}

// duplicate finds the remembered batch with exactly this sequence range.
func (p *producer) duplicate(h *header) (batchMeta, bool) {
	if p.epoch != h.epoch {
		return batchMeta{}, false
	}
	first, last := h.baseSequence, h.lastSequence()
	for _, b := range p.batches[:p.n] {
		if b.lastSequence == last && b.firstSequence() == first {
			return b, true
		}
	}
	return batchMeta{}, false
}

// completedTxn is a transaction that a marker ended.
type completedTxn struct {
	producerID  wire.ProducerID
	first, last wire.Offset // last is the marker's offset
	aborted     bool
}

// nextSequence is the only first sequence that may follow last; NoSequence is followed by 0.
func nextSequence(last int32) int32 {
	if last == 1<<31-1 {
		return 0
	}
	return last + 1
}

// producers is the producer state of a log: what a snapshot file holds, and the open transactions.
type producers struct {
	byID map[wire.ProducerID]*producer
	// open holds the first offsets of open transactions, ascending.
	open []openTxn
	// ended holds completed transactions whose marker is not known to be replicated, ascending by first offset.
	ended []completedTxn
	// end is the exclusive offset that the state covers.
	end wire.Offset
}

type openTxn struct {
	first      wire.Offset
	producerID wire.ProducerID
	began      int64 // milliseconds: when it was opened here; after a restart the timestamp of a batch of it
}

func newProducers(end wire.Offset) *producers {
	return &producers{byID: map[wire.ProducerID]*producer{}, end: end}
}

// check applies the rules for a batch of an idempotent producer that a client sends (kafka-surface 5.1 rows 9–14). dup
// says that the batch is there already, at the given place.
func (ps *producers) check(h *header, t *TxnRules) (dup batchMeta, isDup bool, err error) {
	p := ps.byID[h.producerID]
	if p != nil {
		if dup, ok := p.duplicate(h); ok {
			return dup, !planted.On(planted.DuplicateUnrecognised), nil
		}
	}
	if err := ps.checkTxn(h, p, t); err != nil {
		return batchMeta{}, false, err
	}
	if p == nil || p.epoch == wire.NoEpoch {
		if h.txn && t.V2 && h.baseSequence != 0 {
			return batchMeta{}, false, fmt.Errorf("producer %d, of whom nothing is known, began its transaction at sequence %d: %w",
				h.producerID, h.baseSequence, kerr.OutOfOrderSequenceNumber)
		}
		return batchMeta{}, false, nil
	}
	if h.epoch != p.epoch {
		if h.baseSequence != 0 {
			return batchMeta{}, false, fmt.Errorf("producer %d sent sequence %d as the first of epoch %d: %w",
				h.producerID, h.baseSequence, h.epoch, kerr.OutOfOrderSequenceNumber)
		}
	} else {
		last := wire.NoSequence
		if b, ok := p.newest(); ok {
			last = b.lastSequence
		}
		if h.baseSequence != nextSequence(last) {
			return batchMeta{}, false, fmt.Errorf("producer %d sent sequence %d after %d: %w",
				h.producerID, h.baseSequence, last, kerr.OutOfOrderSequenceNumber)
		}
	}
	if p.txnFirst != wire.NoOffset && !h.txn {
		return batchMeta{}, false, fmt.Errorf("producer %d sent a plain batch within its transaction: %w",
			h.producerID, kerr.InvalidTxnState)
	}
	return batchMeta{}, false, nil
}

// checkTxn applies the rules that say whether a batch may belong to a transaction now, before its sequence is looked at
// (Kafka: UnifiedLog.analyzeAndValidateProducerState). p is the producer's state, nil if there is none.
func (ps *producers) checkTxn(h *header, p *producer, t *TxnRules) error {
	if h.txn && t.MustBeOpen && (p == nil || p.epoch != h.epoch || p.txnFirst == wire.NoOffset) {
		return fmt.Errorf("producer %d epoch %d has no transaction here that its coordinator knows of: %w",
			h.producerID, h.epoch, kerr.InvalidTxnState)
	}
	if p != nil && h.epoch < p.epoch {
		return fmt.Errorf("producer %d sent epoch %d, the last seen epoch is %d: %w",
			h.producerID, h.epoch, p.epoch, kerr.InvalidProducerEpoch)
	}
	if h.txn && t.Tentative && h.baseSequence > t.Lowest && !p.followedBy(h) {
		return fmt.Errorf("producer %d sent sequence %d, sequence %d came before it: %w",
			h.producerID, h.baseSequence, t.Lowest, kerr.OutOfOrderSequenceNumber)
	}
	return nil
}

// followedBy reports whether the batch goes on where the producer's last one ended: which of the offered ones comes first is no question
// then. (Kafka asks it all the same, so that a late copy of a batch of the last transaction, which is in the log, keeps every
// batch of the next one out.) p may be nil.
func (p *producer) followedBy(h *header) bool {
	if p == nil || p.epoch != h.epoch {
		return false
	}
	last, ok := p.newest()
	return ok && h.baseSequence == nextSequence(last.lastSequence)
}

// checkUnsequenced applies the rules for a batch that a coordinator writes for a producer.
func (ps *producers) checkUnsequenced(h *header, t *TxnRules) error {
	return ps.checkTxn(h, ps.byID[h.producerID], t)
}

// checkMarker applies the rules for a marker from the coordinator. With v2 a marker whose epoch is the current one is a
// repetition: legal as long as no transaction was begun in that epoch.
func (ps *producers) checkMarker(h *header, m batch.EndTxn, v2 bool) error {
	p := ps.byID[h.producerID]
	if p == nil || planted.On(planted.MarkerEpochUnchecked) {
		return nil
	}
	if h.epoch < p.epoch || v2 && h.epoch == p.epoch && p.txnFirst != wire.NoOffset {
		return fmt.Errorf("marker of producer %d has epoch %d, the last seen epoch is %d: %w",
			h.producerID, h.epoch, p.epoch, kerr.InvalidProducerEpoch)
	}
	if m.CoordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("marker of producer %d has coordinator epoch %d, the last seen one is %d: %w",
			h.producerID, m.CoordinatorEpoch, p.coordinatorEpoch, kerr.TransactionCoordinatorFenced)
	}
	return nil
}

func (ps *producers) get(id wire.ProducerID) *producer {
	p := ps.byID[id]
	if p == nil {
		p = &producer{epoch: wire.NoEpoch, coordinatorEpoch: -1, lastTimestamp: wire.NoTimestamp, txnFirst: wire.NoOffset}
		ps.byID[id] = p
	}
	return p
}

// add takes a data batch into the state; it was checked or comes from a leader.
func (ps *producers) add(h *header) {
	ps.end = h.last + 1
	if h.producerID < 0 {
		return
	}
	p := ps.get(h.producerID)
	p.setEpoch(h.epoch)
	p.push(batchMeta{lastSequence: h.lastSequence(), lastOffset: h.last, offsetDelta: int32(h.last - h.base), timestamp: h.maxTime})
	p.lastTimestamp = h.maxTime
	if h.txn && p.txnFirst == wire.NoOffset {
		p.txnFirst = h.base
		ps.open = append(ps.open, openTxn{first: h.base, producerID: h.producerID, began: h.maxTime})
	}
}

// began notes when a transaction was opened, if batch h has opened one: record timestamps are the client's to choose.
func (ps *producers) began(h *header, now time.Time) {
	if n := len(ps.open); n > 0 && ps.open[n-1].first == h.base {
		ps.open[n-1].began = now.UnixMilli()
	}
}

// addMarker takes an end-of-transaction marker; done is false when no transaction was open.
func (ps *producers) addMarker(h *header, m batch.EndTxn) (txn completedTxn, done bool) {
	ps.end = h.last + 1
	p := ps.get(h.producerID)
	p.setEpoch(h.epoch)
	p.coordinatorEpoch, p.lastTimestamp = m.CoordinatorEpoch, h.maxTime
	if p.txnFirst == wire.NoOffset {
		return completedTxn{}, false
	}
	txn = completedTxn{producerID: h.producerID, first: p.txnFirst, last: h.base, aborted: !m.Commit}
	p.txnFirst = wire.NoOffset
	ps.open = slices.DeleteFunc(ps.open, func(o openTxn) bool { return o.first == txn.first })
	at, _ := slices.BinarySearchFunc(ps.ended, txn.first, func(e completedTxn, first wire.Offset) int { return cmp.Compare(e.first, first) })
	ps.ended = slices.Insert(ps.ended, at, txn)
	return txn, true
}

// stableWith is the last stable offset as of completing txn: the first offset of the oldest open one, or the offset
// after the marker (what a .txnindex entry holds).
func (ps *producers) stableWith(txn completedTxn) wire.Offset {
	if len(ps.open) > 0 {
		return ps.open[0].first
	}
	return txn.last + 1
}

// firstUnstable is the first offset of an open transaction, or of one whose marker is not yet replicated.
func (ps *producers) firstUnstable() (wire.Offset, bool) {
	switch {
	case len(ps.open) == 0 && len(ps.ended) == 0:
		return wire.NoOffset, false
	case len(ps.open) == 0:
		return ps.ended[0].first, true
	case len(ps.ended) == 0:
		return ps.open[0].first, true
	}
	return min(ps.open[0].first, ps.ended[0].first), true
}

// replicated forgets completed transactions whose marker lies below hw.
func (ps *producers) replicated(hw wire.Offset) {
	ps.ended = slices.DeleteFunc(ps.ended, func(t completedTxn) bool { return t.last < hw })
}

// expire forgets producers without an open transaction that were silent for age, and says how many.
func (ps *producers) expire(now time.Time, age time.Duration) int {
	before := len(ps.byID)
	limit := now.UnixMilli() - age.Milliseconds()
	maps.DeleteFunc(ps.byID, func(_ wire.ProducerID, p *producer) bool {
		return p.txnFirst == wire.NoOffset && p.lastTimestamp <= limit
	})
	return before - len(ps.byID)
}

// sortedIDs gives the producer ids in ascending order.
func (ps *producers) sortedIDs() []wire.ProducerID { return slices.Sorted(maps.Keys(ps.byID)) }

func (ps *producers) sortOpen() {
	slices.SortFunc(ps.open, func(a, b openTxn) int { return cmp.Compare(a.first, b.first) })
}

func (ps *producers) sortEnded() {
	slices.SortFunc(ps.ended, func(a, b completedTxn) int { return cmp.Compare(a.first, b.first) })
}

// dropBelow forgets completed transactions that the log start has passed.
func (ps *producers) dropBelow(start wire.Offset) {
	ps.ended = slices.DeleteFunc(ps.ended, func(t completedTxn) bool { return t.last < start })
}

// enrich adds to ps, which was read from a snapshot, what the replay of the batches before it tells besides: completed
// transactions that may not be replicated, and the batches before the newest one where ps has lost its window. It reports
// whether ps knows more batches now.
func (ps *producers) enrich(replayed *producers) bool {
	ps.ended = replayed.ended
	better := false
	for id, p := range ps.byID {
		r := replayed.byID[id]
		if r == nil || r.epoch != p.epoch || r.n <= p.n {
			continue
		}
		newest, ok := p.newest()
		if same, _ := r.newest(); ok && same.lastOffset == newest.lastOffset && same.lastSequence == newest.lastSequence {
			p.n, p.batches, better = r.n, r.batches, true
		}
	}
	return better
}
