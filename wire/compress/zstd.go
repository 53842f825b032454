package compress

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	zstdBlockMax     = 128 << 10
	zstdSkippable    = 0x184D2A50 // to 0x184D2A5F
	zstdSkippableLen = 8
)

// zstdBounds walks the frames and blocks of src without decompressing: least and most are what it can inflate to.
// A declared content size beyond what the blocks can hold is a lie and corrupt.
func zstdBounds(src []byte) (least, most int64, err error) {
	for len(src) > 0 {
		if len(src) >= 4 && binary.LittleEndian.Uint32(src)&^0xf == zstdSkippable {
			if len(src) < zstdSkippableLen {
				return 0, 0, corrupt(Zstd, "cut skippable frame")
			}
			n := int64(binary.LittleEndian.Uint32(src[4:]))
			if n > int64(len(src)-zstdSkippableLen) {
				return 0, 0, corrupt(Zstd, "cut skippable frame")
			}
			src = src[zstdSkippableLen+n:]
			continue
		}
		lo, hi, rest, err := zstdFrame(src)
		if err != nil {
			return 0, 0, err
		}
		least, most, src = least+lo, most+hi, rest
	}
	return least, most, nil
}

func zstdFrame(src []byte) (least, most int64, rest []byte, err error) {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return 0, 0, nil, corrupt(Zstd, "%v", err)
	}
	if h.WindowSize > MaxWindow || h.DictionaryID != 0 {
		return 0, 0, nil, corrupt(Zstd, "window of %d bytes, dictionary %d", h.WindowSize, h.DictionaryID)
	}
	if h.HeaderSize > len(src) {
		return 0, 0, nil, corrupt(Zstd, "cut header")
	}
	src = src[h.HeaderSize:]
	for last := false; !last; {
		if len(src) < 3 {
			return 0, 0, nil, corrupt(Zstd, "cut block")
		}
		word := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
		src = src[3:]
		last = word&1 != 0
		size := int64(word >> 3)
		stored := size
		switch word >> 1 & 3 {
		case 0: // raw
			least, most = least+size, most+size
		case 1: // one byte, repeated
			stored = 1
			least, most = least+size, most+size
		case 2:
			most += zstdBlockMax
		default:
			return 0, 0, nil, corrupt(Zstd, "reserved block type")
		}
		if size > zstdBlockMax || stored > int64(len(src)) {
			return 0, 0, nil, corrupt(Zstd, "block of %d bytes where %d are left", size, len(src))
		}
		src = src[stored:]
	}
	if h.HasCheckSum {
		if len(src) < 4 {
			return 0, 0, nil, corrupt(Zstd, "no checksum")
		}
		src = src[4:]
	}
	if h.HasFCS {
		if h.FrameContentSize > uint64(most) || h.FrameContentSize < uint64(least) {
			return 0, 0, nil, corrupt(Zstd, "declares %d bytes, holds %d to %d", h.FrameContentSize, least, most)
		}
		least, most = int64(h.FrameContentSize), int64(h.FrameContentSize)
	}
	return least, most, src, nil
}

func (c *Codecs) unzstd(dst, src []byte, limit int64) ([]byte, error) {
	if len(src) == 0 {
		return dst, corrupt(Zstd, "empty")
	}
	least, most, err := zstdBounds(src)
	if err != nil {
		return dst, err
	}
	if least > limit {
		return dst, tooLarge(Zstd, limit)
	}
	if most > limit || most > least && most > max(zstdTrustBytes, int64(len(src))*zstdTrustRatio) {
		// What the blocks could hold is not a size to allocate: find out what they do hold.
		if most, err = c.zstdCount(src, limit); err != nil {
			return dst, err
		}
		if most > limit {
			return dst, tooLarge(Zstd, limit)
		}
	}
	d, err := c.decoder()
	if err != nil {
		return dst, err
	}
	end := len(dst) + int(most)
	out := grow(dst, int(most))
	out, err = d.DecodeAll(src, out[:len(out):end])
	if err != nil {
		return dst, corrupt(Zstd, "%v", err)
	}
	return out, nil
}

// Below either of these, the upper bound that the block headers give is allocated as it is.
const (
	zstdTrustBytes = 4 << 20
	zstdTrustRatio = 64 // of decompressed to compressed size
)

// zstdCount decompresses src for its size alone, up to a little beyond the limit. It needs memory for the window.
func (c *Codecs) zstdCount(src []byte, limit int64) (int64, error) {
	c.wide <- struct{}{}
	defer func() { <-c.wide }()
	d, err := newZstdStream(src)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	n, err := io.Copy(&countWriter{limit: limit}, d)
	if errors.Is(err, ErrTooLarge) {
		return limit + 1, nil
	}
	if err != nil {
		return 0, corrupt(Zstd, "%v", err)
	}
	return n, nil
}

// countWriter drops what it is given and fails beyond the limit.
type countWriter struct{ n, limit int64 }

func (w *countWriter) Write(p []byte) (int, error) {
	if w.n += int64(len(p)); w.n > w.limit {
		return 0, ErrTooLarge
	}
	return len(p), nil
}

func (c *Codecs) zstd(dst, src []byte, level int) ([]byte, error) {
	e, err := c.encoder(zstdLevel(level))
	if err != nil {
		return dst, err
	}
	return e.EncodeAll(src, dst), nil
}

// zstdLevel maps libzstd's levels to those of the encoder: below 3 fastest, 3–5 default, 6–9 better, from 10 best.
func zstdLevel(level int) zstd.EncoderLevel { return zstd.EncoderLevelFromZstd(level) }

// decoder gives the shared decoder, which is safe for concurrent DecodeAll and bounds how many run at once.
func (c *Codecs) decoder() (*zstd.Decoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zstdDecoder == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(MaxWindow), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, corrupt(Zstd, "%v", err)
		}
		c.zstdDecoder = d
	}
	return c.zstdDecoder, nil
}

func (c *Codecs) encoder(level zstd.EncoderLevel) (*zstd.Encoder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.zstdEncoder[level]; e != nil {
		return e, nil
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level), zstd.WithZeroFrames(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, corrupt(Zstd, "%v", err)
	}
	if c.zstdEncoder == nil {
		c.zstdEncoder = make(map[zstd.EncoderLevel]*zstd.Encoder)
	}
	c.zstdEncoder[level] = e
	return e, nil
}
