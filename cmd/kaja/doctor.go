package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
)

// Levels of a finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail"
)

// finding is one thing that the doctor saw.
type finding struct {
	Level string `json:"level"`
	Text  string `json:"text"`
	Todo  string `json:"todo,omitempty"`
}

// doctorCommand is `kaja doctor`: it does what a client does, step by step, and says where a client would be stuck.
type doctorCommand struct {
	*adminCommands
	findings []finding
}

func (a *app) doctorCommand() *cobra.Command {
	c := &doctorCommand{adminCommands: &adminCommands{app: a}}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Say what a client at this place would be told, and whether it can reach it", Args: cobra.NoArgs,
		Long: `Say what a client at this place would be told, and whether it can reach it.

It resolves the bootstrap servers, connects, asks for the brokers as every client does, and then goes to each advertised
address and looks whether that broker is there. It changes nothing. The exit code is 1 if a client would fail.`,
		RunE: func(*cobra.Command, []string) error { return c.run() },
	}
	c.register(cmd)
	return cmd
}

func (c *doctorCommand) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	ctx, done := c.interruptible(ctx)
	defer done()
	c.diagnose(ctx)
	bad := 0
	for _, f := range c.findings {
		if f.Level == levelFail {
			bad++
		}
	}
	if c.json {
		if err := c.printJSON(struct {
			OK       bool      `json:"ok"`
			Findings []finding `json:"findings"`
		}{bad == 0, c.findings}); err != nil {
			return &failure{err: err, code: exitFatal}
		}
	}
	if bad > 0 {
		return &failure{err: fmt.Errorf("%s: a client here would not work", count(bad, "problem")), code: exitFatal}
	}
	c.say("\nA client here is told addresses that it can reach.")
	return nil
}

// found notes a finding, and shows it.
func (c *doctorCommand) found(level, todo, format string, args ...any) {
	f := finding{Level: level, Text: fmt.Sprintf(format, args...), Todo: todo}
	c.findings = append(c.findings, f)
	c.say("%-4s  %s", level, f.Text)
	if todo != "" {
		c.say("      %s", todo)
	}
}

// diagnose goes the way of a client.
func (c *doctorCommand) diagnose(ctx context.Context) {
	var first *answered
	for _, server := range c.seeds() {
		if t := c.bootstrap(ctx, server); t != nil && first == nil {
			first = t
		}
	}
	if first == nil {
		return
	}
	for _, b := range first.brokers {
		c.broker(ctx, first, b)
	}
	c.partitions(first)
}

// partitions looks at what clients could not use although they reach every broker.
func (c *doctorCommand) partitions(t *answered) {
	switch {
	case t.offline > 0:
		c.found(levelFail, `"kaja topic list" shows which; start the brokers that hold them.`, "%s of %d have no leader", count(t.offline, "partition"), t.partitions)
	case t.underReplicated > 0:
		c.found(levelWarn, `"kaja topic list" shows which; writes with acks=all need min.insync.replicas of them.`, "%s of %d have replicas that are not in sync", count(t.underReplicated, "partition"), t.partitions)
	default:
		c.found(levelOK, "", "%s, each with a leader and all its replicas in sync", count(t.partitions, "partition"))
	}
}

// resolve turns a name into addresses; none after a finding.
func (c *doctorCommand) resolve(ctx context.Context, what, host, todo string) []netip.Addr {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}
	}
	resolving, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupNetIP(resolving, "ip", host)
	if err != nil {
		c.found(levelFail, todo, "%s: %s", what, dialReason(err))
		return nil
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips
}

// connect tries every address of a name as a client may; false if none takes a connection.
func (c *doctorCommand) connect(ctx context.Context, what, port, todo string, ips []netip.Addr) bool {
	var dead []string
	alive := 0
	for _, ip := range ips {
		dialing, cancel := context.WithTimeout(ctx, reachTimeout)
		conn, err := (&net.Dialer{}).DialContext(dialing, "tcp", net.JoinHostPort(ip.String(), port))
		cancel()
		if err != nil {
			dead = append(dead, fmt.Sprintf("%s: %s", net.JoinHostPort(ip.String(), port), dialReason(err)))
			continue
		}
		_ = conn.Close()
		alive++
	}
	switch {
	case alive == 0:
		c.found(levelFail, todo, "%s: %s", what, strings.Join(dead, "; "))
	case len(dead) > 0:
		c.found(levelWarn, "Most clients try the next address; those that try only the first may fail. Advertise a name or an address that only means the broker.",
			"%s: the name has several addresses and not all answer: %s", what, strings.Join(dead, "; "))
	}
	return alive > 0
}

func loopback(ips []netip.Addr) bool {
	for _, ip := range ips {
		if !ip.IsLoopback() {
			return false
		}
	}
	return len(ips) > 0
}

// local reports whether one of ips is an address of this machine.
func local(ips []netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		own, _ := netip.AddrFromSlice(n.IP)
		for _, ip := range ips {
			if own.Unmap() == ip {
				return true
			}
		}
	}
	return false
}
