package server

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// minHeader is the shortest request header: key, version, correlation id; in bytes.
	minHeader = 8

	keyAPIVersions = int16(kmsg.ApiVersions)
	keyProduce     = int16(kmsg.Produce)
)

// readLoop reads and handles requests until the connection ends, and says why it did.
func (c *conn) readLoop() (closeKind, error) {
	if kind, err := c.begin(); kind != closePeer || err != nil {
		return kind, err
	}
	for {
		size, err := c.readSize()
		if err != nil {
			return c.readKind(err)
		}
		if size < 0 && c.opensHandshake() {
			if kind, err := c.meet(); kind != closePeer || err != nil {
				return kind, err
			}
			continue
		}
		if c.secure == nil && !c.started && opensTLS(size) && size > c.frameLimit() {
			return closeTLS, fmt.Errorf("the other side speaks TLS, and listener %s is %s", c.lis.name, c.lis.protocol)
		}
		if !c.served {
			if err := c.awaitService(); err != nil {
				return c.readKind(err)
			}
		}
		if size <= 0 || size > c.frameLimit() {
			return closeFrameSize, fmt.Errorf("frame of %d bytes, at most %d are allowed", size, c.frameLimit())
		}
		if kind, err := c.readFrame(size); kind != closePeer || err != nil {
			return kind, err
		}
		now := time.Now()
		c.touch(now)
		if !c.started {
			c.started = true
			if err := c.armRead(now.Add(c.srv.limits.Idle)); err != nil {
				return c.readKind(err)
			}
		}
		c.srv.metrics.bytesIn.Add(float64(size) + 4)
		if kind, err := c.dispatch(now); kind != closePeer || err != nil {
			return kind, err
		}
		c.consume()
		c.endStage(size)
		if err := c.waitForSlot(); err != nil {
			return c.readKind(err)
		}
	}
}

// frameLimit is the largest frame that is accepted now.
func (c *conn) frameLimit() int {
	if c.lis.protocol != ProtocolPlaintext && !c.trusted && !c.info.authenticated() {
		return min(c.srv.limits.MaxUnauthenticatedFrameBytes, c.srv.limits.MaxFrameBytes)
	}
	return c.srv.limits.MaxFrameBytes
}

// route finds who serves the request that frame begins with. It needs no more than the first bytes, and is asked before
// a large frame gets more memory. The error has no route; a kind other than closePeer closes the connection, but an
// unsupported version of ApiVersions comes with its route and closePeer.
func (c *conn) route(frame []byte) (Route, closeKind, error) {
	if len(frame) < minHeader {
		return Route{}, closeHeader, fmt.Errorf("request of %d bytes is shorter than a header", len(frame))
	}
	key := int16(binary.BigEndian.Uint16(frame))
	version := int16(binary.BigEndian.Uint16(frame[2:]))
	route, ok := c.srv.routes.Route(c.info, key)
	if !ok {
		return Route{}, closeUnknownAPI, fmt.Errorf("api key %d version %d", key, version)
	}
	if !route.serves(version) && key != keyAPIVersions {
		return Route{}, closeUnsupportedVersion, fmt.Errorf("%s version %d, served are %d to %d",
			kmsg.NameForKey(key), version, max(route.Min, route.FirstServed), route.Max)
	}
	return route, closePeer, nil
}

// serves says whether a request of this version is handled.
func (r *Route) serves(version int16) bool {
	return version >= max(r.Min, r.FirstServed) && version <= r.Max
}

// dispatch decodes the request in c.frame and runs stage one of it.
func (c *conn) dispatch(now time.Time) (closeKind, error) {
	route, kind, err := c.route(c.frame)
	if kind != closePeer {
		return kind, err
	}
	h, body, err := wire.ParseHeader(c.frame)
	if err != nil {
		return closeHeader, err
	}
	r := &call{c: c, key: h.Key, version: h.Version, correlationID: h.CorrelationID}
	r.req = Request{Key: h.Key, Version: h.Version, CorrelationID: h.CorrelationID, ClientID: c.nameClient(h.ClientID),
		Conn: c.info, Received: now}
	if !route.serves(h.Version) {
		r.req.Unsupported, r.req.Version, r.version = true, 0, 0
		r.req.Msg = kmsg.NewPtrApiVersionsRequest()
	} else if r.req.Msg, kind, err = c.decode(h.Key, h.Version, body); kind != closePeer || err != nil {
		return kind, err
	}
	c.lis.requests.count(h.Key, h.Version)
	if !c.push(r) {
		return closePeer, errClosed
	}
	route.Handle(c.ctx, &r.req, r)
	return closePeer, nil
}

// decode charges what decoding will allocate and decodes. The usual Produce request costs nothing: its memory is the
// connection's.
func (c *conn) decode(key, version int16, body []byte) (kmsg.Request, closeKind, error) {
	if key == keyProduce {
		if c.produce == nil {
			c.produce = &wire.ProduceReader{}
		}
		if msg, ok := c.produce.Read(version, body); ok {
			return msg, closePeer, nil
		}
	}
	cost, err := wire.DecodeCost(key, version, body)
	if err != nil {
		return nil, closeMalformed, fmt.Errorf("%s version %d: %w", kmsg.NameForKey(key), version, err)
	}
	if _, _, err := c.srv.budget.acquire(&c.claim, cost, cost); err != nil {
		kind, err := c.readKind(err)
		return nil, kind, err
	}
	msg := kmsg.RequestForKey(key)
	if msg == nil {
		return nil, closeUnknownAPI, fmt.Errorf("api key %d has no decoder", key)
	}
	msg.SetVersion(version)
	if err := msg.ReadFrom(body); err != nil {
		return nil, closeMalformed, fmt.Errorf("%s version %d: %w", kmsg.NameForKey(key), version, err)
	}
	return msg, closePeer, nil
}

// nameClient keeps the string of the client id, which rarely changes within a connection.
func (c *conn) nameClient(id *string) string {
	if id == nil {
		return ""
	}
	if *id != c.clientID {
		c.clientID = *id
	}
	return c.clientID
}

// push appends r to the requests that await their answer; false if the connection is closed.
func (c *conn) push(r *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	if c.tail == nil {
		c.head = r
	} else {
		c.tail.next = r
	}
	c.tail, c.handling = r, r
	c.pending++
	return true
}

// waitForSlot blocks while the connection owes too many answers, by count or by bytes.
func (c *conn) waitForSlot() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := func() bool {
		return !c.closed && !c.draining &&
			(c.pending >= c.srv.limits.InFlight || c.pendingBytes > c.srv.limits.ResponseBytes)
	}
	if full() && c.kept > 0 {
		c.mu.Unlock()
		c.writeInline()
		c.mu.Lock()
	}
	for full() {
		c.cond.Wait()
	}
	switch {
	case c.closed:
		return errClosed
	case c.draining:
		return errDraining
	}
	return nil
}
