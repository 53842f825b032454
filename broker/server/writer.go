package server

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/kajamq/kaja/wire"
)

const (
	// outBytes is the buffer in which small pieces of answers are put together, in bytes.
	outBytes = 64 << 10
	// sendfileMin is from which length on a range of a file is sent by the kernel: below, copying is cheaper.
	sendfileMin = 32 << 10
	// writeChunk bounds one write, so that a slow client is seen to make progress; in bytes.
	writeChunk = 256 << 10
	// secureChunk is writeChunk on TLS: a record, which is a system call of its own anyway, and a write whose deadline passes
	// half-way leaves a TLS connection that cannot be written to any more.
	secureChunk = 16 << 10
)

// sourceError is a failure to read what was to be sent.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return "read the answer's data: " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// writer puts answers together and sends them. It lives as long as conn.writing is set on its behalf.
type writer struct {
	c         *conn
	out       *buffer
	done      int   // answers completely in out or sent, not yet settled
	doneBytes int64 // of encoded answers among them
	sent      int64 // bytes sent since the last settling
}

// write sends answers in order until the next one is not there yet. The caller has set c.writing.
func (c *conn) write() {
	w := writer{c: c}
	for {
		r, ok := w.take()
		if !ok {
			break
		}
		var err error
		if r == nil {
			err = w.settle()
		} else {
			err = w.answer(r)
		}
		if err != nil {
			w.fail(err)
		}
	}
	c.srv.buffers.put(w.out)
}

// take pops the answer whose turn it is; nil if the next is not there yet and what was put together is to be sent
// first; false when there is nothing to do any more, and then the writer is gone.
func (w *writer) take() (*call, bool) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.head; r != nil && r.answered {
		c.head = r.next
		if c.head == nil {
			c.tail = nil
		}
		return r, true
	}
	if w.done > 0 && !c.closed {
		return nil, true
	}
	c.writing = false
	c.cond.Broadcast()
	return nil, false
}

// settle sends what was put together and frees the slots of the answers that have left.
func (w *writer) settle() error {
	if err := w.flush(false); err != nil {
		return err
	}
	c := w.c
	c.touch(time.Now())
	c.srv.metrics.bytesOut.Add(float64(w.sent))
	c.mu.Lock()
	c.pending -= w.done
	c.pendingBytes -= w.doneBytes
	c.cond.Broadcast()
	c.mu.Unlock()
	w.done, w.doneBytes, w.sent = 0, 0, 0
	return nil
}

// fail closes the connection for an error of this writer.
func (w *writer) fail(err error) {
	kind := closeIO
	var dropped *droppedError
	switch {
	case errors.As(err, &dropped):
		kind, err = closeDropped, dropped.err
	case errors.Is(err, os.ErrDeadlineExceeded):
		kind = closeSlowReader
	case isPeerGone(err):
		kind = closePeer
	}
	w.c.fail(kind, err)
}

// droppedError carries a handler's reason to close the connection.
type droppedError struct{ err error }

func (e *droppedError) Error() string { return e.err.Error() }

// answer takes care of one answer. It owns r's buffer and segments from here on.
func (w *writer) answer(r *call) error {
	w.done++
	switch {
	case r.buf != nil:
		w.doneBytes += int64(len(r.buf.b))
		return w.encoded(r.buf)
	case r.build != nil:
		// What is ready does not wait for what may read from a disk.
		if err := w.flush(false); err != nil {
			return err
		}
		return w.segments(r, r.build())
	case r.err != nil:
		if err := w.settle(); err != nil {
			return err
		}
		return &droppedError{r.err}
	}
	return nil
}

// encoded takes a complete answer: as the buffer to be sent, or appended to it.
func (w *writer) encoded(buf *buffer) error {
	if w.out != nil && len(w.out.b)+len(buf.b) > cap(w.out.b) {
		if n := len(w.out.b) + len(buf.b); n <= outBytes {
			larger := w.c.srv.buffers.get(min(4*n, outBytes))
			larger.b = append(larger.b, w.out.b...)
			w.c.srv.buffers.put(w.out)
			w.out = larger
		} else if err := w.flush(false); err != nil {
			w.c.srv.buffers.put(buf)
			return err
		}
	}
	if w.out == nil {
		w.out = buf
		return nil
	}
	w.out.b = append(w.out.b, buf.b...)
	w.c.srv.buffers.put(buf)
	return nil
}

// segments sends an answer that consists of bytes and ranges of files.
func (w *writer) segments(r *call, segs []wire.Segment) error {
	defer wire.Release(segs)
	var size int64
	for i := range segs {
		size += segs[i].Size()
	}
	w.out = w.c.srv.buffers.get(outBytes)
	w.out.b = append(w.out.b, 0, 0, 0, 0)
	w.out.b = wire.AppendResponseHeader(w.out.b, r.key, r.version, r.correlationID)
	size += int64(len(w.out.b)) - 4
	if size > math.MaxInt32 {
		w.out.b = w.out.b[:0]
		return &sourceError{fmt.Errorf("answer of %d bytes does not fit a frame", size)}
	}
	binary.BigEndian.PutUint32(w.out.b, uint32(size))
	for i := range segs {
		var err error
		if segs[i].File != nil {
			err = w.file(segs[i].File, segs[i].Off, segs[i].Len)
		} else {
			err = w.bytes(segs[i].Bytes)
		}
		if err != nil {
			return err
		}
		wire.Release(segs[i : i+1])
	}
	return nil
}

// bytes sends b, small ones by way of the buffer. It does not keep b.
func (w *writer) bytes(b []byte) error {
	out, err := w.buffer(len(b))
	if err != nil {
		return err
	}
	if len(b) > cap(out.b)-len(out.b) {
		if err := w.flush(true); err != nil {
			return err
		}
		return w.send(b, false)
	}
	out.b = append(out.b, b...)
	return nil
}

// buffer gives a buffer with room for n bytes, if n is small enough for one.
func (w *writer) buffer(n int) (*buffer, error) {
	if w.out != nil && n <= outBytes/2 && n > cap(w.out.b)-len(w.out.b) {
		if err := w.flush(true); err != nil {
			return nil, err
		}
	}
	if w.out == nil {
		w.out = w.c.srv.buffers.get(outBytes)
	}
	return w.out, nil
}

// file sends n bytes of src from off.
func (w *writer) file(src wire.Source, off, n int64) error {
	if n >= sendfileMin && w.c.raw != nil {
		if f, ok := src.SysFile(); ok {
			if err := w.flush(true); err != nil {
				return err
			}
			return w.sendfile(f, off, n)
		}
	}
	for n > 0 {
		out, err := w.buffer(int(min(n, outBytes/2)))
		if err != nil {
			return err
		}
		at := len(out.b)
		b := out.b[at:min(int64(cap(out.b)), int64(at)+n)]
		if got, err := src.ReadAt(b, off); got < len(b) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return &sourceError{err}
		}
		out.b = out.b[:at+len(b)]
		off, n = off+int64(len(b)), n-int64(len(b))
	}
	return nil
}

// flush sends the buffer and returns it to the pool. more: something follows at once.
func (w *writer) flush(more bool) error {
	if w.out == nil {
		return nil
	}
	out := w.out
	w.out = nil
	defer w.c.srv.buffers.put(out)
	return w.send(out.b, more)
}

// send writes b. It fails with os.ErrDeadlineExceeded once the client has taken nothing for the stall time.
func (w *writer) send(b []byte, more bool) error {
	chunk := writeChunk
	if w.c.secure != nil {
		chunk = secureChunk
	}
	for len(b) > 0 {
		w.c.armWrite(false)
		n, err := w.c.sendSome(b[:min(len(b), chunk)], more)
		b = b[n:]
		w.sent += int64(n)
		if err != nil && !w.c.outlives(err, int64(n)) {
			return err
		}
	}
	return nil
}

// sendfile lets the kernel send n bytes of f from off.
func (w *writer) sendfile(f *os.File, off, n int64) error {
	for n > 0 {
		w.c.armWrite(false)
		sent, err := w.c.raw.sendfile(f, off, n)
		off, n = off+sent, n-sent
		w.sent += sent
		if err != nil && !w.c.outlives(err, sent) {
			return err
		}
	}
	return nil
}

// sendSome writes b, or a part of it with an error.
func (c *conn) sendSome(b []byte, more bool) (int, error) {
	if more && c.raw != nil {
		return c.raw.sendMore(b)
	}
	return c.nc.Write(b)
}

// outlives says whether a write that ended with err after n bytes may go on: the deadline passed, but it moved.
func (c *conn) outlives(err error, n int64) bool {
	if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.armWrite(true)
	return true
}

// armWrite moves the write deadline on, but not for every write: it lies between three quarters of the stall time and
// all of it ahead.
func (c *conn) armWrite(always bool) {
	now := time.Now()
	stall := c.srv.limits.WriteStall
	if !always && now.Sub(c.writeArmed) < stall/4 {
		return
	}
	c.writeArmed = now
	_ = c.nc.SetWriteDeadline(now.Add(stall)) // a closed connection shows in the write
}
