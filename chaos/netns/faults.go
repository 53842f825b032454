//go:build linux

package netns

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
)

// others are all hosts but i.
func (n *Net) others(i int) []int {
	var o []int
	for j := range n.hosts {
		if j != i {
			o = append(o, j)
		}
	}
	return o
}

// Cut lets nothing through from one host to another, in this direction only. Nobody is told.
func (n *Net) Cut(from, to int) error {
	n.hosts[to].deaf[from] = true
	return n.apply(to)
}

// Mute lets nothing of what a host sends arrive anywhere.
func (n *Net) Mute(i int) error {
	var errs []error
	for _, o := range n.others(i) {
		errs = append(errs, n.Cut(i, o))
	}
	return errors.Join(errs...)
}

// Deafen lets nothing arrive at a host.
func (n *Net) Deafen(i int) error {
	for _, o := range n.others(i) {
		n.hosts[i].deaf[o] = true
	}
	return n.apply(i)
}

// Unplug takes a host's cable out.
func (n *Net) Unplug(i int) error {
	n.hosts[i].cutOff = true
	return run(exec.Command("ip", "link", "set", cable(i), "down"))
}

// Lose drops so many of a thousand packets that arrive at a host.
func (n *Net) Lose(i, permille int) error {
	n.hosts[i].lose = permille
	return n.apply(i)
}

// Slow limits what a host sends and gets to so many kbit/s, with a queue of 400 ms.
func (n *Net) Slow(i, kbit int) error {
	n.hosts[i].limited = true
	args := []string{"root", "tbf", "rate", fmt.Sprintf("%dkbit", kbit), "burst", "16kb", "latency", "400ms"}
	return errors.Join(n.run(i, "", "tc", append([]string{"qdisc", "replace", "dev", "eth0"}, args...)...),
		n.run(Clients, "", "tc", append([]string{"qdisc", "replace", "dev", cable(i)}, args...)...))
}

// Reset ends every connection of a host by a RST.
func (n *Net) Reset(i int) error {
	var errs []error
	for _, o := range n.others(i) {
		errs = append(errs, n.run(i, "", "ss", "-K", "dst", IP(o)))
	}
	return errors.Join(errs...)
}

// Heal puts everything right.
func (n *Net) Heal() error {
	var errs []error
	for i, h := range n.hosts {
		if len(h.deaf) > 0 || h.lose > 0 {
			clear(h.deaf)
			h.lose = 0
			errs = append(errs, n.apply(i))
		}
		if h.cutOff {
			h.cutOff = false
			errs = append(errs, run(exec.Command("ip", "link", "set", cable(i), "up")))
		}
		if h.relay != nil {
			errs = append(errs, n.unreorder(i))
		}
		if h.limited {
			h.limited = false
			errs = append(errs, n.run(i, "", "tc", "qdisc", "del", "dev", "eth0", "root"), n.run(Clients, "", "tc", "qdisc", "del", "dev", cable(i), "root"))
		}
	}
	return errors.Join(errs...)
}

// apply puts a host's rules in force, in one step.
func (n *Net) apply(i int) error {
	h := n.hosts[i]
	var b strings.Builder
	b.WriteString("add table ip chaos\ndelete table ip chaos\ntable ip chaos {\nchain in {\ntype filter hook input priority 0;\n")
	for _, from := range slices.Sorted(maps.Keys(h.deaf)) {
		fmt.Fprintf(&b, "ip saddr %s drop\n", IP(from))
	}
	if h.lose > 0 {
		fmt.Fprintf(&b, "iifname != \"lo\" numgen random mod 1000 < %d drop\n", h.lose)
	}
	b.WriteString("}\n}\n")
	return n.run(i, b.String(), "nft", "-f", "-")
}
