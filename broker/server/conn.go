package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

const (
	// lingerTime and lingerBytes bound how long a connection that is closed for a fault of its client goes on reading
	// what it sent, so that the last answers are not lost to a reset.
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// aLongTimeAgo makes a blocked read return.
var aLongTimeAgo = time.Unix(1, 0)

var (
	errIdle         = errors.New("idle")
	errFirstRequest = errors.New("no complete request")
	errDraining     = errors.New("server stops")
)

// conn is one connection. The reader owns what stands above mu, the writer (or the reader while it writes) raw and
// writeArmed.
type conn struct {
	info   *Conn
	srv    *Server
	lis    *listener
	nc     net.Conn
	secure *peer.SecureConn // nc, on a listener with TLS; nil elsewhere
	below  *greeting        // what secure stands on; nil without
	ctx    context.Context
	cancel context.CancelFunc

	claim     claim
	in        input
	frame     []byte // of the request being handled; a part of in
	clientID  string
	produce   *wire.ProduceReader // nil until needed
	proven    int                 // size of the largest complete frame, in bytes
	rx        int64               // bytes received
	rxArmed   int64               // rx when the read deadline was set
	rawIn     *rawReader          // nil where a read always waits
	started   bool                // a complete request has arrived, or a node has proven who it is
	served    bool                // requests are, at last
	trusted   bool                // the other side has shown a certificate, or is a node
	handOver  func()              // gives nc to others when the connection ends; nil: it is closed
	kept      int                 // answers in a row that were kept back
	keptBytes int                 // of the requests that they answer
	keeper    *time.Timer         // writes them if the reader does not; nil until needed

	raw        *rawSender // nil where sendfile is not possible
	writeArmed time.Time

	lastActive atomic.Int64 // nanoseconds since srv.start: a frame became complete, answers left

	mu           sync.Mutex
	cond         sync.Cond // on mu: pending, writing, closed or draining changed
	head, tail   *call     // not yet taken by the writer, in request order
	handling     *call     // in stage one; its answer is left to the reader
	pending      int       // requests read and not yet settled
	pendingBytes int64     // encoded answers among them
	keeperRan    bool      // keeper has fired since it was set
	writing      bool      // a writer exists; only it takes from head
	closed       bool      // no further answer leaves
	draining     bool      // no further request is read
	meeting      bool      // a handshake is under way, whose deadlines are its own
	kind         closeKind // why, once closed
	err          error
}

func newConn(s *Server, l *listener, nc net.Conn, id uint64) *conn {
	c := &conn{info: NewConn(id, l.name, nc.LocalAddr(), nc.RemoteAddr()), srv: s, lis: l, nc: nc}
	if l.tls != nil {
		c.below = &greeting{Conn: nc, of: c}
		c.secure = l.tls.Server(c.below)
		c.nc = c.secure
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.cond.L = &c.mu
	c.claim.evict = func(err error) { c.fail(closeSlowFrame, err) }
	c.raw, c.rawIn = newRawSender(c.nc), newRawReader(c.nc)
	return c
}

// serve runs the connection until it is closed.
func (c *conn) serve() {
	kind, err := c.readLoop()
	c.releaseInput()
	c.writeInline()
	if kind == closePeer && errors.Is(err, io.EOF) {
		err = nil
	}
	waited := c.awaitAnswers(kind)
	c.mu.Lock()
	if !c.closed {
		c.kind, c.err = kind, err
	}
	c.closeLocked()
	for c.writing {
		c.cond.Wait()
	}
	kind, err = c.kind, c.err
	c.mu.Unlock()
	c.cancel()
	if kind != closeHandedOver {
		c.handOver = nil
		if kind != closeShutdown || waited {
			c.linger(kind)
		}
		_ = c.nc.Close()
	}
	c.srv.closed(c, kind)
	attrs := []slog.Attr{slog.String("listener", c.lis.name), slog.String("remote", c.info.Remote.String())}
	if c.clientID != "" {
		attrs = append(attrs, slog.String("client_id", c.clientID))
	}
	if err != nil {
		attrs = append(attrs, slog.Any("err", err))
	}
	c.srv.log.log(kind, time.Now(), attrs...)
	if c.handOver != nil {
		c.handOver()
	}
}

// awaitAnswers lets the requests that were read before the connection came to its end be answered, as Kafka does, which
// would not have read on before. A peer that is gone does not keep them for longer than the idle time.
func (c *conn) awaitAnswers(kind closeKind) (waited bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending == 0 || c.closed {
		return false
	}
	if kind != closeShutdown {
		t := time.AfterFunc(c.srv.limits.Idle, func() { c.fail(closeIdle, nil) })
		defer t.Stop()
	}
	for c.pending > 0 && !c.closed {
		c.cond.Wait()
	}
	return true
}

// closeLocked ends the queue of answers and gives up those that wait in it.
func (c *conn) closeLocked() {
	c.closed = true
	for call := c.head; call != nil; call = call.next {
		if call.answered {
			call.discard()
		}
	}
	c.head, c.tail, c.handling = nil, nil, nil
	c.cond.Broadcast()
}

// fail closes the connection from outside its reader: for want of memory, for a client that does not read, for an
// answer that can't be given. The first reason stays.
func (c *conn) fail(kind closeKind, err error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.kind, c.err = kind, err
	c.closeLocked()
	c.mu.Unlock()
	// Last, so that the writer, at an answer whose data goes with ctx, finds no connection that would take the rest of it.
	defer c.cancel()
	c.srv.budget.cancel(&c.claim, errClosed)
	if kind == closeDropped {
		closeWrite(c.nc)
		_ = c.nc.SetReadDeadline(aLongTimeAgo) // the reader lingers and closes
		return
	}
	_ = c.nc.Close() // the reader and the writer return; the reader reports
}

// drain lets the reader stop at the next opportunity; requests that were read are still answered.
func (c *conn) drain() {
	c.mu.Lock()
	c.draining = true
	if c.meeting {
		_ = c.nc.Close()
	}
	_ = c.nc.SetReadDeadline(aLongTimeAgo)
	c.cond.Broadcast()
	c.mu.Unlock()
	c.srv.budget.cancel(&c.claim, errDraining)
}

// closeWrite sends FIN where the transport has one.
func closeWrite(nc net.Conn) {
	if cw, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = cw.CloseWrite()
	}
}

// linger sends FIN and reads on for a moment. After a fault the client may have sent more than was read; closing at once
// would reset the connection and take answers with it that have not reached the client yet.
func (c *conn) linger(kind closeKind) {
	switch kind {
	case closePeer, closeIdle, closeIO, closeSlowReader, closeSlowFrame, closeHandshake, closeNotReady:
		return
	}
	nc := c.nc
	if kind == closeTLS && c.secure != nil {
		nc = c.below.Conn // there is no TLS to end
	}
	if _, ok := nc.(interface{ CloseWrite() error }); !ok {
		return
	}
	closeWrite(nc)
	_ = nc.SetReadDeadline(time.Now().Add(lingerTime))
	for left := lingerBytes; left > 0; {
		n, err := nc.Read(c.in.look[:])
		if err != nil {
			return
		}
		left -= n
	}
}

// touch notes activity.
func (c *conn) touch(now time.Time) { c.lastActive.Store(int64(now.Sub(c.srv.start))) }

// armRead sets the read deadline unless the connection is to end.
func (c *conn) armRead(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return errClosed
	case c.draining:
		return errDraining
	}
	c.rxArmed = c.rx
	if err := c.nc.SetReadDeadline(at); err != nil {
		return errClosed
	}
	return nil
}

// readTimeout decides what an expired read deadline means: nil to go on, with a new deadline.
func (c *conn) readTimeout() error {
	now := time.Now()
	if err := c.armRead(now.Add(c.srv.limits.Idle)); err != nil {
		return err
	}
	if !c.started {
		return errFirstRequest
	}
	c.mu.Lock()
	pending := c.pending
	c.mu.Unlock()
	if pending > 0 {
		return nil
	}
	left := c.srv.limits.Idle - (now.Sub(c.srv.start) - time.Duration(c.lastActive.Load()))
	if left <= 0 {
		return errIdle
	}
	return c.armRead(now.Add(left))
}

// read is nc.Read that outlives deadlines as long as the connection is not idle.
func (c *conn) read(b []byte) (int, error) {
	for {
		n, err := c.nc.Read(b)
		if n > 0 {
			c.rx += int64(n)
			return n, nil
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, err
		}
		moved := c.started && c.rx != c.rxArmed
		if err := c.readTimeout(); err != nil && (!moved || !errors.Is(err, errIdle)) {
			return 0, err
		}
	}
}

// readKind sorts a failure to read.
func (c *conn) readKind(err error) (closeKind, error) {
	var over *OverBudgetError
	switch {
	case errors.Is(err, errIdle):
		return closeIdle, nil
	case errors.Is(err, errFirstRequest):
		return closeFirstRequest, nil
	case errors.Is(err, errDraining):
		return closeShutdown, nil
	case errors.As(err, &over):
		return closeOverBudget, err
	}
	return closePeer, err
}
