package broker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

type textAddr string

func (textAddr) Network() string  { return "sim" }
func (a textAddr) String() string { return string(a) }

func TestEndpointOfThisNode(t *testing.T) {
	listeners := []config.Listener{
		{Name: "NAMED", Host: "localhost", Port: 9092},
		{Name: "ZERO", Host: "10.0.0.1"},
		{Name: "ALL", Port: 9093},
		{Name: "ALL4", Host: "0.0.0.0", Port: 9094},
		{Name: "ADV", Port: 9095, Advertised: &config.HostPort{Host: "kaja.example", Port: 19095}},
	}
	tests := []struct {
		name, listener string
		local          net.Addr
		want           string
	}{
		{"a named host is advertised", "NAMED", &net.TCPAddr{IP: net.IPv6loopback, Port: 9092}, "localhost 9092 true"},
		{"port 0 is the bound one", "ZERO", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5}, "10.0.0.1 40000 true"},
		{"every address: that of the connection", "ALL", &net.TCPAddr{IP: net.ParseIP("192.168.1.7"), Port: 9093}, "192.168.1.7 9093 true"},
		{"IPv4 in IPv6 form", "ALL", &net.TCPAddr{IP: net.ParseIP("::ffff:10.1.2.3"), Port: 9093}, "10.1.2.3 9093 true"},
		{"a link-local address without its zone", "ALL", &net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 9093, Zone: "eth0"}, "fe80::1 9093 true"},
		{"0.0.0.0 is every address", "ALL4", textAddr("172.17.0.2:9094"), "172.17.0.2 9094 true"},
		{"advertised wins", "ADV", &net.TCPAddr{IP: net.IPv4(1, 2, 3, 4), Port: 1}, "kaja.example 19095 true"},
		{"no such listener", "X", &net.TCPAddr{}, " 0 false"},
		{"no usable local address", "ALL", textAddr("pipe"), " 0 false"},
	}
	bound := func(string) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40000} }
	a := NewAddresses(1, listeners, bound, func() *image.Image { return nil })
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			host, port, ok := a.Endpoint(server.NewConn(1, tt.listener, tt.local, tt.local), 1)
			if got := fmt.Sprint(host, " ", port, " ", ok); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	if _, _, ok := a.Endpoint(server.NewConn(1, "NAMED", nil, nil), wire.BrokerID(2)); ok {
		t.Error("a broker is known before the first image")
	}
}

func TestRegistration(t *testing.T) {
	a := NewAddresses(1, []config.Listener{
		{Name: "PLAINTEXT", Port: 9092},
		{Name: "C", Port: 9093, Controller: true},
		{Name: "EXT", Port: 9094, Advertised: &config.HostPort{Host: "::1", Port: 1}},
	}, func(string) net.Addr { return nil }, nil)
	want := []image.Endpoint{{Listener: "PLAINTEXT", Host: "me", Port: 9092}, {Listener: "EXT", Host: "::1", Port: 1}}
	if diff := cmp.Diff(want, a.Registration("me")); diff != "" {
		t.Error(diff)
	}
}

// Other controllers reach a node at its controller listener, and where it has none at the inter-broker listener.
func TestQuorumAddress(t *testing.T) {
	plain := config.Listener{Name: "PLAINTEXT", Port: 9092}
	other := config.Listener{Name: "OTHER", Host: "10.0.0.1", Port: 9095}
	own := config.Listener{Name: "C", Port: 9093, Controller: true}
	told := config.Listener{Name: "C", Port: 9093, Controller: true, Advertised: &config.HostPort{Host: "c1", Port: 1}}
	for name, tt := range map[string]struct {
		listeners []config.Listener
		want      image.Endpoint
		none      bool
	}{
		"of its own":        {[]config.Listener{plain, own}, image.Endpoint{Listener: "C", Host: "me", Port: 9093}, false},
		"advertised":        {[]config.Listener{plain, told}, image.Endpoint{Listener: "C", Host: "c1", Port: 1}, false},
		"of the brokers":    {[]config.Listener{other, plain}, image.Endpoint{Listener: "PLAINTEXT", Host: "me", Port: 9092}, false},
		"of clients' alone": {[]config.Listener{other}, image.Endpoint{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := NewAddresses(1, tt.listeners, func(string) net.Addr { return nil }, nil)
			got, ok := a.Quorum("PLAINTEXT", "me")
			if got != tt.want || ok == tt.none {
				t.Errorf("%+v, %v", got, ok)
			}
		})
	}
}

func TestServerListeners(t *testing.T) {
	got := serverListeners([]config.Listener{{Name: "A", Host: "localhost", Port: 9092, Protocol: "PLAINTEXT"}, {Name: "B", Port: 1, Protocol: "PLAINTEXT"}, {Name: "C", Host: "::1", Protocol: "PLAINTEXT"}})
	want := []server.Listener{
		{Name: "A", Addrs: []string{"127.0.0.1:9092", "[::1]:9092"}, Protocol: "PLAINTEXT"},
		{Name: "B", Addrs: []string{":1"}, Protocol: "PLAINTEXT"},
		{Name: "C", Addrs: []string{"[::1]:0"}, Protocol: "PLAINTEXT"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestListenError(t *testing.T) {
	bind := func(e syscall.Errno) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", e)}
	}
	for want, cause := range map[string]error{
		"Another process listens there":          bind(syscall.EADDRINUSE),
		"The address is not one of this machine": bind(syscall.EADDRNOTAVAIL),
		"This port needs more rights":            bind(syscall.EACCES),
		"The name nowhere cannot be resolved":    &net.DNSError{Name: "nowhere", Err: "no such host"},
		"Check the setting listeners":            errors.New("odd"),
	} {
		err := listenError(fmt.Errorf("listener A: %w", cause))
		e, ok := errors.AsType[*StartError](err)
		if !ok || !strings.HasPrefix(e.Todo, want) || !errors.Is(err, cause) {
			t.Errorf("%v: %+v", cause, e)
		}
	}
}
