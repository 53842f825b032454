package sim

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A voter that has answered the controller a moment ago, and starts again at once, does not vote for another one before the controller's
// word has lapsed that rests on its answer: the broker on the controller's node, cut off then, knows in time that it may have been replaced.
func TestVoterThatStartsAgainKeepsItsWord(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3)
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
		cut := func(n *Node) {
			c.Net.Cut(old.Name(), n.Name())
			c.Net.Cut(n.Name(), old.Name())
		}
		cut(nodes[2]) // who stands soon, for the first time
		time.Sleep(500*time.Millisecond + time.Duration(seed%4)*50*time.Millisecond)
		nodes[1].Kill()
		cut(nodes[1])
		started := make(chan error, 1)
		go func() { started <- nodes[1].Start(t.Context()) }()
		fenced := func() bool {
			for _, n := range nodes[1:] {
				if k := n.controller(); k != nil {
					if b, ok := k.Image().Broker(1); ok && b.Fenced {
						return true
					}
				}
			}
			return false
		}
		for end := time.Now().Add(20 * time.Second); !fenced(); time.Sleep(time.Millisecond) {
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
		if err := <-started; err != nil {
			t.Error(err)
		}
	})
}
