package server

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is what handlers may know of a connection. Safe for concurrent use.
type Conn struct {
	ID       uint64
	Listener string // name as configured, upper case
	Local    net.Addr
	Remote   net.Addr

	principal atomic.Pointer[auth.Principal]
	peer      atomic.Pointer[peer.ID]
	software  atomic.Pointer[Software]
}

// authenticated says whether the peer has proven who it is.
func (c *Conn) authenticated() bool { return c.principal.Load() != &auth.Anonymous }

// Software is what a client says of itself in ApiVersions v3+.
type Software struct{ Name, Version string }

// NewConn is for the server and for tests of handlers.
func NewConn(id uint64, listener string, local, remote net.Addr) *Conn {
	c := &Conn{ID: id, Listener: listener, Local: local, Remote: remote}
	c.principal.Store(&auth.Anonymous)
	return c
}

// Principal is who the connection acts for; User:ANONYMOUS until authenticated.
func (c *Conn) Principal() auth.Principal { return *c.principal.Load() }

// SetPrincipal is called once the peer has proven who it is.
func (c *Conn) SetPrincipal(p auth.Principal) { c.principal.Store(&p) }

// Software is zero until the client named itself.
func (c *Conn) Software() Software {
	if s := c.software.Load(); s != nil {
		return *s
	}
	return Software{}
}

// SetSoftware is called by the ApiVersions handler.
func (c *Conn) SetSoftware(s Software) { c.software.Store(&s) }

// Request is one decoded request. Msg and everything it points to alias the frame, which is reused when Handle has
// returned: a handler that needs bytes for longer copies them.
type Request struct {
	Key           int16
	Version       int16
	CorrelationID int32
	ClientID      string // "" when null
	Msg           kmsg.Request
	Conn          *Conn
	Received      time.Time // monotonic; the frame was complete
	// Unsupported is set for one case only: an ApiVersions request of a version that is not served. Version is then 0
	// and Msg empty.
	Unsupported bool
}

// Responder takes the answer to one request: exactly one call of one method, from any goroutine, during or after
// Handle. Answers leave in request order whatever the order of the calls.
type Responder interface {
	// Reply sends resp, whose version the caller has set to the request's. The responder owns resp from here on.
	Reply(resp kmsg.Response)
	// ReplyFunc calls build on the connection's writer when this answer's turn has come, so that late work (the read
	// of a long-polled fetch) costs the client that asked and happens with the newest state. The segments are the
	// body without size and header.
	ReplyFunc(build func() []wire.Segment)
	// Drop sends nothing: err nil for acks=0, else the connection is closed with err as the reason.
	Drop(err error)
}

// HandlerFunc runs stage one of a request on the connection's reader: when it returns, the frame is released and the
// connection's next request may start. ctx ends with the connection.
type HandlerFunc func(ctx context.Context, req *Request, w Responder)

// Route says which versions of an API are served and by whom. Min and Max are inclusive.
type Route struct {
	Key, Min, Max int16
	Handle        HandlerFunc
	// FirstServed is the lowest version that is really answered where the advertised Min is lower (Produce: B01);
	// versions from Min to FirstServed-1 close the connection.
	FirstServed int16
}

// Routes finds the route of a key on a connection, by its listener and by who has proven to be at the other end; false
// closes the connection.
type Routes interface {
	Route(c *Conn, key int16) (Route, bool)
}
