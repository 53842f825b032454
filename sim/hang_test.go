package sim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/sim/history"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/wire"
)

// hangTimeout is kaja.disk.hang.timeout.ms of TestDiskThatHangs.
const hangTimeout = 2 * time.Second

// sickDisks lets the disks of nodes hang, one by one.
type sickDisks []atomic.Pointer[faultfs.FS]

func newSickDisks(nodes []*Node) sickDisks {
	disks := make(sickDisks, len(nodes))
	for i, n := range nodes {
		n.FaultyDisk(func(fs *faultfs.FS) { disks[i].Store(fs) })
	}
	return disks
}

// hang lets calls of these kinds on a disk wait until release.
func (d sickDisks) hang(i int, ops ...faultfs.Op) (release func()) {
	hang := make(chan struct{})
	for _, op := range ops {
		d[i].Load().Add(faultfs.Rule{Op: op, Hang: hang})
	}
	return sync.OnceFunc(func() { close(hang) })
}

// A node's disk hangs without an error for a minute (D16): the whole of it, or what syncs only; that of the node that leads the
// metadata, or of another one. The others lead its partitions, and the metadata, within the timeout, a session and an
// election; what was acknowledged stays, and it is back once its disk works again.
func TestDiskThatHangs(t *testing.T) {
	if !locksMayWait {
		t.Skip("needs the tag sim: a disk hangs while locks are held")
	}
	eachSeed(t, func(t *testing.T, seed uint64) {
		ops := []faultfs.Op{""}
		if seed/2%2 == 0 {
			ops = []faultfs.Op{faultfs.OpSync, faultfs.OpSyncDir}
		}
		if err := hangOne(t, seed, ops, seed%2 == 1); err != nil {
			t.Fatal(err)
		}
	})
}

// hangOne lets the disk of one of three nodes hang under load; leads: that of the node that leads the metadata. It says who
// leads that should not.
func hangOne(t *testing.T, seed uint64, ops []faultfs.Op, leads bool) error {
	t.Helper()
	c := NewCluster(t, seed)
	nodes := c.Form(3, fmt.Sprintf("kaja.disk.hang.timeout.ms=%d", hangTimeout.Milliseconds()), "min.insync.replicas=2")
	disks := newSickDisks(nodes)
	if err := c.StartAll(t.Context(), nodes...); err != nil {
		t.Fatal(err)
	}
	replicated(t, c, "t", 3, nil)
	whole(t, c, "t", time.Minute)
	sick := 0
	for (c.Controller(time.Minute) == nodes[sick]) != leads {
		sick++
	}
	id := wire.BrokerID(sick + 1)
	if !leadsAny(nodes[sick], "t", id) {
		t.Fatalf("broker %d leads nothing", id)
	}
	h := history.New()
	stop := sync.OnceFunc(load(t, c, h, 3))
	defer stop()
	time.Sleep(time.Second)

	release := disks.hang(sick, ops...)
	defer release()
	// The next call that hangs may be as late as the next checkpoint.
	const bound = hangTimeout + 1500*time.Millisecond + 2*time.Second + 5*time.Second
	began, healthy := time.Now(), nodes[(sick+1)%3]
	for leadsAny(healthy, "t", id) || leads && c.leadingBut(nodes[sick]) == nil {
		if time.Since(began) > bound {
			return fmt.Errorf("the disk has hung for %v: its node leads partitions: %v, another one the metadata: %v",
				bound, leadsAny(healthy, "t", id), c.leadingBut(nodes[sick]) != nil)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("given up after %v", time.Since(began))
	before := h.Acked()
	time.Sleep(time.Minute)
	if got := h.Acked() - before; got < 500 {
		t.Errorf("%d records were acknowledged while the disk hung for a minute", got)
	}
	release()
	whole(t, c, "t", time.Minute)
	stop()
	checkHistory(t, c, h, "t")
	for _, n := range nodes {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}
	sameLogs(t, nodes, "t", 3)
	return nil
}

// checkHistory reads a topic whole and holds it against what its writers were told.
func checkHistory(t *testing.T, c *Cluster, h *history.History, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	log, err := ReadTopic(ctx, c, "reader", topic)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(log); err != nil {
		t.Errorf("%s: %v", topic, err)
	}
}

// leadingBut is a node other than not that leads the metadata; nil for none.
func (c *Cluster) leadingBut(not *Node) *Node {
	for _, n := range c.nodes {
		if ctl := n.controller(); n != not && ctl != nil && ctl.Leading() {
			return n
		}
	}
	return nil
}

// Heartbeats wait for nothing that is slow: while the disk of a node does nothing, for three sessions but not for as long as
// it takes to call that a hang, nobody is fenced, whether it is the disk of the node that leads the metadata, which can then
// neither commit nor apply anything, or of another one.
func TestHeartbeatsWaitForNoDisk(t *testing.T) {
	if !locksMayWait {
		t.Skip("needs the tag sim: a disk hangs while locks are held")
	}
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3)
		disks := newSickDisks(nodes)
		if err := c.StartAll(t.Context(), nodes...); err != nil {
			t.Fatal(err)
		}
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", time.Minute)
		controller := c.Controller(time.Minute)
		stop := load(t, c, history.New(), 3)
		for i := range nodes {
			release := disks.hang(i, "")
			time.Sleep(5 * time.Second)
			release()
			time.Sleep(5 * time.Second)
		}
		stop()
		if said := c.Log.String(); strings.Contains(said, "fenced") {
			for line := range strings.Lines(said) {
				if strings.Contains(line, "fenced") {
					t.Error(line)
				}
			}
		}
		if now := c.Controller(time.Minute); now != controller {
			t.Errorf("%s leads the metadata, it was %s", now.Name(), controller.Name())
		}
	})
}
