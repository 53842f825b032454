//go:build linux

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
)

// kafka is Kafka out of a directory of jars, with its default settings and those of its start script for the JVM.
type kafka struct{ jars string }

func (kafka) name() string { return "Kafka" }

func (kafka) settings(*node) []string { return nil }

func (k kafka) java(flags []string, args ...string) *exec.Cmd {
	return exec.Command("java", append(append(flags, "-cp", filepath.Join(k.jars, "*")), args...)...)
}

func (k kafka) format(n *node) error {
	cmd := k.java([]string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"},
		"kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", n.properties())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format the directory of node %d: %w\n%s", n.id, err, out)
	}
	return nil
}

func (k kafka) command(n *node) *exec.Cmd {
	return k.java([]string{"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true"}, "kafka.Kafka", n.properties())
}

// clean takes the exit code of a JVM that has ended by SIGTERM.
func (kafka) clean(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return err == nil || ok && exit.ExitCode() == 128+int(syscall.SIGTERM)
}

// end kills: a node that stops waits five minutes for a controller, and the others have ended.
func (kafka) end(n *node) error { return n.kill() }
