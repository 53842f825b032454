package log

import (
	"cmp"
	"slices"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// txnTracker follows the transactions of a log through one pass from its beginning: which batches belong to aborted ones,
// and which markers have outlived the data of theirs (Kafka: CleanedTransactionMetadata).
type txnTracker struct {
	ahead     []abortedTxn // not reached yet, ascending by first offset
	aborted   map[wire.ProducerID]*abortedSeen
	committed map[wire.ProducerID]struct{} // open in the pass and not aborted: data was seen
}

type abortedSeen struct {
	abortedTxn
	data bool // a batch of it is still in the log
}

func newTxnTracker(aborted []abortedTxn) *txnTracker {
	ahead := slices.Clone(aborted)
	slices.SortStableFunc(ahead, func(a, b abortedTxn) int { return cmp.Compare(a.first, b.first) })
	return &txnTracker{ahead: ahead, aborted: map[wire.ProducerID]*abortedSeen{}, committed: map[wire.ProducerID]struct{}{}}
}

// reach takes in the aborted transactions that begin at or below last.
func (t *txnTracker) reach(last wire.Offset) {
	n := 0
	for n < len(t.ahead) && t.ahead[n].first <= last {
		if a := t.ahead[n]; t.aborted[a.producerID] == nil {
			t.aborted[a.producerID] = &abortedSeen{abortedTxn: a}
		}
		n++
	}
	t.ahead = t.ahead[n:]
}

// data takes a batch that is no control batch; it reports whether its transaction was aborted.
func (t *txnTracker) data(h *header) bool {
	t.reach(h.last)
	if !h.txn {
		return false
	}
	if a := t.aborted[h.producerID]; a != nil {
		a.data = true
		return true
	}
	t.committed[h.producerID] = struct{}{}
	return false
}

// control takes a control batch: outlived says that nothing is left of what it ended, so that it may go once its delete
// horizon has passed; index is the entry that the transaction index must keep while it is needed.
func (t *txnTracker) control(h *header, end batch.EndTxn, isEnd bool) (outlived bool, index *abortedTxn) {
	t.reach(h.last)
	switch {
	case h.count == 0:
		return true, nil // emptied by an earlier pass
	case !isEnd:
		return false, nil
	case end.Commit:
		_, data := t.committed[h.producerID]
		delete(t.committed, h.producerID)
		return !data, nil
	}
	a := t.aborted[h.producerID]
	delete(t.aborted, h.producerID)
	if a == nil || !a.data {
		return true, nil
	}
	return false, &a.abortedTxn
}
