package sim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// heardWithin bounds, in virtual time, what a broken connection costs a node in knowing what was committed: new connections and a
// few more tries, and not raft's own next word, a second later.
const heardWithin = 300 * time.Millisecond

// A node whose connections to the controller break while something is committed knows of it as soon as it can be reached again.
func TestBrokenConnectionDelaysNoMetadata(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed)
		time.Sleep(3 * time.Second)
		controller := c.Controller(time.Minute)
		id := slices.Index(nodes, controller) + 1
		for round := range 20 {
			topic := fmt.Sprint("topic-", round)
			created := make(chan error, 1)
			go func() {
				resp, err := cl.Broker(id).Request(t.Context(), create(topic, 1))
				if err == nil {
					err = kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
				}
				created <- err
			}()
			for i := range 20 { // before, while and after it is decided, written and told
				time.Sleep(time.Duration(round*50+i*100) * time.Microsecond)
				for _, n := range nodes {
					if n != controller {
						c.Net.Reset(controller.Name(), n.Name())
					}
				}
			}
			reset := time.Now()
			if err := <-created; err != nil {
				t.Fatalf("%s: %v", topic, err)
			}
			for _, n := range nodes {
				for {
					if _, knows := n.broker.Image().Topic(topic); knows {
						break
					}
					if time.Since(reset) > time.Minute {
						t.Fatalf("%s does not know %s", n.Name(), topic)
					}
					time.Sleep(time.Millisecond)
				}
			}
			if took := time.Since(reset); took > heardWithin {
				t.Errorf("%s is known everywhere after %v", topic, took)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}
