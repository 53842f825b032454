package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// The layout of a batch; all integers are big endian (kafka-surface: record batch v2).
const (
	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offBaseTimestamp   = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offCount           = 57

	// HeaderSize is the number of bytes before the records; every size of a batch includes it.
	HeaderSize = 61
	// PrefixSize is the number of bytes that the length field does not count: base offset and length.
	PrefixSize = 12
	// MagicEnd is the number of bytes up to and including the magic, from which Size and Magic can be told.
	MagicEnd = 17
	// Magic is the only format version that this package reads and writes.
	Magic = 2

	minLegacyLength = 14 // what a batch of format 0 has at least; less is no batch of any format
)

// Attribute bits.
const (
	codecMask              = 0x07
	bitLogAppendTime       = 1 << 3
	bitTransactional       = 1 << 4
	bitControl             = 1 << 5
	bitDeleteHorizon       = 1 << 6
	knownAttributes        = codecMask | bitLogAppendTime | bitTransactional | bitControl | bitDeleteHorizon
	unusedAttributes       = ^int16(knownAttributes)
	maxSequence      int32 = 1<<31 - 1
)

// Errors of this package; test with errors.Is.
var (
	// ErrShort: the buffer ends before the batch does. More bytes may make it whole.
	ErrShort = errors.New("batch is cut short")
	// ErrCorrupt: no further byte can make this a batch, or a record's structure is broken.
	ErrCorrupt = errors.New("batch is corrupt")
	// ErrCRC: the checksum does not match. It is an ErrCorrupt too.
	ErrCRC = fmt.Errorf("%w: checksum mismatch", ErrCorrupt)
)

// MagicError is the error for a batch of another format: 0 and 1 are legacy formats, everything else is no batch.
type MagicError struct{ Magic int8 }

func (e *MagicError) Error() string {
	return fmt.Sprintf("batch of format %d, want %d", e.Magic, Magic)
}

// Is makes a MagicError an ErrCorrupt.
func (e *MagicError) Is(target error) bool { return target == ErrCorrupt }

// Batch is one whole batch: HeaderSize bytes of header, then the records as they are stored (compressed or not). Make it
// with Next or a Builder, which guarantee its length; the methods panic on shorter slices.
type Batch []byte

// Next splits the first batch off buf. It checks length and magic, not the checksum. b and rest alias buf.
//
// Errors: ErrShort (also for an empty buf), ErrCorrupt, *MagicError; b is nil then and rest is buf.
func Next(buf []byte) (b Batch, rest []byte, err error) {
	if len(buf) < PrefixSize {
		return nil, buf, ErrShort
	}
	length := int64(int32(binary.BigEndian.Uint32(buf[offLength:])))
	if length < minLegacyLength {
		return nil, buf, fmt.Errorf("%w: length field %d", ErrCorrupt, length)
	}
	if len(buf) < MagicEnd {
		return nil, buf, ErrShort
	}
	magic := int8(buf[offMagic])
	if magic < 0 || magic > Magic {
		return nil, buf, &MagicError{magic}
	}
	size := PrefixSize + length
	if int64(len(buf)) < size {
		return nil, buf, ErrShort
	}
	if magic != Magic {
		return nil, buf, &MagicError{magic}
	}
	if size < HeaderSize {
		return nil, buf, fmt.Errorf("%w: %d bytes, smaller than a header", ErrCorrupt, size)
	}
	return Batch(buf[:size:size]), buf[size:], nil
}

// PeekSize gives the size in bytes of the batch whose first MagicEnd bytes prefix holds. The batch itself may be longer
// than prefix. Errors as Next.
func PeekSize(prefix []byte) (int, error) {
	if len(prefix) < MagicEnd {
		return 0, ErrShort
	}
	length := int64(int32(binary.BigEndian.Uint32(prefix[offLength:])))
	switch magic := int8(prefix[offMagic]); {
	case length < minLegacyLength:
		return 0, fmt.Errorf("%w: length field %d", ErrCorrupt, length)
	case magic != Magic:
		return 0, &MagicError{magic}
	case length+PrefixSize < HeaderSize:
		return 0, fmt.Errorf("%w: %d bytes, smaller than a header", ErrCorrupt, length+PrefixSize)
	}
	return int(length) + PrefixSize, nil
}

func (b Batch) i16(at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func (b Batch) i32(at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func (b Batch) i64(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

// BaseOffset is the offset of the first record slot.
func (b Batch) BaseOffset() wire.Offset { return wire.Offset(b.i64(offBaseOffset)) }

// LastOffset is the offset of the last record slot, inclusive; compaction keeps it.
func (b Batch) LastOffset() wire.Offset {
	return b.BaseOffset() + wire.Offset(b.LastOffsetDelta())
}

// NextOffset is the offset after the batch: LastOffset + 1.
func (b Batch) NextOffset() wire.Offset { return b.LastOffset() + 1 }

// Length is the length field: the size less PrefixSize.
func (b Batch) Length() int32 { return b.i32(offLength) }

// Size is the number of bytes of the batch, header included.
func (b Batch) Size() int { return len(b) }

// LeaderEpoch is the epoch of the leader that appended the batch; −1 from clients.
func (b Batch) LeaderEpoch() wire.LeaderEpoch { return wire.LeaderEpoch(b.i32(offLeaderEpoch)) }

// Magic is the format version, 2.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the stored CRC-32C over everything from the attributes on.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[offCRC:]) }

// Attributes are the raw attribute bits.
func (b Batch) Attributes() int16 { return b.i16(offAttributes) }

// Codec is the compression of the records; 5 to 7 are possible and not Valid.
func (b Batch) Codec() compress.Type { return compress.Type(b.Attributes() & codecMask) }

// LogAppendTime reports whether MaxTimestamp, set by a broker, is the timestamp of every record.
func (b Batch) LogAppendTime() bool { return b.Attributes()&bitLogAppendTime != 0 }

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&bitTransactional != 0 }

// Control reports whether the batch holds control records instead of data.
func (b Batch) Control() bool { return b.Attributes()&bitControl != 0 }

// UnusedAttributes are the bits that no version of Kafka has given a meaning.
func (b Batch) UnusedAttributes() int16 { return b.Attributes() & unusedAttributes }

// DeleteHorizon is the time in milliseconds since the epoch from which compaction may drop the batch's tombstones or
// marker; ok is false if none is set.
func (b Batch) DeleteHorizon() (ms int64, ok bool) {
	if b.Attributes()&bitDeleteHorizon == 0 {
		return wire.NoTimestamp, false
	}
	return b.i64(offBaseTimestamp), true
}

// LastOffsetDelta is LastOffset − BaseOffset, and the last sequence's distance from BaseSequence.
func (b Batch) LastOffsetDelta() int32 { return b.i32(offLastOffsetDelta) }

// BaseTimestamp is what the records' timestamp deltas are added to, in milliseconds. With a delete horizon set it is
// that horizon.
func (b Batch) BaseTimestamp() int64 { return b.i64(offBaseTimestamp) }

// MaxTimestamp is the largest timestamp of the records in milliseconds, or the broker's time (LogAppendTime).
func (b Batch) MaxTimestamp() int64 { return b.i64(offMaxTimestamp) }

// ProducerID is wire.NoProducer if the producer is not idempotent.
func (b Batch) ProducerID() wire.ProducerID { return wire.ProducerID(b.i64(offProducerID)) }

// ProducerEpoch is wire.NoEpoch if there is no producer id.
func (b Batch) ProducerEpoch() wire.ProducerEpoch { return wire.ProducerEpoch(b.i16(offProducerEpoch)) }

// BaseSequence is the sequence of the first record, wire.NoSequence if there is none.
func (b Batch) BaseSequence() int32 { return b.i32(offBaseSequence) }

// LastSequence is the sequence of the last record slot; sequences wrap from 2147483647 to 0.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() == wire.NoSequence {
		return wire.NoSequence
	}
	return AddSequence(b.BaseSequence(), b.LastOffsetDelta())
}

// AddSequence adds n ≥ 0 to a sequence and wraps from 2147483647 to 0 (Kafka: DefaultRecordBatch.incrementSequence).
func AddSequence(seq, n int32) int32 {
	if seq > maxSequence-n {
		return n - (maxSequence - seq) - 1
	}
	return seq + n
}

// Count is the number of records; 0 only in batches that compaction emptied.
func (b Batch) Count() int32 { return b.i32(offCount) }

// Payload is the bytes after the header, compressed as Codec says. It aliases b.
func (b Batch) Payload() []byte { return b[HeaderSize:] }

// ComputeCRC is the CRC-32C that the batch should have.
func (b Batch) ComputeCRC() uint32 { return crc32.Checksum(b[offAttributes:], castagnoli()) }

// castagnoli is the table of CRC-32C; the standard library makes it once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// CheckCRC compares the stored checksum with the computed one; the error is an ErrCRC.
func (b Batch) CheckCRC() error {
	if got, want := b.ComputeCRC(), b.CRC(); got != want {
		return fmt.Errorf("%w: stored %#08x, computed %#08x", ErrCRC, want, got)
	}
	return nil
}

// SetBaseOffset patches the base offset in place; the checksum does not cover it.
func (b Batch) SetBaseOffset(o wire.Offset) {
	binary.BigEndian.PutUint64(b[offBaseOffset:], uint64(o))
}

// SetLeaderEpoch patches the leader epoch in place; the checksum does not cover it.
func (b Batch) SetLeaderEpoch(e wire.LeaderEpoch) {
	binary.BigEndian.PutUint32(b[offLeaderEpoch:], uint32(e))
}

// SetMaxTimestamp patches the largest timestamp and the timestamp type in place and renews the checksum, if anything
// changes at all.
func (b Batch) SetMaxTimestamp(ms int64, logAppendTime bool) {
	attrs := b.Attributes() &^ bitLogAppendTime
	if logAppendTime {
		attrs |= bitLogAppendTime
	}
	if b.MaxTimestamp() == ms && b.Attributes() == attrs {
		return
	}
	binary.BigEndian.PutUint16(b[offAttributes:], uint16(attrs))
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(ms))
	b.SetCRC()
}

// SetCRC writes the computed checksum.
func (b Batch) SetCRC() { binary.BigEndian.PutUint32(b[offCRC:], b.ComputeCRC()) }
