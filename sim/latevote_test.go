package sim

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
)

// A voter whose disk takes its time for the new term answers the controller before it votes for another one. The broker on the
// controller's node, cut off again after that, knows in time that it may have been replaced.
func TestVoterThatAnswersWhileItVotes(t *testing.T) {
	if !locksMayWait {
		t.Skip("a disk that takes time needs the tag sim")
	}
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3)
		var armed atomic.Pointer[func()]
		for _, n := range nodes {
			n.FaultyDisk(func(fs *faultfs.FS) {
				fs.Before(func(op faultfs.Op, name string) {
					if f := armed.Load(); f != nil && n == nodes[2] && (op == faultfs.OpSync || op == faultfs.OpSyncDir) {
						if armed.CompareAndSwap(f, nil) {
							(*f)()
						}
					}
				})
			})
		}
		sure := leadsAndCoordinates(t, c, nodes)
		old := nodes[0]
		cut := func(others ...*Node) {
			for _, n := range others {
				c.Net.Cut(old.Name(), n.Name())
			}
		}
		voting := func() {
			c.Net.Heal(old.Name(), nodes[2].Name())
			time.Sleep(300 * time.Millisecond)
			cut(nodes[2])
			c.Net.Cut(nodes[1].Name(), old.Name())
			c.Net.Cut(nodes[2].Name(), old.Name())
		}
		cut(nodes[2]) // who stands, and is refused, until the other one misses its leader, too
		time.Sleep(500 * time.Millisecond)
		armed.Store(&voting)
		cut(nodes[1])
		unsureOnceReplaced(t, 1, nodes[1:], 10*time.Second, sure)
	})
}
