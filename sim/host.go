package sim

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// synTimeout is how long a dial without a deadline goes on: Linux's six retries of a SYN.
const synTimeout = 127 * time.Second

// synRetry is when a SYN that nobody has answered is sent again, and doubles from there.
const synRetry = time.Second

// firstPort is the first port that a dialing host uses for itself.
const firstPort = 32768

// Host is one machine on the network: a name, an address, and at most one process at a time.
type Host struct {
	net  *Network
	name string
	ip   net.IP

	// Guarded by Network.mu.
	off       bool // no power: packets to it vanish
	life      int  // of the process
	listeners map[int]*listener
	conns     map[*conn]struct{} // ends that processes of this host hold
	port      int                // last one given out
}

// Host adds a host, which is on.
func (n *Network) Host(name string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h, ok := n.hosts[name]; ok {
		return h
	}
	i := len(n.hosts)/2 + 1
	h := &Host{net: n, name: name, ip: net.IPv4(10, 0, byte(i>>8), byte(i)).To4(), listeners: map[int]*listener{},
		conns: map[*conn]struct{}{}, port: firstPort}
	n.hosts[name], n.hosts[h.ip.String()] = h, h
	return h
}

// Name is the host's name.
func (h *Host) Name() string { return h.name }

// Process is what runs on a host from Boot until the host is killed or booted again. Its methods fail once it is dead.
type Process struct {
	h    *Host
	life int
}

// Boot switches the host on and gives its new process. The old one, if any, is dead.
func (h *Host) Boot() *Process {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.dropLocked(net.ErrClosed)
	h.off = false
	h.life++
	return &Process{h: h, life: h.life}
}

// Kill ends the process while the machine goes on: peers see their connections reset, and dialing is refused.
func (h *Host) Kill() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for c := range h.conns {
		c.rstLocked()
	}
	h.dropLocked(net.ErrClosed)
	h.life++
}

// PowerOff ends the process and the machine: peers see nothing at all, until the host is booted again and answers their
// packets with a reset.
func (h *Host) PowerOff() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.dropLocked(net.ErrClosed)
	h.off = true
	h.life++
}

// dropLocked ends the host's ends of all connections, and its listeners, without a word to the peers.
func (h *Host) dropLocked(err error) {
	for c := range h.conns {
		c.err = err
		c.dead = true
		c.cond.Broadcast()
		delete(h.conns, c)
	}
	for port, l := range h.listeners {
		l.closeLocked()
		delete(h.listeners, port)
	}
}

// Listen is net.Listen on the process's host.
func (p *Process) Listen(network, addr string) (net.Listener, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	n := p.h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case p.life != p.h.life:
		return nil, &net.OpError{Op: "listen", Net: network, Err: net.ErrClosed}
	case host != "" && host != p.h.name && host != p.h.ip.String() && host != "0.0.0.0":
		return nil, &net.OpError{Op: "listen", Net: network, Err: syscall.EADDRNOTAVAIL}
	}
	if port == 0 {
		p.h.port++
		port = p.h.port
	}
	if p.h.listeners[port] != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: syscall.EADDRINUSE}
	}
	l := &listener{h: p.h, addr: &net.TCPAddr{IP: p.h.ip, Port: port}}
	l.cond.L = &n.mu
	p.h.listeners[port] = l
	return l, nil
}

// Dial is net.Dialer.DialContext from the process's host.
func (p *Process) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("%s: %w", addr, err)}
	}
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return fail(err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return fail(err)
	}
	n := p.h.net
	n.mu.Lock()
	to, ok := n.hosts[host]
	switch {
	case p.life != p.h.life || n.closed:
		n.mu.Unlock()
		return fail(net.ErrClosed)
	case !ok:
		n.mu.Unlock()
		return fail(&net.DNSError{Err: "no such host", Name: host, IsNotFound: true})
	}
	d := &dial{from: p, to: to, port: port, done: make(chan struct{}), retry: synRetry}
	d.sendLocked()
	n.mu.Unlock()
	timer := time.NewTimer(synTimeout)
	defer timer.Stop()
	select {
	case <-d.done:
		if d.err != nil {
			return fail(d.err)
		}
		return d.conn, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = syscall.ETIMEDOUT
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	d.given = true
	if d.conn != nil {
		d.conn.rstLocked()
		d.conn.endLocked(net.ErrClosed)
	}
	return fail(err)
}

// dial is a connection that is being made.
type dial struct {
	from *Process
	to   *Host
	port int
	done chan struct{} // closed when conn or err is set

	conn  *conn
	err   error
	given bool          // nobody waits any more
	retry time.Duration // until the SYN is sent again
}

// sendLocked sends the SYN; what comes back ends the dial.
func (d *dial) sendLocked() {
	h := d.from.h
	h.port++
	local := &net.TCPAddr{IP: h.ip, Port: h.port}
	remote := &net.TCPAddr{IP: d.to.ip, Port: d.port}
	c, s := newPair(h, d.to, local, remote)
	h.net.sendLocked(h, d.to, c.key, &c.seq, time.Time{}, 'S', 0, func() { d.arriveLocked(c, s) })
}

// arriveLocked is the SYN at the other host. One without power does not see it, and is sent it again.
func (d *dial) arriveLocked(c, s *conn) {
	if d.to.off {
		if !d.given && d.from.life == d.from.h.life {
			h := d.from.h
			h.net.sendLocked(h, d.to, c.key, &c.seq, time.Now().Add(d.retry), 'S', 0, func() { d.arriveLocked(c, s) })
			d.retry *= 2
		}
		return
	}
	n, l := d.to.net, d.to.listeners[d.port]
	if l == nil {
		n.sendLocked(d.to, d.from.h, s.key, &s.seq, time.Time{}, 'R', 0, func() { d.endLocked(nil, syscall.ECONNREFUSED) })
		return
	}
	d.to.conns[s] = struct{}{}
	l.backlog = append(l.backlog, s)
	l.cond.Broadcast()
	s.lastAt = n.sendLocked(d.to, d.from.h, s.key, &s.seq, time.Time{}, 'A', 0, func() { d.endLocked(c, nil) })
}

func (d *dial) endLocked(c *conn, err error) {
	if c != nil && (d.given || d.from.life != d.from.h.life) {
		c.rstLocked()
		return
	}
	if c != nil {
		d.from.h.conns[c] = struct{}{}
	}
	d.conn, d.err = c, err
	close(d.done)
}

// listener is a net.Listener of a host.
type listener struct {
	h       *Host
	addr    *net.TCPAddr
	cond    sync.Cond // on Network.mu
	backlog []*conn
	closed  bool
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	n := l.h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(l.backlog) == 0 && !l.closed {
		l.cond.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: net.ErrClosed}
	}
	c := l.backlog[0]
	l.backlog = l.backlog[1:]
	return c, nil
}

// Close implements net.Listener; connections that nobody has accepted are reset.
func (l *listener) Close() error {
	n := l.h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	for _, c := range l.backlog {
		c.rstLocked()
		c.endLocked(net.ErrClosed)
	}
	l.closeLocked()
	if l.h.listeners[l.addr.Port] == l {
		delete(l.h.listeners, l.addr.Port)
	}
	return nil
}

func (l *listener) closeLocked() {
	l.closed, l.backlog = true, nil
	l.cond.Broadcast()
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.addr }
