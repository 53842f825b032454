package batch

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// Producer is the idempotent producer of a batch.
type Producer struct {
	ID       wire.ProducerID
	Epoch    wire.ProducerEpoch
	Sequence int32 // of the first record; wire.NoSequence for markers and coordinator records
}

// Spec is what a batch's header says beside what follows from its records.
type Spec struct {
	BaseOffset    wire.Offset
	LeaderEpoch   wire.LeaderEpoch
	Codec         compress.Type
	Level         int // of Codec; see compress.CheckLevel
	Producer      *Producer
	Transactional bool
	Control       bool
	LogAppendTime *int64 // milliseconds; nil: the records' own timestamps count (CreateTime)
	DeleteHorizon *int64 // milliseconds; nil: none
}

// NewRecord is a record to be written.
type NewRecord struct {
	Timestamp int64  // milliseconds since the epoch
	Key       []byte // nil = null
	Value     []byte // nil = null
	Headers   []Header
}

// Builder collects records and makes one batch of them. The zero value is not usable: NewBuilder. It is reusable after
// Reset and not safe for concurrent use.
type Builder struct {
	spec      Spec
	body      []byte // encoded records, not compressed
	count     int32
	nextDelta int64
	lastDelta int64
	base      int64 // timestamp
	max       int64 // timestamp
	err       error
}

// NewBuilder makes a Builder for one batch.
func NewBuilder(s Spec) *Builder {
	b := new(Builder)
	b.Reset(s)
	return b
}

// Reset forgets the records and keeps the memory.
func (b *Builder) Reset(s Spec) {
	*b = Builder{spec: s, body: b.body[:0], lastDelta: -1, base: wire.NoTimestamp, max: wire.NoTimestamp}
	if s.DeleteHorizon != nil {
		b.base = *s.DeleteHorizon
	}
}

// Add appends a record at the next offset. The record is copied.
func (b *Builder) Add(r NewRecord) { b.AddAt(b.nextDelta, r) }

// AddAt appends a record whose offset is BaseOffset + delta; deltas ascend and may leave gaps. The record is copied.
func (b *Builder) AddAt(delta int64, r NewRecord) {
	if delta < b.nextDelta || delta > math.MaxInt32 {
		b.fail("offset delta %d after %d", delta, b.nextDelta-1)
		return
	}
	if b.count == 0 && b.spec.DeleteHorizon == nil {
		b.base = r.Timestamp
	}
	b.max = max(b.max, r.Timestamp)
	b.count++
	b.lastDelta, b.nextDelta = delta, delta+1
	tsDelta := r.Timestamp - b.base
	b.body = appendVarint(b.body, int64(recordSize(&r, tsDelta, delta)))
	b.body = append(b.body, 0)
	b.body = appendVarint(b.body, tsDelta)
	b.body = appendVarint(b.body, delta)
	b.body = appendNullable(b.body, r.Key)
	b.body = appendNullable(b.body, r.Value)
	b.body = appendVarint(b.body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		b.body = appendVarint(b.body, int64(len(h.Key)))
		b.body = append(b.body, h.Key...)
		b.body = appendNullable(b.body, h.Value)
	}
}

// EndAt makes the batch span the offsets up to BaseOffset + delta inclusive, beyond its last record: what compaction
// needs to keep.
func (b *Builder) EndAt(delta int32) {
	if int64(delta) < b.lastDelta {
		b.fail("last offset delta %d before %d", delta, b.lastDelta)
		return
	}
	b.lastDelta = int64(delta)
}

func (b *Builder) fail(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf("build batch: "+format, args...)
	}
}

// Count is the number of records added so far.
func (b *Builder) Count() int { return int(b.count) }

// Size is the size in bytes of the batch if it were built now without compression.
func (b *Builder) Size() int { return HeaderSize + len(b.body) }

// Build appends the batch to dst and returns it as a Batch and the extended slice. c is needed only for a codec. A
// builder without records makes an empty batch, as compaction leaves behind, and needs EndAt.
//
// Errors: offsets that do not ascend, a batch above 2 GiB, a level outside the codec's range.
func (b *Builder) Build(dst []byte, c *compress.Codecs) (Batch, []byte, error) {
	if b.lastDelta < 0 {
		b.fail("no records and no last offset")
	}
	if b.err != nil {
		return nil, dst, b.err
	}
	start := len(dst)
	out := append(dst, make([]byte, HeaderSize)...)
	var err error
	if b.spec.Codec == compress.None {
		out = append(out, b.body...)
	} else if out, err = c.Compress(out, b.spec.Codec, b.spec.Level, b.body); err != nil {
		return nil, dst, fmt.Errorf("build batch: %w", err)
	}
	if len(out)-start-PrefixSize > math.MaxInt32 {
		return nil, dst, fmt.Errorf("build batch: %d bytes are too many", len(out)-start)
	}
	batch := Batch(out[start:len(out):len(out)])
	b.header(batch)
	return batch, out, nil
}

func (b *Builder) header(out Batch) {
	attrs, maxTimestamp := int16(b.spec.Codec), b.max
	if b.spec.LogAppendTime != nil {
		attrs |= bitLogAppendTime
		maxTimestamp = *b.spec.LogAppendTime
	}
	if b.spec.Transactional {
		attrs |= bitTransactional
	}
	if b.spec.Control {
		attrs |= bitControl
	}
	if b.spec.DeleteHorizon != nil {
		attrs |= bitDeleteHorizon
	}
	producer := Producer{ID: wire.NoProducer, Epoch: wire.NoEpoch, Sequence: wire.NoSequence}
	if b.spec.Producer != nil {
		producer = *b.spec.Producer
	}
	be := binary.BigEndian
	out.SetBaseOffset(b.spec.BaseOffset)
	be.PutUint32(out[offLength:], uint32(len(out)-PrefixSize))
	out.SetLeaderEpoch(b.spec.LeaderEpoch)
	out[offMagic] = Magic
	be.PutUint16(out[offAttributes:], uint16(attrs))
	be.PutUint32(out[offLastOffsetDelta:], uint32(b.lastDelta))
	be.PutUint64(out[offBaseTimestamp:], uint64(b.base))
	be.PutUint64(out[offMaxTimestamp:], uint64(maxTimestamp))
	be.PutUint64(out[offProducerID:], uint64(producer.ID))
	be.PutUint16(out[offProducerEpoch:], uint16(producer.Epoch))
	be.PutUint32(out[offBaseSequence:], uint32(producer.Sequence))
	be.PutUint32(out[offCount:], uint32(b.count))
	out.SetCRC()
}

// recordSize is the value of a record's length prefix.
func recordSize(r *NewRecord, tsDelta, offsetDelta int64) int {
	n := 1 + varintSize(tsDelta) + varintSize(offsetDelta) + nullableSize(r.Key) + nullableSize(r.Value) +
		varintSize(int64(len(r.Headers)))
	for _, h := range r.Headers {
		n += varintSize(int64(len(h.Key))) + len(h.Key) + nullableSize(h.Value)
	}
	return n
}

func varintSize(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func nullableSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendVarint(dst []byte, v int64) []byte {
	u := uint64(v)<<1 ^ uint64(v>>63)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // −1
	}
	return append(appendVarint(dst, int64(len(b))), b...)
}
