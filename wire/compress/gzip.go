package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// Below either of these, the size that a gzip trailer declares is allocated as it is.
const (
	gzipTrustBytes = 4 << 20
	gzipTrustRatio = 64 // of decompressed to compressed size
)

type gzipReader struct {
	src bytes.Reader // an io.ByteReader, so that deflate reads no byte too many
	z   gzip.Reader
}

// open starts at the first member of src.
func (r *gzipReader) open(src []byte) error {
	r.src.Reset(src)
	if err := r.z.Reset(&r.src); err != nil {
		return corrupt(Gzip, "%v", err)
	}
	r.z.Multistream(false)
	return nil
}

// Read goes on over concatenated members and ends where what follows is no member, as Java's GZIPInputStream does.
func (r *gzipReader) Read(p []byte) (int, error) {
	for {
		n, err := r.z.Read(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if !errors.Is(err, io.EOF) {
			return 0, corrupt(Gzip, "%v", err)
		}
		if r.src.Len() == 0 || r.z.Reset(&r.src) != nil {
			return 0, io.EOF
		}
		r.z.Multistream(false)
	}
}

func (c *Codecs) gunzip(dst, src []byte, limit int64) ([]byte, error) {
	r, _ := c.gzipReaders.Get().(*gzipReader)
	if r == nil {
		r = new(gzipReader)
	}
	defer func() {
		r.src.Reset(nil)
		c.gzipReaders.Put(r)
	}()
	if err := r.open(src); err != nil {
		return dst, err
	}
	// The trailer tells the size of the last member; usually there is only one.
	hint := int64(0)
	if len(src) >= 18 {
		hint = int64(binary.LittleEndian.Uint32(src[len(src)-4:]))
	}
	hint = min(hint, limit, max(gzipTrustBytes, int64(len(src))*gzipTrustRatio))
	return readAll(dst, r, func() error { return r.open(src) }, hint, limit, Gzip)
}

// readAll appends everything that r gives to dst. It first trusts hint; if there is more, it counts the rest without
// keeping it and starts again with the size known, so that a stream beyond the limit never makes the buffer grow.
func readAll(dst []byte, r io.Reader, reopen func() error, hint, limit int64, t Type) ([]byte, error) {
	base := len(dst)
	out := grow(dst, int(hint))
	out, err := fill(out, r, base+int(hint))
	if errors.Is(err, io.EOF) {
		return out, nil
	}
	if err != nil {
		return dst, err
	}
	more, err := count(r, limit-hint)
	switch {
	case err != nil:
		return dst, err
	case more == 0:
		return out, nil
	case more > limit-hint:
		return dst, tooLarge(t, limit)
	}
	if err := reopen(); err != nil {
		return dst, err
	}
	end := base + int(hint+more)
	out, err = fill(grow(dst, int(hint+more)), r, end)
	if err != nil && !errors.Is(err, io.EOF) {
		return dst, err
	}
	return out, nil
}

// fill reads until out is end bytes long. The error is io.EOF if r ended before.
func fill(out []byte, r io.Reader, end int) ([]byte, error) {
	for len(out) < end {
		n, err := r.Read(out[len(out):end])
		out = out[:len(out)+n]
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// count reads to the end of r, or until more than limit bytes have passed.
func count(r io.Reader, limit int64) (int64, error) {
	var buf [4096]byte
	var total int64
	for total <= limit {
		n, err := r.Read(buf[:])
		total += int64(n)
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// sliceWriter appends to a slice.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

func (c *Codecs) gzip(dst, src []byte, level int) ([]byte, error) {
	pool := &c.gzipWriters[level+1]
	out := &sliceWriter{b: dst}
	w, _ := pool.Get().(*gzip.Writer)
	if w == nil {
		var err error
		if w, err = gzip.NewWriterLevel(out, level); err != nil {
			return dst, corrupt(Gzip, "%v", err)
		}
	} else {
		w.Reset(out)
	}
	defer pool.Put(w)
	if _, err := w.Write(src); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	w.Reset(nil)
	return out.b, nil
}
