package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// maxHandshake bounds a TLS handshake, in bytes received, as MaxUnauthenticatedFrameBytes does a stranger's request by default. crypto/tls
	// alone would take 256 KiB.
	maxHandshake = 64 << 10
	// freeHandshake is how much of a handshake comes out of no budget, in bytes: the usual ones are smaller, and a node waits for no
	// client's memory. Who shows no certificate has no use for more.
	freeHandshake = 8 << 10
	// handshakeMemory is what a longer one costs, in bytes: what was received lies in buffers that double, and is copied.
	handshakeMemory = 4 * maxHandshake
)

// begin makes the connection secure, on a listener that is, and lets the first request come.
func (c *conn) begin() (closeKind, error) {
	if c.secure != nil {
		if kind, err := c.shakeHands(); kind != closePeer || err != nil {
			return kind, err
		}
	}
	if err := c.armRead(time.Now().Add(c.srv.limits.FirstRequest)); err != nil {
		return c.readKind(err)
	}
	return closePeer, nil
}

// shakeHands is the TLS handshake. Nothing of the other side's reaches anybody before its end.
func (c *conn) shakeHands() (closeKind, error) {
	if !c.setMeeting(true) {
		return closeShutdown, nil
	}
	c.srv.budget.begin(&c.claim, maxHandshake, true)
	err := c.secure.Handshake()
	c.srv.budget.release(&c.claim)
	g := c.below
	g.of = nil
	if !c.setMeeting(false) {
		return closeShutdown, nil
	}
	switch {
	case err == nil && g.received > freeHandshake && !c.secure.Verified():
		return closeTLS, fmt.Errorf("a TLS handshake of %d bytes without a certificate", g.received) // crypto/tls may keep as much
	case err == nil:
		c.trusted = c.secure.Verified()
		return closePeer, nil
	case errors.Is(err, io.EOF), isPeerGone(err):
		return closePeer, err
	}
	return closeTLS, err
}

// greeting is the connection below TLS. Until the handshake is over it bounds what is received, and has what is more than
// usual counted.
type greeting struct {
	net.Conn
	of       *conn // nil once the handshake is over
	received int   // bytes
}

// Read implements net.Conn. It has one caller at a time.
func (g *greeting) Read(b []byte) (int, error) {
	if g.of == nil {
		return g.Conn.Read(b)
	}
	most := freeHandshake
	if g.received >= freeHandshake {
		if err := g.of.payHandshake(g.received); err != nil {
			return 0, err
		}
		most = maxHandshake
	}
	if g.received >= most {
		return 0, fmt.Errorf("a TLS handshake of more than %d bytes", maxHandshake)
	}
	n, err := g.Conn.Read(b[:min(len(b), most-g.received)])
	g.received += n
	return n, err
}

// CloseWrite sends FIN where the transport has one.
func (g *greeting) CloseWrite() error {
	if below, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return below.CloseWrite()
	}
	return nil
}

// payHandshake takes the memory of a long handshake from the budget, once. It may wait for it.
func (c *conn) payHandshake(received int) error {
	c.srv.budget.progress(&c.claim, int64(received))
	if c.claim.held() > 0 {
		return nil
	}
	_, _, err := c.srv.budget.acquire(&c.claim, handshakeMemory, handshakeMemory)
	return err
}

// opensTLS reports whether what was read as the size of a frame is the begin of a TLS handshake: its type and the first half of
// its version.
func opensTLS(size int) bool { return uint32(size)>>16 == 0x1603 }
