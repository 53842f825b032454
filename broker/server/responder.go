package server

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// maxSizeHint bounds what is expected of an answer, in bytes.
const maxSizeHint = 1 << 20

// call is one request and its answer; the Responder that its handler gets.
type call struct {
	req           Request
	c             *conn
	key, version  int16 // of the answer; req belongs to the handler
	correlationID int32
	next          *call // guarded by conn.mu

	answered bool // guarded by conn.mu; the fields below are set before and never changed
	buf      *buffer
	build    func() []wire.Segment
	err      error
}

// Reply implements Responder. The answer is encoded at once: its size is then known, and it may point into the frame
// until the handler returns.
func (r *call) Reply(resp kmsg.Response) {
	hint := r.c.srv.sizeHint(r.key)
	buf := r.c.srv.buffers.get(int(hint.Load()))
	buf.b = append(buf.b, 0, 0, 0, 0)
	buf.b = wire.AppendResponseHeader(buf.b, r.key, r.version, r.correlationID)
	buf.b = resp.AppendTo(buf.b)
	binary.BigEndian.PutUint32(buf.b, uint32(len(buf.b)-4))
	hint.Store(int32(min(len(buf.b), maxSizeHint)))
	r.answer(buf, nil, nil)
}

// sizeHint is the size of the last answer to key, so that the next one is encoded into a buffer that holds it.
func (s *Server) sizeHint(key int16) *atomic.Int32 {
	return &s.hints[max(0, min(int(key), len(s.hints)-1))]
}

// ReplyFunc implements Responder.
func (r *call) ReplyFunc(build func() []wire.Segment) { r.answer(nil, build, nil) }

// Drop implements Responder.
func (r *call) Drop(err error) { r.answer(nil, nil, err) }

func (r *call) answer(buf *buffer, build func() []wire.Segment, err error) {
	c := r.c
	c.mu.Lock()
	if r.answered {
		c.mu.Unlock()
		panic("BUG: a request was answered twice")
	}
	r.answered, r.buf, r.build, r.err = true, buf, build, err
	if c.closed {
		c.mu.Unlock()
		r.discard()
		return
	}
	if buf != nil {
		c.pendingBytes += int64(len(buf.b))
	}
	// The writer starts with the answer at the head. That of the request in stage one is written by the reader, which
	// is about to come back and has nothing better to do: a goroutine less for every request that does not wait.
	if r == c.head && !c.writing && r != c.handling {
		c.writing = true
		c.srv.wg.Go(c.write)
	}
	c.mu.Unlock()
}

// discard gives up an answer that will not leave.
func (r *call) discard() {
	r.c.srv.buffers.put(r.buf)
	r.buf, r.build = nil, nil
}

const (
	// maxKept is how many answers in a row may be kept back.
	maxKept = 64
	// maxKeptBytes is how many bytes of requests may be handled while answers to earlier ones are kept back.
	maxKeptBytes = 256 << 10
	// maxKeptTime is for how long an answer that is ready is kept back at most.
	maxKeptTime = time.Millisecond
)

// endStage ends stage one of a request of size bytes: the answers that are ready are written, by the reader, or kept back
// for those to the requests that have arrived behind, so that they leave together: until the reader would block for more
// input, and not for long. That the next request hangs in a disk keeps them for maxKeptTime: then a goroutine writes.
func (c *conn) endStage(size int) {
	keep := c.in.len() > 0 && c.kept < maxKept && c.keptBytes+size <= maxKeptBytes
	start, arm := c.startWriting(keep)
	switch {
	case !start:
		return
	case !keep:
		c.write()
		return
	case arm && c.keeper == nil:
		c.keeper = time.AfterFunc(maxKeptTime, c.writeKept)
	case arm:
		c.keeper.Reset(maxKeptTime)
	}
	c.kept++
	c.keptBytes += size
}

// startWriting says whether there is an answer to write and nobody who does, and sets c.writing then unless it is to be
// kept back: arm says that the keeper has to be set for it.
func (c *conn) startWriting(keep bool) (start, arm bool) {
	arm = keep && c.kept == 0
	if c.kept > 0 && !keep {
		c.kept, c.keptBytes = 0, 0
		c.keeper.Stop()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.handling = nil
	if c.writing || c.closed || c.head == nil || !c.head.answered {
		return false, false
	}
	c.writing = !keep
	arm = arm || keep && c.keeperRan
	if arm {
		c.keeperRan = false
	}
	return true, arm
}

// writeInline writes the answers that are ready, those that were kept back among them, on the reader.
func (c *conn) writeInline() {
	if start, _ := c.startWriting(false); start {
		c.write()
	}
}

// writeKept writes answers that were kept back for long enough.
func (c *conn) writeKept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeperRan = true
	if c.writing || c.closed || c.head == nil || !c.head.answered {
		return
	}
	c.writing = true
	c.srv.wg.Go(c.write)
}
