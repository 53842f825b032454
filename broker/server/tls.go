package server

import (
	"errors"
	"io"
	"time"
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
	err := c.secure.Handshake()
	if !c.setMeeting(false) {
		return closeShutdown, nil
	}
	switch {
	case err == nil:
		c.trusted = c.secure.Verified()
		return closePeer, nil
	case errors.Is(err, io.EOF), isPeerGone(err):
		return closePeer, err
	}
	return closeTLS, err
}

// opensTLS reports whether what was read as the size of a frame is the begin of a TLS handshake: its type and the first half of
// its version.
func opensTLS(size int) bool { return uint32(size)>>16 == 0x1603 }
