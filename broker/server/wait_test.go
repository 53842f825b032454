package server

import (
	"strings"
	"testing"
	"time"
)

// lines counts the log lines that contain part.
func lines(l *logBuffer, part string) int {
	n := 0
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// waitFor polls for what a real connection does in the background.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatal("did not happen within 10 s")
		case <-tick.C:
		}
	}
}

// pause lets virtual time pass; for tests in a bubble.
func pause(d time.Duration) { <-time.After(d) }
