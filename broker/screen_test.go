package broker

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl/image"
)

func TestScreen(t *testing.T) {
	bound := func(string) net.Addr { return &net.TCPAddr{IP: net.IPv6zero, Port: 40000} }
	screen := func(l ...config.Listener) string {
		a := NewAddresses(1, l, bound, func() *image.Image { return nil })
		return Screen{Version: "0.1.0", ClusterID: testCluster, NodeID: 1, Took: 43210 * time.Microsecond, Listeners: a.ScreenListeners(),
			Dirs: []string{"/home/u/.local/share/kaja"}, New: true, HTTP: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9644}}.String()
	}
	want := `
kaja 0.1.0 is ready after 43ms: node 1 of cluster 5L6g3nShT-eMCtK--X86sw

  listens  PLAINTEXT localhost:9092
  data     /home/u/.local/share/kaja  (new)
  metrics  http://127.0.0.1:9644/metrics  (health at /readyz)

Try:
  echo hello | kcat -b localhost:9092 -P -t greetings
  kcat -b localhost:9092 -C -t greetings -o beginning -e

Stop with Ctrl-C.

`
	if diff := cmp.Diff(want, screen(config.Listener{Name: "PLAINTEXT", Host: "localhost", Port: 9092})); diff != "" {
		t.Error(diff)
	}
	tests := []struct {
		name     string
		listener config.Listener
		want     string
	}{
		{"every address", config.Listener{Name: "P", Port: 9092}, "  listens  P port 9092 of every address  (each client is told the address it came in by)\n           behind a port mapping or NAT set advertised.listeners\n"},
		{"chosen port", config.Listener{Name: "P"}, "  listens  P port 40000 of every address  ("},
		{"advertised", config.Listener{Name: "P", Port: 9092, Advertised: &config.HostPort{Host: "::2", Port: 1}}, "  listens  P port 9092 of every address  (clients are told [::2]:1)\n  data"},
		{"controller", config.Listener{Name: "C", Host: "::1", Port: 9093, Controller: true}, "  listens  C [::1]:9093  (controller)\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := screen(tt.listener); !strings.Contains(got, tt.want) {
				t.Errorf("no %q in %s", tt.want, got)
			}
		})
	}
}
