package raftctl

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/wire"
)

// While a snapshot is being written, however long the disk takes, decisions are committed and published (C9). What is
// decided meanwhile is in the log behind it.
func TestSnapshotStallsNothing(t *testing.T) {
	mem := memFS()
	disk := faultfs.New(mem)
	held, release := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let() // the controller is closed by a clean-up, which runs later
	var once sync.Once
	disk.Before(func(op faultfs.Op, name string) {
		if op == faultfs.OpWrite && strings.Contains(name, ".snapshot") {
			once.Do(func() { close(held) })
			<-release
		}
	})
	o := testOptions(disk, nil)
	o.SnapshotBytes = 64 << 10
	c := openTest(t, o)
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	n := 0
	more := func() {
		t.Helper()
		create(t, c, fmt.Sprintf("t%d", n))
		n++
	}
	deadline := time.After(2 * time.Minute)
	for begun := false; !begun; {
		more()
		select {
		case <-held:
			begun = true
		case <-deadline:
			t.Fatalf("no snapshot after %d topics", n)
		default:
		}
	}
	for range 500 {
		more()
	}
	if got := c.Image().NumTopics(); got != n {
		t.Errorf("%d topics are published, want %d", got, n)
	}
	let()
	for named := false; !named; {
		select {
		case <-deadline:
			t.Fatal("the snapshot is not finished")
		default:
		}
		names, err := mem.List("/meta/snapshots")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			named = named || !strings.HasSuffix(name, vfs.TempSuffix)
		}
		more()
	}
}
