//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kajamq/kaja/chaos/netns"
)

// product is what the nodes of a cluster run: kaja, or Kafka to compare with.
type product interface {
	// name is that in tables.
	name() string
	// settings are the lines of a node's server.properties that other products have not.
	settings(n *node) []string
	// format makes a node's empty disk ready.
	format(n *node) error
	// command is that of a node.
	command(n *node) *exec.Cmd
	// clean reports whether a process that was asked to stop, and ended with err, has stopped cleanly.
	clean(err error) bool
	// end ends a node whose neighbours end, too.
	end(n *node) error
}

// commonSettings are the lines that every product understands: a combined node among others, with three replicas of which
// two have to be in sync.
func commonSettings(n *node) []string {
	var voters []string
	for i := range n.c.nodes {
		voters = append(voters, fmt.Sprintf("%d@%s:%d", i+1, netns.IP(i+1), controllerPort))
	}
	rf := min(len(n.c.nodes), 3)
	return []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", n.id),
		fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s:%d", addr(n.id), netns.IP(n.id), controllerPort),
		"controller.listener.names=CONTROLLER",
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"log.dirs=" + filepath.Join(n.disk.Mount, "data"),
		"min.insync.replicas=2",
		fmt.Sprintf("default.replication.factor=%d", rf),
		fmt.Sprintf("offsets.topic.replication.factor=%d", rf),
		fmt.Sprintf("transaction.state.log.replication.factor=%d", rf),
		"transaction.state.log.min.isr=2",
		"auto.create.topics.enable=false",
	}
}

// kaja is a binary of kaja. Besides a series, which has its defaults, partitions are few and segments small, so that they roll.
type kaja struct{}

func (kaja) name() string { return "kaja" }

func (kaja) settings(n *node) []string {
	lines := []string{
		"kaja.cluster.secret=chaoschaoschaoschaoschaoschaos42",
		"kaja.fsync=" + n.c.o.fsync,
		"kaja.log.format=text",
	}
	if !n.c.o.series {
		lines = append(lines,
			"offsets.topic.num.partitions=6",
			"transaction.state.log.num.partitions=6",
			"log.segment.bytes=1048576",
			"transaction.abort.timed.out.transaction.cleanup.interval.ms=1000")
	}
	if n.c.o.session != "" {
		lines = append(lines, "broker.session.timeout.ms="+n.c.o.session)
	}
	return lines
}

func (kaja) format(*node) error { return nil }

func (kaja) command(n *node) *exec.Cmd {
	cmd := exec.Command(n.binary, "start", n.properties())
	cmd.Env = append(os.Environ(), "PLANTED_BUG="+n.c.o.planted, "PLANTED_WALL="+n.wallName())
	return cmd
}

func (kaja) clean(err error) bool { return err == nil }

func (kaja) end(n *node) error { return n.stop() }
