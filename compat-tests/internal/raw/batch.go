package raw

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Codecs of a batch, in the lowest three bits of its attributes.
const (
	None   = 0
	Gzip   = 1
	Snappy = 2
	LZ4    = 3
	Zstd   = 4
)

// Record is one record of a Batch. A nil Key or Value is null.
type Record struct {
	Key, Value []byte
	Headers    [][2]string
	RawLength  *int64 // not nil: written in place of the record's true length
}

// Batch describes a record batch of format 2, right or wrong as the test wants it. NewBatch fills it consistently.
type Batch struct {
	BaseOffset      int64
	LeaderEpoch     int32
	Magic           int8
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64 // milliseconds since 1970
	MaxTimestamp    int64
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32
	Records         []Record
	Payload         []byte // not nil: written in place of the encoded records
	CRCDelta        uint32 // added to the true checksum
	Cut             int    // bytes left off the end, the length field left as it was
}

// NewBatch describes a right batch of an ordinary producer, uncompressed, with the present time.
func NewBatch(records ...Record) Batch {
	now := time.Now().UnixMilli()
	return Batch{
		LeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(records)) - 1, BaseTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, Count: int32(len(records)), Records: records,
	}
}

// Values makes records without keys.
func Values(values ...string) []Record {
	records := make([]Record, len(values))
	for i, v := range values {
		records[i].Value = []byte(v)
	}
	return records
}

// Numbered makes n records whose values are prefix and a number from first on.
func Numbered(prefix string, first, n int) []Record {
	records := make([]Record, n)
	for i := range records {
		records[i].Value = fmt.Appendf(nil, "%s%d", prefix, first+i)
	}
	return records
}

// Idempotent sets the producer's fields.
func (b Batch) Idempotent(id int64, epoch int16, sequence int32) Batch {
	b.ProducerID, b.ProducerEpoch, b.BaseSequence = id, epoch, sequence
	return b
}

// Compressed encodes the records with a codec.
func (b Batch) Compressed(codec int16) (Batch, error) {
	payload, err := compress(codec, encodeRecords(b.Records))
	if err != nil {
		return Batch{}, err
	}
	b.Attributes = b.Attributes&^7 | codec
	b.Payload = payload
	return b, nil
}

// Bytes encodes the batch.
func (b Batch) Bytes() []byte {
	payload := b.Payload
	if payload == nil {
		payload = encodeRecords(b.Records)
	}
	tail := binary.BigEndian.AppendUint16(nil, uint16(b.Attributes))
	tail = binary.BigEndian.AppendUint32(tail, uint32(b.LastOffsetDelta))
	tail = binary.BigEndian.AppendUint64(tail, uint64(b.BaseTimestamp))
	tail = binary.BigEndian.AppendUint64(tail, uint64(b.MaxTimestamp))
	tail = binary.BigEndian.AppendUint64(tail, uint64(b.ProducerID))
	tail = binary.BigEndian.AppendUint16(tail, uint16(b.ProducerEpoch))
	tail = binary.BigEndian.AppendUint32(tail, uint32(b.BaseSequence))
	tail = binary.BigEndian.AppendUint32(tail, uint32(b.Count))
	tail = append(tail, payload...)
	crc := crc32.Checksum(tail, crc32.MakeTable(crc32.Castagnoli)) + b.CRCDelta

	out := binary.BigEndian.AppendUint64(nil, uint64(b.BaseOffset))
	out = binary.BigEndian.AppendUint32(out, uint32(4+1+4+len(tail)))
	out = binary.BigEndian.AppendUint32(out, uint32(b.LeaderEpoch))
	out = append(out, byte(b.Magic))
	out = binary.BigEndian.AppendUint32(out, crc)
	out = append(out, tail...)
	return out[:len(out)-b.Cut]
}

func encodeRecords(records []Record) []byte {
	var out []byte
	for i, r := range records {
		body := []byte{0} // attributes
		body = binary.AppendVarint(body, 0)
		body = binary.AppendVarint(body, int64(i))
		body = appendBytes(body, r.Key)
		body = appendBytes(body, r.Value)
		body = binary.AppendVarint(body, int64(len(r.Headers)))
		for _, h := range r.Headers {
			body = appendBytes(body, []byte(h[0]))
			body = appendBytes(body, []byte(h[1]))
		}
		length := int64(len(body))
		if r.RawLength != nil {
			length = *r.RawLength
		}
		out = binary.AppendVarint(out, length)
		out = append(out, body...)
	}
	return out
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func compress(codec int16, src []byte) ([]byte, error) {
	switch codec {
	case None:
		return src, nil
	case Snappy: // one raw block, as librdkafka writes it
		return snappy.Encode(nil, src), nil
	}
	var buf bytes.Buffer
	var err error
	switch codec {
	case Gzip:
		w := gzip.NewWriter(&buf)
		_, err = w.Write(src)
		err = firstError(err, w.Close())
	case LZ4:
		w := lz4.NewWriter(&buf)
		_, err = w.Write(src)
		err = firstError(err, w.Close())
	case Zstd:
		var w *zstd.Encoder
		if w, err = zstd.NewWriter(&buf); err == nil {
			_, err = w.Write(src)
			err = firstError(err, w.Close())
		}
	default:
		err = fmt.Errorf("no codec %d", codec)
	}
	if err != nil {
		return nil, fmt.Errorf("compress with codec %d: %w", codec, err)
	}
	return buf.Bytes(), nil
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// Header is what the fixed part of a batch says.
type Header struct {
	BaseOffset, MaxTimestamp, ProducerID int64
	LeaderEpoch, Count, LastOffsetDelta  int32
	Attributes                           int16
	Raw                                  []byte // the whole batch
}

// Codec gives the codec bits.
func (h Header) Codec() int16 { return h.Attributes & 7 }

// Split cuts what a Fetch returned into its whole batches and checks each one's checksum. A cut last batch is left out.
func Split(records []byte) ([]Header, error) {
	var out []Header
	for len(records) >= headerBytes {
		h, err := first(records)
		if errors.Is(err, errCut) {
			break
		}
		if err != nil {
			return nil, err
		}
		out = append(out, h)
		records = records[len(h.Raw):]
	}
	return out, nil
}

// Whole gives the batches of a segment file up to the first that is cut or damaged.
func Whole(segment []byte) []Header {
	var out []Header
	for {
		h, err := first(segment)
		if err != nil {
			return out
		}
		out = append(out, h)
		segment = segment[len(h.Raw):]
	}
}

const headerBytes = 61

var errCut = errors.New("batch is cut")

// first reads the batch that records begin with.
func first(records []byte) (Header, error) {
	if len(records) < headerBytes {
		return Header{}, errCut
	}
	n := 12 + int(int32(binary.BigEndian.Uint32(records[8:])))
	if n < headerBytes || records[16] != 2 {
		return Header{}, fmt.Errorf("batch of length %d and magic %d", n, records[16])
	}
	if n > len(records) {
		return Header{}, errCut
	}
	b := records[:n]
	if got, want := crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)), binary.BigEndian.Uint32(b[17:]); got != want {
		return Header{}, fmt.Errorf("batch at %d has checksum %#x, its bytes say %#x", binary.BigEndian.Uint64(b), want, got)
	}
	return Header{
		BaseOffset: int64(binary.BigEndian.Uint64(b)), LeaderEpoch: int32(binary.BigEndian.Uint32(b[12:])),
		Attributes: int16(binary.BigEndian.Uint16(b[21:])), LastOffsetDelta: int32(binary.BigEndian.Uint32(b[23:])),
		MaxTimestamp: int64(binary.BigEndian.Uint64(b[35:])), ProducerID: int64(binary.BigEndian.Uint64(b[43:])),
		Count: int32(binary.BigEndian.Uint32(b[57:])), Raw: b,
	}, nil
}

// Values gives the values of an uncompressed batch's records, "" for null.
func (h Header) Values() ([]string, error) {
	if h.Codec() != None {
		return nil, fmt.Errorf("batch at %d is compressed", h.BaseOffset)
	}
	rest := h.Raw[headerBytes:]
	bad := false
	number := func() int64 {
		v, n := binary.Varint(rest)
		if n <= 0 {
			bad = true
			return 0
		}
		rest = rest[n:]
		return v
	}
	length := func() int { // of what follows; 0 for null
		v := max(number(), 0)
		if v > int64(len(rest)) {
			bad = true
			return 0
		}
		return int(v)
	}
	out := make([]string, 0, h.Count)
	for range h.Count {
		after := rest
		if n := length(); n > 0 {
			after = rest[n:]
			rest = rest[1:] // attributes
		}
		number() // timestamp delta
		number() // offset delta
		key := length()
		rest = rest[key:]
		n := length()
		value := rest[:n]
		if bad {
			return nil, fmt.Errorf("batch at %d: a record is longer than what is left", h.BaseOffset)
		}
		out = append(out, string(value))
		rest = after
	}
	return out, nil
}
