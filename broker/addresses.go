package broker

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// Addresses says under which address a client reaches a broker. It is the only place that decides: Metadata,
// FindCoordinator, DescribeCluster and DescribeTopicPartitions all ask it. Safe for concurrent use.
type Addresses struct {
	node      wire.BrokerID
	listeners []config.Listener
	bound     func(listener string) net.Addr
	images    func() *image.Image
}

// NewAddresses is for a node with these listeners. bound gives the address that a listener was bound to, nil before;
// images gives the published image, nil before the first.
func NewAddresses(node wire.BrokerID, listeners []config.Listener, bound func(listener string) net.Addr, images func() *image.Image) *Addresses {
	return &Addresses{node: node, listeners: slices.Clone(listeners), bound: bound, images: images}
}

// Endpoint is the address under which the client of conn reaches broker b, on the listener that conn came in by; false
// if b does not have that listener or is not known. Of this node it is: the configured advertised address; else, if the
// listener is bound to a named host or one address, that; else, on a listener bound to every address, the local address
// of the client's own connection, which is the one that this client has just proven to reach.
func (a *Addresses) Endpoint(conn *server.Conn, b wire.BrokerID) (host string, port int32, ok bool) {
	if b == a.node {
		return a.own(conn)
	}
	img := a.images()
	if img == nil {
		return "", 0, false
	}
	broker, ok := img.Broker(b)
	if !ok {
		return "", 0, false
	}
	e, ok := broker.Endpoint(conn.Listener)
	return e.Host, int32(e.Port), ok
}

func (a *Addresses) own(conn *server.Conn) (host string, port int32, ok bool) {
	i := slices.IndexFunc(a.listeners, func(l config.Listener) bool { return l.Name == conn.Listener })
	if i < 0 {
		return "", 0, false
	}
	l := a.listeners[i]
	switch {
	case l.Advertised != nil:
		return l.Advertised.Host, int32(l.Advertised.Port), true
	case !l.Wildcard():
		return l.Host, a.port(l), true
	}
	if at, ok := addrPort(conn.Local); ok {
		return at.Addr().Unmap().WithZone("").String(), int32(at.Port()), true
	}
	return "", 0, false
}

// port is the listener's port, the bound one if it was left to the system.
func (a *Addresses) port(l config.Listener) int32 {
	if l.Port != 0 {
		return int32(l.Port)
	}
	if at, ok := addrPort(a.bound(l.Name)); ok {
		return int32(at.Port())
	}
	return 0
}

// Registration is the endpoints that the broker registers with the controller, for other nodes. hostname stands in for
// the host of a listener that is bound to every address and advertises nothing.
func (a *Addresses) Registration(hostname string) []image.Endpoint {
	var out []image.Endpoint
	for _, l := range a.listeners {
		if !l.Controller {
			out = append(out, a.advertised(l, hostname))
		}
	}
	return out
}

// Quorum is where other members of the quorum reach this node: at its first controller listener, without one at its inter-broker
// listener. hostname is as for Registration. False: there is no such listener.
func (a *Addresses) Quorum(interBroker, hostname string) (image.Endpoint, bool) {
	i := slices.IndexFunc(a.listeners, func(l config.Listener) bool { return l.Controller })
	if i < 0 {
		i = slices.IndexFunc(a.listeners, func(l config.Listener) bool { return l.Name == interBroker })
	}
	if i < 0 {
		return image.Endpoint{}, false
	}
	return a.advertised(a.listeners[i], hostname), true
}

// advertised is the address of a listener for those who do not come in by it.
func (a *Addresses) advertised(l config.Listener, hostname string) image.Endpoint {
	e := image.Endpoint{Listener: l.Name, Host: l.Host, Port: uint16(a.port(l)), Protocol: protocolID(l.Protocol)}
	switch {
	case l.Advertised != nil:
		e.Host, e.Port = l.Advertised.Host, uint16(l.Advertised.Port)
	case l.Wildcard():
		e.Host = hostname
	}
	return e
}

// protocolID is Kafka's number of a security protocol.
func protocolID(protocol string) int16 {
	if protocol == config.SSL {
		return 1
	}
	return 0 // PLAINTEXT
}

// addrPort reads an IP address and port out of a net.Addr of any kind.
func addrPort(addr net.Addr) (netip.AddrPort, bool) {
	switch addr := addr.(type) {
	case nil:
		return netip.AddrPort{}, false
	case *net.TCPAddr:
		return addr.AddrPort(), true
	}
	at, err := netip.ParseAddrPort(addr.String())
	return at, err == nil
}

// serverListeners says what to bind: localhost means the loopback of both families, an empty host every address.
func serverListeners(listeners []config.Listener) []server.Listener {
	out := make([]server.Listener, len(listeners))
	for i, l := range listeners {
		port := strconv.Itoa(l.Port)
		out[i] = server.Listener{Name: l.Name, Protocol: l.Protocol, Addrs: []string{net.JoinHostPort(l.Host, port)}}
		if l.Host == "localhost" {
			out[i].Addrs = []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)}
		}
	}
	return out
}

// listenError adds what to do about an address that could not be bound.
func listenError(err error) error {
	todo := "Check the setting listeners."
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		todo = "Another process listens there, perhaps a Kafka or another kaja: stop it, or choose another port, for example with --set listeners=PLAINTEXT://localhost:19092."
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		todo = "The address is not one of this machine's: correct the setting listeners. What clients shall connect to belongs into advertised.listeners."
	case errors.Is(err, syscall.EACCES):
		todo = "This port needs more rights than the user has: choose one above 1023 in the setting listeners."
	case isDNS:
		todo = fmt.Sprintf("The name %s cannot be resolved: correct the setting listeners. What clients shall connect to belongs into advertised.listeners.", dns.Name)
	}
	return &StartError{What: "open the listeners", Err: err, Todo: todo}
}
