package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// progress is what DescribeQuorum tells of a member.
type progress struct {
	voter                bool
	end, heard, caughtUp int64 // offset; milliseconds
}

// unknown is a member that has not reported to the controller that leads now.
func unknown(voter bool) progress { return progress{voter, -1, -1, -1} }

// quorumAt asks a node for the quorum: the node that leads, the end of what is committed, and how far each member is.
func quorumAt(t *testing.T, cl *kgo.Client, node int) (leader int, end int64, members map[int]progress) {
	t.Helper()
	q := kmsg.NewPtrDescribeQuorumRequest()
	q.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	got := at(t, cl, node, q).(*kmsg.DescribeQuorumResponse)
	if got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("quorum at node %d: %+v", node, got)
	}
	p := got.Topics[0].Partitions[0]
	members = map[int]progress{}
	note := func(voter bool, states []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) {
		for _, s := range states {
			if _, twice := members[int(s.ReplicaID)]; twice {
				t.Errorf("member %d is there twice", s.ReplicaID)
			}
			members[int(s.ReplicaID)] = progress{voter, s.LogEndOffset, s.LastFetchTimestamp, s.LastCaughtUpTimestamp}
		}
	}
	note(true, p.CurrentVoters)
	note(false, p.Observers)
	return int(p.LeaderID), p.HighWatermark, members
}

// level wants all of the living to have everything that the controller has committed, and to have said so a moment ago; the first
// three nodes vote.
func level(t *testing.T, c *Cluster, cl *kgo.Client, by int, dead map[int]progress) (leader int, end int64, members map[int]progress) {
	t.Helper()
	time.Sleep(5 * time.Second) // nothing is decided any more
	before := time.Now().UnixMilli()
	leader, end, members = quorumAt(t, cl, by)
	after := time.Now().UnixMilli()
	ctl := c.nodes[leader-1].controller()
	if committed := int64(ctl.Image().Offset()) + 1; !ctl.Leading() || end != committed || len(members) != len(c.nodes) {
		t.Errorf("node %d leads and ends at %d, with %d members; it has committed up to %d", leader, end, len(members), committed)
	}
	for i, n := range c.nodes {
		id, m := i+1, members[i+1]
		if want, ok := dead[id]; ok {
			if m != want {
				t.Errorf("node %d is dead and told to be at %+v, want %+v", id, m, want)
			}
			continue
		}
		since := before - 500 // two heartbeats and a bit
		switch {
		case id == leader:
			since = before
		case n.apart:
			since = before - 1010 // it is asked once a second
		}
		if want := (progress{id <= 3, end, m.heard, m.heard}); m != want || m.heard < since || m.heard > after {
			t.Errorf("node %d is told to be at %+v at %d, want %+v", id, m, after, want)
		}
	}
	return leader, end, members
}

// decide has something written to the metadata.
func decide(t *testing.T, cl *kgo.Client, by int, topic string) {
	t.Helper()
	if got := at(t, cl, by, create(topic, 1)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Fatalf("%s at node %d: %v", topic, by, kerr.ErrorForCode(got.ErrorCode))
	}
}

// DescribeQuorum tells how far each member is, voters and the broker that only observes. Who is dead stays where it was last
// heard, and its lag grows. A controller that is new knows nothing of those who have not reported to it: -1, as in Kafka.
func TestQuorumTellsHowFarItsMembersAre(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed)
		mustStart(t, c.Joiner(4, nodes, append(slices.Clone(brokersOnly), "advertised.listeners=PLAINTEXT://n4:9092")...))
		nodes = c.nodes
		awaitMembers(t, c, "1* 2* 3* 4", time.Minute)
		level := func(by int, dead map[int]progress) (leader int, end int64, members map[int]progress) {
			t.Helper()
			return level(t, c, cl, by, dead)
		}
		leader, end, members := level(1, nil)
		voter := leader%3 + 1
		dead := map[int]progress{}
		for _, id := range []int{4, voter} { // the observer, and one that votes
			nodes[id-1].Kill()
			time.Sleep(time.Millisecond) // what was under way has arrived
			_, _, now := quorumAt(t, cl, leader)
			dead[id] = now[id]
			if was := members[id]; now[id].end != end || now[id].heard < was.heard || now[id].heard != now[id].caughtUp || now[id].voter != was.voter {
				t.Errorf("node %d was killed at %+v and is told to be at %+v", id, was, now[id])
			}
			decide(t, cl, leader, nodes[id-1].Name()+"-is-dead")
			_, later, next := level(leader, dead)
			if later <= end {
				t.Errorf("the metadata end at %d after a topic was made, at %d before", later, end)
			}
			end, members = later, next
		}

		mustStart(t, nodes[voter-1]) // another life of it, which reports
		delete(dead, voter)
		level(leader, dead)

		nodes[leader-1].Kill()
		if c.Controller(time.Minute) == nil {
			t.Fatal("nobody leads two of three")
		}
		by := 6 - leader - voter
		dead[leader], dead[4] = unknown(true), unknown(false)
		if next, _, _ := level(by, dead); next == leader {
			t.Errorf("node %d is dead and leads", leader)
		}
		mustStart(t, nodes[leader-1])
		mustStart(t, nodes[3])
		level(by, nil)
	})
}
