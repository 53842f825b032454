package log

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// plain is the model of a log: a slice of batches, and what follows from them.
type plain struct {
	batches []plainBatch // from offset 0, those below start included
	start   wire.Offset
	floor   wire.Offset // the log began anew here
	flushed wire.Offset // durable, as the log has promised
	point   wire.Offset // its recovery point
	epoch   wire.LeaderEpoch
	bare    wire.LeaderEpoch // its leader has noted it and no record follows; 0: none
	// weak: files that held more than the batches beyond start were taken away, so that producers may be unknown.
	weak bool
	// hurt: a snapshot was damaged once, so that producers whose batches go later may be unknown then.
	hurt bool
}

type plainBatch struct {
	bytes      []byte
	base, last wire.Offset
	epoch      wire.LeaderEpoch
	maxTime    int64
	id         wire.ProducerID
	seq        int32 // of the first record
	txn        bool
	marker     bool
	commit     bool
}

func (m *plain) end() wire.Offset {
	if n := len(m.batches); n > 0 {
		return max(m.floor, m.batches[n-1].last+1)
	}
	return m.floor
}

func (m *plain) cut(at wire.Offset) {
	for n := len(m.batches); n > 0 && m.batches[n-1].last >= at; n-- {
		m.batches = m.batches[: n-1 : n-1]
	}
	m.floor = min(m.floor, at)
	m.flushed = min(m.flushed, m.end())
	m.point = min(m.point, m.flushed)
	m.bare = 0
}

// flush notes that everything is durable, and the log's recovery point.
func (m *plain) flush(l *Log) { m.flushed, m.point = m.end(), l.RecoveryPoint() }

// nextSeq is the sequence that producer id sends next.
func (m *plain) nextSeq(id wire.ProducerID) int32 {
	for _, b := range slices.Backward(m.batches) {
		if b.id == id && !b.marker {
			return b.seq + int32(b.last-b.base) + 1
		}
	}
	return 0
}

// open is the first offset of id's open transaction, NoOffset if there is none.
func (m *plain) open(id wire.ProducerID) wire.Offset {
	first := wire.NoOffset
	for _, b := range m.batches {
		switch {
		case b.id != id:
		case b.marker:
			first = wire.NoOffset
		case b.txn && first == wire.NoOffset:
			first = b.base
		}
	}
	return first
}

// aborted lists the aborted transactions whose marker is there.
func (m *plain) aborted() []AbortedTransaction {
	var out []AbortedTransaction
	for i, b := range m.batches {
		if !b.marker || b.commit {
			continue
		}
		before := plain{batches: m.batches[:i]}
		if first := before.open(b.id); first != wire.NoOffset {
			out = append(out, AbortedTransaction{ProducerID: b.id, FirstOffset: first})
		}
	}
	return out
}

// check compares everything that can be asked of the log with the model.
func (m *plain) check(l *Log) error {
	if l.StartOffset() != m.start || l.EndOffset() != m.end() {
		return fmt.Errorf("log %d to %d, want %d to %d", l.StartOffset(), l.EndOffset(), m.start, m.end())
	}
	i := slices.IndexFunc(m.batches, func(b plainBatch) bool { return b.last >= m.start })
	err := l.Scan(m.start, m.end(), func(b batch.Batch) error {
		if i < 0 || i == len(m.batches) || !bytes.Equal(b, m.batches[i].bytes) {
			return fmt.Errorf("batch at %d is not what was written", b.BaseOffset())
		}
		i++
		return nil
	})
	if err != nil {
		return err
	}
	if i >= 0 && i != len(m.batches) {
		return fmt.Errorf("%d batches at the end are not readable", len(m.batches)-i)
	}
	if err := m.checkEpochs(l); err != nil {
		return err
	}
	if m.weak {
		return nil
	}
	return m.checkProducers(l)
}

func (m *plain) checkEpochs(l *Log) error {
	last := wire.NoLeaderEpoch
	for _, b := range m.batches {
		if b.last >= m.start {
			last = max(last, b.epoch)
		}
	}
	want := last
	if m.bare > 0 {
		want = m.bare
		if e, end, ok := l.EndOffsetForEpoch(m.bare); !ok || e != m.bare || end != m.end() {
			return fmt.Errorf("epoch %d without records is %d and ends at %d, want %d", m.bare, e, end, m.end())
		}
	}
	if got := l.LatestEpoch(); want != wire.NoLeaderEpoch && got != want {
		return fmt.Errorf("latest epoch %d, want %d", got, want)
	}
	for e := range last + 1 {
		end := wire.NoOffset
		for _, b := range m.batches {
			if b.epoch <= e && b.last >= m.start {
				end = b.last + 1
			}
		}
		if _, got, ok := l.EndOffsetForEpoch(e); end != wire.NoOffset && (!ok || got != end) {
			return fmt.Errorf("epoch %d ends at %d, want %d", e, got, end)
		}
	}
	return nil
}

func (m *plain) checkProducers(l *Log) error {
	states := map[wire.ProducerID]ProducerState{}
	for _, p := range l.Producers() {
		states[p.ID] = p
	}
	oldest := wire.NoOffset
	for id := wire.ProducerID(1); id <= metaProducers; id++ {
		if next := m.nextSeq(id); next > 0 && states[id].LastSequence != next-1 {
			return fmt.Errorf("producer %d is at sequence %d, want %d", id, states[id].LastSequence, next-1)
		}
		first := m.open(id)
		if first != wire.NoOffset && (oldest == wire.NoOffset || first < oldest) {
			oldest = first
		}
		if got, known := states[id]; known && got.TxnFirst != first || !known && first != wire.NoOffset {
			return fmt.Errorf("producer %d: transaction open at %d, want %d", id, got.TxnFirst, first)
		}
	}
	l.Replicated(m.end())
	got, open := l.FirstUnstableOffset()
	if open != (oldest != wire.NoOffset) || open && got != max(oldest, m.start) {
		return fmt.Errorf("first unstable offset %d (%v), want %d", got, open, max(oldest, m.start))
	}
	return m.checkAborted(l)
}

// checkAborted asks for the aborted transactions of the whole log.
func (m *plain) checkAborted(l *Log) error {
	want := m.aborted()
	got := l.AbortedTransactions(m.start, m.end())
	for _, a := range got {
		if !slices.Contains(want, a) && !slices.ContainsFunc(want, func(w AbortedTransaction) bool { return m.beheaded(w, a) }) {
			return fmt.Errorf("transaction of producer %d at %d is said to be aborted", a.ProducerID, a.FirstOffset)
		}
	}
	for _, a := range want {
		if a.FirstOffset >= m.start && !slices.Contains(got, a) {
			return fmt.Errorf("aborted transaction of producer %d at %d is missing", a.ProducerID, a.FirstOffset)
		}
	}
	return nil
}

// beheaded reports whether got is what is left to be known of the aborted transaction want after its first batches were
// deleted and the snapshot that told of them was hurt: it begins later, but hides all of it that is still there.
func (m *plain) beheaded(want, got AbortedTransaction) bool {
	if !m.hurt || want.ProducerID != got.ProducerID || want.FirstOffset >= m.start || got.FirstOffset <= want.FirstOffset {
		return false
	}
	for _, b := range m.batches {
		if b.id == want.ProducerID && b.base >= want.FirstOffset && b.last >= m.start {
			return got.FirstOffset <= b.base
		}
	}
	return false
}

// byTime is the first offset at or beyond start whose record has a timestamp of at least ts. Records of a batch have
// the batch's base timestamp and one more millisecond each.
func (m *plain) byTime(ts int64) (wire.Offset, bool) {
	for _, b := range m.batches {
		for o := b.base; o <= b.last; o++ {
			t := b.maxTime - int64(b.last-o)
			if b.marker || batch.Batch(b.bytes).LogAppendTime() {
				t = b.maxTime
			}
			if o >= m.start && t >= ts {
				return o, true
			}
		}
	}
	return 0, false
}

// forgot reports whether the log knows nothing, or something older, of a producer all of whose batches were deleted, or of
// a transaction whose first ones were: only a snapshot told of it.
func (m *plain) forgot(l *Log) bool {
	known, there := map[wire.ProducerID]ProducerState{}, map[wire.ProducerID]bool{}
	for _, p := range l.Producers() {
		known[p.ID] = p
	}
	for _, b := range m.batches {
		there[b.id] = there[b.id] || b.last >= m.start && !b.marker
	}
	for id := wire.ProducerID(1); id <= metaProducers; id++ {
		p, ok := known[id]
		if next := m.nextSeq(id); !there[id] && next > 0 && (!ok || p.LastSequence != next-1) {
			return true
		}
		if first := m.open(id); first != wire.NoOffset && first < m.start && (!ok || p.TxnFirst != first) {
			return true
		}
	}
	return false
}
