package main_test

import (
	"strings"
	"testing"
)

// BenchmarkCalls is what a person at a prompt waits for each verb, the start of the process included, with a node on the same machine.
// docs/cli.md has the figures.
func BenchmarkCalls(b *testing.B) {
	home := b.TempDir()
	n := start(b, home)
	call := func(b *testing.B, line string) {
		b.Helper()
		if out, err := command(b, home, append(strings.Fields(line), "-b", n.address)...).CombinedOutput(); err != nil {
			b.Fatalf("kaja %s: %v\n%s", line, err, out)
		}
	}
	for _, line := range []string{"topic create t -p 6", "produce t a b c", "consume t -g g -o start -n 3"} {
		call(b, line)
	}
	for _, line := range []string{"topic list", "topic describe t", "topic create t --if-not-exists", "topic alter t --set retention.ms=1000000",
		"group list", "group describe g", "group reset g --to start", "cluster info", "doctor", "txn list",
		"produce t value", "consume t -o start -n 3", "consume t -o start -e"} {
		b.Run(strings.ReplaceAll(line, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				call(b, line)
			}
		})
	}
}
