package compress

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// The lz4 frame format as Kafka's clients use it: magic, FLG, BD, optional content size, header checksum, then blocks
// of {u32 length, high bit = stored}, an end mark of 0, optional content checksum. Blocks must be independent and a
// frame is the whole payload: Kafka reads nothing after the end mark and does not check the content checksum, and so
// does this reader (the batch's CRC covers the bytes).
const (
	lz4Magic       = 0x184D2204
	lz4Version     = 1 << 6
	lz4Independent = 1 << 5
	lz4BlockSum    = 1 << 4
	lz4HasSize     = 1 << 3
	lz4ContentSum  = 1 << 2
	lz4Reserved    = 1 << 1
	lz4HasDict     = 1
	lz4Stored      = 1 << 31
	lz4BD64K       = 4 << 4
	lz4Block       = 64 << 10
)

// lz4Frame is what a frame header says.
type lz4Frame struct {
	blockMax  int
	blockSums bool
	tail      int    // bytes after the end mark that belong to the frame
	body      []byte // from the first block on
}

func parseLz4(src []byte) (lz4Frame, error) {
	var f lz4Frame
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, corrupt(Lz4, "no frame magic")
	}
	flg, bd := src[4], src[5]
	switch {
	case flg&0xc0 != lz4Version:
		return f, corrupt(Lz4, "frame version %d", flg>>6)
	case flg&(lz4Reserved|lz4HasDict) != 0:
		return f, corrupt(Lz4, "reserved flag bits %#x", flg)
	case flg&lz4Independent == 0:
		return f, corrupt(Lz4, "dependent blocks")
	case bd&0x8f != 0 || bd>>4 < 4:
		return f, corrupt(Lz4, "block descriptor %#x", bd)
	}
	f.blockMax = 1 << (8 + 2*int(bd>>4)) // 4: 64 KiB … 7: 4 MiB
	f.blockSums = flg&lz4BlockSum != 0
	if flg&lz4ContentSum != 0 {
		f.tail = 4
	}
	end := 6
	if flg&lz4HasSize != 0 {
		end += 8
	}
	if len(src) <= end {
		return f, corrupt(Lz4, "cut header")
	}
	if byte(xxh32(src[4:end])>>8) != src[end] {
		return f, corrupt(Lz4, "header checksum")
	}
	f.body = src[end+1:]
	return f, nil
}

// block splits the first block off src; io.EOF at the end mark. A payload that ends without the mark is corrupt.
func (f lz4Frame) block(src []byte) (block []byte, stored bool, rest []byte, err error) {
	if len(src) < 4 {
		return nil, false, nil, corrupt(Lz4, "no end mark")
	}
	word := binary.LittleEndian.Uint32(src)
	src = src[4:]
	if word == 0 && len(src) < f.tail {
		return nil, false, nil, corrupt(Lz4, "no content checksum")
	}
	if word == 0 {
		return nil, false, nil, io.EOF
	}
	n := int(word &^ lz4Stored)
	need := n
	if f.blockSums {
		need += 4
	}
	if n > f.blockMax || need > len(src) {
		return nil, false, nil, corrupt(Lz4, "block of %d bytes where %d are left and %d allowed", n, len(src), f.blockMax)
	}
	if f.blockSums && binary.LittleEndian.Uint32(src[n:]) != xxh32(src[:n]) {
		return nil, false, nil, corrupt(Lz4, "block checksum")
	}
	return src[:n], word&lz4Stored != 0, src[need:], nil
}

// blocks calls fn for each block up to the end mark.
func (f lz4Frame) blocks(fn func(block []byte, stored bool) error) error {
	src := f.body
	for {
		block, stored, rest, err := f.block(src)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = fn(block, stored)
		}
		if err != nil {
			return err
		}
		src = rest
	}
}

// lz4Len gives the decompressed length of a block by walking its sequences, without writing anything; −1 if they do
// not fit the block.
func lz4Len(src []byte) int {
	total, i := 0, 0
	extend := func(n int) int {
		for i < len(src) {
			b := src[i]
			i++
			n += int(b)
			if b != 255 {
				return n
			}
		}
		return -1
	}
	for i < len(src) {
		token := src[i]
		i++
		lit := int(token >> 4)
		if lit == 15 {
			if lit = extend(lit); lit < 0 {
				return -1
			}
		}
		if lit > len(src)-i {
			return -1
		}
		i += lit
		total += lit
		if i == len(src) { // the last sequence is literals only
			return total
		}
		if i += 2; i > len(src) {
			return -1
		}
		match := int(token & 15)
		if match == 15 {
			if match = extend(match); match < 0 {
				return -1
			}
		}
		total += match + 4
	}
	return total
}

func unlz4(dst, src []byte, limit int64) ([]byte, error) {
	f, err := parseLz4(src)
	if err != nil {
		return dst, err
	}
	var total int64
	err = f.blocks(func(block []byte, stored bool) error {
		n := len(block)
		if !stored {
			n = lz4Len(block)
		}
		if n < 0 || n > f.blockMax {
			return corrupt(Lz4, "block inflates to %d bytes where %d are allowed", n, f.blockMax)
		}
		if total += int64(n); total > limit {
			return tooLarge(Lz4, limit)
		}
		return nil
	})
	if err != nil {
		return dst, err
	}
	out := grow(dst, int(total))
	end := len(out) + int(total)
	err = f.blocks(func(block []byte, stored bool) error {
		if stored {
			out = append(out, block...)
			return nil
		}
		room := min(f.blockMax, end-len(out))
		n, err := lz4.UncompressBlock(block, out[len(out):len(out)+room])
		if err != nil {
			return corrupt(Lz4, "%v", err)
		}
		out = out[:len(out)+n]
		return nil
	})
	if err != nil {
		return dst, err
	}
	return out, nil
}

func (c *Codecs) lz4(dst, src []byte, level int) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	header := [2]byte{lz4Version | lz4Independent, lz4BD64K}
	dst = append(dst, header[0], header[1], byte(xxh32(header[:])>>8))
	buf := c.getScratch(lz4.CompressBlockBound(lz4Block))
	defer c.scratch.Put(buf)
	compress, release := c.lz4Compressor(level)
	defer release()
	for len(src) > 0 {
		block := src[:min(len(src), lz4Block)]
		src = src[len(block):]
		n, err := compress(block, *buf)
		if err != nil {
			return dst, corrupt(Lz4, "%v", err)
		}
		if n == 0 || n >= len(block) {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(block))|lz4Stored)
			dst = append(dst, block...)
			continue
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
		dst = append(dst, (*buf)[:n]...)
	}
	return binary.LittleEndian.AppendUint32(dst, 0), nil
}

// lz4Compressor gives the block compressor for a level. Kafka uses the fast one for its default level, 9, and the
// high-compression one for every other.
func (c *Codecs) lz4Compressor(level int) (compress func(src, dst []byte) (int, error), release func()) {
	if level == Lz4DefaultLevel {
		z, _ := c.lz4Fast.Get().(*lz4.Compressor)
		if z == nil {
			z = new(lz4.Compressor)
		}
		return z.CompressBlock, func() { c.lz4Fast.Put(z) }
	}
	z, _ := c.lz4High.Get().(*lz4.CompressorHC)
	if z == nil {
		z = new(lz4.CompressorHC)
	}
	z.Level = lz4.CompressionLevel(1 << (8 + min(level, 9))) // the library's Level1 … Level9
	return z.CompressBlock, func() { c.lz4High.Put(z) }
}

// xxh32 is the 32-bit xxHash with seed 0, which the frame format uses for its checksums.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 uint32 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	n := uint32(len(b))
	h := p5
	if len(b) >= 16 {
		round := func(v uint32, b []byte) uint32 {
			return bits.RotateLeft32(v+binary.LittleEndian.Uint32(b)*p2, 13) * p1
		}
		v1, v2, v3, v4 := p1, p2, uint32(0), uint32(0)
		v1 += p2
		v4 -= p1
		for ; len(b) >= 16; b = b[16:] {
			v1, v2, v3, v4 = round(v1, b), round(v2, b[4:]), round(v3, b[8:]), round(v4, b[12:])
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
