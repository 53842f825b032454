package sim

import (
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leadsAndCoordinates starts three nodes of which the first leads the metadata, and coordinates a group; sure reports whether it tells
// the group's offsets, which it does. Where another node leads, the test is skipped.
func leadsAndCoordinates(t *testing.T, c *Cluster, nodes []*Node) (sure func() bool) {
	t.Helper()
	if err := c.StartAll(t.Context(), nodes...); err != nil {
		t.Fatal(err)
	}
	replicated(t, c, "t", 3, nil)
	whole(t, c, "t", 30*time.Second)
	cl, err := c.Client("asker", kgo.RetryTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if c.Controller(time.Minute) != nodes[0] {
		t.Skip("another node leads the metadata")
	}
	sure = tellsOffsets(t, cl, 1, coordinatedBy(t, cl, 0, 1))
	time.Sleep(5 * time.Second)
	if !sure() {
		t.Fatal("a coordinator that nobody cuts off tells no offsets")
	}
	return sure
}

// tellsOffsets gives a function that asks a node for a group's offsets, and reports whether it tells them.
func tellsOffsets(t *testing.T, cl *kgo.Client, node int, group string) func() bool {
	return func() bool {
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Groups = []kmsg.OffsetFetchRequestGroup{{Group: group}}
		return at(t, cl, node, r).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode == 0
	}
}

// unsureOnceReplaced waits until one of the others shows the broker fenced, and fails if that tells offsets after it.
func unsureOnceReplaced(t *testing.T, id wire.BrokerID, others []*Node, within time.Duration, sure func() bool) {
	t.Helper()
	fenced := func() bool {
		for _, n := range others {
			if k := n.controller(); k != nil {
				if b, ok := k.Image().Broker(id); ok && b.Fenced {
					return true
				}
			}
		}
		return false
	}
	for end := time.Now().Add(within); !fenced(); time.Sleep(time.Millisecond) {
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
}
