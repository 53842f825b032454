package sim

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
		if err := c.StartAll(t.Context(), nodes...); err != nil {
			t.Fatal(err)
		}
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", 30*time.Second)
		cl, err := c.Client("asker", kgo.RetryTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		old := c.Controller(time.Minute)
		if old != nodes[0] {
			t.Skip("another node leads the metadata")
		}
		group := coordinatedBy(t, cl, 0, 1)
		sure := func() bool {
			r := kmsg.NewPtrOffsetFetchRequest()
			r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group}}
			return at(t, cl, 1, r).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode == 0
		}
		time.Sleep(5 * time.Second)
		if !sure() {
			t.Fatal("a coordinator that nobody cuts off tells no offsets")
		}
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
		fenced := func() bool {
			for _, n := range nodes[1:] {
				if b, ok := n.controller().Image().Broker(1); ok && b.Fenced {
					return true
				}
			}
			return false
		}
		for end := time.Now().Add(10 * time.Second); !fenced(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("nobody has replaced the broker")
			}
		}
		since, wrong := time.Now(), time.Duration(0)
		for time.Since(since) < 2*time.Second {
			if sure() {
				wrong = time.Since(since)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if wrong > 0 {
			t.Errorf("it still tells offsets %v after it was replaced", wrong)
		}
	})
}
