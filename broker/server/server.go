package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
)

// Server accepts connections on its listeners and hands their requests to the routes.
type Server struct {
	limits    Limits
	routes    Routes
	peers     Peers
	logger    *slog.Logger
	log       *closeLog
	listen    func(network, addr string) (net.Listener, error)
	listeners []*listener
	buffers   *bufferPool
	budget    *budget
	metrics   *metrics
	start     time.Time // monotonic zero of conn.lastActive
	stop      chan struct{}
	nodes     chan struct{} // closed when requests of nodes are served
	clients   chan struct{} // closed when requests of clients are served
	wg        sync.WaitGroup
	lastID    atomic.Uint64
	hints     [maxMetricKey + 1]atomic.Int32 // by API key: bytes of the last answer

	mu       sync.Mutex
	cond     sync.Cond // on mu: a connection ended or the server stops
	bound    bool
	started  bool
	stopping bool
	conns    map[*conn]struct{}
	perIP    map[netip.Addr]int
}

// listener is a Listener and what it is bound to.
type listener struct {
	name, protocol string
	tls            *peer.TLS // nil where connections are plain
	peers, early   bool
	accepting      bool // its acceptors run
	addrs          []string
	bound          []net.Listener
	requests       *requestCounts
}

// New prepares a server. Nothing is bound and no goroutine runs before Listen and Start.
func New(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := o.Limits.setDefaults(); err != nil {
		return nil, err
	}
	s := &Server{
		limits: o.Limits, routes: o.Routes, peers: o.Peers, logger: o.Logger, log: &closeLog{logger: o.Logger}, listen: o.Listen,
		buffers: &bufferPool{}, budget: newBudget(o.Limits.RequestBytes, int64(o.Limits.MaxFrameBytes), o.Limits.SlowFrame),
		start: time.Now(), stop: make(chan struct{}),
		nodes: make(chan struct{}), clients: make(chan struct{}), conns: map[*conn]struct{}{}, perIP: map[netip.Addr]int{},
	}
	s.cond.L = &s.mu
	m, err := newMetrics(o.Registerer, s.budget)
	if err != nil {
		return nil, fmt.Errorf("register server metrics: %w", err)
	}
	s.metrics = m
	for _, l := range o.Listeners {
		s.listeners = append(s.listeners, &listener{name: l.Name, protocol: l.Protocol, tls: l.TLS, peers: l.Peers, early: l.Early, addrs: l.Addrs, requests: m.forListener(l.Name)})
	}
	return s, nil
}

// Listen binds every address, so that Addr is known; clients that connect wait until Start. On an error nothing stays
// bound.
func (s *Server) Listen() error {
	s.mu.Lock()
	done := s.bound || s.stopping
	s.bound = true
	s.mu.Unlock()
	if done {
		return nil
	}
	for _, l := range s.listeners {
		if err := s.bind(l); err != nil {
			s.unbind()
			return err
		}
	}
	return nil
}

// AcceptNodes binds what Listen has not, and takes the connections of other nodes: their handshakes are answered, raft and
// calls handed over. Requests wait for ServeNodes or Start.
func (s *Server) AcceptNodes() error {
	if err := s.Listen(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopping {
		return errors.New("server was started or closed before")
	}
	s.acceptLocked(func(l *listener) bool { return l.peers })
	return nil
}

// ServeNodes serves the requests of nodes that have proven who they are, and those of Early listeners. It is called once.
func (s *Server) ServeNodes() { close(s.nodes) }

// Start binds what Listen has not, accepts connections and serves them all. Routes must know their handlers by now.
func (s *Server) Start() error {
	if err := s.Listen(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.stopping {
		return errors.New("server was started or closed before")
	}
	s.started = true
	close(s.clients)
	s.acceptLocked(func(*listener) bool { return true })
	return nil
}

// acceptLocked starts the acceptors of listeners that have none yet.
func (s *Server) acceptLocked(which func(*listener) bool) {
	for _, l := range s.listeners {
		if l.accepting || !which(l) {
			continue
		}
		l.accepting = true
		for _, nl := range l.bound {
			s.wg.Go(func() { s.accept(l, nl) })
		}
	}
}

// Addr is the first address that a listener is bound to; nil before Listen or for an unknown name.
func (s *Server) Addr(listener string) net.Addr {
	for _, l := range s.listeners {
		if l.name == listener && len(l.bound) > 0 {
			return l.bound[0].Addr()
		}
	}
	return nil
}

// Drain stops accepting and reading: from now on only requests that have been read are answered. Close does it too;
// before it, Drain lets the caller have the waiting requests answered.
func (s *Server) Drain() {
	s.mu.Lock()
	first := !s.stopping
	s.stopping = true
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.cond.Broadcast()
	s.mu.Unlock()
	if !first {
		return
	}
	close(s.stop)
	s.unbind()
	for _, c := range conns {
		c.drain()
	}
}

// Close drains, waits until every request that was read is answered or ctx ends, closes all connections and returns
// when all goroutines have ended. The error is ctx's if answers were lost.
func (s *Server) Close(ctx context.Context) error {
	s.Drain()
	done := make(chan struct{})
	go func() { // joined by the receive below
		s.wg.Wait()
		close(done)
	}()
	var err error
	select {
	case <-done:
	case <-ctx.Done():
		err = fmt.Errorf("close connections: %w", ctx.Err())
		s.mu.Lock()
		conns := make([]*conn, 0, len(s.conns))
		for c := range s.conns {
			conns = append(conns, c)
		}
		s.mu.Unlock()
		for _, c := range conns {
			c.fail(closeShutdown, nil)
		}
		<-done
	}
	s.budget.close()
	return err
}
