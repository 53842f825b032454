package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Pauses after a failed accept, doubled from the first to the last.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// bind binds the addresses of l.
func (s *Server) bind(l *listener) error {
	for i, addr := range l.addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("listener %s: address %q: %w", l.name, addr, err)
		}
		if i > 0 && port == "0" {
			if _, first, err := net.SplitHostPort(l.bound[0].Addr().String()); err == nil {
				addr = net.JoinHostPort(host, first)
			}
		}
		nl, err := s.listen("tcp", addr)
		if err != nil {
			if i > 0 && isNoSuchFamily(err) {
				s.logger.Info("address skipped: this machine does not have it", slog.String("listener", l.name),
					slog.String("address", addr), slog.Any("err", err))
				continue
			}
			return fmt.Errorf("listener %s: listen on %s: %w", l.name, addr, err)
		}
		l.bound = append(l.bound, nl)
		if s.limits.Backlog > 0 {
			if err := setBacklog(nl, s.limits.Backlog); err != nil {
				return fmt.Errorf("listener %s: set backlog: %w", l.name, err)
			}
		}
	}
	return nil
}

func isNoSuchFamily(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

// unbind closes every bound address.
func (s *Server) unbind() {
	for _, l := range s.listeners {
		for _, nl := range l.bound {
			_ = nl.Close() // accept returns net.ErrClosed
		}
	}
}

// accept takes connections until the server stops. No failure ends it: a process out of descriptors gets some back.
func (s *Server) accept(l *listener, nl net.Listener) {
	pause := time.Duration(0)
	var lastLog time.Time
	for s.waitForRoom() {
		nc, err := nl.Accept()
		if err == nil {
			pause = 0
			s.admit(l, nc)
			continue
		}
		select {
		case <-s.stop:
			return
		default:
		}
		s.metrics.acceptError.Inc()
		if now := time.Now(); now.Sub(lastLog) >= closeLogPeriod {
			lastLog = now
			s.logger.Warn("accept failed", slog.String("listener", l.name), slog.Any("err", err))
		}
		pause = min(max(2*pause, minAcceptPause), maxAcceptPause)
		t := time.NewTimer(pause)
		select {
		case <-s.stop:
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// waitForRoom blocks while there are max.connections; false when the server stops.
func (s *Server) waitForRoom() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.stopping && s.limits.MaxConnections > 0 && len(s.conns) >= s.limits.MaxConnections {
		s.cond.Wait()
	}
	return !s.stopping
}

// LimitConnections changes Limits.MaxConnections, MaxConnectionsPerIP and PerIP for the connections to come; those that are
// there stay. perIP is the server's from now on.
func (s *Server) LimitConnections(all, each int, perIP map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits.MaxConnections, s.limits.MaxConnectionsPerIP, s.limits.PerIP = all, each, perIP
	s.cond.Broadcast()
}

// admit starts a connection, or closes it if its address has too many or if it took one of the last descriptors. What is
// refused is counted and logged before it is closed, so that who sees the end finds the reason.
func (s *Server) admit(l *listener, nc net.Conn) {
	s.metrics.accepted.WithLabelValues(l.name).Inc()
	if n := descriptor(nc); s.limits.Descriptors > 0 && n >= s.limits.Descriptors {
		s.metrics.closed[closeDescriptors].Inc()
		s.log.log(closeDescriptors, time.Now(), slog.String("listener", l.name), slog.String("remote", nc.RemoteAddr().String()))
		_ = nc.Close()
		return
	}
	s.setBuffers(nc)
	c := newConn(s, l, nc, s.lastID.Add(1))
	ip, known := addrOf(c.info.Remote)
	s.mu.Lock()
	if s.stopping {
		s.mu.Unlock()
		c.cancel()
		_ = nc.Close()
		return
	}
	if known && s.overIPLocked(ip) {
		s.mu.Unlock()
		c.cancel()
		s.metrics.closed[closePerIP].Inc()
		s.log.log(closePerIP, time.Now(), slog.String("listener", l.name), slog.String("remote", ip.String()))
		_ = nc.Close()
		return
	}
	if known {
		s.perIP[ip]++
	}
	s.conns[c] = struct{}{}
	s.metrics.connections.WithLabelValues(l.name).Inc()
	s.wg.Go(c.serve)
	s.mu.Unlock()
}

func (s *Server) overIPLocked(ip netip.Addr) bool {
	limit, ok := s.limits.PerIP[ip.String()]
	if !ok {
		limit = s.limits.MaxConnectionsPerIP
	}
	if !ok && limit == 0 {
		return false
	}
	return s.perIP[ip] >= limit
}

// closed is called by a connection that has ended.
func (s *Server) closed(c *conn, kind closeKind) {
	s.metrics.closed[kind].Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.connections.WithLabelValues(c.lis.name).Dec() // whoever sees it finds the place free once he has the lock
	delete(s.conns, c)
	if ip, ok := addrOf(c.info.Remote); ok {
		if s.perIP[ip]--; s.perIP[ip] == 0 {
			delete(s.perIP, ip)
		}
	}
	s.cond.Broadcast()
}

// setBuffers sets the socket buffers; a failure leaves the operating system's.
func (s *Server) setBuffers(nc net.Conn) {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	if n := s.limits.SendBufferBytes; n > 0 {
		_ = tc.SetWriteBuffer(n)
	}
	if n := s.limits.ReceiveBufferBytes; n > 0 {
		_ = tc.SetReadBuffer(n)
	}
}

// addrOf is the IP address of a TCP peer.
func addrOf(a net.Addr) (netip.Addr, bool) {
	ta, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return ta.AddrPort().Addr().Unmap(), true
}
