package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
)

// The xerial framing: an 8-byte magic, version and lowest compatible version (big endian, both 1), then chunks of
// {i32 length, raw snappy block}. Java, Go and Python clients send it, librdkafka sends one raw block.
const (
	xerialHeader  = 16
	xerialVersion = 1
	xerialBlock   = 32 << 10
	// snappyMaxRatio is a little above the best that a snappy block can do: a 3-byte element that copies 64 bytes.
	snappyMaxRatio = 22
)

func xerialMagic() [8]byte { return [8]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0} }

func isXerial(src []byte) bool {
	m := xerialMagic()
	return len(src) >= xerialHeader && bytes.Equal(src[:len(m)], m[:])
}

// snappyLen gives the declared length of one raw block, which must be within what src can hold at all.
func snappyLen(src []byte) (int64, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return 0, corrupt(Snappy, "%v", err)
	}
	if int64(n) > int64(len(src))*snappyMaxRatio {
		return 0, corrupt(Snappy, "%d bytes can not inflate to the declared %d", len(src), n)
	}
	return int64(n), nil
}

// nextXerial splits the first raw block off src; io.EOF at the end. Streams may be concatenated: a header can follow a
// chunk. As in Kafka, any version will do, and less than a chunk's length after the last chunk is nothing.
func nextXerial(src []byte) (block, rest []byte, err error) {
	for isXerial(src) {
		src = src[xerialHeader:]
	}
	if len(src) < 4 {
		return nil, nil, io.EOF
	}
	n := int64(int32(binary.BigEndian.Uint32(src)))
	src = src[4:]
	if n < 0 || n > int64(len(src)) {
		return nil, nil, corrupt(Snappy, "chunk of %d bytes where %d are left", n, len(src))
	}
	return src[:n], src[n:], nil
}

// xerialChunks calls fn for each raw block of src.
func xerialChunks(src []byte, fn func(block []byte) error) error {
	for {
		block, rest, err := nextXerial(src)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = fn(block)
		}
		if err != nil {
			return err
		}
		src = rest
	}
}

func unsnappy(dst, src []byte, limit int64) ([]byte, error) {
	if !isXerial(src) {
		n, err := snappyLen(src)
		if err != nil {
			return dst, err
		}
		if n > limit {
			return dst, tooLarge(Snappy, limit)
		}
		return appendSnappy(grow(dst, int(n)), src, n)
	}
	var total int64
	err := xerialChunks(src, func(block []byte) error {
		n, err := snappyLen(block)
		if total += n; err == nil && total > limit {
			err = tooLarge(Snappy, limit)
		}
		return err
	})
	if err != nil {
		return dst, err
	}
	out := grow(dst, int(total))
	err = xerialChunks(src, func(block []byte) error {
		n, err := snappyLen(block)
		if err == nil {
			out, err = appendSnappy(out, block, n)
		}
		return err
	})
	if err != nil {
		return dst, err
	}
	return out, nil
}

// appendSnappy appends one raw block of n decompressed bytes to dst, which has the room. Standard snappy only: the
// "repeat" extension of s2 would be stored and then fail in every client.
func appendSnappy(dst, src []byte, n int64) ([]byte, error) {
	end := len(dst) + int(n)
	if _, err := snappy.DecodeStrict(dst[len(dst):end:end], src); err != nil {
		return dst, corrupt(Snappy, "%v", err)
	}
	return dst[:end], nil
}

func (c *Codecs) snappy(dst, src []byte) []byte {
	m := xerialMagic()
	dst = append(dst, m[:]...)
	dst = binary.BigEndian.AppendUint32(dst, xerialVersion)
	dst = binary.BigEndian.AppendUint32(dst, xerialVersion)
	buf := c.getScratch(s2.MaxEncodedLen(xerialBlock))
	defer c.scratch.Put(buf)
	for len(src) > 0 {
		n := min(len(src), xerialBlock)
		block := s2.EncodeSnappy(*buf, src[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = append(dst, block...)
		src = src[n:]
	}
	return dst
}

// getScratch gives a buffer of at least n bytes; the caller puts it back.
func (c *Codecs) getScratch(n int) *[]byte {
	buf, _ := c.scratch.Get().(*[]byte)
	if buf == nil || len(*buf) < n {
		b := make([]byte, n)
		buf = &b
	}
	return buf
}
