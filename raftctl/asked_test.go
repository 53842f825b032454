package raftctl

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// Asked how far they are, once a second, are those that may be promoted, as ever, and besides them who tells it by no heartbeat while
// its node answers raft. Whom nobody would promote is not waited for, and is not asked again before it has answered.
func TestWhoIsAskedHowFarItIs(t *testing.T) {
	const (
		leader     = 1
		combined   = 2  // votes and has a broker
		alone      = 3  // votes and has none
		next       = 4  // the same, and may be promoted
		nextBroker = 5  // may be promoted and has a broker
		observer   = 6  // a broker only
		died       = 7  // as combined
		diedAlone  = 8  // as alone
		changed    = 9  // as combined before it was made a controller only
		hangs      = 10 // as alone
		older      = 11 // as alone, of a release that does not tell
		looks      = 10
		newRole    = 5 * time.Second // after which changed is one: contactAge and two sessions
		stillAlive = 2               // looks until the dead are not taken for alive any more
	)
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		asked := map[wire.BrokerID]int{}
		o := testOptions(memFS(), nil)
		o.SessionTimeout, o.Stable = 1500*time.Millisecond, 5*time.Second
		o.Status = func(_ context.Context, id peer.ID) (NodeStatus, error) {
			mu.Lock()
			asked[id.NodeID]++
			mu.Unlock()
			switch id.NodeID {
			case diedAlone:
				return NodeStatus{}, errors.New("nobody is there")
			case hangs:
				<-release
				return NodeStatus{}, errors.New("it was asked too late")
			case older:
				return NodeStatus{Applied: 1 << 40, Offset: wire.NoOffset}, nil
			}
			return NodeStatus{Applied: 1 << 40, Offset: wire.Offset(id.NodeID)}, nil
		}
		c := openTest(t, o)
		defer close(release)
		lives := map[wire.BrokerID]wire.BrokerEpoch{}
		for _, id := range []wire.BrokerID{leader, combined, nextBroker, observer, died, changed} {
			reg := registration(byte(id), wire.NoBrokerEpoch)
			reg.ID, reg.LogDirs = id, []wire.UUID{{0: 1, 14: byte(id), 15: 201}}
			epoch, err := c.RegisterBroker(t.Context(), reg)
			if err != nil {
				t.Fatal(err)
			}
			lives[id] = epoch
		}
		members := func() []candidate {
			var out []candidate
			for id := wire.BrokerID(leader); id <= older; id++ {
				m := candidate{Controller: id != observer, Leader: id == leader}
				m.ID, m.Voter = memberOf(id, 0), id != next && id != nextBroker && id != observer
				out = append(out, m)
			}
			return out
		}
		// alive has nodes answer raft, and brokers send heartbeats.
		alive := func(nodes, brokers []wire.BrokerID) {
			for _, id := range nodes {
				c.inject.heard.note(serverID(memberOf(id, 0)), time.Now(), time.Now())
			}
			for _, id := range brokers {
				c.beats.begin(life{id, lives[id]})
				c.beats.end(life{id, lives[id]})
			}
		}
		alive([]wire.BrokerID{died, diedAlone}, []wire.BrokerID{died})
		p := newPilot(c)
		for i := 1; i <= looks; i++ {
			<-time.After(pilotTick)
			alive([]wire.BrokerID{combined, alone, next, nextBroker, observer, changed, hangs, older}, []wire.BrokerID{leader, combined, nextBroker, observer})
			began, all := time.Now(), members()
			p.look(all)
			if d := time.Since(began); d != 0 {
				t.Errorf("look %d took %v", i, d)
			}
			for _, m := range all {
				// Caught up is who has what was committed at the look before: from the second on.
				want := (m.ID.NodeID == next || m.ID.NodeID == nextBroker) && i >= 2+int(o.Stable/pilotTick)
				if m.Stable != want {
					t.Errorf("look %d: node %d is stable %v, want %v", i, m.ID.NodeID, m.Stable, want)
				}
			}
			synctest.Wait()
		}
		want := map[wire.BrokerID]int{
			alone: looks, next: looks, nextBroker: looks, diedAlone: stillAlive, changed: looks - int(newRole/pilotTick), hangs: 1, older: looks,
		}
		if !maps.Equal(asked, want) {
			t.Errorf("asked how often: %v, want %v", asked, want)
		}
		for id := wire.BrokerID(leader); id <= older; id++ {
			told, ok := c.asked.Load().of(memberOf(id, 0))
			if want := id == alone || id == next || id == changed; ok != want || ok && (told.applied != wire.Offset(id) || !told.heard.Equal(time.Now())) {
				t.Errorf("node %d has told %+v (%v), want it to have told: %v", id, told, ok, want)
			}
		}
	})
}
