package server

import (
	"encoding/binary"
	"time"
)

const (
	// lookahead is how much is read at once while nothing of the next frame is there. It is part of every connection, idle
	// ones included.
	lookahead = 512
	// firstChunk is what a frame gets before any of it has arrived, in bytes. More only as it fills up. It is also what
	// a connection with small frames may read ahead of the one it is at.
	firstChunk = 64 << 10
	// maxTrust bounds what a connection gets at once because it has completed frames of half that size before.
	maxTrust = 4 << 20
	// growth is by how much the memory of a frame that has filled up grows.
	growth = 4
)

// input is what a connection has received and not handled yet: one stretch of bytes, in a buffer on loan, or in look
// while there is no buffer. It may go beyond the frame at its start: a client that has several requests on their way
// then costs a system call for all of them and not two for each.
type input struct {
	buf  *buffer // memory charged to the connection's claim; nil if what there is lies in look
	r, w int     // the bytes are [r, w) of buf or look
	look [lookahead]byte
	// ahead is how much a small frame's buffer holds besides it, because reads of this connection have filled theirs.
	ahead int
}

// len is the number of bytes.
func (in *input) len() int { return in.w - in.r }

// bytes are all of them; valid until the next change of the input.
func (in *input) bytes() []byte {
	if in.buf != nil {
		return in.buf.b[in.r:in.w]
	}
	return in.look[in.r:in.w]
}

// inBuffer says whether [r, r+n) fits into the buffer.
func (in *input) inBuffer(n int) bool { return in.buf != nil && in.r+n <= cap(in.buf.b) }

// compact moves the bytes to the start of where they are.
func (in *input) compact() {
	if in.r == 0 {
		return
	}
	if in.buf != nil {
		in.w = copy(in.buf.b[:cap(in.buf.b)], in.bytes())
	} else {
		in.w = copy(in.look[:], in.bytes())
	}
	in.r = 0
}

// move takes the bytes to buf, which may be nil if look has room for them, and gives the previous buffer to the caller.
func (in *input) move(buf *buffer) (previous *buffer) {
	to := in.look[:]
	if buf != nil {
		buf.b = buf.b[:cap(buf.b)]
		to = buf.b
	}
	n := copy(to, in.bytes())
	previous, in.buf = in.buf, buf
	in.r, in.w = 0, n
	return previous
}

// readSize reads the length field of the next frame.
func (c *conn) readSize() (int, error) {
	in := &c.in
	for in.len() < 4 {
		if err := c.park(); err != nil {
			return 0, err
		}
		n, err := c.fill(in.look[in.w:])
		if err != nil {
			return 0, err
		}
		in.w += n
	}
	size := int(int32(binary.BigEndian.Uint32(in.bytes())))
	in.r += 4
	return size, nil
}

// park gives the memory of the input back, of which at most the piece of a length field is left.
func (c *conn) park() error {
	in := &c.in
	if in.buf == nil {
		in.compact()
		return nil
	}
	c.srv.buffers.put(in.move(nil))
	c.srv.budget.release(&c.claim)
	return nil
}

// readFrame reads until the size bytes of a frame are there, and sets c.frame. Memory is taken from the budget, and only
// as bytes arrive.
func (c *conn) readFrame(size int) (closeKind, error) {
	in := &c.in
	c.srv.budget.begin(&c.claim, int64(size), in.len() < size)
	capacity := min(size, max(firstChunk, min(2*c.proven, maxTrust)))
	for {
		room, err := c.makeRoom(capacity, size)
		if err != nil {
			return c.readKind(err)
		}
		for in.len() < room {
			spare := c.spare(size)
			n, err := c.fill(spare)
			if err != nil {
				return c.readKind(err)
			}
			in.w += n
			if n == len(spare) && n > 0 && size <= firstChunk/2 {
				in.ahead = firstChunk
			}
			c.srv.budget.progress(&c.claim, int64(in.len()))
		}
		if room == size {
			break
		}
		if _, kind, err := c.route(in.bytes()); kind != closePeer {
			return kind, err
		}
		capacity = min(size, growth*room)
	}
	c.srv.budget.complete(&c.claim)
	c.proven = max(c.proven, size)
	c.frame = in.bytes()[:size]
	return closePeer, nil
}

// spare is where the next bytes go: the rest of the frame, and what may be read ahead of it.
func (c *conn) spare(size int) []byte {
	in := &c.in
	end := cap(in.buf.b)
	switch frame := in.r + size; {
	case frame >= end:
	case c.claim.reserve > 0 || !c.srv.budget.roomy(): // no memory for what nobody has asked for
		end = frame
	default:
		end = min(end, frame+firstChunk)
	}
	return in.buf.b[in.w:end]
}

// makeRoom sees to a buffer that holds capacity bytes of the frame, or all size of them if the budget likes that better,
// and says how many it holds.
func (c *conn) makeRoom(capacity, size int) (int, error) {
	in := &c.in
	if in.buf != nil && cap(in.buf.b) >= capacity {
		if !in.inBuffer(capacity) {
			in.compact()
		}
		return capacity, nil
	}
	buf, room, err := c.borrow(capacity, size)
	if err != nil {
		return 0, err
	}
	if old := in.move(buf); old != nil {
		n := int64(cap(old.b))
		c.srv.buffers.put(old)
		c.srv.budget.give(&c.claim, n)
	}
	return room, nil
}

// borrow gets a buffer for capacity bytes or more and says how many of the frame's may go there.
func (c *conn) borrow(capacity, size int) (*buffer, int, error) {
	if n := c.in.ahead; n > capacity && capacity == size && c.srv.budget.tryAcquire(&c.claim, int64(sizeFor(n))) {
		return c.srv.buffers.get(n), size, nil
	}
	granted, waited, err := c.srv.budget.acquire(&c.claim, int64(sizeFor(capacity)), int64(sizeFor(size)))
	if err != nil {
		return nil, 0, err
	}
	if waited && !c.started { // not the client's fault
		if err := c.armRead(time.Now().Add(c.srv.limits.FirstRequest)); err != nil {
			return nil, 0, err
		}
	}
	if granted > int64(sizeFor(capacity)) {
		capacity = size
	}
	return c.srv.buffers.get(capacity), capacity, nil
}

// consume gives back what the request in c.frame held. The bytes read ahead of it stay, and their buffer with them.
func (c *conn) consume() {
	in := &c.in
	in.r += len(c.frame)
	c.frame = nil
	if c.produce != nil {
		c.produce.Forget()
	}
	if in.len() == 0 {
		c.releaseInput()
		return
	}
	c.srv.budget.trim(&c.claim, int64(cap(in.buf.b)))
}

// releaseInput forgets the input and gives its memory back.
func (c *conn) releaseInput() {
	c.srv.buffers.put(c.in.buf)
	c.in.buf, c.in.r, c.in.w = nil, 0, 0
	c.srv.budget.release(&c.claim)
}

// fill reads at least a byte into b. Answers that were kept back leave before it blocks.
func (c *conn) fill(b []byte) (int, error) {
	if c.kept == 0 {
		return c.read(b)
	}
	if c.rawIn != nil {
		if n := c.rawIn.try(b); n > 0 {
			c.rx += int64(n)
			return n, nil
		}
	}
	c.writeInline()
	return c.read(b)
}
