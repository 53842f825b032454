package broker

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/wire"
)

// Screen is what a person sees when a node has started: where it listens, where its data lies, what to try next. It
// fits one screen.
type Screen struct {
	Version   string
	ClusterID string
	NodeID    wire.BrokerID
	// Took is the time from the start of the process until clients were served.
	Took      time.Duration
	Listeners []ScreenListener
	Dirs      []string
	// New: the data directories were empty.
	New bool
	// HTTP is the address of the metrics and health pages, nil if they are off.
	HTTP net.Addr
	// Nodes is how many nodes of a cluster run in this process, whose Listeners and Dirs these are; 0 for one.
	Nodes int
	// Quorum says how many nodes the cluster has and whether this one votes; "" for a node alone.
	Quorum string
	// Ignored is how many given settings have no effect.
	Ignored int
}

// ScreenListener is one line about a listener.
type ScreenListener struct {
	config.Listener
	// BoundPort is the port that was bound; it differs from Port if that is 0.
	BoundPort int
}

// ScreenListeners adds to the configured listeners the ports they were bound to.
func (a *Addresses) ScreenListeners() []ScreenListener {
	out := make([]ScreenListener, len(a.listeners))
	for i, l := range a.listeners {
		out[i] = ScreenListener{Listener: l, BoundPort: int(a.port(l))}
	}
	return out
}

// address is where somebody on this machine reaches the listener.
func (l ScreenListener) address() string {
	if l.Wildcard() {
		return config.HostPort{Host: "localhost", Port: l.BoundPort}.String()
	}
	return config.HostPort{Host: l.Host, Port: l.BoundPort}.String()
}

// told says what clients are told to connect to, "" if it is the address that is shown anyway.
func (l ScreenListener) told() string {
	switch {
	case l.Controller:
		return "controller"
	case l.Advertised != nil && l.Advertised.String() != l.address():
		return "clients are told " + l.Advertised.String()
	case l.Advertised == nil && l.Wildcard():
		return "each client is told the address it came in by"
	}
	return ""
}

// String is the whole screen, with a final newline.
func (s Screen) String() string {
	var b strings.Builder
	who := fmt.Sprintf("node %d", s.NodeID)
	if s.Nodes > 0 {
		who = fmt.Sprintf("%d nodes", s.Nodes)
	}
	fmt.Fprintf(&b, "\nkaja %s is ready after %s: %s of cluster %s\n\n", s.Version, s.Took.Round(time.Millisecond), who, s.ClusterID)
	row := func(label, value, note string) {
		if note != "" {
			note = "  (" + note + ")"
		}
		fmt.Fprintf(&b, "  %-8s %s%s\n", label, value, note)
	}
	try, byOwn := "", false
	for _, l := range s.Listeners {
		where := l.address()
		if l.Wildcard() {
			where = fmt.Sprintf("port %d of every address", l.BoundPort)
		}
		row("listens", l.Name+" "+where, l.told())
		if !l.Controller && try == "" {
			try = l.address()
		}
		byOwn = byOwn || l.Advertised == nil && l.Wildcard() && !l.Controller
	}
	if byOwn {
		row("", "behind a port mapping or NAT set advertised.listeners", "")
	}
	for _, dir := range s.Dirs {
		note := ""
		if s.New {
			note = "new"
		}
		row("data", dir, note)
	}
	if s.Quorum != "" {
		row("quorum", s.Quorum, "")
	}
	if s.HTTP != nil {
		row("metrics", "http://"+s.HTTP.String()+"/metrics", "health at /readyz")
	}
	if s.Ignored > 0 {
		row("settings", fmt.Sprintf("%d given settings have no effect; they are named in the log", s.Ignored), "")
	}
	if try != "" {
		fmt.Fprintf(&b, "\nTry:\n  echo hello | kcat -b %[1]s -P -t greetings\n  kcat -b %[1]s -C -t greetings -o beginning -e\n", try)
	}
	b.WriteString("\nStop with Ctrl-C.\n\n")
	return b.String()
}
