package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A node that is started again is among the brokers of its first answer, however soon that is asked for: a client that knows no
// other would be left with nobody to ask (librdkafka forgets the brokers that an answer lacks).
func TestFirstAnswerNamesItsNode(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint("nodes=", size), func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				c := NewCluster(t, seed)
				nodes := c.Form(size)
				if err := c.StartAll(t.Context(), nodes...); err != nil {
					t.Fatal(err)
				}
				n := nodes[0]
				for range 5 {
					n.Kill()
					up := make(chan error, 1)
					go func() { up <- n.Start(t.Context()) }()
					first := c.firstMetadata(t, n)
					if !slices.ContainsFunc(first.Brokers, func(b kmsg.MetadataResponseBroker) bool { return b.NodeID == 1 }) {
						t.Errorf("the first answer names %d brokers, and not the node that gave it", len(first.Brokers))
					}
					if err := <-up; err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// firstMetadata asks n, and nobody else, until it answers.
func (c *Cluster) firstMetadata(t *testing.T, n *Node) *kmsg.MetadataResponse {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cl, err := c.Client("asker", kgo.SeedBrokers(n.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for {
		resp, err := cl.SeedBrokers()[0].Request(ctx, kmsg.NewPtrMetadataRequest())
		if err == nil {
			return resp.(*kmsg.MetadataResponse)
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}
