package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/prometheus/client_golang/prometheus"
)

// Listener is one named listener and the addresses it is bound to.
type Listener struct {
	// Name is upper case, as in Conn.Listener, and unique.
	Name string
	// Addrs are host:port pairs. The first must bind. A further one whose address family this machine lacks is
	// skipped and logged. Port 0 in a further one takes the port that the first was given.
	Addrs []string
	// Protocol is Kafka's name of the security protocol: PLAINTEXT or SSL.
	Protocol string
	// TLS makes the connections of an SSL listener secure; nil on any other.
	TLS *peer.TLS
	// Peers: a connection that opens with the preamble of nodes is handed to Options.Peers.
	Peers bool
	// Early: requests are served from ServeNodes on, before clients are.
	Early bool
}

// Options are what New needs. Listeners, Routes, Logger and Listen are required.
type Options struct {
	Listeners []Listener
	Routes    Routes
	Logger    *slog.Logger
	// Registerer takes the kaja_server_* collectors; nil for none.
	Registerer prometheus.Registerer
	Listen     func(network, addr string) (net.Listener, error)
	Limits     Limits
	// Peers takes the connections of other nodes; nil: the node is alone, and there are none.
	Peers Peers
}

// Limits bound what clients can take. The zero value of a field stands for its default; -1 in a size of a socket
// buffer leaves the operating system's.
type Limits struct {
	// MaxFrameBytes is socket.request.max.bytes, inclusive. Default 100 MiB.
	MaxFrameBytes int
	// MaxUnauthenticatedFrameBytes holds instead of MaxFrameBytes on a listener that is not PLAINTEXT until the peer
	// is authenticated: has shown a certificate that is trusted, or proven to be a node. Default 64 KiB.
	MaxUnauthenticatedFrameBytes int
	// RequestBytes is queued.max.request.bytes: the memory of all requests that are being read, decoded or handled in
	// stage one. Default: a quarter of the machine's memory, at most 1 GiB. Small requests have up to 16 MiB (never
	// more than an eighth of it) on top, so that they never wait for large ones.
	RequestBytes int64
	// InFlight is how many requests of one connection may be read and not yet answered. Default 256.
	InFlight int
	// ResponseBytes is how many bytes of encoded answers one connection may have waiting before it is read again.
	// Default 1 MiB. One answer may be larger.
	ResponseBytes int64
	// FirstRequest is how long a connection may take to complete its first request. Default 10 s.
	FirstRequest time.Duration
	// Idle is connections.max.idle.ms: how long a connection may stay without a request, an answer or a request that
	// waits to be answered. Default 10 min; negative, as in Kafka: for ever.
	Idle time.Duration
	// WriteStall is how long a client may take not a single byte of its answer. Default: Idle, or 10 min without one.
	WriteStall time.Duration
	// SlowFrame is how often, while requests wait for the budget, the holders of incomplete frames are looked at: one
	// that has sent less than 10 KiB since the last time is closed. Default 10 s.
	SlowFrame time.Duration
	// MaxConnections is max.connections: when reached, new ones wait unaccepted. Default: none.
	MaxConnections int
	// MaxConnectionsPerIP is max.connections.per.ip: one more is closed at once. Default: no limit; -1: only the
	// addresses in PerIP may connect, which is what 0 means in Kafka's configuration.
	MaxConnectionsPerIP int
	// PerIP overrides MaxConnectionsPerIP for single addresses (netip text form). 0 admits none.
	PerIP map[string]int
	// Descriptors is how many descriptors all connections and files together may take before new connections are closed
	// at once: what is left is for files, so that no crowd of clients keeps the logs from being written. Default: the
	// process's limit less a quarter of it, at least 32 and at most 4096 descriptors.
	Descriptors int
	// SendBufferBytes is socket.send.buffer.bytes. Default 100 KiB; -1: the operating system's.
	SendBufferBytes int
	// ReceiveBufferBytes is socket.receive.buffer.bytes. Default -1: the operating system's.
	ReceiveBufferBytes int
	// Backlog is socket.listen.backlog.size. Default: the operating system's.
	Backlog int
}

// Defaults of Limits.
const (
	DefaultMaxFrameBytes                = 100 << 20
	DefaultMaxUnauthenticatedFrameBytes = 64 << 10
	DefaultMaxRequestBytes              = 1 << 30
	DefaultInFlight                     = 256
	DefaultResponseBytes                = 1 << 20
	DefaultFirstRequest                 = 10 * time.Second
	DefaultIdle                         = 10 * time.Minute
	DefaultSlowFrame                    = 10 * time.Second
	DefaultSendBufferBytes              = 100 << 10
)

// How many descriptors Limits.Descriptors leaves to files by default, at least and at most.
const (
	minSpareDescriptors = 32
	maxSpareDescriptors = 4096
)

// forEver stands for no idle time. It fits any deadline.
const forEver = 100 * 365 * 24 * time.Hour

// The security protocols that are served.
const (
	ProtocolPlaintext = "PLAINTEXT" // without encryption or authentication
	ProtocolSSL       = "SSL"       // TLS
)

func orDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

func (l *Limits) setDefaults() error {
	orDefault(&l.MaxFrameBytes, DefaultMaxFrameBytes)
	orDefault(&l.MaxUnauthenticatedFrameBytes, DefaultMaxUnauthenticatedFrameBytes)
	if l.RequestBytes == 0 {
		l.RequestBytes = min(machineMemory()/4, DefaultMaxRequestBytes)
	}
	orDefault(&l.InFlight, DefaultInFlight)
	orDefault(&l.ResponseBytes, DefaultResponseBytes)
	orDefault(&l.FirstRequest, DefaultFirstRequest)
	orDefault(&l.Idle, DefaultIdle)
	if l.Idle < 0 {
		l.Idle = forEver
		orDefault(&l.WriteStall, DefaultIdle)
	}
	orDefault(&l.WriteStall, l.Idle)
	orDefault(&l.SlowFrame, DefaultSlowFrame)
	if n := descriptorLimit(); n > 0 {
		orDefault(&l.Descriptors, max(1, n-min(max(n/4, minSpareDescriptors), maxSpareDescriptors)))
	}
	orDefault(&l.SendBufferBytes, DefaultSendBufferBytes)
	orDefault(&l.ReceiveBufferBytes, -1)
	for _, v := range []int64{int64(l.MaxFrameBytes), int64(l.MaxUnauthenticatedFrameBytes), l.RequestBytes,
		int64(l.InFlight), l.ResponseBytes, int64(l.FirstRequest), int64(l.Idle), int64(l.WriteStall),
		int64(l.SlowFrame)} {
		if v < 0 {
			return errors.New("server limits: a size or duration is negative")
		}
	}
	if l.MaxConnections < 0 || l.MaxConnectionsPerIP < -1 || l.Descriptors < 0 || l.Backlog < 0 {
		return errors.New("server limits: a count is negative")
	}
	return nil
}

func (o *Options) validate() error {
	switch {
	case o.Routes == nil:
		return errors.New("server options: no routes")
	case o.Logger == nil:
		return errors.New("server options: no logger")
	case o.Listen == nil:
		return errors.New("server options: no way to listen")
	case len(o.Listeners) == 0:
		return errors.New("server options: no listeners")
	}
	seen := map[string]bool{}
	for _, l := range o.Listeners {
		switch {
		case l.Name == "" || l.Name != strings.ToUpper(l.Name):
			return fmt.Errorf("listener %q: the name must be upper case and not empty", l.Name)
		case seen[l.Name]:
			return fmt.Errorf("listener %s is given twice", l.Name)
		case len(l.Addrs) == 0:
			return fmt.Errorf("listener %s has no address", l.Name)
		case l.Protocol != ProtocolPlaintext && l.Protocol != ProtocolSSL:
			return fmt.Errorf("listener %s: security protocol %q is not supported yet, only %s and %s", l.Name, l.Protocol,
				ProtocolPlaintext, ProtocolSSL)
		case (l.Protocol == ProtocolSSL) != (l.TLS != nil):
			return fmt.Errorf("listener %s: security protocol %s, and TLS %v", l.Name, l.Protocol, l.TLS != nil)
		}
		seen[l.Name] = true
	}
	return nil
}
