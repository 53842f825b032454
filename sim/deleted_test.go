package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/sim/history"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topics are deleted, and one is made again under the same name, while a node is down that follows or leads them. What that node
// comes back with of the old ones is set aside and goes; nothing of it is served, nor does it get into the new topic; the
// directory of a topic that lives stays what it is (R21).
func TestTopicsDeletedWhileANodeIsDown(t *testing.T) {
	for _, role := range []string{"follower", "leader"} {
		t.Run(role, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) { deletedMeanwhile(t, seed, role == "leader") })
		})
	}
}

func deletedMeanwhile(t *testing.T, seed uint64, leads bool) {
	c, nodes, cl := threeBrokers(t, seed)
	for _, topic := range []string{"t", "gone", "stays"} {
		replicated(t, c, topic, 1, nil)
		whole(t, c, topic, time.Minute)
	}
	old, kept := history.New(), history.New()
	for range 2 { // what they write is in the same offsets as what comes later
		write(t, c, old, "t", time.Second)
		write(t, c, old, "gone", time.Second)
		write(t, c, kept, "stays", time.Second)
	}
	was := map[string]wire.UUID{}
	for _, topic := range []string{"t", "gone", "stays"} {
		was[topic] = idOf(t, c, topic)
	}
	rng := rand.New(rand.NewPCG(seed, 0x64656c))
	down := downNode(t, c, nodes, leads)
	if rng.IntN(2) == 0 {
		down.Kill()
	} else if err := down.Stop(); err != nil {
		t.Error(err)
	}
	before := logOf(t, down.Disk(), "stays", 0)
	time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond) // it may not be fenced yet
	deleteTopics(t, c, "t", "gone")
	time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
	createEverywhere(t, c, "t", was["t"])
	now := idOf(t, c, "t")
	fresh := history.New()
	write(t, c, fresh, "t", 2*time.Second)

	mustStart(t, down)
	if seed%2 == 0 { // it dies while it sets aside, or just after
		time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		down.Kill()
		mustStart(t, down)
	}
	aside := 0
	for dir, id := range partitionDirs(t, down) {
		switch id {
		case was["t"], was["gone"]:
			if !strings.HasSuffix(dir, "-delete") {
				t.Errorf("%s of a deleted topic is in use", dir)
			}
			aside++
		case now, was["stays"]:
			if strings.Contains(dir, ".") {
				t.Errorf("%s of a topic that lives is set aside", dir)
			}
		}
	}
	if aside != 2 {
		t.Errorf("%d directories of deleted topics are set aside, want 2", aside)
	}
	if after := logOf(t, down.Disk(), "stays", 0); !bytes.HasPrefix(after, before) {
		t.Error("the log of the topic that lives is not what it was")
	}
	for id := 1; id <= len(nodes); id++ {
		unknownTopic(t, cl, id, was["t"])
		unknownTopic(t, cl, id, was["gone"])
	}
	whole(t, c, "t", time.Minute)
	whole(t, c, "stays", time.Minute)
	if dirs := partitionDirs(t, down); dirs["t-0"] != now || dirs["stays-0"] != was["stays"] {
		t.Errorf("the directories are %v, want t-0 of %v and stays-0 of %v", dirs, now, was["stays"])
	}
	write(t, c, fresh, "t", time.Second)
	write(t, c, kept, "stays", time.Second)
	time.Sleep(2 * time.Second)
	sameLogs(t, nodes, "t", 1)
	sameLogs(t, nodes, "stays", 1)
	for topic, h := range map[string]*history.History{"t": fresh, "stays": kept} {
		checkHistory(t, c, h, topic)
	}
	time.Sleep(65 * time.Second) // file.delete.delay.ms, and what heartbeats take
	for _, n := range nodes {
		if dirs := partitionDirs(t, n); len(dirs) != 2 {
			t.Errorf("node %s has the directories %v", n.Name(), dirs)
		}
		for id := range n.Broker().Image().Removed() {
			t.Errorf("node %s still waits for the directories of topic %v", n.Name(), id)
		}
	}
}

// write has a producer write to a topic for a while. Each writer's records are told apart.
func write(t *testing.T, c *Cluster, h *history.History, topic string, d time.Duration) {
	t.Helper()
	name := fmt.Sprintf("writer-%d", time.Now().UnixMilli())
	cl, err := c.Client(name, kgo.ProducerLinger(0), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	before := h.Acked()
	if err := h.Produce(ctx, cl, topic, name, 20*time.Millisecond); err != nil {
		t.Error(err)
	}
	if h.Acked() == before || h.Failed() > 0 {
		t.Errorf("%s: acknowledged %d more, given up %q", topic, h.Acked()-before, h.Failures(3))
	}
}

// downNode is the node that is to be down: the one that leads t-0, or one that follows it.
func downNode(t *testing.T, c *Cluster, nodes []*Node, leads bool) *Node {
	t.Helper()
	p, ok := c.Controller(time.Minute).controller().Image().Partition("t", 0)
	if !ok {
		t.Fatal("the topic is gone")
	}
	leader := nodes[p.Leader-1]
	if leads {
		return leader
	}
	return nodes[int(p.Leader)%len(nodes)]
}

// deleteTopics deletes topics, however often the controller changes meanwhile.
func deleteTopics(t *testing.T, c *Cluster, topics ...string) {
	t.Helper()
	cl, err := c.Client("deleter")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, topic := range topics {
		for {
			_, err := kadm.NewClient(cl).DeleteTopic(ctx, topic)
			if err == nil || errors.Is(err, kerr.UnknownTopicOrPartition) {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("delete %s: %v", topic, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// createEverywhere makes a topic with a replica on each of the three nodes, whoever is there, other than the one of the id old.
func createEverywhere(t *testing.T, c *Cluster, topic string, old wire.UUID) {
	t.Helper()
	req := create(topic, -1)
	req.Topics[0].NumPartitions = -1
	req.Topics[0].ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 2, 3}}}
	cl, err := c.Client("creator-anew")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		resp, err := cl.Request(ctx, req)
		if err == nil {
			err = kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode)
		}
		if err == nil || errors.Is(err, kerr.TopicAlreadyExists) && idOf(t, c, topic) != old {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("make %s again: %v", topic, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func idOf(t *testing.T, c *Cluster, topic string) wire.UUID {
	t.Helper()
	got, ok := c.Controller(time.Minute).controller().Image().Topic(topic)
	if !ok {
		t.Fatalf("no topic %s", topic)
	}
	return got.ID
}

// partitionDirs are the directories of partitions on a node's disk, those that are set aside included, and the topics that
// they say they are of.
func partitionDirs(t *testing.T, n *Node) map[string]wire.UUID {
	t.Helper()
	names, err := n.Disk().List("/data")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]wire.UUID{}
	for _, name := range names {
		if info, err := n.Disk().Stat(path.Join("/data", name)); err != nil || !info.Dir || name == "raft" {
			continue
		}
		id, err := log.ReadTopicID(n.Disk(), path.Join("/data", name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		out[name] = id
	}
	return out
}

// unknownTopic wants a node to know nothing of a topic that clients name by its id.
func unknownTopic(t *testing.T, cl *kgo.Client, node int, id wire.UUID) {
	t.Helper()
	fetch := kmsg.NewPtrFetchRequest()
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes = 1 << 20
	fetch.Topics = []kmsg.FetchRequestTopic{{TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{fp}}}
	got := at(t, cl, node, fetch).(*kmsg.FetchResponse)
	if got.ErrorCode != 0 || len(got.Topics) != 1 || got.Topics[0].Partitions[0].ErrorCode != kerr.UnknownTopicID.Code {
		t.Errorf("node %d answers a fetch of a deleted topic with %+v", node, got)
	}
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
	b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("late")})
	records, _, err := b.Build(nil, compress.New())
	if err != nil {
		t.Fatal(err)
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis = -1, 1000
	produce.Topics = []kmsg.ProduceRequestTopic{{TopicID: id, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
	if code := at(t, cl, node, produce).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != kerr.UnknownTopicID.Code {
		t.Errorf("node %d answers a write to a deleted topic with %v", node, kerr.ErrorForCode(code))
	}
}
