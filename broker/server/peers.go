package server

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
)

// ErrNotReady is wrapped by an error of Peers.Accept that says nothing against the other node: it comes too early.
var ErrNotReady = errors.New("this node is not ready for that yet")

// Peers takes the connections that other nodes open with the preamble, on listeners that have Listener.Peers.
type Peers interface {
	// Accept shakes hands on nc, from its first byte on, within peer.HandshakeTimeout, and says who is at the other end. It
	// leaves nc to the server, also after an error, and leaves it without deadlines.
	Accept(nc net.Conn) (peer.Kind, peer.ID, error)
	// Deliver takes over a connection of a kind other than peer.Kafka, and closes it at some time. It may block for as long
	// as a question takes to answer.
	Deliver(nc net.Conn, kind peer.Kind, id peer.ID)
}

// Peer is the node at the other end, if it has proven to be one of this cluster.
func (c *Conn) Peer() (peer.ID, bool) {
	if id := c.peer.Load(); id != nil {
		return *id, true
	}
	return peer.ID{}, false
}

// SetPeer is for the server and for tests of handlers.
func (c *Conn) SetPeer(id peer.ID) { c.peer.Store(&id) }

// opensHandshake says whether the connection's first bytes, which readSize has just read, are those of another node.
func (c *conn) opensHandshake() bool {
	return c.lis.peers && !c.started && c.srv.peers != nil && peer.IsPreamble(c.in.look[:c.in.w])
}

// meet shakes hands with another node. A closePeer without an error: the connection goes on with its Kafka requests.
func (c *conn) meet() (closeKind, error) {
	nc := &prefixed{Conn: c.nc, prefix: bytes.Clone(c.in.look[:c.in.w])}
	c.in.r, c.in.w = 0, 0
	if !c.setMeeting(true) {
		return closeShutdown, nil
	}
	kind, id, err := c.srv.peers.Accept(nc)
	if !c.setMeeting(false) {
		return closeShutdown, nil
	}
	switch {
	case errors.Is(err, ErrNotReady):
		return closeNotReady, err
	case err != nil:
		return closeHandshake, err
	}
	if kind != peer.Kafka {
		c.handOver = func() { c.srv.peers.Deliver(nc.rest(), kind, id) }
		return closeHandedOver, nil
	}
	if len(nc.prefix) > len(c.in.look) { // no more than look held were read before the handshake
		return closeHandshake, fmt.Errorf("%d bytes lie before the handshake's end", len(nc.prefix))
	}
	c.info.SetPeer(id)
	c.trusted = true
	c.claim.node = true
	c.in.w = copy(c.in.look[:], nc.prefix)
	now := time.Now()
	c.started = true
	c.touch(now)
	if err := c.armRead(now.Add(c.srv.limits.Idle)); err != nil {
		kind, err := c.readKind(err)
		return kind, err
	}
	return closePeer, nil
}

// awaitService waits until requests like this connection's are served.
func (c *conn) awaitService() error {
	c.served = true
	_, proven := c.info.Peer()
	early := c.srv.nodes
	if !proven && !c.lis.early {
		early = nil
	}
	select {
	case <-c.srv.clients:
		return nil
	default:
	}
	select {
	case <-c.srv.clients:
	case <-early:
	case <-c.srv.stop:
		return errDraining
	case <-c.ctx.Done():
		return errClosed
	}
	if c.started {
		return nil
	}
	return c.armRead(time.Now().Add(c.srv.limits.FirstRequest)) // it was not the client that waited
}

// setMeeting marks the time in which the deadlines of the connection belong to the handshake; false: the server stops, or
// the connection has been closed.
func (c *conn) setMeeting(on bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meeting = on
	return !c.closed && !c.draining
}

// prefixed is a connection of which some bytes have been read already.
type prefixed struct {
	net.Conn
	prefix []byte
}

// NetConn is the connection itself.
func (p *prefixed) NetConn() net.Conn { return p.Conn }

// Read implements net.Conn.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.prefix)
	p.prefix = p.prefix[n:]
	return n, nil
}

// rest is the bare connection if nothing is left of the prefix.
func (p *prefixed) rest() net.Conn {
	if len(p.prefix) == 0 {
		return p.Conn
	}
	return p
}
