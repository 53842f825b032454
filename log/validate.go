package log

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
)

// zstdProduceVersion is the first Produce version that may carry zstd (KIP-110).
const zstdProduceVersion = 7

// ValidateOptions say by which rules records are judged.
type ValidateOptions struct {
	Config         *Config
	Now            time.Time // wall clock
	ProduceVersion int16     // of the request; not used with Coordinator
	// Coordinator lifts the rules for clients: control batches and batches without a sequence are allowed.
	Coordinator bool
	Codecs      *compress.Codecs
}

// Validated is a batch that may be appended. Batch is the caller's bytes, patched in place where the topic wants the
// append time, or a rebuilt batch.
type Validated struct {
	Batch         batch.Batch
	LogAppendTime int64 // milliseconds, for the response; NoTimestamp with CreateTime
	Rebuilt       bool  // the records were encoded anew
	Records       int32
	// Txn holds for a transactional batch that a client or a coordinator wrote, and for markers.
	Txn TxnRules

	end    batch.EndTxn // of a marker
	marker bool
}

// TxnRules are what a transaction's batches are held to besides the rules for every producer (KIP-890). The zero value
// asks for nothing more.
type TxnRules struct {
	// MustBeOpen refuses the batch with INVALID_TXN_STATE unless the producer's transaction is open here already: nobody
	// vouches for its coordinator knowing of this partition.
	MustBeOpen bool
	// Tentative says that Lowest is the lowest sequence that was offered while the coordinator was asked; a batch that
	// begins after it came too early.
	Tentative bool
	Lowest    int32
	// V2 says that every transaction has an epoch of its own: a producer of whom nothing is known begins at sequence 0,
	// and a marker's epoch is later than that of the transaction it ends.
	V2 bool
}

// Validate applies Kafka's rules for produced records (Kafka: UnifiedLog.analyzeAndValidateRecords, LogValidator): one
// whole batch of format 2 with a valid checksum and within max.message.bytes, whose header agrees with its records,
// which are all walked, decompressed within max.decompressed.message.bytes. It takes no lock. A batch is refused whole.
//
// Errors: *ValidationError.
func Validate(records []byte, o ValidateOptions) (*Validated, error) {
	b, err := onlyBatch(records)
	if err != nil {
		return nil, err
	}
	if err := checkSize(len(b), o.Config); err != nil {
		return nil, err
	}
	if err := b.CheckCRC(); err != nil {
		return nil, refuse(kerr.CorruptMessage, "record batch has a wrong checksum")
	}
	if err := checkHeader(b, &o); err != nil {
		return nil, err
	}
	v := &Validated{Batch: b, LogAppendTime: wire.NoTimestamp, Records: b.Count()}
	if o.Config.LogAppendTime {
		v.LogAppendTime = o.Now.UnixMilli()
	}
	if b.Control() {
		if v.end, v.marker, err = b.EndTxn(o.Codecs); err != nil {
			return nil, refuse(kerr.InvalidRecord, "control batch: %v", err)
		}
	}
	w := newWalk(b, &o)
	var broken refusals
	if err := w.run(b, o.Codecs, &broken); err != nil {
		return nil, err
	}
	if err := broken.error(); err != nil {
		return nil, err
	}
	return v, v.finish(&o, &w)
}

func refuse(code *kerr.Error, format string, args ...any) *ValidationError {
	return &ValidationError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// onlyBatch gives the one batch that records must be.
func onlyBatch(records []byte) (batch.Batch, error) {
	if len(records) >= batch.MagicEnd {
		switch magic := int8(records[batch.MagicEnd-1]); {
		case magic == 0 || magic == 1:
			return nil, refuse(kerr.InvalidRecord, "produce requests must carry record batches of format 2, got %d", magic)
		case magic != batch.Magic:
			return nil, refuse(kerr.CorruptMessage, "unknown record batch format %d", magic)
		}
	}
	b, rest, err := batch.Next(records)
	switch {
	case err != nil:
		return nil, refuse(kerr.InvalidRecord, "not exactly one whole record batch: %v", err)
	case len(rest) > 0:
		return nil, refuse(kerr.InvalidRecord, "more than one record batch for one partition")
	}
	return b, nil
}

func checkSize(n int, c *Config) error {
	if n > c.MaxMessageBytes {
		return refuse(kerr.MessageTooLarge, "the record batch has %d bytes, the topic allows %d", n, c.MaxMessageBytes)
	}
	if int64(n) > c.SegmentBytes {
		return refuse(kerr.RecordListTooLarge, "the record batch has %d bytes, a segment at most %d", n, c.SegmentBytes)
	}
	return nil
}

// checkHeader judges what the header alone tells (Kafka: LogValidator.validateBatch).
func checkHeader(b batch.Batch, o *ValidateOptions) error {
	delta, count := b.LastOffsetDelta(), b.Count()
	switch {
	case delta < 0:
		return refuse(kerr.InvalidRecord, "last offset delta %d is negative", delta)
	case !b.Codec().Valid():
		return refuse(kerr.UnknownServerError, "unknown compression type id %d", b.Codec())
	case o.Coordinator:
		return nil
	case b.BaseOffset() != 0:
		return refuse(kerr.InvalidRecord, "the base offset is %d, it must be 0", b.BaseOffset())
	case count <= 0:
		return refuse(kerr.InvalidRecord, "the record count is %d", count)
	case int64(delta)+1 != int64(count):
		return refuse(kerr.InvalidRecord, "the offsets span %d records, the record count is %d", int64(delta)+1, count)
	case b.Control():
		return refuse(kerr.InvalidRecord, "clients may not write control records")
	case b.ProducerID() >= 0 && b.BaseSequence() < 0:
		return refuse(kerr.InvalidRecord, "producer %d sent sequence %d", b.ProducerID(), b.BaseSequence())
	case b.Codec() == compress.Zstd && o.ProduceVersion < zstdProduceVersion:
		return refuse(kerr.UnsupportedCompressionType, "zstd needs Produce version %d", zstdProduceVersion)
	}
	return nil
}

// refuseCodec is the answer to a payload that can't be decompressed.
func refuseCodec(t compress.Type, err error) *ValidationError {
	if errors.Is(err, compress.ErrTooLarge) {
		return refuse(kerr.InvalidRecord, "the records inflate beyond max.decompressed.message.bytes")
	}
	return refuse(kerr.UnknownServerError, "%s payload: %v", t, err)
}

// walk judges each record of a batch.
type walk struct {
	b               batch.Batch
	o               *ValidateOptions
	lowest, highest int64 // legal timestamps, inclusive
	needKey         bool
	maxTime         int64
	gaps            bool // offset deltas are not 0, 1, 2, …
}

func newWalk(b batch.Batch, o *ValidateOptions) walk {
	w := walk{b: b, o: o, needKey: o.Config.Compact && !b.Control(), maxTime: wire.NoTimestamp}
	w.lowest, w.highest = w.timeBounds()
	return w
}

// refusals are the records that break a rule.
type refusals struct {
	badTime bool
	count   int
	records []RecordError
}

// maxRecordErrors is how many of the records that break a rule are named: a payload may inflate to millions of them.
const maxRecordErrors = 1 << 16

// run is LogValidator's loop over the records of b: structure first, then the first rule that a record breaks is noted in
// broken. Compressed records are looked at piece by piece, never held all at once. (b and codecs are arguments to keep w
// and what it points to off the heap.)
func (w *walk) run(b batch.Batch, codecs *compress.Codecs, broken *refusals) error {
	if b.Codec() == compress.None {
		it := batch.Iterate(b.Payload(), b.Count())
		for i := int32(0); it.Next(); i++ {
			w.record(broken, i, it.Record.OffsetDelta, it.Record.TimestampDelta, it.Record.Key == nil)
		}
		if err := it.Err(); err != nil {
			return refuse(kerr.InvalidRecord, "%v", err)
		}
		return nil
	}
	it, err := b.Scan(codecs, w.o.Config.MaxDecompressedBytes)
	if err != nil {
		return refuseCodec(b.Codec(), err)
	}
	defer it.Close()
	for i := int32(0); it.Next(); i++ {
		w.record(broken, i, it.Record.OffsetDelta, it.Record.TimestampDelta, it.Record.KeySize < 0)
	}
	if err := it.Err(); errors.Is(err, batch.ErrCorrupt) {
		return refuse(kerr.InvalidRecord, "%v", err)
	} else if err != nil {
		return refuseCodec(b.Codec(), err)
	}
	return nil
}

// record judges record i.
func (w *walk) record(broken *refusals, i, offsetDelta int32, timestampDelta int64, keyless bool) {
	ts := w.b.BaseTimestamp() + timestampDelta
	if w.b.LogAppendTime() {
		ts = w.b.MaxTimestamp()
	}
	w.maxTime = max(w.maxTime, ts)
	w.gaps = w.gaps || offsetDelta != i
	switch {
	case w.needKey && keyless:
		broken.note(i, false, "a compacted topic needs records with keys")
	case !w.o.Config.LogAppendTime && ts != wire.NoTimestamp:
		if ts < w.lowest || ts > w.highest {
			broken.noteTime(i, ts, w.lowest, w.highest)
		}
	case w.b.LogAppendTime(): // with CreateTime and a legal timestamp Kafka 4.4 takes the batch and clears the bit
		broken.note(i, true, "producers may not set the timestamp type LogAppendTime")
	}
}

// error refuses the batch with all that was noted.
func (r *refusals) error() error {
	switch {
	case r.badTime:
		return &ValidationError{Code: kerr.InvalidTimestamp, Message: "One or more records have been rejected due to invalid timestamp", Records: r.records}
	case len(r.records) > 0:
		return &ValidationError{Code: kerr.InvalidRecord, Message: fmt.Sprintf("One or more records have been rejected due to %d record errors in total", r.count), Records: r.records}
	}
	return nil
}

// timeBounds gives the range of legal timestamps, inclusive, without overflow where a limit is as good as none.
func (w *walk) timeBounds() (lowest, highest int64) {
	now := w.o.Now.UnixMilli()
	lowest, highest = math.MinInt64, math.MaxInt64
	if before := w.o.Config.TimestampBeforeMax; before != Forever {
		lowest = now - before.Milliseconds()
	}
	if after := w.o.Config.TimestampAfterMax; after != Forever {
		highest = now + after.Milliseconds()
	}
	return lowest, highest
}

func (r *refusals) noteTime(index int32, ts, lowest, highest int64) {
	message := ""
	if r.count < maxRecordErrors {
		message = fmt.Sprintf("timestamp %d is not within [%d, %d]", ts, lowest, highest)
	}
	r.note(index, true, message)
}

func (r *refusals) note(index int32, badTime bool, message string) {
	r.badTime = r.badTime || badTime
	if r.count++; r.count > maxRecordErrors {
		return
	}
	r.records = append(r.records, RecordError{Index: index, Message: message})
}

// finish gives the batch the form in which it is stored: as sent, with another maximal timestamp, or rebuilt because the
// topic wants another codec or the offset deltas have gaps.
func (v *Validated) finish(o *ValidateOptions, w *walk) error {
	target := o.Config.Compression.For(v.Batch.Codec())
	rebuild := (target != v.Batch.Codec() || w.gaps && v.Batch.Codec() != compress.None) && !v.Batch.Control()
	if rebuild {
		if err := v.rebuild(o, target); err != nil {
			return err
		}
		return checkSize(len(v.Batch), o.Config)
	}
	if o.Config.LogAppendTime {
		v.Batch.SetMaxTimestamp(v.LogAppendTime, true)
	} else if w.maxTime != v.Batch.MaxTimestamp() || v.Batch.LogAppendTime() {
		v.Batch.SetMaxTimestamp(w.maxTime, false)
	}
	return nil
}

// rebuild is the one place that needs all records at once.
func (v *Validated) rebuild(o *ValidateOptions, target compress.Type) error {
	b := v.Batch
	payload, err := b.Records(o.Codecs, nil, o.Config.MaxDecompressedBytes)
	if err != nil {
		return refuseCodec(b.Codec(), err)
	}
	spec := batch.Spec{LeaderEpoch: b.LeaderEpoch(), Codec: target, Level: o.Config.Compression.Level, Transactional: b.Transactional()}
	if !o.Config.Compression.Fixed {
		spec.Level = defaultLevel(target)
	}
	if b.ProducerID() >= 0 {
		spec.Producer = &batch.Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch(), Sequence: b.BaseSequence()}
	}
	if o.Config.LogAppendTime {
		spec.LogAppendTime = &v.LogAppendTime
	}
	builder := batch.NewBuilder(spec)
	it := batch.Iterate(payload, b.Count())
	for it.Next() {
		r := batch.NewRecord{Timestamp: it.Record.Timestamp(b), Key: it.Record.Key, Value: it.Record.Value}
		for h := range it.Record.Headers() {
			r.Headers = append(r.Headers, h)
		}
		builder.Add(r)
	}
	out, _, err := builder.Build(nil, o.Codecs)
	if err != nil {
		return refuse(kerr.UnknownServerError, "%v", err)
	}
	v.Batch, v.Rebuilt = out, true
	return nil
}

// defaultLevel is the level for a batch that is rebuilt in the codec it came in, for which no level is configured.
func defaultLevel(t compress.Type) int {
	l := compress.DefaultLevels()
	switch t {
	case compress.Gzip:
		return l.Gzip
	case compress.Lz4:
		return l.Lz4
	case compress.Zstd:
		return l.Zstd
	}
	return 0
}
