package sim

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/sim/history"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unregister has the cluster forget a broker, by a request to another node.
func unregister(t *testing.T, cl *kgo.Client, by, id int) {
	t.Helper()
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = int32(id)
	if got := at(t, cl, by, req).(*kmsg.UnregisterBrokerResponse); got.ErrorCode != 0 {
		t.Fatalf("unregister broker %d: %v", id, kerr.ErrorForCode(got.ErrorCode))
	}
}

// The cluster forgets a broker that has stopped, that was killed, or that runs and is then stopped or killed: its node leaves the
// quorum, and writing goes on. Started again on the disk that it has it registers anew, under another broker epoch, and follows
// without a vote until it is stable; it is the cluster's, and catches up (C11, C12).
func TestForgottenBrokerComesBack(t *testing.T) {
	for _, when := range []string{"stopped", "killed", "running, then stopped", "running, then killed", "cut off, then killed"} {
		t.Run(when, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				if seed > 1 && os.Getenv("KAJA_SIM_SEED") == "" {
					t.Skip("one seed is enough here: make sim SEED= N= runs more")
				}
				forgotten(t, seed, when)
			})
		})
	}
}

func forgotten(t *testing.T, seed uint64, when string) {
	c, nodes, cl := threeBrokers(t, seed, "min.insync.replicas=2")
	replicated(t, c, "t", 3, nil)
	whole(t, c, "t", 30*time.Second)
	h := history.New()
	stop := load(t, c, h, 2)
	time.Sleep(2 * time.Second)

	leader := c.Controller(time.Minute)
	id := slices.IndexFunc(nodes, func(n *Node) bool { return n != leader }) + 1
	gone, by := nodes[id-1], slices.Index(nodes, leader)+1
	cluster, dir, epoch := gone.broker.ClusterID(), gone.broker.DirectoryID(), c.registration(t, wire.BrokerID(id)).Epoch
	end := func(clean bool) {
		if !clean {
			gone.Kill()
		} else if err := gone.Stop(); err != nil {
			t.Error(err)
		}
	}
	switch when {
	case "stopped", "killed":
		end(when == "stopped")
		time.Sleep(3 * time.Second)
	case "cut off, then killed":
		for _, n := range nodes { // clients still reach it: they would look for the others there, and wait
			c.Net.Cut(gone.Name(), n.Name())
			c.Net.Cut(n.Name(), gone.Name())
		}
		time.Sleep(3 * time.Second)
	}
	unregister(t, cl, by, id)
	rest := fmt.Sprintf("%d* %d", by, 6-by-id)
	if by > 6-by-id {
		rest = fmt.Sprintf("%d %d*", 6-by-id, by)
	}
	awaitMembers(t, c, rest, time.Minute)
	if b, ok := c.Controller(time.Minute).controller().Image().Broker(wire.BrokerID(id)); ok {
		t.Fatalf("the forgotten broker is registered: %+v", b)
	}
	if gone.broker != nil {
		end(when == "running, then stopped")
	}
	c.Net.Rejoin(gone.Name())
	acked := h.Acked()
	time.Sleep(3 * time.Second)
	if h.Acked() == acked {
		t.Error("nothing is written without the forgotten broker")
	}

	mustStart(t, gone)
	if gone.broker.ClusterID() != cluster || gone.broker.DirectoryID() != dir {
		t.Errorf("it came back as %v of %s, it was %v of %s", gone.broker.DirectoryID(), gone.broker.ClusterID(), dir, cluster)
	}
	if b := c.registration(t, wire.BrokerID(id)); b.Epoch <= epoch || b.Fenced {
		t.Errorf("it came back as %+v, its epoch was %d", b, epoch)
	}
	if err := becomeMembers(t, c, strings.TrimSpace(strings.Replace(" 1 2 3", fmt.Sprintf(" %d", by), fmt.Sprintf(" %d*", by), 1)), time.Second); err != nil {
		t.Error(err)
	}
	whole(t, c, "t", time.Minute)
	awaitMembers(t, c, "1* 2* 3*", time.Minute)
	leader.Kill()
	if c.Controller(10*time.Second) == nil {
		t.Fatal("the node that came back does not count")
	}
	time.Sleep(3 * time.Second)
	mustStart(t, leader)
	whole(t, c, "t", time.Minute)
	stop()
	time.Sleep(2 * time.Second)
	sameLogs(t, nodes, "t", 3)
	checkHistory(t, c, h, "t")
}

// The broker of the node that leads the metadata is forgotten: others lead its partitions, while the node goes on leading the
// metadata and keeps its vote. Started again it registers anew.
func TestForgottenBrokerOfTheController(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed, "min.insync.replicas=2")
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", 30*time.Second)
		leader := c.Controller(time.Minute)
		id := slices.Index(nodes, leader) + 1
		epoch := c.registration(t, wire.BrokerID(id)).Epoch
		unregister(t, cl, id%3+1, id)
		time.Sleep(5 * time.Second)
		img := c.Controller(time.Minute).controller().Image()
		if b, ok := img.Broker(wire.BrokerID(id)); ok || c.Controller(time.Minute) != leader {
			t.Fatalf("the broker is registered as %+v; its node leads: %v", b, c.Controller(time.Minute) == leader)
		}
		for i := range wire.PartitionID(3) {
			if p, _ := img.Partition("t", i); p.Leader == wire.BrokerID(id) || p.Leader == wire.NoBroker {
				t.Errorf("t-%d is led by %d", i, p.Leader)
			}
		}
		awaitMembers(t, c, "1* 2* 3*", time.Second)
		leader.Kill()
		mustStart(t, leader)
		if b := c.registration(t, wire.BrokerID(id)); b.Epoch <= epoch || b.Fenced {
			t.Errorf("it came back as %+v, its epoch was %d", b, epoch)
		}
		whole(t, c, "t", time.Minute)
		awaitMembers(t, c, "1* 2* 3*", time.Second)
	})
}

// newLeader adds a fourth member to a quorum and gives it a vote, and it takes over from the leader, which alone of the others
// is left.
func newLeader(t *testing.T, q *Quorum) *Member {
	t.Helper()
	leader, fresh := q.Leader(time.Minute), q.Add(4, 0)
	if err := errors.Join(fresh.Begin(t.Context()), leader.Controller().AddNode(t.Context(), fresh.ID)); err != nil {
		t.Fatal(err)
	}
	await(t, fresh)
	if err := leader.Controller().Promote(t.Context(), fresh.ID); err != nil {
		t.Fatal(err)
	}
	for _, m := range q.members {
		if m != leader && m != fresh && m.run.Load() != nil { // it would take the leadership
			if err := leader.Controller().RemoveNode(t.Context(), m.ID); err != nil {
				t.Fatal(err)
			}
			m.Kill()
		}
	}
	leader.Controller().HandOver(t.Context())
	for end := time.Now().Add(time.Minute); !fresh.Controller().Leading(); time.Sleep(time.Millisecond) { // the old one may not know yet that it leads no more
		if time.Now().After(end) {
			t.Fatal("the new member does not lead")
		}
	}
	return fresh
}

// A member that was away while a node was added which leads now follows that node, although it has never heard of it.
func TestMemberFollowsALeaderThatItHasNeverKnown(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		members := found(t, q, 3)
		away := members[int(q.Leader(time.Minute).ID.NodeID)%3]
		away.Kill()
		newLeader(t, q)
		comesBack(t, q, away)
		converged(t, q)
	})
}

// A member that was taken out of the quorum, and has heard so or has not, is started again while a node leads that it has never
// known. It neither leads nor has metadata before it is added; then it follows without a vote, and may be given one.
func TestRemovedMemberIsAddedAgain(t *testing.T) {
	for _, heard := range []bool{true, false} {
		t.Run(fmt.Sprint("heard=", heard), func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				q := NewQuorum(t, seed)
				members := found(t, q, 3)
				leader := q.Leader(time.Minute)
				out := members[int(leader.ID.NodeID)%3]
				if !heard {
					out.Kill()
				}
				if err := leader.Controller().RemoveNode(t.Context(), out.ID); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if heard {
					out.Kill()
				}
				leader = newLeader(t, q)
				if err := out.Begin(t.Context()); err != nil {
					t.Fatal(err)
				}
				before := leader.Controller().Image().ControllerEpoch()
				for range 100 {
					time.Sleep(100 * time.Millisecond)
					if out.Controller().Leading() || out.Controller().Image().ControllerEpoch() != 0 {
						t.Fatal("a node that nobody added takes part")
					}
				}
				if now := leader.Controller().Image().ControllerEpoch(); now != before || !leader.Controller().Leading() {
					t.Errorf("it has disturbed the controller of epoch %d, which is %d now", before, now)
				}
				if err := leader.Controller().AddNode(t.Context(), out.ID); err != nil {
					t.Fatal(err)
				}
				await(t, out)
				if votes(t, leader, out) {
					t.Error("it votes as soon as it is added")
				}
				converged(t, q)
				if err := leader.Controller().Promote(t.Context(), out.ID); err != nil {
					t.Fatal(err)
				}
				if err := createOn(t.Context(), leader, "afterwards"); err != nil {
					t.Fatal(err)
				}
				converged(t, q)
			})
		})
	}
}
