package eos

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
)

// Outcome is what is known of a transaction's end.
type Outcome int8

// The outcomes. A transaction whose commit was never asked for is Open, however it ended.
const (
	Open      Outcome = iota // nothing of it may be seen
	Unknown                  // a commit was asked for, and no answer has settled it: all of it may be seen, or nothing
	Committed                // all of it has to be seen
	Aborted                  // nothing of it may be seen
)

// Place is where a record is.
type Place struct {
	TP     wire.TopicPartition
	Offset wire.Offset
}

func (p Place) String() string { return fmt.Sprintf("%s@%d", p.TP, p.Offset) }

// Read is one record as a reader got it.
type Read struct {
	Offset wire.Offset
	Value  string
}

// Span is a stretch of one partition that a reader with read_committed went through: [From, To).
type Span struct {
	TP       wire.TopicPartition
	From, To wire.Offset
	Reads    []Read
}

// record is one record of a transaction.
type record struct {
	value string
	tp    wire.TopicPartition
	at    wire.Offset // NoOffset: not acknowledged
}

// Txn is one transaction of a producer. It belongs to the History.
type Txn struct {
	producer string
	n        int // of the producer's, from 0
	outcome  Outcome
	records  []record
	offset   int64 // staged for the producer's group; 0: none
}

func (t *Txn) String() string { return fmt.Sprintf("transaction %d of %s", t.n, t.producer) }

// History is what producers did and were told, and what readers saw meanwhile. Safe for concurrent use.
type History struct {
	mu     sync.Mutex
	txns   map[string][]*Txn // by producer
	owner  map[string]*Txn   // by the record's value
	late   map[string]bool   // values that were sent for a transaction that was over
	spans  []Span
	counts Counts
	errs   []error
}

// Counts is how much was tried.
type Counts struct {
	Records, Committed, Aborted, Unknown, Late, Live int
	// Outdated are refusals by a node that had been replaced, and that its successor did not confirm.
	Outdated int
}

// maxErrors bounds what a History keeps: one fault makes many.
const maxErrors = 20

// NewHistory is empty.
func NewHistory() *History {
	return &History{txns: map[string][]*Txn{}, owner: map[string]*Txn{}, late: map[string]bool{}}
}

// Counts gives how much was tried so far.
func (h *History) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.counts
	for _, ts := range h.txns {
		for _, t := range ts {
			switch t.outcome {
			case Committed:
				c.Committed++
			case Unknown:
				c.Unknown++
			default:
				c.Aborted++
			}
		}
	}
	return c
}

// Fail notes a violation that somebody else found.
func (h *History) Fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failLocked(format, args...)
}

func (h *History) failLocked(format string, args ...any) {
	if len(h.errs) < maxErrors {
		h.errs = append(h.errs, fmt.Errorf("%s at %s", fmt.Sprintf(format, args...), time.Now().UTC().Format("15:04:05.000")))
	}
}

// Err lists the violations that were found so far; nil: none.
func (h *History) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.errs...)
}

// Failed reports whether a violation was found already.
func (h *History) Failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.errs) > 0
}

// Begin begins a producer's next transaction.
func (h *History) Begin(producer string) *Txn {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &Txn{producer: producer, n: len(h.txns[producer])}
	h.txns[producer] = append(h.txns[producer], t)
	return t
}

// Send notes a record before it is sent, and gives its value.
func (h *History) Send(t *Txn, tp wire.TopicPartition) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	value := fmt.Sprintf("%s/%d/%d/%s", t.producer, t.n, len(t.records), tp)
	t.records = append(t.records, record{value: value, tp: tp, at: wire.NoOffset})
	h.owner[value] = t
	h.counts.Records++
	return value
}

// Acked notes that values, the newest of t that were sent to tp, were acknowledged from base on.
func (h *History) Acked(t *Txn, tp wire.TopicPartition, values []string, base wire.Offset) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range t.records {
		r := &t.records[i]
		if j := slices.Index(values, r.value); j >= 0 && r.tp == tp {
			r.at = base + wire.Offset(j)
		}
	}
}

// Stage notes that an offset of the producer's group became part of t.
func (h *History) Stage(t *Txn, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.offset = offset
}

// AskCommit notes that a commit is about to be asked for.
func (h *History) AskCommit(t *Txn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.outcome = Unknown
}

// End notes what the producer was told.
func (h *History) End(t *Txn, o Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.outcome = o
}

// outdated counts a refusal that a successor did not confirm.
func (h *History) outdated() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Outdated++
}

// Late makes a value for a record of a transaction that is over; it may be seen by nobody.
func (h *History) Late(producer string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	value := fmt.Sprintf("late/%s/%d", producer, h.counts.Late)
	h.counts.Late++
	h.late[value] = true
	return value
}

// Saw judges what a reader with read_committed sees now.
func (h *History) Saw(at Place, value string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Live++
	t := h.owner[value]
	switch {
	case h.late[value]:
		h.failLocked("late: %q was sent after the end of its transaction, and is read at %s", value, at)
	case t == nil:
		h.failLocked("strange: %q at %s was sent by nobody", value, at)
	case t.outcome == Open:
		h.failLocked("dirty: %q is read at %s, and nobody has asked to commit %s", value, at, t)
	case t.outcome == Aborted:
		h.failLocked("aborted: %q is read at %s, and %s was not committed", value, at, t)
	}
}

// SawOffset judges an offset of a producer's group that somebody sees now; -1 is none.
func (h *History) SawOffset(producer string, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if offset < 0 {
		return
	}
	t := h.stagedLocked(producer, offset)
	switch {
	case t == nil:
		h.failLocked("strange offset: %d of %s's group was staged by no transaction", offset, producer)
	case t.outcome == Open, t.outcome == Aborted:
		h.failLocked("offset: %d of %s's group is visible, and %s was not committed", offset, producer, t)
	}
}

func (h *History) stagedLocked(producer string, offset int64) *Txn {
	for _, t := range h.txns[producer] {
		if t.offset == offset {
			return t
		}
	}
	return nil
}

// Went notes a stretch that a reader went through.
func (h *History) Went(s Span) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.To > s.From {
		h.spans = append(h.spans, s)
	}
}
