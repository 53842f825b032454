package batch

import (
	"errors"
	"fmt"
	"io"

	"github.com/kajamq/kaja/wire/compress"
)

// RecordInfo is what a Scanner tells of a record: everything but its bytes.
type RecordInfo struct {
	Size           int64 // encoded bytes, the length prefix included
	Attributes     int8
	TimestampDelta int64 // to the batch's BaseTimestamp, milliseconds
	OffsetDelta    int32 // to the batch's BaseOffset
	KeySize        int32 // −1 = null
	ValueSize      int32 // −1 = null
	HeaderCount    int32
}

// Scanner walks the records of a batch, compressed or not, checking the structure as Iterator does, without ever having
// more of them in memory than compress.NewReader says: for validating what may inflate to gigabytes. Use:
//
//	s, err := b.Scan(codecs, limit)
//	defer s.Close()
//	for s.Next() { … s.Record … }
//	if err := s.Err(); err != nil { … }
type Scanner struct {
	// Record is valid after Next returned true, until the next call.
	Record RecordInfo

	src   *compress.Reader // nil if the batch is not compressed
	piece []byte           // decompressed, not yet walked; aliases src, or the batch
	left  int32
	index int32
	rest  int64 // bytes of the current record not yet read
	err   error
}

// Scan starts at the first record. limit bounds the decompressed bytes, as in compress.Codecs.NewReader, whose errors it
// returns; what is not compressed has no limit. b must not change until Close.
func (b Batch) Scan(c *compress.Codecs, limit int64) (*Scanner, error) {
	s := &Scanner{left: b.Count()}
	if b.Codec() == compress.None {
		s.piece = b.Payload()
	} else {
		src, err := c.NewReader(b.Codec(), b.Payload(), limit)
		if err != nil {
			return nil, err
		}
		s.src = src
	}
	if s.left < 0 {
		s.err = fmt.Errorf("%w: record count %d", ErrCorrupt, s.left)
	}
	return s, nil
}

// Close gives the Scanner's buffers back.
func (s *Scanner) Close() {
	if s.src != nil {
		s.src.Close()
	}
}

// Err is nil if every record was walked and nothing is wrong. Errors: ErrCorrupt, or those of compress.Reader.
func (s *Scanner) Err() error { return s.err }

// Next moves to the next record; false at the end or on an error.
func (s *Scanner) Next() bool {
	if s.err != nil {
		return false
	}
	if s.left == 0 {
		s.atEnd()
		return false
	}
	if what := s.parse(); what != "" && s.err == nil {
		s.err = fmt.Errorf("%w: record %d: %s", ErrCorrupt, s.index, what)
	}
	s.left--
	s.index++
	return s.err == nil
}

// atEnd checks that nothing follows the last record.
func (s *Scanner) atEnd() {
	if s.more() {
		s.err = fmt.Errorf("%w: bytes after the last record", ErrCorrupt)
	}
}

// more gets the next piece if there is nothing left of the last one; false at the end or on an error.
func (s *Scanner) more() bool {
	if len(s.piece) > 0 {
		return true
	}
	if s.src == nil {
		return false
	}
	piece, err := s.src.Piece()
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	s.piece = piece
	return len(piece) > 0
}

// parse reads one record into s.Record; the result names what is wrong unless s.err does.
func (s *Scanner) parse() string {
	if !s.more() {
		return "length"
	}
	p := parser{b: s.piece}
	length := p.varint()
	if p.bad || length < 0 || int(length) > len(p.b) {
		return s.parseSlowly() // it does not lie in one piece, or is wrong
	}
	it := Iterator{rest: s.piece[:len(s.piece)-len(p.b)+int(length)]}
	if what := it.parse(); what != "" {
		return what
	}
	r := &it.Record
	s.Record = RecordInfo{
		Size: int64(r.Size), Attributes: r.Attributes, TimestampDelta: r.TimestampDelta, OffsetDelta: r.OffsetDelta,
		KeySize: sizeOf(r.Key), ValueSize: sizeOf(r.Value), HeaderCount: r.HeaderCount,
	}
	s.piece = s.piece[r.Size:]
	return ""
}

// sizeOf is the length of nullable bytes; −1 = null.
func sizeOf(b []byte) int32 {
	if b == nil {
		return -1
	}
	return int32(len(b))
}

// parseSlowly is parse byte by byte, over pieces.
func (s *Scanner) parseSlowly() string {
	s.rest = 10 // bytes that the length itself may take
	length, ok := s.varint()
	if !ok || length < 0 {
		return "length"
	}
	prefix := 10 - s.rest
	s.rest = int64(length)
	r := &s.Record
	r.Size = prefix + s.rest
	attributes, ok1 := s.byte()
	tsDelta, ok2 := s.varlong()
	offsetDelta, ok3 := s.varint()
	keySize, ok4 := s.nullable()
	valueSize, ok5 := s.nullable()
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 {
		return "fields"
	}
	r.Attributes, r.TimestampDelta, r.OffsetDelta = int8(attributes), tsDelta, offsetDelta
	r.KeySize, r.ValueSize = keySize, valueSize
	if r.HeaderCount, ok = s.varint(); !ok || r.HeaderCount < 0 || int64(r.HeaderCount) > s.rest {
		return "header count"
	}
	for range r.HeaderCount {
		n, ok := s.varint()
		if !ok || n < 0 || !s.skip(int64(n)) {
			return "header key"
		}
		if _, ok := s.nullable(); !ok {
			return "header"
		}
	}
	if s.rest != 0 {
		return "bytes after the headers"
	}
	return ""
}

// byte reads one byte of the record.
func (s *Scanner) byte() (byte, bool) {
	if s.rest == 0 || !s.more() {
		return 0, false
	}
	b := s.piece[0]
	s.piece = s.piece[1:]
	s.rest--
	return b, true
}

// varint reads as parser.varint does.
func (s *Scanner) varint() (int32, bool) {
	var v uint32
	for i := range 5 {
		c, ok := s.byte()
		if !ok {
			return 0, false
		}
		v |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int32(v>>1) ^ -int32(v&1), true
		}
	}
	return 0, false
}

func (s *Scanner) varlong() (int64, bool) {
	var v uint64
	for i := range 10 {
		c, ok := s.byte()
		if !ok {
			return 0, false
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			return int64(v>>1) ^ -int64(v&1), true
		}
	}
	return 0, false
}

// nullable skips length-prefixed bytes and gives their number; −1 for any negative length, as null.
func (s *Scanner) nullable() (int32, bool) {
	n, ok := s.varint()
	if !ok {
		return 0, false
	}
	if n < 0 {
		return -1, true
	}
	return n, s.skip(int64(n))
}

// skip drops n bytes of the record.
func (s *Scanner) skip(n int64) bool {
	if n > s.rest {
		return false
	}
	s.rest -= n
	for n > 0 {
		if !s.more() {
			return false
		}
		have := min(int64(len(s.piece)), n)
		s.piece = s.piece[have:]
		n -= have
	}
	return true
}
