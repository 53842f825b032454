package sim

import (
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// silenceBound is the session of a broker, 1.5 s, its heartbeat's interval and some packets.
const silenceBound = 2 * time.Second

// A broker that falls silent is fenced when its session ends, also after a member was taken out of the quorum, however it went.
func TestSilentBrokerIsFencedAfterARemoval(t *testing.T) {
	for _, how := range []string{"stopped for long", "just stopped", "runs, then stops", "runs"} {
		t.Run(how, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				c, nodes, _ := threeBrokers(t, seed)
				fourth := c.Joiner(4, nodes)
				mustStart(t, fourth)
				time.Sleep(3 * time.Second)
				leader := c.Controller(time.Minute)
				switch how {
				case "stopped for long":
					fourth.Kill()
					time.Sleep(5 * time.Second)
				case "just stopped":
					fourth.Kill()
				}
				if err := leader.controller().UnregisterBroker(t.Context(), 4); err != nil {
					t.Fatal(err)
				}
				if how == "runs, then stops" {
					fourth.Kill()
				}
				time.Sleep(time.Second)
				silent := 1
				if nodes[0] == leader {
					silent = 2
				}
				c.Net.Isolate(nodes[silent-1].Name())
				if took := c.awaitFenced(t, wire.BrokerID(silent), true, time.Minute); took > silenceBound {
					t.Errorf("a silent broker was fenced after %v", took)
				}
			})
		})
	}
}

// The broker of a controller that fell silent is fenced as soon by a successor that has led before as by another: what that one has
// seen as a controller then is no pause of its process.
func TestSuccessorThatHasLedBefore(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, _, _ := threeBrokers(t, seed)
		for range 4 { // until each of the others has led, whom two handed to each other
			time.Sleep(5 * time.Second)
			c.Controller(time.Minute).controller().HandOver(t.Context())
		}
		time.Sleep(15 * time.Second)
		silent := c.Controller(time.Minute)
		id := wire.BrokerID(silent.Name()[1] - '0')
		silent.PowerOff(memfs.Keep, seed)
		if took := c.awaitFenced(t, id, true, time.Minute); took > 1750*time.Millisecond {
			t.Errorf("the broker of a former controller was fenced after %v", took)
		}
	})
}
