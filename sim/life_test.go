package sim

import (
	"context"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// threeBrokers is a running cluster of three combined nodes, and a client of it.
func threeBrokers(t *testing.T, seed uint64, settings ...string) (*Cluster, []*Node, *kgo.Client) {
	t.Helper()
	c := NewCluster(t, seed)
	nodes := c.Form(3, settings...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.StartAll(ctx, nodes...); err != nil {
		t.Fatal(err)
	}
	awaitAllServe(t, nodes)
	cl, err := c.Client("client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return c, nodes, cl
}

// awaitAllServe waits until every one of nodes, whose ids count from 1, knows that all of them serve: a node that serves has heard of
// itself, and of the others perhaps a packet later.
func awaitAllServe(t *testing.T, nodes []*Node) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !allServe(nodes); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("after a minute some node does not know that all serve")
		}
	}
}

func allServe(nodes []*Node) bool {
	for _, n := range nodes {
		for i := range nodes {
			if b, ok := n.broker.Image().Broker(wire.BrokerID(i + 1)); !ok || b.Fenced {
				return false
			}
		}
	}
	return true
}

// at sends a request to one node.
func at(t *testing.T, cl *kgo.Client, node int, req kmsg.Request) kmsg.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := cl.Broker(node).Request(ctx, req)
	if err != nil {
		t.Fatalf("node %d: %T: %v", node, req, err)
	}
	return resp
}

func create(topic string, rf int16) *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.TimeoutMillis = 10000
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, 3, rf
	r.Topics = append(r.Topics, ct)
	return r
}

func metadataOf(topic string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	r.Topics = append(r.Topics, mt)
	return r
}

// broker is node's registration as the leader of the quorum has it.
func (c *Cluster) registration(t *testing.T, id wire.BrokerID) *image.Broker {
	t.Helper()
	n := c.Controller(time.Minute)
	if n == nil {
		t.Fatal("no controller")
	}
	b, ok := n.controller().Image().Broker(id)
	if !ok {
		t.Fatalf("broker %d is not registered", id)
	}
	return b
}

// awaitFenced waits until a broker is or is not fenced, and says how long that took.
func (c *Cluster) awaitFenced(t *testing.T, id wire.BrokerID, fenced bool, d time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < d {
		if c.registration(t, id).Fenced == fenced {
			return time.Since(began)
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("broker %d: fenced is not %v after %v", id, fenced, d)
	return 0
}

// Three nodes serve as one cluster: each knows the others, takes what the controller decides, and shows it at once.
func TestAdminRequestsAtAnyNode(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed)
		awaitNodes(t, c, 3)
		time.Sleep(time.Second) // everybody's heartbeat has told where he is
		for i := range nodes {
			id := i + 1
			topic := nodes[i].Name() + "-topic"
			if got := at(t, cl, id, create(topic, 1)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
				t.Fatalf("create at node %d: %v", id, kerr.ErrorForCode(got.ErrorCode))
			}
			m := at(t, cl, id, metadataOf(topic)).(*kmsg.MetadataResponse)
			if len(m.Brokers) != 3 || m.Topics[0].ErrorCode != 0 || len(m.Topics[0].Partitions) != 3 {
				t.Fatalf("node %d does not show what it has answered: %d brokers, %+v", id, len(m.Brokers), m.Topics[0])
			}
			if got := at(t, cl, id, create(topic, 1)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != kerr.TopicAlreadyExists.Code {
				t.Errorf("create again at node %d: %v", id, kerr.ErrorForCode(got.ErrorCode))
			}
			value := "60000"
			alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
			alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic,
				Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &value}}}}
			if got := at(t, cl, id, alter).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
				t.Errorf("alter at node %d: %v", id, kerr.ErrorForCode(got.ErrorCode))
			}
			if got := nodes[i].Broker().Image().Config(image.ResourceTopic, topic)["retention.ms"]; got != value {
				t.Errorf("node %d has retention.ms %q after it has answered", id, got)
			}
			q := kmsg.NewPtrDescribeQuorumRequest()
			q.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
			got := at(t, cl, id, q).(*kmsg.DescribeQuorumResponse)
			if got.ErrorCode != 0 || len(got.Topics[0].Partitions[0].CurrentVoters) != 3 || len(got.Nodes) != 3 {
				t.Errorf("quorum at node %d: %+v", id, got)
			}
			for _, v := range got.Topics[0].Partitions[0].CurrentVoters {
				if lag := got.Topics[0].Partitions[0].HighWatermark - v.LogEndOffset; v.LogEndOffset < 0 || lag < 0 || lag > 10 {
					t.Errorf("voter %d is at %d of %d", v.ReplicaID, v.LogEndOffset, got.Topics[0].Partitions[0].HighWatermark)
				}
			}
		}
	})
}

// A process that dies is fenced as soon as its machine says so, also if it led the quorum; its next life replaces it at
// once. A machine that falls silent is fenced when its session ends; if it led the quorum, an election comes before, which
// counts for its session. Nobody else is fenced.
func TestBrokersComeAndGo(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, _ := threeBrokers(t, seed)
		for i := range nodes {
			c.awaitFenced(t, wire.BrokerID(i+1), false, 10*time.Second)
		}
		cfg, err := nodes[0].config()
		if err != nil {
			t.Fatal(err)
		}
		timeout := cfg.Duration("broker.session.timeout.ms")
		time.Sleep(3 * time.Second)
		for round, n := range []*Node{nodes[0], nodes[1], c.Controller(time.Minute)} {
			id := wire.BrokerID(n.Name()[1] - '0')
			led := c.Controller(time.Minute) == n
			epoch := c.registration(t, id).Epoch
			n.Kill()
			took := c.awaitFenced(t, id, true, 200*time.Millisecond)
			t.Logf("round %d: node %d (controller: %v) fenced after %v", round, id, led, took)
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.awaitFenced(t, id, false, time.Second)
			if again := c.registration(t, id).Epoch; again <= epoch {
				t.Errorf("broker %d came back with epoch %d after %d", id, again, epoch)
			}
			time.Sleep(15 * time.Second) // the quorum is whole again
		}
		for _, leads := range []bool{false, true} {
			silent := c.Controller(time.Minute)
			for _, n := range nodes {
				if !leads && c.Controller(time.Minute) != n {
					silent = n
				}
			}
			id := wire.BrokerID(silent.Name()[1] - '0')
			silent.PowerOff(memfs.Keep, seed)
			took := c.awaitFenced(t, id, true, 2*timeout)
			if least, most := timeout/2, timeout/2+time.Second; took < least || took > most {
				t.Errorf("a silent machine (controller: %v) is fenced after %v, want %v to %v", leads, took, least, most)
			}
			if err := silent.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.awaitFenced(t, id, false, time.Second)
			time.Sleep(15 * time.Second)
		}
		for i := range nodes {
			if c.registration(t, wire.BrokerID(i+1)).Fenced {
				t.Errorf("broker %d is fenced at the end", i+1)
			}
		}
	})
}

// Connections of healthy nodes that break, every one between every two of them at once and again and again, fence nobody
// and change no controller.
func TestResetsFenceNobody(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, _ := threeBrokers(t, seed)
		for i := range nodes {
			c.awaitFenced(t, wire.BrokerID(i+1), false, 10*time.Second)
		}
		time.Sleep(3 * time.Second)
		controller := c.Controller(time.Minute).controller()
		before := controller.Image()
		for round := range 40 {
			for _, a := range nodes {
				for _, b := range nodes {
					c.Net.Reset(a.Name(), b.Name())
				}
			}
			time.Sleep(time.Duration(20+round*13) * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		after := controller.Image()
		if !controller.Leading() || after.ControllerEpoch() != before.ControllerEpoch() {
			t.Errorf("the controller epoch is %d, it was %d", after.ControllerEpoch(), before.ControllerEpoch())
		}
		if after.Offset() != before.Offset() { // a fencing, or anything else that was decided
			t.Errorf("metadata went from offset %d to %d", before.Offset(), after.Offset())
		}
	})
}

// A broker that starts again within its session is not waited for: the new process replaces the old. It is told at once what of its
// metadata log is committed, and not when raft comes to it, one to two seconds after its last word.
func TestRestartReplacesTheOldLife(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, _ := threeBrokers(t, seed)
		n := nodes[0]
		if c.Controller(time.Minute) == n {
			n = nodes[1]
		}
		id := wire.BrokerID(n.Name()[1] - '0')
		epoch := c.registration(t, id).Epoch
		n.PowerOff(memfs.Keep, seed) // nobody is told
		began := time.Now()
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b := c.registration(t, id); b.Epoch <= epoch || b.Fenced {
			t.Errorf("after %v broker %d has epoch %d (before %d), fenced %v", time.Since(began), id, b.Epoch, epoch, b.Fenced)
		}
		if took := time.Since(began); took > 600*time.Millisecond {
			t.Errorf("it took %v, as if the old session, or raft, had been waited for", took)
		}
	})
}

// Without a majority of controllers the rest goes on with the metadata it has: partitions led there are produced to, and
// what only a controller can do is refused when its time is over.
func TestDataPlaneWithoutControllers(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed)
		r := create("t", -1)
		r.Topics[0].NumPartitions = -1
		for i := range int32(3) {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = i, []int32{i + 1}
			r.Topics[0].ReplicaAssignment = append(r.Topics[0].ReplicaAssignment, a)
		}
		topic := at(t, cl, 1, r).(*kmsg.CreateTopicsResponse).Topics[0]
		if topic.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(topic.ErrorCode))
		}
		time.Sleep(100 * time.Millisecond) // the others know it, too
		produce := func(partition int32) error {
			b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
			b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
			records, _, err := b.Build(nil, compress.New())
			if err != nil {
				t.Fatal(err)
			}
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = -1, 1000
			req.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", TopicID: topic.TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: records}}}}
			return kerr.ErrorForCode(at(t, cl, int(partition)+1, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
		}
		if err := produce(2); err != nil {
			t.Fatal(err)
		}
		nodes[0].PowerOff(memfs.Keep, seed)
		nodes[1].PowerOff(memfs.Keep, seed)
		time.Sleep(time.Minute)
		if err := produce(2); err != nil {
			t.Errorf("a partition whose ISR is intact: %v", err)
		}
		refused := create("late", 1)
		refused.TimeoutMillis = 3000
		began := time.Now()
		got := at(t, cl, 3, refused).(*kmsg.CreateTopicsResponse).Topics[0]
		if got.ErrorCode != kerr.RequestTimedOut.Code || time.Since(began) < 2*time.Second || time.Since(began) > 6*time.Second {
			t.Errorf("a topic without a controller: %v after %v", kerr.ErrorForCode(got.ErrorCode), time.Since(began))
		}
		if age := nodes[2].controller().MetadataAge(); age < 50*time.Second {
			t.Errorf("the metadata are said to be %v old", age)
		}
		if err := c.StartAll(t.Context(), nodes[0], nodes[1]); err != nil {
			t.Fatal(err)
		}
		// A controller that is only just elected may lose the role again, and nobody knows then what became of the request.
		code := int16(-1)
		for end := time.Now().Add(time.Minute); code != 0 && code != kerr.TopicAlreadyExists.Code && time.Now().Before(end); {
			code = at(t, cl, 3, create("late", 1)).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
		}
		if code != 0 && code != kerr.TopicAlreadyExists.Code {
			t.Errorf("after the controllers are back: %v", kerr.ErrorForCode(code))
		}
	})
}
