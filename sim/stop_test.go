package sim

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An active controller that stops, and takes long over the flush of its logs, fences nobody meanwhile: it has given the role
// away before it ceases to read heartbeats.
func TestStoppingControllerFencesNobody(t *testing.T) {
	if !locksMayWait {
		t.Skip("a sync that takes time needs the tag sim")
	}
	const flush = 5 * time.Second // several sessions
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3)
		slow := make([]atomic.Bool, len(nodes))
		var slept atomic.Int64
		for i, n := range nodes {
			n.FaultyDisk(func(fs *faultfs.FS) {
				fs.Before(func(op faultfs.Op, name string) {
					if op == faultfs.OpSync && strings.HasSuffix(name, ".log") && slow[i].CompareAndSwap(true, false) {
						slept.Add(1)
						time.Sleep(flush)
					}
				})
			})
		}
		if err := c.StartAll(t.Context(), nodes...); err != nil {
			t.Fatal(err)
		}
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", time.Minute)
		cl, err := c.Client("client", kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for p := range int32(3) {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		stopped := c.Controller(time.Minute)
		var others []*Node
		for i, n := range nodes {
			if n == stopped {
				slow[i].Store(true)
			} else {
				others = append(others, n)
			}
		}
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- stopped.Stop() }()
		for stopping := true; stopping; {
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
				stopping = false
			case <-time.After(time.Millisecond):
			}
			for _, n := range others {
				for _, m := range others {
					id := wire.BrokerID(m.Name()[1] - '0')
					if b, ok := n.Broker().Image().Broker(id); !ok || b.Fenced {
						t.Fatalf("%v after %s was told to stop, broker %d is fenced at %s", time.Since(began), stopped.Name(), id, n.Name())
					}
				}
			}
		}
		if took := time.Since(began); slept.Load() != 1 || took < flush {
			t.Fatalf("the stop took %v with %d slow syncs: it shows nothing", took, slept.Load())
		}
	})
}
