package peerclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// DefaultTimeout bounds a request whose context has no deadline.
	DefaultTimeout = 30 * time.Second
	// connectTimeout bounds connecting, the handshake and ApiVersions together.
	connectTimeout = 5 * time.Second
)

// ErrClosed is why a closed client sends nothing.
var ErrClosed = errors.New("the client is closed")

// Options is what New needs.
type Options struct {
	Identity *peer.Identity
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	// Resolve gives the host:port where a node accepts handshakes, and who must answer there: its cluster id is not
	// compared, a zero directory id stands for any.
	Resolve func(node wire.BrokerID) (addr string, expect peer.ID, err error)
	Logger  *slog.Logger
}

// Error says what became of a request that has no answer.
type Error struct {
	Node wire.BrokerID
	Key  int16
	// Sent: the other node may have carried the request out, or may still do so. False: it never will.
	Sent bool
	Err  error
}

func (e *Error) Error() string {
	state := "not sent"
	if e.Sent {
		state = "sent, outcome unknown"
	}
	return fmt.Sprintf("%s to node %d (%s): %v", wire.KeyName(e.Key), e.Node, state, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Client sends requests to nodes. Safe for concurrent use.
type Client struct {
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	links  map[linkKey]*link
}

type linkKey struct {
	node    wire.BrokerID
	purpose string
}

// New makes a client; it connects when there is something to send.
func New(o Options) *Client {
	c := &Client{o: o, links: map[linkKey]*link{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends every connection; requests under way fail. It joins the client's goroutines.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	links := c.links
	c.links = nil
	c.mu.Unlock()
	c.cancel()
	for _, l := range links {
		l.fail(ErrClosed)
	}
	c.wg.Wait()
}

// Do sends a request and waits for the answer, on the connection for short requests. The request's version is set.
// Without an answer the error is an *Error. ctx bounds everything; a request that is not answered by its deadline ends
// the connection, since nothing behind it would be answered either.
func (c *Client) Do(ctx context.Context, node wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	return c.do(ctx, linkKey{node: node}, req)
}

// Conn is the client with connections of its own for a purpose.
func (c *Client) Conn(purpose string) Lane { return Lane{c, purpose} }

// Lane is a Client with connections of its own.
type Lane struct {
	c       *Client
	purpose string
}

// Do is Client.Do.
func (l Lane) Do(ctx context.Context, node wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	return l.c.do(ctx, linkKey{node, l.purpose}, req)
}

func (c *Client) do(ctx context.Context, to linkKey, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultTimeout)
		defer cancel()
	}
	sent := false
	failed := func(err error) (kmsg.Response, error) {
		return nil, &Error{Node: to.node, Key: req.Key(), Sent: sent, Err: err}
	}
	l, err := c.link(to)
	if err != nil {
		return failed(err)
	}
	select {
	case <-l.ready:
	case <-ctx.Done():
		return failed(fmt.Errorf("connect: %w", ctx.Err()))
	}
	version, err := l.version(req)
	if errors.Is(err, kerr.UnsupportedVersion) {
		// A node that starts serves more later: what it serves is asked again on the next connection.
		c.drop(to, l)
		l.fail(err)
	}
	if err != nil {
		return failed(err)
	}
	req.SetVersion(version)
	body, sent, err := l.roundTrip(ctx, req)
	if err != nil {
		return failed(err)
	}
	resp := req.ResponseKind()
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		l.fail(fmt.Errorf("read the answer to %s version %d: %w", wire.KeyName(req.Key()), version, err))
		return failed(err)
	}
	return resp, nil
}

// link is the connection to a node, perhaps one that is being made.
func (c *Client) link(to linkKey) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	l, ok := c.links[to]
	if !ok || l.failed() != nil {
		l = newLink(to.node)
		c.links[to] = l
		c.wg.Go(func() {
			err := c.run(to, l)
			c.drop(to, l)
			l.fail(err)
		})
	}
	return l, nil
}

// drop forgets a connection that has ended, before its requests learn of it, so that who tries again gets a new one.
func (c *Client) drop(to linkKey, l *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links[to] == l {
		delete(c.links, to)
	}
}

// run makes the connection and reads from it until it ends.
func (c *Client) run(to linkKey, l *link) error {
	conn, err := c.connect(to)
	if err != nil {
		return err
	}
	err = l.begin(c.ctx, conn, c.clientID(to))
	if err == nil {
		err = l.read()
	}
	return errors.Join(err, conn.Close())
}

func (c *Client) clientID(to linkKey) string {
	id := fmt.Sprintf("node-%d", c.o.Identity.Self().NodeID)
	if to.purpose != "" {
		id += "-" + to.purpose
	}
	return id
}

// connect connects to a node and shakes hands.
func (c *Client) connect(to linkKey) (net.Conn, error) {
	addr, expect, err := c.o.Resolve(to.node)
	if err != nil {
		return nil, fmt.Errorf("find node %d: %w", to.node, err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, connectTimeout)
	defer cancel()
	conn, err := c.o.Dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("connect to node %d: %w", to.node, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_, err = c.o.Identity.Dial(conn, peer.Kafka, func(found peer.ID) error {
		if found.NodeID != to.node || !expect.DirectoryID.IsZero() && found.DirectoryID != expect.DirectoryID {
			return fmt.Errorf("at %s is node %s, not node %d", addr, found, to.node)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to node %d at %s: %w", to.node, addr, err), conn.Close())
	}
	return conn, nil
}
