package batch

import (
	"fmt"
	"iter"

	"github.com/kajamq/kaja/wire/compress"
)

// Record is one record of a batch, still relative to it. Its slices alias the buffer that was iterated.
type Record struct {
	Size           int // encoded bytes, the length prefix included
	Attributes     int8
	TimestampDelta int64  // to the batch's BaseTimestamp, milliseconds
	OffsetDelta    int32  // to the batch's BaseOffset
	Key            []byte // nil = null
	Value          []byte // nil = null
	HeaderCount    int32
	headers        []byte // well-formed: Iterator walked them
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte // nil = null
}

// Headers iterates over the headers in order. The keys are copied, the values alias the record.
func (r *Record) Headers() iter.Seq[Header] {
	return func(yield func(Header) bool) {
		p := parser{b: r.headers}
		for range r.HeaderCount {
			key := p.bytes(p.varint())
			h := Header{Key: string(key), Value: p.nullable()}
			if !yield(h) {
				return
			}
		}
	}
}

// Timestamp is the record's timestamp in milliseconds, given the batch that it came from.
func (r *Record) Timestamp(b Batch) int64 {
	if b.LogAppendTime() {
		return b.MaxTimestamp()
	}
	return b.BaseTimestamp() + r.TimestampDelta
}

// Iterator walks the records of a decompressed payload and checks their structure: lengths, varints, header counts, that
// there are exactly as many records as declared and nothing after them. Use:
//
//	it := batch.Iterate(payload, b.Count())
//	for it.Next() { … it.Record … }
//	if err := it.Err(); err != nil { … }
type Iterator struct {
	// Record is valid after Next returned true, until the next call.
	Record Record

	rest  []byte
	left  int32
	index int32
	err   error
}

// Iterate starts at the first of count records in payload, which is decompressed (Batch.Records).
func Iterate(payload []byte, count int32) Iterator {
	it := Iterator{rest: payload, left: count}
	if count < 0 {
		it.left, it.err = 0, fmt.Errorf("%w: record count %d", ErrCorrupt, count)
	}
	return it
}

// Next moves to the next record; false at the end or on an error.
func (it *Iterator) Next() bool {
	if it.err != nil {
		return false
	}
	if it.left == 0 {
		if len(it.rest) > 0 {
			it.err = fmt.Errorf("%w: %d bytes after the last record", ErrCorrupt, len(it.rest))
		}
		return false
	}
	if what := it.parse(); what != "" {
		it.err = fmt.Errorf("%w: record %d: %s", ErrCorrupt, it.index, what)
		return false
	}
	it.left--
	it.index++
	return true
}

// Err is nil if every record was walked and nothing is wrong; else an ErrCorrupt.
func (it *Iterator) Err() error { return it.err }

// parse reads one record into it.Record; the result names what is wrong.
func (it *Iterator) parse() string {
	p := parser{b: it.rest}
	length := p.varint()
	if p.bad || length < 0 || int(length) > len(p.b) {
		return "length"
	}
	prefix := len(it.rest) - len(p.b)
	p.b = p.b[:length]
	r := &it.Record
	r.Size = prefix + int(length)
	r.Attributes = p.int8()
	r.TimestampDelta = p.varlong()
	r.OffsetDelta = p.varint()
	r.Key = p.nullable()
	r.Value = p.nullable()
	if p.bad {
		return "fields"
	}
	r.HeaderCount = p.varint()
	if p.bad || r.HeaderCount < 0 || int(r.HeaderCount) > len(p.b) {
		return "header count"
	}
	r.headers = p.b
	for range r.HeaderCount {
		n := p.varint()
		if n < 0 {
			return "header key"
		}
		p.bytes(n)
		p.nullable()
		if p.bad {
			return "header"
		}
	}
	if len(p.b) > 0 {
		return "bytes after the headers"
	}
	it.rest = it.rest[r.Size:]
	return ""
}

// Records gives the decompressed records of b: its own bytes if it is not compressed, else buf[:0] filled with them.
// limit bounds what is decompressed, in bytes. Errors: those of compress.Codecs.Decompress.
func (b Batch) Records(c *compress.Codecs, buf []byte, limit int64) ([]byte, error) {
	if b.Codec() == compress.None {
		return b.Payload(), nil
	}
	return c.Decompress(buf[:0], b.Codec(), b.Payload(), limit)
}

// parser reads Kafka's primitive types. After the first impossible one bad is set and everything is zero.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) int8() int8 {
	if len(p.b) < 1 {
		p.bad = true
		return 0
	}
	v := int8(p.b[0])
	p.b = p.b[1:]
	return v
}

// varint reads a zigzag varint of at most 5 bytes; of the fifth the bits above the 32nd are dropped, as Kafka does.
func (p *parser) varint() int32 {
	if len(p.b) > 0 && p.b[0] < 0x80 {
		v := int32(p.b[0])
		p.b = p.b[1:]
		return v>>1 ^ -(v & 1)
	}
	return p.longVarint()
}

func (p *parser) longVarint() int32 {
	var v uint32
	for i := range min(len(p.b), 5) {
		c := p.b[i]
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			p.b = p.b[i+1:]
			return int32(v>>1) ^ -int32(v&1)
		}
	}
	p.bad = true
	return 0
}

// varlong reads a zigzag varint of at most 10 bytes.
func (p *parser) varlong() int64 {
	var v uint64
	for i := range min(len(p.b), 10) {
		c := p.b[i]
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			p.b = p.b[i+1:]
			return int64(v>>1) ^ -int64(v&1)
		}
	}
	p.bad = true
	return 0
}

func (p *parser) bytes(n int32) []byte {
	if n < 0 || int(n) > len(p.b) {
		p.bad = true
		return nil
	}
	v := p.b[:n:n]
	p.b = p.b[n:]
	return v
}

// nullable reads length-prefixed bytes; Kafka takes every negative length for null.
func (p *parser) nullable() []byte {
	n := p.varint()
	if p.bad || n < 0 {
		return nil
	}
	return p.bytes(n)
}
