package sim

import (
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/sim/history"
	"github.com/kajamq/kaja/wire"
)

// A process is killed while it registers, and its successor registers and serves. Then the controller changes, and only now is the
// dead one's registration read: it fences the successor, whose epoch it replaces. The successor comes back by itself under
// another epoch, and nothing is lost.
func TestRegistrationOfADeadProcessIsReadLate(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, _ := threeBrokers(t, seed, "min.insync.replicas=2")
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", 30*time.Second)
		h := history.New()
		stop := load(t, c, h, 2)
		time.Sleep(time.Second)
		for id := wire.BrokerID(1); id <= 3; id++ {
			before := c.registration(t, id)
			leader := c.Controller(time.Minute)
			late := raftctl.Registration{ID: id, Incarnation: wire.UUID{0: 0x40, 15: byte(id)}, Endpoints: before.Endpoints, Features: api.BrokerFeatures(),
				LogDirs: before.LogDirs, PreviousEpoch: wire.NoBrokerEpoch}
			if _, err := leader.controller().RegisterBroker(t.Context(), late); err != nil {
				t.Fatal(err)
			}
			took := c.awaitFenced(t, id, false, 10*time.Second)
			after := c.registration(t, id)
			if after.Incarnation == late.Incarnation || after.Incarnation == before.Incarnation || after.Epoch <= before.Epoch {
				t.Fatalf("the broker came back as %+v, it was %+v", after, before)
			}
			if took > 4*time.Second {
				t.Errorf("broker %d was back after %v", id, took)
			}
			whole(t, c, "t", time.Minute)
		}
		stop()
		time.Sleep(2 * time.Second)
		sameLogs(t, nodes, "t", 3)
		checkHistory(t, c, h, "t")
		for _, n := range nodes { // each writes down the epoch that it has now, so that its next start is a clean one
			if err := n.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
}
