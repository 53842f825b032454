//go:build linux

package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// dir is where `ip netns` keeps its namespaces.
	dir    = "/run/netns"
	bridge = "br0"
)

// Clients is the number of the caller's own host.
const Clients = 0

// Net is a bridge with hosts 1…n on it, and the caller as host 0.
type Net struct {
	hosts []*host
}

// host is one of them, and what is wrong with its way in.
type host struct {
	name    string       // of its namespace; "" is the caller's
	deaf    map[int]bool // it hears nothing of these
	lose    int          // of a thousand packets that come
	cutOff  bool         // its cable is out
	limited bool         // its way out is slow
	relay   *relay       // in its cable, or nil
}

// New makes the hosts 1…n. Enter has to come first.
func New(n int) (*Net, error) {
	net := &Net{hosts: []*host{{deaf: map[int]bool{}}}}
	steps := [][]string{
		{"ip", "link", "set", "lo", "up"},
		{"ip", "link", "add", bridge, "type", "bridge"},
		{"ip", "addr", "add", IP(Clients) + "/24", "dev", bridge},
		{"ip", "link", "set", bridge, "up"},
	}
	for i := 1; i <= n; i++ {
		h := &host{name: fmt.Sprintf("n%d", i), deaf: map[int]bool{}}
		net.hosts = append(net.hosts, h)
		steps = append(steps,
			[]string{"ip", "netns", "add", h.name},
			[]string{"ip", "link", "add", cable(i), "type", "veth", "peer", "name", "eth0", "netns", h.name},
			[]string{"ip", "link", "set", cable(i), "master", bridge, "up"},
			[]string{"ip", "-n", h.name, "addr", "add", IP(i) + "/24", "dev", "eth0"},
			[]string{"ip", "-n", h.name, "link", "set", "eth0", "up"},
			[]string{"ip", "-n", h.name, "link", "set", "lo", "up"})
	}
	for _, s := range steps {
		if err := run(exec.Command(s[0], s[1:]...)); err != nil {
			return nil, err
		}
	}
	return net, nil
}

// IP is the address of a host.
func IP(i int) string {
	if i == Clients {
		return "10.77.0.254"
	}
	return fmt.Sprintf("10.77.0.%d", i)
}

func cable(i int) string { return fmt.Sprintf("v%d", i) }

func run(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// Start starts a command on a host.
func (n *Net) Start(i int, cmd *exec.Cmd) error {
	h := n.hosts[i]
	if h.name == "" {
		return cmd.Start()
	}
	runtime.LockOSThread() // a namespace is a thread's
	defer runtime.UnlockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("open the own namespace: %w", err)
	}
	defer func() { _ = home.Close() }()
	away, err := os.Open(filepath.Join(dir, h.name))
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", h.name, err)
	}
	defer func() { _ = away.Close() }()
	if err := unix.Setns(int(away.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter namespace %s: %w", h.name, err)
	}
	started := cmd.Start()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		panic(fmt.Sprintf("BUG: cannot go back to the own namespace: %v", err))
	}
	return started
}

// run runs a command on a host to its end.
func (n *Net) run(i int, input, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	var out strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &out
	err := n.Start(i, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("%s on host %d: %w: %s", strings.Join(cmd.Args, " "), i, err, out.String())
	}
	return nil
}
