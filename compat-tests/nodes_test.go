package compattests_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// onNodes runs a test on one node and on three.
func onNodes(t *testing.T, test func(t *testing.T, nodes []*target.Broker)) {
	t.Helper()
	onNodesWith(t, nil, test)
}

// onNodesWith is onNodes with settings.
func onNodesWith(t *testing.T, config map[string]string, test func(t *testing.T, nodes []*target.Broker)) {
	t.Helper()
	kind(t)
	t.Run("one node", func(t *testing.T) { test(t, []*target.Broker{ownBroker(t, config)}) })
	t.Run("three nodes", func(t *testing.T) { test(t, ownNodesWith(t, 3, config)) })
}

// onNodesLong is onNodes for a test that takes long: three nodes only in the long tests.
func onNodesLong(t *testing.T, test func(t *testing.T, nodes []*target.Broker)) {
	t.Helper()
	if long() {
		onNodes(t, test)
		return
	}
	t.Run("one node", func(t *testing.T) { test(t, []*target.Broker{ownBroker(t, nil)}) })
}

// ownNodes starts a cluster for one test. It is killed when the test ends.
func ownNodes(t *testing.T, n int) []*target.Broker {
	t.Helper()
	return ownNodesWith(t, n, nil)
}

// ownNodesWith is ownNodes with settings.
func ownNodesWith(t *testing.T, n int, config map[string]string) []*target.Broker {
	t.Helper()
	o := theSuite.options(t, kind(t))
	o.Dir, o.Config = t.TempDir(), config
	c, err := target.NewCluster(o, n)
	if err != nil {
		t.Fatalf("prepare %d nodes: %v", n, err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Errorf("end the nodes: %v", err)
		}
	})
	for _, b := range c.Nodes {
		keepLogOnFailure(t, b)
	}
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("start %d nodes: %v", n, err)
	}
	return c.Nodes
}

// addresses is where clients of these nodes begin.
func addresses(nodes []*target.Broker) string {
	var all []string
	for _, b := range nodes {
		all = append(all, b.Addr)
	}
	return strings.Join(all, ",")
}

// makeTopics makes topics with a replica on each of some nodes.
func makeTopics(t *testing.T, bootstrap string, partitions int32, replicas int, names ...string) {
	t.Helper()
	answers, err := kadm.NewClient(clientAt(t, bootstrap)).CreateTopics(t.Context(), partitions, int16(replicas), nil, names...)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// clientAt makes a franz-go client of nodes that is closed when the test ends.
func clientAt(t *testing.T, bootstrap string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...)}, opts...)...)
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

// freeAddr is an address on 127.0.0.1 where a foreign server can listen.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := target.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// committedRecords reads the committed records of a topic up to its end, partition after partition, and waits for what is still undecided.
func committedRecords(t *testing.T, bootstrap, topic string) []*kgo.Record {
	t.Helper()
	client := clientAt(t, bootstrap, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	ctx, cancel := withTimeout(t, connectWithin)
	defer cancel()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topic)
	if err := errors.Join(err, ends.Error()); err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{} // the ends that are not reached
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var got []*kgo.Record
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%s: %d records, the ends %v are not reached: %v", topic, len(got), left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if end, there := left[r.Partition]; there && r.Offset >= end-1 {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				got = append(got, r)
			}
		})
	}
	slices.SortStableFunc(got, func(x, y *kgo.Record) int { return cmp.Compare(x.Partition, y.Partition) })
	return got
}

// committedValues are the values of committedRecords.
func committedValues(t *testing.T, bootstrap, topic string) []string {
	t.Helper()
	var got []string
	for _, r := range committedRecords(t, bootstrap, topic) {
		got = append(got, string(r.Value))
	}
	return got
}
