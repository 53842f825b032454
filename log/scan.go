package log

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

const (
	headScanBytes = 4 << 10
	fullScanBytes = 1 << 20
)

// scanner walks the batches of a range of a .log file. head walks read as little as headers need; full ones the bytes.
type scanner struct {
	seg  *segment // for errors
	file string   // instead of seg
	src  io.ReaderAt
	pos  int64 // of the next batch
	end  int64 // exclusive
	buf  []byte
	at   int64 // file position of buf[0]
	have int
	read int64 // bytes read from the file
}

func (s *scanner) reset(seg *segment, src io.ReaderAt, pos, end int64) {
	s.seg, s.src, s.pos, s.end, s.have, s.read = seg, src, pos, end, 0, 0
}

// name is made only when something is wrong.
func (s *scanner) name() string {
	if s.seg != nil {
		return s.seg.path(suffixLog)
	}
	return s.file
}

// fill makes n bytes from the current position available; false when the range does not hold them.
func (s *scanner) fill(n int64) (bool, error) {
	if s.pos+n > s.end {
		return false, nil
	}
	if s.pos >= s.at && s.pos+n <= s.at+int64(s.have) {
		return true, nil
	}
	if int64(len(s.buf)) < n {
		s.buf = make([]byte, n)
	}
	want := min(int64(len(s.buf)), s.end-s.pos)
	got, err := s.src.ReadAt(s.buf[:want], s.pos)
	s.at, s.have = s.pos, got
	s.read += int64(got)
	if int64(got) >= n {
		return true, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return false, nil
	}
	return false, storageErr("read", s.name(), err)
}

func (s *scanner) window() []byte { return s.buf[s.pos-s.at : s.have] }

// head gives the next batch's header and position without its records, and io.EOF at the end of the range. A batch that
// is cut short or makes no sense is a *CorruptError.
func (s *scanner) head() (header, int64, error) {
	if s.pos == s.end {
		return header{}, s.pos, io.EOF
	}
	ok, err := s.fill(headerSize)
	if err != nil {
		return header{}, s.pos, err
	}
	if !ok {
		return header{}, s.pos, s.corrupt("batch header is cut short")
	}
	head := s.window()
	h, magic := parseHeader(head), batch.Batch(head).Magic()
	whole := h.size >= headerSize && s.pos+int64(h.size) <= s.end
	switch {
	case magic != batch.Magic:
		return h, s.pos, s.corrupt("unknown magic")
	case h.size < headerSize:
		return h, s.pos, s.corrupt("batch is smaller than its header")
	case !whole:
		return h, s.pos, s.corrupt("batch is cut short")
	case h.base < 0 || h.last < h.base || h.count < 0:
		return h, s.pos, s.corrupt("offsets make no sense")
	}
	at := s.pos
	s.pos += int64(h.size)
	return h, at, nil
}

// batch gives the next batch whole, with its checksum verified. The bytes are valid until the next call.
func (s *scanner) batch() (header, []byte, int64, error) {
	h, at, err := s.head()
	if err != nil {
		return h, nil, at, errors.Join(err, s.oldFormat())
	}
	s.pos = at
	ok, err := s.fill(int64(h.size))
	if err != nil {
		return h, nil, at, err
	}
	if !ok {
		return h, nil, at, s.corrupt("batch is cut short")
	}
	b := s.window()[:h.size]
	if err := batch.Batch(b).CheckCRC(); err != nil && !planted.On(planted.ChecksumUnchecked) {
		return h, nil, at, s.corrupt("checksum mismatch")
	}
	s.pos += int64(h.size)
	return h, b, at, nil
}

// misplaced looks whether the batch at position at, which was given last and begins beyond next, lies there because its base
// offset is damaged, which no checksum covers: the batch after it begins then where this one would end if it began at next.
func (s *scanner) misplaced(h header, at int64, next wire.Offset) error {
	var base [8]byte
	if s.pos+int64(len(base)) > s.end {
		return nil // nothing tells
	}
	if _, err := s.src.ReadAt(base[:], s.pos); err != nil && !errors.Is(err, io.EOF) {
		return storageErr("read", s.name(), err)
	}
	if wire.Offset(binary.BigEndian.Uint64(base[:])) != next+1+h.last-h.base {
		return nil
	}
	return &CorruptError{File: s.name(), Pos: at, Reason: "base offset is beyond that of the batch behind it"}
}

// oldFormat looks whether a batch that makes no sense is a whole message of format 0 or 1, whose checksum says so.
func (s *scanner) oldFormat() error {
	if ok, err := s.fill(batch.MagicEnd); !ok || err != nil {
		return err
	}
	magic := int8(s.window()[batch.MagicEnd-1])
	size := int64(int32(binary.BigEndian.Uint32(s.window()[8:]))) + batch.PrefixSize
	if magic != 0 && magic != 1 || size < batch.MagicEnd {
		return nil
	}
	if ok, err := s.fill(size); !ok || err != nil {
		return err
	}
	msg := s.window()[:size]
	if binary.BigEndian.Uint32(msg[batch.PrefixSize:]) != crc32.ChecksumIEEE(msg[batch.MagicEnd-1:]) {
		return nil
	}
	return &OldFormatError{File: s.name(), Pos: s.pos, Magic: magic}
}

func (s *scanner) corrupt(reason string) error {
	return &CorruptError{File: s.name(), Pos: s.pos, Reason: reason}
}

// find moves to the first batch that ends at or beyond o; io.EOF when there is none in the range.
func (s *scanner) find(o wire.Offset) (header, int64, error) {
	for {
		h, at, err := s.head()
		if err != nil || h.last >= o {
			return h, at, err
		}
	}
}
