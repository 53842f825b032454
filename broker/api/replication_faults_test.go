package api

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// onFetched has f see every partition of every fetch between brokers before its follower does.
func (c *replCluster) onFetched(f func(from wire.BrokerID, topic wire.UUID, p *kmsg.FetchResponseTopicPartition)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spy = func(from, _ wire.BrokerID, _ kmsg.Request, resp kmsg.Response) {
		r, ok := resp.(*kmsg.FetchResponse)
		if !ok {
			return
		}
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions {
				f(from, r.Topics[i].TopicID, &r.Topics[i].Partitions[j])
			}
		}
	}
}

// A damaged batch, one of an impossible epoch and one at a wrong offset are never stored. The partition is tried again, and
// the others of the same leader are not slowed.
func TestFollowerStoresNoBadBatch(t *testing.T) {
	for name, spoil := range map[string]func(b batch.Batch){
		"checksum":    func(b batch.Batch) { b[len(b)-1] ^= 1 },
		"epoch ahead": func(b batch.Batch) { b.SetLeaderEpoch(9) },
		"epoch back":  func(b batch.Batch) { b.SetLeaderEpoch(-1) },
		"offset back": func(b batch.Batch) { b.SetBaseOffset(0) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newReplCluster(t, 2)
				defer c.close()
				c.topic("good", 1, 1, 2)
				c.topic("bad", 1, 1, 2)
				c.nodes[1].produce("bad", 0, values(10, 1))
				bad := kitTopicID("bad")
				var spoiled atomic.Int64
				var stop atomic.Bool
				c.onFetched(func(_ wire.BrokerID, topic wire.UUID, p *kmsg.FetchResponseTopicPartition) {
					if topic == bad && len(p.RecordBatches) > 0 && !stop.Load() {
						spoil(p.RecordBatches)
						spoiled.Add(1)
					}
				})
				time.Sleep(time.Second)
				before := c.nodes[2].value("kaja_replica_fetch_errors_total") // of the moments after the creation
				w := c.nodes[1].send(-1, "bad", 0, values(10, 1))
				for range 20 {
					began := time.Now()
					c.nodes[1].produce("good", 0, values(10, 1))
					if took := time.Since(began); took > 50*time.Millisecond {
						t.Errorf("a good partition waited %v", took)
					}
					time.Sleep(100 * time.Millisecond)
				}
				synctest.Wait()
				if o := c.nodes[2].part("bad", 0).Offsets(); o.LEO != 1 || w.answered() {
					t.Fatalf("follower's log ends at %d, answered %v", o.LEO, w.answered())
				}
				tried := spoiled.Load()
				if tried < 3 || tried > 9 {
					t.Errorf("tried %d times in two seconds", tried)
				}
				if n := c.nodes[2].value("kaja_replica_fetch_failing"); n != 1 {
					t.Errorf("%v partitions fail", n)
				}
				if n := c.nodes[2].value("kaja_replica_fetch_errors_total"); n-before != float64(tried) {
					t.Errorf("%v errors counted, want %d", n-before, tried)
				}
				stop.Store(true)
				if p := w.produced(); p.ErrorCode != 0 {
					t.Errorf("answered %d", p.ErrorCode)
				}
				c.same("bad", 0, 2, 1, 2)
			})
		})
	}
}

// R19: a follower whose end lies before its leader's log start goes on at that start, and a start within a batch is no
// obstacle. It joins the ISR when it has caught up.
func TestFollowerBehindTheLogStartBeginsAnew(t *testing.T) {
	for _, start := range []wire.Offset{6, 7} { // the start of a batch, and within one
		synctest.Test(t, func(t *testing.T) {
			c := newReplCluster(t, 3)
			defer c.close()
			c.topic("t", 1, 1, 2, 3)
			c.nodes[1].produce("t", 0, values(10, 2))
			c.nodes[3].halt()
			c.elect("t", 1, 1, 2)
			for range 3 {
				c.nodes[1].produce("t", 0, values(10, 2))
			}
			if _, err := c.nodes[1].part("t", 0).DeleteRecords(start); err != nil {
				t.Fatal(err)
			}
			c.nodes[1].produce("t", 0, values(10, 2))
			c.nodes[3].start()
			time.Sleep(5 * time.Second)
			for id, n := range c.nodes {
				o := n.part("t", 0).Offsets()
				if o.LogStart != start || o.LEO != 10 || o.HW != 10 {
					t.Errorf("start %d, node %d: %+v", start, id, o)
				}
			}
			if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2, 3}) {
				t.Errorf("isr %v", isr)
			}
			c.elect("t", 3, 1, 2, 3)
			c.nodes[3].produce("t", 0, values(10, 2))
			if !bytes.HasSuffix(c.nodes[1].contents("t", 0, 12), c.nodes[3].contents("t", 0, 12)) {
				t.Error("logs differ")
			}
			c.nodes[3].kill(memfs.Lose)
			c.elect("t", 1, 1, 2)
			c.nodes[3].start()
			time.Sleep(5 * time.Second)
			if o := c.nodes[3].part("t", 0).Offsets(); o.LogStart != start || o.LEO != 12 {
				t.Errorf("after a crash %+v", o)
			}
		})
	}
}

// A former leader has records that nobody else has, in batches of its own. Meanwhile the new leader's log start has moved into
// a batch (DeleteRecords). The former one cuts its log back to that offset, where its own batches end and the leader's do not,
// and still gets the leader's records and joins the ISR (seed 102345 of sim/loop).
func TestFormerLeaderIsCutBackIntoABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 1, 1, 2, 3)
		c.nodes[1].produce("t", 0, values(10, 2))
		time.Sleep(time.Second) // everybody has them
		c.sever(1, 2)
		c.sever(1, 3)
		c.elect("t", 1, 1)
		for range 5 {
			c.nodes[1].produce("t", 0, values(10, 1))
		}
		c.elect("t", 2, 2, 3)
		for range 3 {
			c.nodes[2].produce("t", 0, values(10, 2))
		}
		const start = 5 // the second record of a batch
		if _, err := c.nodes[2].part("t", 0).DeleteRecords(start); err != nil {
			t.Fatal(err)
		}
		c.nodes[2].produce("t", 0, values(10, 2))
		c.heal(1, 2)
		c.heal(1, 3)
		time.Sleep(5 * time.Second)
		for id, n := range c.nodes {
			if o := n.part("t", 0).Offsets(); o.LogStart != start || o.LEO != 10 || o.HW != 10 {
				t.Errorf("node %d: %+v", id, o)
			}
		}
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2, 3}) {
			t.Errorf("isr %v", isr)
		}
		c.elect("t", 1, 1, 2, 3)
		c.nodes[1].produce("t", 0, values(10, 2))
		time.Sleep(time.Second)
		if !bytes.HasSuffix(c.nodes[2].contents("t", 0, 12), c.nodes[1].contents("t", 0, 12)) {
			t.Error("logs differ")
		}
	})
}

// After an unclean election the leader's log may be shorter than a follower's high watermark: the follower cuts to it and
// says so (R22).
func TestFollowerCutsToAnUncleanLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 2)
		defer c.close()
		c.topic("t", 1, 1, 2)
		c.nodes[1].produce("t", 0, values(10, 1))
		c.sever(1, 2)
		c.elect("t", 1, 1)
		for range 5 {
			c.nodes[1].produce("t", 0, values(10, 1))
		}
		c.elect("t", 2, 2)
		c.heal(1, 2)
		time.Sleep(3 * time.Second)
		c.same("t", 0, 1, 1, 2)
		c.nodes[2].produce("t", 0, values(30, 1))
		c.same("t", 0, 2, 1, 2)
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2}) {
			t.Errorf("isr %v", isr)
		}
	})
}

// R6 (KIP-903): a follower that has lost what it had is not proposed for the ISR by what its former life had fetched, and a
// fetch of that life that arrives late is refused.
func TestAnEarlierLifeOfAFollowerCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 2)
		defer c.close()
		c.topic("t", 1, 1, 2)
		c.nodes[1].produce("t", 0, values(10, 1))
		before := wire.BrokerEpoch(c.nodes[2].epoch.Load())
		c.nodes[2].kill(memfs.Lose)
		c.elect("t", 1, 1) // the controller has seen the unclean stop
		c.sever(1, 2)
		c.nodes[2].start()
		time.Sleep(time.Second)
		part := c.nodes[1].part("t", 0)
		late := replica.FollowerFetch{Replica: 2, BrokerEpoch: before, LeaderEpoch: part.Offsets().LeaderEpoch, Offset: 1}
		if _, err := part.ReadAsFollower(late, replica.ReadOptions{LastFetchedEpoch: wire.NoLeaderEpoch, Max: 1 << 20}); err != nil {
			t.Fatal(err) // the partition cannot know yet; the request is refused as a whole
		}
		synctest.Wait()
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1}) {
			t.Fatalf("isr %v by a fetch of an earlier life", isr)
		}
		if err := c.nodes[1].m.CheckFollower(2, before); !errors.Is(err, kerr.StaleBrokerEpoch) {
			t.Errorf("the whole request is answered %v", err)
		}
		c.heal(1, 2)
		time.Sleep(3 * time.Second)
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2}) {
			t.Errorf("isr %v", isr)
		}
		c.same("t", 0, 1, 1, 2)
		if _, err := part.ReadAsFollower(late, replica.ReadOptions{LastFetchedEpoch: wire.NoLeaderEpoch, Max: 1 << 20}); !errors.Is(err, kerr.NotLeaderForPartition) {
			t.Errorf("a late fetch after one of the new life: %v", err)
		}
	})
}

// R11: the controller has taken a replica in and its answer was lost. Until the leader hears of it, nothing is committed
// without that replica, which may be elected next.
func TestLostAnswerHoldsTheHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 1, 1, 2, 3)
		c.nodes[1].produce("t", 0, values(10, 1))
		c.sever(1, 3)
		c.elect("t", 1, 1, 2)
		c.nodes[1].hold() // and hears of no image
		c.loseAnswers.Store(true)
		c.heal(1, 3)
		time.Sleep(time.Second)
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2, 3}) {
			t.Fatalf("the controller has %v", isr)
		}
		c.sever(1, 3)
		w := c.nodes[1].send(-1, "t", 0, values(10, 1))
		time.Sleep(5 * time.Second)
		if w.answered() {
			t.Fatalf("answered %d without a member of the ISR", w.produced().ErrorCode)
		}
		c.heal(1, 3)
		if code := w.produced().ErrorCode; code != 0 {
			t.Errorf("answered %d", code)
		}
		c.loseAnswers.Store(false)
		c.nodes[1].release()
		c.same("t", 0, 2, 1, 2, 3)
	})
}

// R11: the request for a larger ISR straggles, its repetition is refused because the replica was fenced meanwhile, and it
// arrives after that one has come back. It is void by then, and nothing waits for the replica that is away.
func TestStragglingProposalIsVoid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 1, 1, 2, 3)
		c.nodes[1].produce("t", 0, values(10, 1))
		c.sever(1, 3)
		c.elect("t", 1, 1, 2)
		c.straggle.Store(true)
		c.heal(1, 3)
		time.Sleep(time.Second)
		c.sever(1, 3)
		c.fence(3)
		c.straggle.Store(false)
		if w := c.nodes[1].send(-1, "t", 0, values(10, 1)); w.produced().ErrorCode != 0 {
			t.Errorf("answered %d", w.produced().ErrorCode)
		}
		c.unfence(3)
		late := c.arrive()
		if len(late) == 0 {
			t.Fatal("nothing was proposed")
		}
		for _, r := range late {
			if !errors.Is(r.Err, kerr.InvalidUpdateVersion) {
				t.Errorf("a copy that straggled is answered %v", r.Err)
			}
		}
		if isr, leo := c.isr("t"), c.nodes[3].part("t", 0).Offsets().LEO; slices.Contains(isr, 3) && leo < 2 {
			t.Errorf("the ISR is %v, and node 3 ends at %d", isr, leo)
		}
		c.heal(1, 3)
		time.Sleep(5 * time.Second)
		c.same("t", 0, 2, 1, 2, 3)
		if isr := c.isr("t"); !slices.Equal(isr, []wire.BrokerID{1, 2, 3}) {
			t.Errorf("in the end the ISR is %v", isr)
		}
	})
}

// kaja.fsync=always: a follower tells its leader of nothing that a power loss could take, so what is acknowledged survives
// one of every node.
func TestAlwaysFlushesBeforeTheNextFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.fsync = replica.FSyncAlways
		c.config["t"] = withMinISR(2)
		c.topic("t", 2, 1, 2, 3)
		for i := range int32(6) {
			c.nodes[1].produce("t", i%2, values(100, 3))
		}
		for _, n := range c.nodes {
			n.kill(memfs.Lose)
		}
		c.nodes[3].start()
		for p := range wire.PartitionID(2) {
			if leo := c.nodes[3].part("t", p).Offsets().LEO; leo != 9 {
				t.Errorf("partition %d ends at %d after the power loss, want 9", p, leo)
			}
		}
		c.nodes[1].start()
		c.nodes[2].start()
		c.nodes[1].produce("t", 0, values(100, 3))
		c.same("t", 0, 12, 1, 2, 3)
	})
}

// D14: ranges that were promised to a slow reader keep their bytes while the log is cut below them and written anew.
func TestSlowReaderSeesNoReplacedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 2)
		defer c.close()
		c.topic("t", 1, 1, 2)
		c.nodes[1].produce("t", 0, values(500, 2))
		c.sever(1, 2)
		c.nodes[1].hold()
		c.nodes[1].send(1, "t", 0, values(700, 5)).produced()
		part := c.nodes[1].part("t", 0)
		// A follower's fetch reaches beyond the high watermark.
		slow, err := part.ReadAsFollower(replica.FollowerFetch{Replica: 2, BrokerEpoch: wire.NoBrokerEpoch, LeaderEpoch: 0, Offset: 0},
			replica.ReadOptions{LastFetchedEpoch: wire.NoLeaderEpoch, Max: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		want := c.nodes[1].contents("t", 0, 7)
		c.elect("t", 2, 2)
		c.nodes[2].produce("t", 0, values(100, 9))
		c.nodes[1].release()
		c.heal(1, 2)
		time.Sleep(3 * time.Second)
		c.same("t", 0, 11, 1, 2)
		if bytes.HasPrefix(c.nodes[1].contents("t", 0, 11), want) {
			t.Fatal("nothing was replaced")
		}
		if got := flatten(t, slow.Segments); !bytes.Equal(got, want) {
			t.Errorf("the slow reader gets %d bytes that are not those it was promised", len(got))
		}
	})
}

// An idle follower of many partitions costs one small request for each wait.
func TestIdleFollowerAsksLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 2)
		defer c.close()
		c.topic("t", 2000, 1, 2)
		c.nodes[1].produce("t", 0, values(10, 1))
		time.Sleep(5 * time.Second)
		asked, size := c.asked.Load(), c.bytes.Load()
		time.Sleep(60 * time.Second)
		asked, size = c.asked.Load()-asked, c.bytes.Load()-size
		if asked < 119 || asked > 121 || size/asked > 100 {
			t.Errorf("%d requests of %d bytes in a minute, want 120 of less than 100", asked, size/asked)
		}
		c.nodes[1].produce("t", 1999, values(10, 1))
		if n := c.nodes[2].part("t", 1999).Offsets().LEO; n != 1 {
			t.Errorf("log ends at %d", n)
		}
	})
}

// Whoever claims to be a broker without the proof is closed, and a broker cannot claim to be another.
func TestStrangersDoNotFetchAsReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 2)
		defer c.close()
		c.topic("t", 1, 1, 2)
		for _, version := range []int16{11, 18} {
			msg := fetchOf(0, 1, 1<<20)
			msg.Version = version
			msg.ReplicaID, msg.ReplicaState.ID = 2, 2
			w := &dataReply{done: make(chan struct{})}
			c.nodes[1].fetch.handle(t.Context(), &server.Request{Key: 1, Version: version, Msg: msg, Conn: server.NewConn(1, "PLAINTEXT", nil, nil)}, w)
			if !w.drops {
				t.Errorf("version %d: a stranger is answered", version)
			}
			_, err := c.ask(t.Context(), c.nodes[2], 1, func() kmsg.Request { msg.ReplicaState.ID = 1; return msg }())
			if err == nil {
				t.Errorf("node 2 is answered as node 1")
			}
		}
	})
}

// A topic that is deleted while it is replicated goes from both, and its name can be used again.
func TestDeletedTopicIsReplicatedNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 2)
		defer c.close()
		c.config["t"] = log.DefaultConfig()
		c.topic("t", 1, 1, 2)
		c.nodes[1].produce("t", 0, values(10, 3))
		c.change(removeTopicRecord("t"))
		if _, ok := c.nodes[2].m.ByName("t", 0); ok {
			t.Fatal("the replica stays")
		}
		time.Sleep(2 * time.Second)
		if n := c.nodes[2].value("kaja_replica_fetch_failing"); n != 0 {
			t.Errorf("%v partitions are still tried", n)
		}
	})
}

// deleteRecords begins a DeleteRecords for partition 0 of a topic.
func (n *replNode) deleteRecords(topic string, to int64, timeout time.Duration) *dataReply {
	msg := kmsg.NewPtrDeleteRecordsRequest()
	msg.Version, msg.TimeoutMillis = 2, int32(timeout.Milliseconds())
	t, p := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	t.Topic, p.Offset = topic, to
	t.Partitions = append(t.Partitions, p)
	msg.Topics = append(msg.Topics, t)
	w := &dataReply{done: make(chan struct{})}
	h := &deleteRecords{images: n, parts: n.m}
	h.handle(n.c.t.Context(), &server.Request{Key: 21, Version: 2, Msg: msg, Conn: server.NewConn(1, "PLAINTEXT", nil, nil)}, w)
	return w
}

func (r *dataReply) deleted() kmsg.DeleteRecordsResponseTopicPartition {
	<-r.done
	return r.resp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
}

// A follower that can't write its log start down, its disk being full, does not say that it has moved: DeleteRecords waits for it, and
// is answered once there is space again (D12).
func TestDeleteRecordsWaitsForAFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 1, 1, 2, 3)
		for range 3 {
			c.nodes[1].produce("t", 0, values(10, 2))
		}
		time.Sleep(time.Second)
		c.nodes[3].faults.Add(faultfs.Rule{Op: faultfs.OpCreate, Path: "*log-start-offset-checkpoint*", Err: syscall.ENOSPC})
		w := c.nodes[1].deleteRecords("t", 4, time.Minute)
		time.Sleep(20 * time.Second)
		if w.answered() {
			t.Fatalf("answered with %+v while a replica could not write it down", w.deleted())
		}
		c.nodes[1].produce("t", 0, values(10, 1))
		c.nodes[3].faults.Clear()
		if p := w.deleted(); p.ErrorCode != 0 || p.LowWatermark != 4 {
			t.Errorf("error %d, low watermark %d", p.ErrorCode, p.LowWatermark)
		}
		after := c.nodes[3].fs.Crash(memfs.Lose, 3)
		if data, err := vfs.ReadFile(after, "/data/log-start-offset-checkpoint"); err != nil || !bytes.Contains(data, []byte("t 0 4\n")) {
			t.Errorf("after a power loss the follower's checkpoint is %q, %v", data, err)
		}
	})
}

// DeleteRecords is answered when every live replica has deleted: what is gone does not come back with another leader, after
// a power loss of that one either (D12).
func TestDeleteRecordsWaitsForEveryReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReplCluster(t, 3)
		defer c.close()
		c.topic("t", 1, 1, 2, 3)
		for range 3 {
			c.nodes[1].produce("t", 0, values(10, 2))
		}
		time.Sleep(time.Second)
		c.sever(1, 3)
		late := c.nodes[1].deleteRecords("t", 2, time.Second)
		if p := late.deleted(); p.ErrorCode != kerr.RequestTimedOut.Code || p.LowWatermark != -1 {
			t.Errorf("with a silent replica: error %d, low watermark %d", p.ErrorCode, p.LowWatermark)
		}
		w := c.nodes[1].deleteRecords("t", 4, time.Minute)
		time.Sleep(2 * time.Second)
		if w.answered() {
			t.Fatal("answered without a live replica")
		}
		c.heal(1, 3)
		if p := w.deleted(); p.ErrorCode != 0 || p.LowWatermark != 4 {
			t.Errorf("error %d, low watermark %d", p.ErrorCode, p.LowWatermark)
		}
		for _, id := range []wire.BrokerID{2, 3} {
			if o := c.nodes[id].part("t", 0).Offsets(); o.LogStart != 4 {
				t.Errorf("node %d starts at %d", id, o.LogStart)
			}
		}
		c.fence(3)
		if p := c.nodes[1].deleteRecords("t", -1, time.Minute).deleted(); p.ErrorCode != 0 || p.LowWatermark != 6 {
			t.Errorf("without the fenced replica: error %d, low watermark %d", p.ErrorCode, p.LowWatermark)
		}
		after := c.nodes[2].fs.Crash(memfs.Lose, 3)
		if data, err := vfs.ReadFile(after, "/data/log-start-offset-checkpoint"); err != nil || !bytes.Contains(data, []byte("t 0 6\n")) {
			t.Errorf("after a power loss the follower's checkpoint is %q, %v", data, err)
		}
		if p := c.nodes[1].deleteRecords("t", 99, time.Minute).deleted(); p.ErrorCode != kerr.OffsetOutOfRange.Code {
			t.Errorf("beyond the end: %d", p.ErrorCode)
		}
	})
}
