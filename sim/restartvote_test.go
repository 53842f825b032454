package sim

import (
	"testing"
	"time"
)

// A voter that has answered the controller a moment ago, and starts again at once, does not vote for another one before the controller's
// word has lapsed that rests on its answer: the broker on the controller's node, cut off then, knows in time that it may have been replaced.
func TestVoterThatStartsAgainKeepsItsWord(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3)
		sure := leadsAndCoordinates(t, c, nodes)
		old := nodes[0]
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
		unsureOnceReplaced(t, 1, nodes[1:], 20*time.Second, sure)
		if err := <-started; err != nil {
			t.Error(err)
		}
	})
}
