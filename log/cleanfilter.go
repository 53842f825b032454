package log

import (
	"fmt"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
)

// lastOfProducer is what compaction keeps of a live producer: the batch that ends at last, with its last sequence, or
// where there is none the control batches of its epoch, which fence older ones.
type lastOfProducer struct {
	last  wire.Offset // NoOffset: none
	epoch wire.ProducerEpoch
}

// filter decides batch by batch what compaction keeps (Kafka: Cleaner.cleanInto, MemoryRecords.filterTo).
type filter struct {
	keys      *keyMap
	mapped    wire.Offset // exclusive: keys knows every record from the dirty start up to here
	txns      *txnTracker
	producers map[wire.ProducerID]lastOfProducer
	now       int64         // milliseconds
	retention time.Duration // delete.retention.ms
	codecs    *compress.Codecs
	limit     int64 // bytes of one batch's decompressed records
	stats     *CleanStats

	builder *batch.Builder
	records []byte // decompressed
	out     []byte
}

// kept is what is left of one batch; bytes is nil if nothing is. They are valid until the next batch.
type kept struct {
	bytes   []byte
	changed bool
	index   *abortedTxn // the entry of the transaction index that the batch, an abort marker, needs
}

// batch filters one batch, whose checksum holds. keepEmpty says that the batch must stay, without records if need be, because it
// is the last of the new segment: the segments of a log join without gaps.
func (f *filter) batch(h *header, b batch.Batch, keepEmpty bool) (kept, error) {
	var out kept
	var drop, outlived bool
	if h.control {
		end, isEnd, err := b.EndTxn(f.codecs)
		if err != nil {
			return out, err
		}
		outlived, out.index = f.txns.control(h, end, isEnd)
		horizon, set := b.DeleteHorizon()
		drop = outlived && (set && horizon <= f.now || h.count == 0)
	} else {
		drop = f.txns.data(h)
	}
	f.stats.RecordsRead += int64(h.count)
	keepEmpty = keepEmpty || f.lastOf(h)
	if drop && !keepEmpty {
		out.changed = true
		return out, nil
	}
	return f.rewrite(h, b, out, drop, outlived, keepEmpty)
}

// lastOf reports whether a live producer's state hangs on the batch.
func (f *filter) lastOf(h *header) bool {
	p, live := f.producers[h.producerID]
	switch {
	case h.producerID < 0 || !live:
		return false
	case p.last >= 0:
		return h.last == p.last
	}
	return h.control && h.epoch == p.epoch
}

// rewrite keeps the records of a batch that are to stay: the batch as it is if all of them are, a new one, one without
// records, or nothing.
func (f *filter) rewrite(h *header, b batch.Batch, out kept, drop, outlived, keepEmpty bool) (kept, error) {
	var records []byte
	var err error
	keep, tombstones := 0, false
	if !drop && h.count > 0 {
		if records, err = b.Records(f.codecs, f.records, f.limit); err != nil {
			return out, err
		}
		if b.Codec() != compress.None {
			f.records = records
		}
		if keep, tombstones, err = f.choose(h, b, records); err != nil {
			return out, err
		}
	}
	f.stats.RecordsKept += int64(keep)
	horizon, set := b.DeleteHorizon()
	setHorizon := !set && (tombstones || outlived && h.control) && keep > 0
	switch {
	case keep == int(h.count) && !setHorizon && keep > 0:
		out.bytes = b
		return out, nil
	case keep == 0 && !keepEmpty:
		out.changed = true
		return out, nil
	case h.count == 0:
		out.bytes = b
		return out, nil
	case keep == 0:
		out.changed = true
		out.bytes, err = f.empty(b)
		return out, err
	case setHorizon:
		horizon, set = f.now+f.retention.Milliseconds(), true
	}
	out.changed = true
	out.bytes, err = f.rebuild(h, b, records, horizon, set)
	return out, err
}

// choose counts the records that stay, and says whether tombstones are among them.
func (f *filter) choose(h *header, b batch.Batch, records []byte) (keep int, tombstones bool, err error) {
	it := batch.Iterate(records, h.count)
	for it.Next() {
		if f.keeps(h, b, &it.Record) {
			keep++
			tombstones = tombstones || it.Record.Value == nil
		}
	}
	return keep, tombstones, it.Err()
}

// keeps decides about one record of a batch that is not dropped.
func (f *filter) keeps(h *header, b batch.Batch, r *batch.Record) bool {
	o := h.base + wire.Offset(r.OffsetDelta)
	if h.control || o >= f.mapped {
		return true
	}
	if r.Key == nil {
		return false // written before the topic was compacted
	}
	if o < f.keys.newest(r.Key) {
		return false
	}
	horizon, set := b.DeleteHorizon()
	return r.Value != nil || !set || f.now < horizon
}

// spec is the header of the batch that takes b's place.
func specOf(b batch.Batch) batch.Spec {
	s := batch.Spec{
		BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(), Transactional: b.Transactional(), Control: b.Control(),
		Producer: &batch.Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch(), Sequence: b.BaseSequence()},
	}
	if b.LogAppendTime() {
		ts := b.MaxTimestamp()
		s.LogAppendTime = &ts
	}
	return s
}

// rebuild makes a batch of the records that stay. It keeps base and last offset, and with them the sequences.
func (f *filter) rebuild(h *header, b batch.Batch, records []byte, horizon int64, setHorizon bool) ([]byte, error) {
	s := specOf(b)
	s.Codec, s.Level = b.Codec(), defaultLevel(b.Codec())
	if setHorizon {
		s.DeleteHorizon = &horizon
	}
	if f.builder == nil {
		f.builder = batch.NewBuilder(s)
	} else {
		f.builder.Reset(s)
	}
	it := batch.Iterate(records, h.count)
	for it.Next() {
		r := &it.Record
		if !f.keeps(h, b, r) {
			continue
		}
		nr := batch.NewRecord{Timestamp: r.Timestamp(b), Key: r.Key, Value: r.Value}
		for header := range r.Headers() {
			nr.Headers = append(nr.Headers, header)
		}
		f.builder.AddAt(int64(r.OffsetDelta), nr)
	}
	f.builder.EndAt(b.LastOffsetDelta())
	return f.build()
}

// empty makes a batch without records that keeps everything else of b's header.
func (f *filter) empty(b batch.Batch) ([]byte, error) {
	bl := batch.NewBuilder(specOf(b))
	bl.EndAt(b.LastOffsetDelta())
	out, _, err := bl.Build(nil, f.codecs)
	if err != nil {
		return nil, fmt.Errorf("empty a batch: %w", err)
	}
	out.SetMaxTimestamp(b.MaxTimestamp(), b.LogAppendTime())
	return out, nil
}

func (f *filter) build() ([]byte, error) {
	out, buf, err := f.builder.Build(f.out[:0], f.codecs)
	f.out = buf
	if err != nil {
		return nil, fmt.Errorf("rewrite a batch: %w", err)
	}
	return out, nil
}
