package server

import (
	"net"
	"os"
	"testing"
)

// X6: a crowd of clients takes connections until descriptors run short, never the ones that the logs need to open files,
// and whoever leaves makes room.
func TestDescriptorsAreSparedForFiles(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	next := int(f.Fd()) // every lower one is in use
	_ = f.Close()
	s, logs := start(t, heartbeatRoutes(replyHeartbeat), Limits{Descriptors: next + 20})
	var crowd []net.Conn
	served := func() bool {
		nc := dial(t, s)
		crowd = append(crowd, nc)
		if _, err := nc.Write(heartbeat(1)); err != nil {
			return false
		}
		_, _, err := readResponse(nc)
		return err == nil
	}
	for served() {
		if len(crowd) > 20 {
			t.Fatal("nobody was turned away")
		}
	}
	if len(crowd) < 2 || lines(logs, "descriptors run short") == 0 {
		t.Fatalf("turned away after %d; log: %s", len(crowd), logs)
	}
	for _, nc := range crowd {
		_ = nc.Close()
	}
	waitFor(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) == 0 })
	if !served() {
		t.Error("turned away after everybody had left")
	}
}

func TestSpareDescriptors(t *testing.T) {
	limit := descriptorLimit()
	var l Limits
	if err := l.setDefaults(); err != nil {
		t.Fatal(err)
	}
	if spare := limit - l.Descriptors; spare < minSpareDescriptors || spare > max(minSpareDescriptors, min(limit/4, maxSpareDescriptors)) {
		t.Errorf("%d of %d descriptors are left to files", spare, limit)
	}
}
