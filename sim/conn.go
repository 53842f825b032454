package sim

import (
	"hash/fnv"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// window is how many bytes one end may have sent that the other has not read; it stands for the socket buffers of both.
const window = 1 << 20

// segment is the most that one packet carries, in bytes.
const segment = 64 << 10

// conn is one end of a connection: a net.Conn with buffers, so that two peers may write to each other at once. All its
// fields are guarded by Network.mu.
type conn struct {
	from, to      *Host // of this end, of the peer
	local, remote *net.TCPAddr
	peer          *conn
	key           uint64
	seq           uint64
	lastAt        time.Time // when the last packet of this end arrives

	cond     sync.Cond // on Network.mu
	in       []byte    // arrived, not read
	flight   int       // bytes sent that the peer has not read
	eof      bool      // the peer has closed its direction
	finSent  bool
	closed   bool  // by this end
	dead     bool  // this end's process is gone: the host answers for it
	err      error // of every call from now on
	rdl, wdl deadline
}

// newPair makes the two ends of a connection; neither is registered with its host yet.
func newPair(h, to *Host, local, remote *net.TCPAddr) (c, s *conn) {
	c = &conn{from: h, to: to, local: local, remote: remote}
	s = &conn{from: to, to: h, local: remote, remote: local, peer: c}
	c.peer = s
	for _, e := range []*conn{c, s} {
		e.cond.L = &h.net.mu
		f := fnv.New64a()
		_, _ = f.Write([]byte(e.local.String() + ">" + e.remote.String()))
		e.key = f.Sum64()
	}
	return c, s
}

// send schedules a packet of this end.
func (c *conn) sendLocked(what byte, size int, apply func()) {
	c.lastAt = c.from.net.sendLocked(c.from, c.to, c.key, &c.seq, c.lastAt, what, size, apply)
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n := c.from.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.opError("read", net.ErrClosed)
		case c.err != nil:
			return 0, c.opError("read", c.err)
		case len(c.in) > 0 && len(b) > 0 && !c.rdl.expired():
			k := copy(b, c.in)
			if c.in = c.in[k:]; len(c.in) == 0 {
				c.in = nil
			}
			c.peer.flight -= k
			c.peer.cond.Broadcast()
			return k, nil
		case len(b) == 0:
			return 0, nil
		case c.rdl.expired():
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case c.eof:
			return 0, io.EOF
		}
		c.cond.Wait()
	}
}

// Write implements net.Conn: it returns when the bytes are in the socket buffers.
func (c *conn) Write(b []byte) (sent int, err error) {
	n := c.from.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(b) > 0 {
		switch {
		case c.closed:
			return sent, c.opError("write", net.ErrClosed)
		case c.err != nil:
			return sent, c.opError("write", c.err)
		case c.finSent:
			return sent, c.opError("write", syscall.EPIPE)
		case c.wdl.expired():
			return sent, c.opError("write", os.ErrDeadlineExceeded)
		}
		room := min(window-c.flight, segment, len(b))
		if room <= 0 {
			c.cond.Wait()
			continue
		}
		data := append([]byte(nil), b[:room]...)
		b, sent = b[room:], sent+room
		c.flight += room
		c.sendLocked('D', room, func() { c.peer.arriveLocked(data) })
	}
	return sent, nil
}

// arriveLocked is data at this end. Where nobody holds the end any more a living host answers with a reset.
func (c *conn) arriveLocked(data []byte) {
	switch {
	case c.dead && c.from.off:
	case c.dead || c.closed:
		c.rstLocked()
	case c.err == nil:
		c.in = append(c.in, data...)
		c.cond.Broadcast()
	}
}

// rstLocked tells the peer that this end is gone.
func (c *conn) rstLocked() {
	c.sendLocked('R', 0, func() {
		if !c.peer.dead {
			c.peer.resetLocked()
		}
	})
}

// resetLocked is a reset that has arrived at this end.
func (c *conn) resetLocked() {
	if c.err == nil {
		c.err = syscall.ECONNRESET
	}
	c.cond.Broadcast()
}

// CloseWrite sends a FIN after what was written.
func (c *conn) CloseWrite() error {
	n := c.from.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed || c.err != nil {
		return c.opError("close", net.ErrClosed)
	}
	c.finLocked()
	return nil
}

func (c *conn) finLocked() {
	if c.finSent {
		return
	}
	c.finSent = true
	c.sendLocked('F', 0, func() {
		c.peer.eof = true
		c.peer.cond.Broadcast()
	})
}

// Close implements net.Conn. As in Linux, bytes that were not read turn the FIN into a reset.
func (c *conn) Close() error {
	n := c.from.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.opError("close", net.ErrClosed)
	}
	if c.err == nil {
		if len(c.in) > 0 {
			c.rstLocked()
		} else {
			c.finLocked()
		}
	}
	c.closed = true
	c.endLocked(c.err)
	return nil
}

// endLocked frees what the end holds.
func (c *conn) endLocked(err error) {
	c.err, c.in = err, nil
	c.rdl.set(c, time.Time{})
	c.wdl.set(c, time.Time{})
	delete(c.from.conns, c)
	c.cond.Broadcast()
}

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.setDeadlines(t, &c.rdl, &c.wdl) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.rdl) }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.wdl) }

func (c *conn) setDeadlines(t time.Time, ds ...*deadline) error {
	n := c.from.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, d := range ds {
		d.set(c, t)
	}
	c.cond.Broadcast()
	return nil
}

// deadline is a point in time after which calls fail; the zero value is none. Guarded by Network.mu.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) expired() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) set(c *conn, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			n := c.from.net
			n.mu.Lock()
			defer n.mu.Unlock()
			c.cond.Broadcast()
		})
	}
}
