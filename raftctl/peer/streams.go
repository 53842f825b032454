package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
)

// backlog is how many accepted raft streams may wait for raft; one more is closed.
const backlog = 64

// StreamsOptions is what NewStreams needs.
type StreamsOptions struct {
	Identity *Identity
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	// Resolve gives the host:port where a node may accept handshakes, the likeliest first: another node there is not taken
	// for it. None is an error.
	Resolve func(ID) []string
	// Broken is told of a node whose stream to this one has ended, unless this layer was closed; nil: nobody is. It is
	// called by whoever reads the stream, and must not wait.
	Broken func(ID)
}

// Streams carries raft between nodes. The address of a node is its ID as text, so that what raft stores of addresses
// never gets old: where the node is is looked up at every dial. Safe for concurrent use.
type Streams struct {
	o        StreamsOptions
	incoming chan net.Conn

	mu     sync.Mutex
	closed bool
	done   chan struct{}
	conns  map[*stream]struct{} // closed with the layer: raft leaves accepted ones open
}

// NewStreams makes a layer. The caller closes it.
func NewStreams(o StreamsOptions) *Streams {
	return &Streams{o: o, incoming: make(chan net.Conn, backlog), done: make(chan struct{}), conns: map[*stream]struct{}{}}
}

// Deliver gives a connection of a node, whose handshake said Raft, to raft, which owns it from here on.
func (s *Streams) Deliver(conn net.Conn, from ID) {
	st, err := s.track(conn)
	if err != nil {
		_ = conn.Close()
		return
	}
	st.from = &from
	select {
	case s.incoming <- st:
	default:
		_ = st.Close() // raft does not accept: the other node tries again
	}
}

// Accept implements net.Listener.
func (s *Streams) Accept() (net.Conn, error) {
	select {
	case c := <-s.incoming:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Dial connects to the node whose ID is address, and to no other that may be found at its place.
func (s *Streams) Dial(ctx context.Context, address string) (net.Conn, error) {
	id, err := ParseID(address)
	if err != nil {
		return nil, err
	}
	id.ClusterID = s.o.Identity.Self().ClusterID
	places := s.o.Resolve(id)
	errs := []error{fmt.Errorf("connect to node %s: nobody says where it is", address)}
	for i, at := range places {
		conn, err := s.dialAt(ctx, id, at, len(places)-i)
		if err == nil {
			return conn, nil
		}
		if i == 0 {
			errs = nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// dialAt connects to the node at one of the places where it may be; left is how many of them share the rest of ctx.
func (s *Streams) dialAt(ctx context.Context, id ID, at string, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok && left > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	raw, err := s.o.Dial(ctx, "tcp", at)
	if err != nil {
		return nil, fmt.Errorf("connect to node %s at %s: %w", id, at, err)
	}
	conn, err := s.track(raw)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err = s.o.Identity.Dial(conn, Raft, Only(id)); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to node %s at %s: %w", id, at, err), conn.Close())
	}
	return conn, nil
}

// Addr implements net.Listener: this node's ID.
func (s *Streams) Addr() net.Addr { return addr(s.o.Identity.Self().String()) }

// Close ends Accept and every stream.
func (s *Streams) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.done)
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
	return nil
}

func (s *Streams) open() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed
}

func (s *Streams) track(c net.Conn) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	st := &stream{Conn: c, of: s}
	s.conns[st] = struct{}{}
	return st, nil
}

// stream is a connection that the layer knows of until it is closed.
type stream struct {
	net.Conn
	of   *Streams
	from *ID // of a stream that another node has opened; nil otherwise
}

// Read implements net.Conn.
func (c *stream) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && c.from != nil && c.of.o.Broken != nil && c.of.open() {
		c.of.o.Broken(*c.from)
	}
	return n, err
}

// NetConn is the connection itself.
func (c *stream) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn.
func (c *stream) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// addr is a node's ID as a net.Addr.
type addr string

// Network implements net.Addr.
func (addr) Network() string { return "kaja" }

// String implements net.Addr.
func (a addr) String() string { return string(a) }

// ParseID reads what ID.String writes; the cluster id is not part of it.
func ParseID(text string) (ID, error) {
	before, dir, _ := strings.Cut(text, "@")
	node, err := strconv.ParseInt(before, 10, 32)
	if err != nil {
		return ID{}, fmt.Errorf("node %q: want node id@directory id: %w", text, err)
	}
	u, err := wire.ParseUUID(dir)
	if err != nil {
		return ID{}, fmt.Errorf("node %q: %w", text, err)
	}
	return ID{NodeID: wire.BrokerID(node), DirectoryID: u}, nil
}
