package sim

import (
	"slices"
	"sync"
	"testing"
	"time"
)

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
