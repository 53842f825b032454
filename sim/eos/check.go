package eos

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/kajamq/kaja/wire"
)

// Final is what is there once everything has ended.
type Final struct {
	Committed map[wire.TopicPartition][]Read // as a reader with read_committed sees it
	All       map[wire.TopicPartition][]Read // as one with read_uncommitted does
	Offsets   map[string]int64               // of each producer's group; -1: none
}

// Check compares the history with what is there. The error lists what was found, at most maxErrors violations.
func (h *History) Check(f Final) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkAllLocked(f.All)
	visible := h.checkCommittedLocked(f.Committed)
	h.checkTxnsLocked(visible)
	h.checkOffsetsLocked(f.Offsets, visible)
	h.checkSpansLocked(f.Committed)
	return errors.Join(h.errs...)
}

func sortedTPs[V any](m map[wire.TopicPartition]V) []wire.TopicPartition {
	return slices.SortedFunc(maps.Keys(m), func(a, b wire.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// checkAllLocked: every acknowledged record is where its producer was told, no value is there twice, and the records of a
// producer are in the order in which they were sent.
func (h *History) checkAllLocked(all map[wire.TopicPartition][]Read) {
	seen := map[string]Place{}
	for _, tp := range sortedTPs(all) {
		type last struct{ n, i int }
		newest := map[string]last{}
		for _, r := range all[tp] {
			at := Place{tp, r.Offset}
			if h.late[r.Value] {
				h.failLocked("late: %q was sent after the end of its transaction, and is in the log at %s", r.Value, at)
				continue
			}
			t := h.owner[r.Value]
			if t == nil {
				h.failLocked("strange: %q at %s was sent by nobody", r.Value, at)
				continue
			}
			if first, ok := seen[r.Value]; ok {
				h.failLocked("twice: %q is at %s and at %s", r.Value, first, at)
				continue
			}
			seen[r.Value] = at
			i := slices.IndexFunc(t.records, func(x record) bool { return x.value == r.Value })
			if l, ok := newest[t.producer]; ok && (t.n < l.n || t.n == l.n && i <= l.i) {
				h.failLocked("order: %q at %s comes after record %d of transaction %d of its producer", r.Value, at, l.i, l.n)
			}
			newest[t.producer] = last{t.n, i}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.txns)) {
		for _, t := range h.txns[name] {
			for _, r := range t.records {
				at, ok := seen[r.value]
				switch {
				case r.at == wire.NoOffset:
				case !ok:
					h.failLocked("lost: %q was acknowledged at %s and is not in the log", r.value, Place{r.tp, r.at})
				case at != Place{r.tp, r.at}:
					h.failLocked("moved: %q is at %s, its producer was told %s", r.value, at, Place{r.tp, r.at})
				}
			}
		}
	}
}

// checkCommittedLocked gives how many records of each transaction are visible.
func (h *History) checkCommittedLocked(committed map[wire.TopicPartition][]Read) map[*Txn]int {
	visible, seen := map[*Txn]int{}, map[string]bool{}
	for _, tp := range sortedTPs(committed) {
		for _, r := range committed[tp] {
			t := h.owner[r.Value]
			switch {
			case h.late[r.Value]:
				h.failLocked("late: %q was sent after the end of its transaction, and is read at %s", r.Value, Place{tp, r.Offset})
			case t == nil:
				h.failLocked("strange: %q at %s was sent by nobody", r.Value, Place{tp, r.Offset})
			case seen[r.Value]:
				h.failLocked("twice: %q is read again at %s", r.Value, Place{tp, r.Offset})
			default:
				visible[t]++
			}
			seen[r.Value] = true
		}
	}
	return visible
}

// checkTxnsLocked: all of a transaction is visible, or nothing of it, as its producer was told.
func (h *History) checkTxnsLocked(visible map[*Txn]int) {
	for _, name := range slices.Sorted(maps.Keys(h.txns)) {
		for _, t := range h.txns[name] {
			n, of := visible[t], len(t.records)
			switch {
			case n == 0 && t.outcome == Committed && of > 0:
				h.failLocked("lost: %s was committed, and none of its %d records is visible", t, of)
			case n > 0 && (t.outcome == Open || t.outcome == Aborted):
				h.failLocked("aborted: %d records of %s are visible, which was not committed", n, t)
			case n > 0 && n < of:
				h.failLocked("torn: %d of the %d records of %s are visible", n, of, t)
			}
		}
	}
}

// checkOffsetsLocked: a group's offset is that of the last transaction that is visible and has staged one.
func (h *History) checkOffsetsLocked(offsets map[string]int64, visible map[*Txn]int) {
	for _, name := range slices.Sorted(maps.Keys(offsets)) {
		at := offsets[name]
		var of *Txn
		if at >= 0 {
			if of = h.stagedLocked(name, at); of == nil {
				h.failLocked("strange offset: %d of %s's group was staged by no transaction", at, name)
				continue
			}
			hidden := len(of.records) > 0 && visible[of] == 0
			if of.outcome == Open || of.outcome == Aborted || hidden {
				h.failLocked("offset without its records: %d of %s's group is visible, %s is not", at, name, of)
			}
		}
		for _, t := range h.txns[name] {
			later := of == nil || t.n > of.n
			if later && t.offset > 0 && (visible[t] > 0 || t.outcome == Committed) {
				h.failLocked("records without their offset: %s is visible and has staged %d, the offset of its group is %d", t, t.offset, at)
			}
		}
	}
}

// checkSpansLocked: who followed the log has read what is read now.
func (h *History) checkSpansLocked(committed map[wire.TopicPartition][]Read) {
	for _, s := range h.spans {
		now := committed[s.TP]
		from, _ := slices.BinarySearchFunc(now, s.From, func(r Read, o wire.Offset) int { return cmp.Compare(r.Offset, o) })
		to, _ := slices.BinarySearchFunc(now, s.To, func(r Read, o wire.Offset) int { return cmp.Compare(r.Offset, o) })
		if slices.Equal(now[from:to], s.Reads) {
			continue
		}
		i := 0
		for i < len(s.Reads) && from+i < to && s.Reads[i] == now[from+i] {
			i++
		}
		then, later := "nothing more", "nothing more"
		if i < len(s.Reads) {
			then = s.Reads[i].Value
		}
		if from+i < to {
			later = now[from+i].Value
		}
		h.failLocked("changed: of %s [%d, %d) a reader got %d records, another later %d; record %d was %q, then %q",
			s.TP, s.From, s.To, len(s.Reads), to-from, i, then, later)
	}
}
