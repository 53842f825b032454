package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kajamq/kaja/tools/perf/kw"
)

// subject is a kind of node: its settings beyond those that all have, how its directory is made, and its command.
type subject struct {
	name     string
	settings func(n *node) []string
	format   func(o options, n *node) error
	cmd      func(o options, n *node) *exec.Cmd
}

// kaja has further settings, each name=value.
func kaja(name string, more ...string) subject {
	return subject{
		name: name,
		settings: func(n *node) []string {
			return append([]string{"kaja.cluster.secret=of-the-measuring-program-cluster", "kaja.http.listener=" + n.http}, more...)
		},
		cmd: func(o options, n *node) *exec.Cmd { return exec.Command(o.kaja, "start", n.properties()) },
	}
}

func kafka() subject {
	return subject{
		name:   "Kafka 4.4",
		format: func(o options, n *node) error { return kw.KafkaFormat(o.jars, n.properties()) },
		cmd:    func(o options, n *node) *exec.Cmd { return kw.KafkaServer(o.jars, n.properties()) },
	}
}

// with gives the subjects, Kafka among them if its jars are there.
func with(o options, subjects ...subject) []subject {
	if o.jars != "" {
		subjects = append(subjects, kafka())
	}
	return subjects
}

// text is the node's server.properties.
func (n *node) text(s subject, all []*node) string {
	var voters []string
	for _, v := range all {
		voters = append(voters, fmt.Sprintf("%d@%s", v.id, v.controller))
	}
	listeners := "PLAINTEXT://" + n.addr + ",CONTROLLER://" + n.controller
	lines := []string{
		"process.roles=broker,controller",
		fmt.Sprint("node.id=", n.id),
		"listeners=" + listeners,
		"advertised.listeners=" + listeners,
		"controller.listener.names=CONTROLLER",
		"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"log.dirs=" + filepath.Join(n.dir, "data"),
	}
	if s.settings != nil {
		lines = append(lines, s.settings(n)...)
	}
	return strings.Join(lines, "\n") + "\n"
}
