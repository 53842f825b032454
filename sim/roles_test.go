package sim

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// DescribeQuorum tells how far nodes are that are controllers only, and send no heartbeats: three that vote, and one that does not.
// The rules are those of brokers: who is dead stays where it was, a new controller knows nothing of whom it has not heard, and a
// node whose disk was wiped is another member.
func TestQuorumTellsHowFarControllersAre(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		controllers, brokers := c.Apart(3)
		if err := c.StartAll(t.Context(), slices.Concat(controllers, brokers)...); err != nil {
			t.Fatal(err)
		}
		spare := c.Joiner(7, controllers, controllersOnly...)
		spare.apart = true
		mustStart(t, spare)
		const all, by = "1* 2* 3* 4 5 6 7", 4
		awaitMembers(t, c, all, time.Minute)
		cl, err := c.Client("client")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)

		leader, end, members := level(t, c, cl, by, nil)
		voter := leader%3 + 1
		dead := map[int]progress{}
		for _, id := range []int{7, voter} {
			c.nodes[id-1].Kill()
			time.Sleep(time.Millisecond) // what was under way has arrived
			_, _, now := quorumAt(t, cl, by)
			dead[id] = now[id]
			if was := members[id]; now[id].end != end || now[id].heard < was.heard || now[id].heard != now[id].caughtUp || now[id].voter != was.voter {
				t.Errorf("node %d was killed at %+v and is told to be at %+v", id, was, now[id])
			}
			decide(t, cl, by, c.nodes[id-1].Name()+"-is-dead")
			_, later, next := level(t, c, cl, by, dead)
			if later <= end {
				t.Errorf("the metadata end at %d after a topic was made, at %d before", later, end)
			}
			end, members = later, next
		}
		mustStart(t, c.nodes[voter-1])
		delete(dead, voter)
		level(t, c, cl, by, dead)

		c.nodes[leader-1].Kill()
		if c.Controller(time.Minute) == nil {
			t.Fatal("nobody leads two of three")
		}
		dead[leader], dead[7] = unknown(true), unknown(false)
		next, _, _ := level(t, c, cl, by, dead)
		if next == leader {
			t.Errorf("node %d is dead and leads", leader)
		}

		died := time.Now()
		c.nodes[leader-1].wipe()
		mustStart(t, c.nodes[leader-1])
		mustStart(t, spare)
		time.Sleep(3 * time.Second) // it is asked, and has no vote yet
		q, err := c.nodes[next-1].controller().Quorum(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lives := map[bool]int{}
		for _, m := range q.Members {
			if int(m.ID.NodeID) != leader {
				continue
			}
			lives[m.Voter]++
			if m.Voter && (m.End != -1 || !m.Heard.IsZero() || !m.CaughtUp.IsZero()) || !m.Voter && (m.End != q.End || m.Heard.Before(died) || m.CaughtUp.Before(died)) {
				t.Errorf("the wiped node %d is told to be at %+v of %d", leader, m, q.End)
			}
		}
		if lives[true] != 1 || lives[false] != 1 {
			t.Errorf("the wiped node %d has votes and none: %v", leader, lives)
		}
		awaitMembers(t, c, all, time.Minute)
		level(t, c, cl, by, nil)
	})
}

// Controllers on three nodes and brokers on three others: any one of the six is killed, stopped or without power at a time, under
// transactions of both versions. What was told is what is there, a broker never votes, and in the end the replicas are equal.
func TestRolesApart(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		controllers, brokers := c.Apart(3, append([]string{"transaction.state.log.replication.factor=3", "transaction.state.log.min.isr=2",
			"offsets.topic.replication.factor=3", "min.insync.replicas=2"}, eosSettings...)...)
		all := slices.Concat(controllers, brokers)
		if err := c.StartAll(t.Context(), all...); err != nil {
			t.Fatal(err)
		}
		for _, from := range all {
			for _, to := range all {
				if from != to {
					c.Net.Slow(from.Name(), to.Name(), eosLink)
				}
			}
		}
		load := eosLoad(c, seed, eosRecords(t, 12_000))
		load.Replication, load.Patience = 3, 3*time.Minute
		until := time.Now().Add(time.Minute)
		for err := load.Create(t.Context()); err != nil; err = load.Create(t.Context()) { // until every broker can be placed on
			if time.Now().After(until) {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		faults := 0
		wg.Go(func() { faults = disturbOne(t, c, all, seed, done) })
		h := load.Run(t.Context())
		close(done)
		wg.Wait()
		if err := load.Check(t.Context(), h); err != nil {
			t.Error(err)
		}
		awaitMembers(t, c, "1* 2* 3* 4 5 6", time.Minute)
		for topic, partitions := range load.Topics {
			whole(t, c, topic, time.Minute)
			time.Sleep(2 * time.Second)
			sameLogs(t, brokers, topic, int(partitions))
		}
		t.Logf("%d faults, %+v", faults, h.Counts())
	})
}
