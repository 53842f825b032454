package api

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

func withMinISR(n int) *log.Config {
	c := log.DefaultConfig()
	c.MinInSyncReplicas = n
	return c
}

// Three replicas hold the leader's bytes, and acks=all is answered when all of them have the record.
func TestReplicationCopiesTheLeadersBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 3, 1, 2, 3)
		for i := range 20 {
			c.nodes[1].produce("t", int32(i%3), values(300, 5))
		}
		time.Sleep(time.Second)
		for p, end := range []wire.Offset{35, 35, 30} {
			c.same("t", wire.PartitionID(p), end, 1, 2, 3)
			for id, n := range c.nodes {
				if o := n.part("t", wire.PartitionID(p)).Offsets(); o.HW != end {
					t.Errorf("node %d: high watermark of %d is %d, want %d", id, p, o.HW, end)
				}
			}
		}
		if lag := c.nodes[2].value("kaja_replica_fetch_max_lag_records"); lag != 0 {
			t.Errorf("lag %v", lag)
		}
		if n := c.nodes[2].value("kaja_replica_replicated_bytes_total"); n != float64(len(c.nodes[1].contents("t", 0, 99))*100/35) {
			t.Errorf("replicated %v bytes", n)
		}
	})
}

// acks=all waits for every member of the ISR; one that is silent leaves it after the lag time and returns when it has
// caught up. Below min.insync.replicas those who wait are told, and who comes later is refused (R16).
func TestISRShrinksAndGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.config["t"] = withMinISR(2)
		c.topic("t", 1, 1, 2, 3)
		c.nodes[1].produce("t", 0, values(10, 1))
		c.sever(1, 3)
		time.Sleep(time.Second)
		began := time.Now()
		c.nodes[1].produce("t", 0, values(10, 1)) // answered when 3 has left
		if took := time.Since(began); took < 8*time.Second || took > 16*time.Second {
			t.Errorf("the lagging replica held the record for %v", took)
		}
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2}) {
			t.Fatalf("isr %v", isr)
		}
		if n := c.nodes[1].value("kaja_replica_under_replicated"); n != 1 {
			t.Errorf("under-replicated %v", n)
		}
		c.heal(1, 3)
		time.Sleep(3 * time.Second)
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2, 3}) {
			t.Fatalf("isr after the heal %v", isr)
		}
		c.same("t", 0, 2, 1, 2, 3)
		c.sever(1, 3)
		c.sever(1, 2)
		time.Sleep(time.Second)
		waits := c.nodes[1].send(-1, "t", 0, values(10, 1))
		if code := waits.produced().ErrorCode; code != kerr.NotEnoughReplicasAfterAppend.Code {
			t.Errorf("who waited is told %d", code)
		}
		if code := c.nodes[1].send(-1, "t", 0, values(10, 1)).produced().ErrorCode; code != kerr.NotEnoughReplicas.Code {
			t.Errorf("who comes later is told %d", code)
		}
		if o := c.nodes[1].part("t", 0).Offsets(); o.HW != 2 || o.LEO != 3 {
			t.Errorf("high watermark %d and end %d", o.HW, o.LEO)
		}
		c.heal(1, 2)
		c.heal(1, 3)
		time.Sleep(3 * time.Second)
		c.same("t", 0, 3, 1, 2, 3)
		n := c.nodes[1]
		if s, e := n.value("kaja_replica_isr_shrinks_total"), n.value("kaja_replica_isr_expands_total"); s < 2 || e < 2 {
			t.Errorf("%v shrinks, %v expands", s, e)
		}
		if isr := c.isr("t"); len(isr) != 3 {
			t.Errorf("isr at the end %v", isr)
		}
	})
}

// What a leader has had changed counts once, whether the controller's answer tells it first, the image does, or only the image
// does. What the controller takes out on its own account does not count.
func TestISRChangesAreCounted(t *testing.T) {
	for name, way := range map[string]func(c *replCluster, held bool){
		"answer first": func(c *replCluster, held bool) {
			if held {
				c.nodes[1].hold()
			} else {
				c.nodes[1].release()
			}
		},
		"image first": func(c *replCluster, held bool) { c.lateAnswers.Store(held) },
		"image alone": func(c *replCluster, held bool) { c.loseAnswers.Store(held) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newReplCluster(t, 3)
				defer c.close()
				c.topic("t", 1, 1, 2, 3)
				c.nodes[1].produce("t", 0, values(10, 1))
				counts := func(what string, shrinks, expands float64, isr ...wire.BrokerID) {
					t.Helper()
					n := c.nodes[1]
					if s, e := n.value("kaja_replica_isr_shrinks_total"), n.value("kaja_replica_isr_expands_total"); s != shrinks || e != expands {
						t.Errorf("%s: %v shrinks, %v expands, want %v and %v", what, s, e, shrinks, expands)
					}
					if have := c.isr("t"); !slices.Equal(have, isr) {
						t.Errorf("%s: isr %v, want %v", what, have, isr)
					}
				}
				way(c, true)
				c.sever(1, 3)
				c.nodes[1].send(1, "t", 0, values(10, 1))
				time.Sleep(20 * time.Second)
				counts("lagging", 1, 0, 1, 2)
				way(c, false)
				time.Sleep(3 * time.Second)
				counts("told of it again", 1, 0, 1, 2)
				way(c, true)
				c.heal(1, 3)
				time.Sleep(3 * time.Second)
				counts("back", 1, 1, 1, 2, 3)
				way(c, false)
				time.Sleep(3 * time.Second)
				counts("told of it again", 1, 1, 1, 2, 3)
				c.change(&coordrec.PartitionChangeRecord{TopicID: kitTopicID("t"), Leader: coordrec.NoLeaderChange, ISR: []wire.BrokerID{1, 3},
					LeaderRecoveryState: coordrec.NoRecoveryChange})
				counts("taken out by the controller", 1, 1, 1, 3)
			})
		})
	}
}

// A new leader is known to its followers within moments although their fetches were parked there, and its first record is
// committed as fast.
func TestFollowersHurryToANewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("idle", 1, 2, 1, 3) // so that 1 and 3 have fetches parked at 2
		c.topic("t", 1, 1, 2, 3)
		c.nodes[2].produce("idle", 0, values(10, 1))
		c.nodes[1].produce("t", 0, values(10, 1))
		time.Sleep(10 * time.Second)
		for _, late := range []wire.BrokerID{0, 3, 2} { // who hears of the election later than the others
			time.Sleep(10*time.Second + 123*time.Millisecond)
			n := c.nodes[late]
			if n != nil {
				n.hold()
			}
			leader := wire.BrokerID(2)
			if late == 2 {
				leader = 1
			}
			c.elect("t", leader, 1, 2, 3)
			if n != nil {
				time.Sleep(5 * time.Millisecond)
				n.release()
			}
			began := time.Now()
			c.nodes[leader].produce("t", 0, values(10, 1))
			if took := time.Since(began); took > 60*time.Millisecond {
				t.Errorf("late %d: the first record after the election took %v", late, took)
			}
		}
	})
}

// A replica that led alone has records that nobody else has; the next leader writes others at their offsets. Byte for byte
// the same in the end, and the producer state is the new history's (KIP-101, R2, R17).
func TestDivergedReplicaTakesItsLeadersHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 1, 1, 2, 3)
		for i := range int32(3) {
			c.nodes[1].produce("t", 0, values(10, 1, byProducer(7, 0, i)))
		}
		c.nodes[1].hold()
		c.sever(1, 2)
		c.sever(1, 3)
		c.sever(1, 0)
		lost := c.nodes[1].send(1, "t", 0, values(50, 4, byProducer(7, 0, 3))).produced()
		if lost.ErrorCode != 0 || lost.BaseOffset != 3 {
			t.Fatalf("the old leader answers %d at %d", lost.ErrorCode, lost.BaseOffset)
		}
		stuck := c.nodes[1].send(-1, "t", 0, values(50, 4, byProducer(7, 0, 7)))
		c.elect("t", 2, 2, 3)
		for i := range int32(2) {
			c.nodes[2].produce("t", 0, values(20, 2, byProducer(7, 0, 3+2*i)))
		}
		time.Sleep(30 * time.Second)
		if stuck.answered() {
			t.Fatalf("the replaced leader answers %d", stuck.produced().ErrorCode) // R15
		}
		c.heal(1, 2)
		c.heal(1, 3)
		c.heal(1, 0)
		c.nodes[1].release()
		if code := stuck.produced().ErrorCode; code != kerr.NotLeaderForPartition.Code {
			t.Errorf("who waited at the replaced leader is told %d", code)
		}
		time.Sleep(3 * time.Second)
		c.same("t", 0, 7, 1, 2, 3)
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2, 3}) {
			t.Errorf("isr %v", isr)
		}
		if n := c.nodes[1].value("kaja_replica_truncations_total"); n != 1 {
			t.Errorf("%v truncations", n)
		}
		c.elect("t", 1, 1, 2, 3)
		if p := c.nodes[1].send(-1, "t", 0, values(20, 2, byProducer(7, 0, 5))).produced(); p.ErrorCode != 0 || p.BaseOffset != 5 {
			t.Errorf("a batch sent again is answered %d at %d, want the first append at 5", p.ErrorCode, p.BaseOffset)
		}
		if p := c.nodes[1].send(-1, "t", 0, values(20, 2, byProducer(7, 0, 8))).produced(); p.ErrorCode != kerr.OutOfOrderSequenceNumber.Code {
			t.Errorf("a batch after a gap is answered %d", p.ErrorCode)
		}
		c.nodes[1].produce("t", 0, values(20, 2, byProducer(7, 0, 7)))
		c.same("t", 0, 9, 1, 2, 3)
	})
}

// Files of another cluster hold leader epochs above the partition's: the next leadership starts above them, nothing is written
// under a lower one, and what is there is served and replicated on.
func TestLeadershipStartsAboveTheEpochsOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 1, 1, 2, 3)
		for range 3 {
			c.nodes[1].produce("t", 0, values(10, 2))
		}
		for _, n := range c.nodes {
			n.halt()
			n.age("/data/t-0", 40)
		}
		c.sever(1, 0)
		for _, n := range c.nodes {
			n.start()
		}
		synctest.Wait()
		if p := c.nodes[1].send(1, "t", 0, values(10, 1)).produced(); p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Errorf("before the controller has answered a produce is answered %d", p.ErrorCode)
		}
		c.heal(1, 0)
		time.Sleep(5 * time.Second)
		epoch := func() wire.LeaderEpoch {
			c.mu.Lock()
			defer c.mu.Unlock()
			p, _ := c.img.Partition("t", 0)
			return p.LeaderEpoch
		}
		if e := epoch(); e != 41 {
			t.Errorf("leader epoch %d, want 41", e)
		}
		if at := c.nodes[1].produce("t", 0, values(10, 1)); at != 6 {
			t.Errorf("the next record is at %d", at)
		}
		c.same("t", 0, 7, 1, 2, 3)
		c.elect("t", 2, 1, 2, 3)
		c.nodes[2].produce("t", 0, values(10, 1))
		if e := epoch(); e != 42 {
			t.Errorf("the next leader's epoch is %d, want 42", e)
		}
		c.same("t", 0, 8, 1, 2, 3)
		raw := c.nodes[2].contents("t", 0, 8)
		var got []wire.LeaderEpoch
		for len(raw) > 0 {
			b, rest, err := batch.Next(raw)
			if err != nil {
				t.Fatal(err)
			}
			got, raw = append(got, b.LeaderEpoch()), rest
		}
		if !slices.Equal(got, []wire.LeaderEpoch{40, 40, 40, 41, 42}) {
			t.Errorf("epochs of the stored batches: %v", got)
		}
	})
}

// An epoch that no elections count up to, in a checkpoint or in batches, is damage: it neither raises the partition's epoch nor
// keeps the leader from leading. The epochs are those of the batches then.
func TestDamagedEpochsRaiseNothing(t *testing.T) {
	for _, epoch := range []wire.LeaderEpoch{wire.MaxLogEpoch + 1, math.MaxInt32 - 1, math.MaxInt32} {
		for _, batches := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,batches=%v", epoch, batches), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newReplCluster(t, 3)
					defer c.close()
					c.topic("t", 1, 1, 2, 3)
					c.nodes[1].produce("t", 0, values(10, 2))
					for _, n := range c.nodes {
						n.halt()
					}
					if batches {
						c.nodes[1].age("/data/t-0", epoch)
					} else if err := vfs.WriteAtomic(c.nodes[1].fs, "/data/t-0/leader-epoch-checkpoint", fmt.Appendf(nil, "0\n1\n%d 0\n", epoch)); err != nil {
						t.Fatal(err)
					}
					for _, n := range c.nodes {
						n.start()
					}
					c.nodes[1].produce("t", 0, values(10, 1))
					c.same("t", 0, 3, 2, 3)
					before, _ := c.img.Partition("t", 0)
					c.elect("t", 2, 1, 2, 3)
					c.nodes[2].produce("t", 0, values(10, 1))
					c.same("t", 0, 4, 2, 3)
					if p, _ := c.img.Partition("t", 0); p.LeaderEpoch != before.LeaderEpoch+1 || before.LeaderEpoch > 10 {
						t.Errorf("leader epoch %d, then %d", before.LeaderEpoch, p.LeaderEpoch)
					}
				})
			})
		}
	}
}

// age gives the batches of a stopped node's partition another leader epoch, as files of another cluster have it.
func (n *replNode) age(dir string, epoch wire.LeaderEpoch) {
	n.c.t.Helper()
	names, err := n.fs.List(dir)
	if err != nil {
		n.c.t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		data, err := vfs.ReadFile(n.fs, dir+"/"+name)
		if err != nil {
			n.c.t.Fatal(err)
		}
		for rest := data; len(rest) > 0; {
			b, r, err := batch.Next(rest)
			if err != nil {
				n.c.t.Fatal(err)
			}
			b.SetLeaderEpoch(epoch)
			rest = r
		}
		err = errors.Join(vfs.WriteAtomic(n.fs, dir+"/"+name, data),
			vfs.WriteAtomic(n.fs, dir+"/leader-epoch-checkpoint", fmt.Appendf(nil, "0\n1\n%d 0\n", epoch)))
		if err != nil {
			n.c.t.Fatal(err)
		}
	}
}
