package compress

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// streamBytes: what inflates to no more than this is decompressed at once, the rest piece by piece.
const streamBytes = 4 << 20

// Reader gives decompressed bytes piece by piece, for callers that look at them once: a payload may inflate to a
// thousand times its size without needing the memory. Not safe for concurrent use. Close it to give its buffers back.
type Reader struct {
	codecs *Codecs
	typ    Type
	limit  int64 // bytes that may still come
	buf    *[]byte
	piece  []byte // decompressed, not yet given by Read; aliases buf or src
	next   func() ([]byte, error)
	stop   func()
	err    error
}

// NewReader starts reading src. limit bounds the bytes that Read gives in all: one more is an ErrTooLarge. src must not
// change until Close.
//
// Memory: at most streamBytes for zstd payloads below that size; above it the frame's window (the whole content if the
// frame is a single segment), at most MaxWindow; for lz4 one block, at most 4 MiB; for snappy one block (32 KiB in the
// xerial framing, else all, at most 22 times the input).
//
// Errors: ErrCorrupt, ErrTooLarge, ErrUnknownType (wrapped); Read gives them too, and io.EOF at the end.
func (c *Codecs) NewReader(t Type, src []byte, limit int64) (*Reader, error) {
	r := &Reader{codecs: c, typ: t, limit: max(limit, 0), stop: func() {}}
	var err error
	switch t {
	case None:
		r.once(func([]byte) ([]byte, error) { return src, nil }, 0)
	case Gzip:
		err = r.gzip(src)
	case Snappy:
		err = r.snappy(src)
	case Lz4:
		err = r.lz4(src)
	case Zstd:
		err = r.zstd(src)
	default:
		err = fmt.Errorf("%w: %d", ErrUnknownType, int8(t))
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(r.piece) == 0 {
		var err error
		if r.piece, err = r.Piece(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.piece)
	r.piece = r.piece[n:]
	return n, nil
}

// Piece gives the next decompressed bytes, at least one, as they lie in the Reader's buffer (or in src, where they are
// not compressed): valid until the next call. What Read has not given of the piece before is gone.
func (r *Reader) Piece() ([]byte, error) {
	r.piece = nil
	for r.err == nil {
		var piece []byte
		piece, r.err = r.next()
		if int64(len(piece)) > r.limit {
			r.err = tooLarge(r.typ, r.limit)
			break
		}
		r.limit -= int64(len(piece))
		if len(piece) > 0 {
			return piece, nil
		}
	}
	return nil, r.err
}

// Close gives the buffers back. The Reader is not usable afterwards.
func (r *Reader) Close() {
	if r.codecs == nil {
		return
	}
	r.stop()
	if r.buf != nil {
		r.codecs.scratch.Put(r.buf)
	}
	r.codecs, r.buf, r.piece, r.err = nil, nil, nil, errors.New("read after close")
}

// scratch gives r's buffer with at least n bytes.
func (r *Reader) scratch(n int) []byte {
	if r.buf == nil || len(*r.buf) < n {
		if r.buf != nil {
			r.codecs.scratch.Put(r.buf)
		}
		r.buf = r.codecs.getScratch(n)
	}
	return *r.buf
}

// from reads pieces from an io.Reader.
func (r *Reader) from(src io.Reader) {
	r.next = func() ([]byte, error) {
		buf := r.scratch(32 << 10)
		n, err := src.Read(buf)
		if err == io.EOF && n > 0 {
			err = nil
		}
		return buf[:n], err
	}
}

func (r *Reader) gzip(src []byte) error {
	z, _ := r.codecs.gzipReaders.Get().(*gzipReader)
	if z == nil {
		z = new(gzipReader)
	}
	pool := &r.codecs.gzipReaders
	r.stop = func() {
		z.src.Reset(nil)
		pool.Put(z)
	}
	r.from(z)
	return z.open(src)
}

// once makes r give all the bytes of one decompression into a buffer of n bytes.
func (r *Reader) once(decompress func(dst []byte) ([]byte, error), n int64) {
	done := false
	r.next = func() ([]byte, error) {
		if done {
			return nil, io.EOF
		}
		done = true
		if n == 0 {
			return decompress(nil)
		}
		return decompress(r.scratch(int(n))[:0])
	}
}

func (r *Reader) snappy(src []byte) error {
	if !isXerial(src) {
		n, err := snappyLen(src)
		if err == nil && n > r.limit {
			err = tooLarge(Snappy, r.limit)
		}
		r.once(func(dst []byte) ([]byte, error) { return appendSnappy(dst, src, n) }, n)
		return err
	}
	rest := src
	r.next = func() (piece []byte, err error) {
		block, after, err := nextXerial(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		n, err := snappyLen(block)
		if err == nil && n > r.limit {
			err = tooLarge(Snappy, r.limit)
		}
		if err != nil {
			return nil, err
		}
		return appendSnappy(r.scratch(int(n))[:0], block, n)
	}
	return nil
}

func (r *Reader) lz4(src []byte) error {
	f, err := parseLz4(src)
	if err != nil {
		return err
	}
	rest := f.body
	r.next = func() ([]byte, error) {
		block, stored, after, err := f.block(rest)
		if err != nil {
			return nil, err
		}
		rest = after
		if stored {
			return block, nil
		}
		n := lz4Len(block)
		if n < 0 || n > f.blockMax {
			return nil, corrupt(Lz4, "block inflates to %d bytes where %d are allowed", n, f.blockMax)
		}
		buf := r.scratch(n)
		if n, err = lz4.UncompressBlock(block, buf[:n]); err != nil {
			return nil, corrupt(Lz4, "%v", err)
		}
		return buf[:n], nil
	}
	return nil
}

func (r *Reader) zstd(src []byte) error {
	if len(src) == 0 {
		return corrupt(Zstd, "empty")
	}
	least, most, err := zstdBounds(src)
	switch {
	case err != nil:
		return err
	case least > r.limit:
		return tooLarge(Zstd, r.limit)
	case most <= streamBytes:
		d, err := r.codecs.decoder()
		r.once(func(dst []byte) ([]byte, error) {
			out, err := d.DecodeAll(src, dst[:0:most])
			if err != nil {
				return nil, corrupt(Zstd, "%v", err)
			}
			return out, nil
		}, most)
		return err
	}
	r.codecs.wide <- struct{}{}
	d, err := newZstdStream(src)
	if err != nil {
		<-r.codecs.wide
		return err
	}
	wide := r.codecs.wide
	r.stop = func() {
		d.Close()
		<-wide
	}
	r.from(zstdErrors{d})
	return nil
}

func newZstdStream(src []byte) (*zstd.Decoder, error) {
	d, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(MaxWindow))
	if err != nil {
		return nil, corrupt(Zstd, "%v", err)
	}
	return d, nil
}

// zstdErrors says ErrCorrupt for the decoder's errors.
type zstdErrors struct{ d *zstd.Decoder }

func (z zstdErrors) Read(p []byte) (int, error) {
	n, err := z.d.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = corrupt(Zstd, "%v", err)
	}
	return n, err
}
