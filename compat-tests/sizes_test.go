package compattests_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The cases from the field run on one node and on three. Of the three, one leads every partition that a test makes and coordinates
// every group, and another coordinates every transaction: what a test says to a single connection holds there as well, with replicas
// that have to follow before anything is acknowledged, and markers that come from elsewhere.

// firstOf are the nodes that lead what is made at them, each with the replicas of what it leads.
var firstOf sync.Map //nolint:gochecknoglobals // *target.Broker to []int32, of the clusters of firstOfThree

// replicasLedBy are the replicas of a topic that is made at b, b's first; nil where b is alone or the cluster decides.
func replicasLedBy(b *target.Broker) []int32 {
	if replicas, ok := firstOf.Load(b); ok {
		return replicas.([]int32)
	}
	return nil
}

// onSizes runs a case on the shared node and on the first of three.
func onSizes(t *testing.T, test func(t *testing.T, b *target.Broker)) {
	t.Helper()
	kind(t)
	t.Run("one node", func(t *testing.T) { test(t, sharedBroker(t)) })
	t.Run("three nodes", func(t *testing.T) { test(t, firstOfThree(t)) })
}

// onSizesLong is onSizes for a case that takes long: three nodes only in the long tests.
func onSizesLong(t *testing.T, test func(t *testing.T, b *target.Broker)) {
	t.Helper()
	if long() {
		onSizes(t, test)
		return
	}
	t.Run("one node", func(t *testing.T) { test(t, sharedBroker(t)) })
}

// firstOfThree gives the first node of a cluster that tests share; it is started when it is first asked for.
func firstOfThree(t *testing.T) *target.Broker {
	t.Helper()
	s := theSuite
	s.startMu.Lock()
	defer s.startMu.Unlock()
	o := s.options(t, kind(t))
	s.mu.Lock()
	first := s.shared["three-1"]
	s.mu.Unlock()
	if first != nil {
		keepLogOnFailure(t, first)
		return first
	}
	o.Dir = filepath.Join(s.dir, "three")
	c, err := target.NewCluster(o, 3)
	if err != nil {
		t.Fatalf("prepare the shared three nodes: %v", err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatalf("start the shared three nodes: %v", errors.Join(err, c.Kill()))
	}
	first = c.Nodes[0]
	keepLogOnFailure(t, first)
	makeInternal(t, first, "__consumer_offsets", []int32{1, 2, 3}, map[string]string{"cleanup.policy": "compact", "compression.type": "producer"})
	makeInternal(t, first, "__transaction_state", []int32{2, 3, 1}, map[string]string{"cleanup.policy": "compact", "compression.type": "uncompressed", "min.insync.replicas": "2"})
	firstOf.Store(first, []int32{1, 2, 3})
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range []string{"three-1", "three-2", "three-3"} {
		s.shared[name] = c.Nodes[i]
	}
	return first
}

// makeInternal makes an internal topic before anybody needs it, with the leader of all its partitions chosen.
func makeInternal(t *testing.T, b *target.Broker, name string, replicas []int32, configs map[string]string) {
	t.Helper()
	const partitions = 50
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 30_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
	for p := range int32(partitions) {
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: replicas})
	}
	for k, v := range configs {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	req.Topics = append(req.Topics, topic)
	wantCode(t, "create "+name, do[*kmsg.CreateTopicsResponse](t, dial(t, b), req).Topics[0].ErrorCode, 0)
	awaitLeaders(t, b, name, partitions)
}
