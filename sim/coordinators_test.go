package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Transactions whose coordinator, partitions and group are led by different brokers: what is committed is seen, what is
// aborted is not, and the internal topics have a replica on each node.
func TestTransactionsAcrossBrokers(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed)
		if got := at(t, cl, 1, create("t", 3)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		want := 0
		for i := range 4 { // ids with coordinators on several nodes
			p, err := c.Client(fmt.Sprintf("producer-%d", i), kgo.TransactionalID(fmt.Sprintf("txn-%d", i)), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			for j := range 2 {
				commit := kgo.TransactionEndTry(j == 0)
				if err := p.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				for part := range int32(3) {
					r := &kgo.Record{Topic: "t", Partition: part, Value: fmt.Appendf(nil, "%d %v", i, bool(commit))}
					if err := p.ProduceSync(ctx, r).FirstErr(); err != nil {
						t.Fatalf("transaction %d of producer %d: %v", j, i, err)
					}
					if commit {
						want++
					}
				}
				if err := p.EndTransaction(ctx, commit); err != nil {
					t.Fatalf("end of transaction %d of producer %d: %v", j, i, err)
				}
			}
			p.Close()
		}
		consumer, err := c.Client("consumer", kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for got < want {
			fetches := consumer.PollFetches(ctx)
			if err := fetches.Err0(); errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("read %d records, want %d", got, want)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				got++
				if string(r.Value[2:]) != "true" {
					t.Errorf("read %q of a transaction that was aborted", r.Value)
				}
			})
		}
		if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
			t.Error(err)
		}
		consumer.Close()
		if got != want {
			t.Errorf("read %d records, want %d", got, want)
		}
		for _, topic := range []string{image.OffsetsTopic, image.TxnStateTopic} {
			in, ok := nodes[2].Broker().Image().Topic(topic)
			if !ok {
				t.Fatalf("%s does not exist", topic)
			}
			for _, p := range in.Partitions {
				if len(p.Replicas) != 3 {
					t.Fatalf("%s-%d has replicas %v", topic, p.ID, p.Replicas)
				}
			}
		}
	})
}

// A cluster that has grown from one node to three: the internal topics that the first made for itself, and whose replication
// factor nobody has set, get a replica on each of the three, and the controller says so once for each. One whose factor has been
// set stays as it is. Groups go on, and a later controller raises nothing again.
func TestInternalTopicsGrow(t *testing.T) {
	for _, tt := range []struct {
		name   string
		set    []string // before the others join
		raised []string
	}{
		{"no factor is set", nil, []string{image.OffsetsTopic, image.TxnStateTopic}},
		{"one is set", []string{"transaction.state.log.replication.factor=3"}, []string{image.OffsetsTopic}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) { growInternal(t, seed, tt.set, tt.raised) })
		})
	}
}

func growInternal(t *testing.T, seed uint64, set, want []string) {
	c, settings := NewCluster(t, seed), []string{"offsets.topic.num.partitions=5", "transaction.state.log.num.partitions=5"}
	nodes := c.Form(1, settings...)
	mustStart(t, nodes[0])
	cl, err := c.Client("client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	if got := at(t, cl, 1, create("t", 1)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Fatal(kerr.ErrorForCode(got.ErrorCode))
	}
	for kind := range int8(2) { // the coordinators' first use makes their topics
		r := kmsg.NewPtrFindCoordinatorRequest()
		r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = kind, "g", []string{"g"}
		if got := at(t, cl, 1, r).(*kmsg.FindCoordinatorResponse).Coordinators[0]; got.ErrorCode != 0 {
			t.Fatalf("find coordinator %d: %v", kind, kerr.ErrorForCode(got.ErrorCode))
		}
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset("t", 1, 7, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	if got := replicasOf(t, c); got[image.OffsetsTopic] != "1 of 1, 1 of 1, 1 of 1, 1 of 1, 1 of 1" || got[image.TxnStateTopic] != got[image.OffsetsTopic] {
		t.Fatalf("in sync on the first node: %v", got)
	}
	if err := nodes[0].Stop(); err != nil {
		t.Fatal(err)
	}
	nodes[0].settings = append(nodes[0].settings, set...)
	mustStart(t, nodes[0])
	for id := 2; id <= 3; id++ {
		time.Sleep(3 * time.Second) // the controller has looked
		if said := raisedTopics(c); len(said) > 0 {
			t.Errorf("%d nodes are said to be enough for more replicas of %v", id-1, said)
		}
		mustStart(t, c.Joiner(id, nodes, append(settings, set...)...))
	}
	awaitMembers(t, c, "1* 2* 3*", time.Minute)
	whole := map[string]string{}
	for _, topic := range []string{image.OffsetsTopic, image.TxnStateTopic} {
		whole[topic] = "1 of 1, 1 of 1, 1 of 1, 1 of 1, 1 of 1"
		if slices.Contains(want, topic) {
			whole[topic] = strings.ReplaceAll(whole[topic], "1 of 1", "3 of 3")
		}
	}
	for end := time.Now().Add(time.Minute); !maps.Equal(replicasOf(t, c), whole); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in sync after a minute: %v, want %v", replicasOf(t, c), whole)
		}
	}
	time.Sleep(10 * time.Second)
	c.Controller(time.Minute).Kill()
	next := c.Controller(time.Minute)
	if next == nil {
		t.Fatal("nobody leads two of three")
	}
	time.Sleep(10 * time.Second)
	slices.Sort(want)
	if said := raisedTopics(c); !slices.Equal(said, want) {
		t.Errorf("more replicas are said to be given to %v, want %v", said, want)
	}
	later, err := c.Client("later", kgo.SeedBrokers(next.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(later.Close)
	got, err := kadm.NewClient(later).FetchOffsets(t.Context(), "g")
	if o, ok := got.Lookup("t", 1); err != nil || !ok || o.Err != nil || o.At != 7 {
		t.Errorf("the group's offset is %+v: %v", o, err)
	}
}

// replicasOf tells of each internal topic how many replicas of each partition are in sync.
func replicasOf(t *testing.T, c *Cluster) map[string]string {
	t.Helper()
	n := c.Controller(time.Minute)
	if n == nil {
		t.Fatal("no controller")
	}
	out := map[string]string{}
	for _, name := range []string{image.OffsetsTopic, image.TxnStateTopic} {
		topic, ok := n.controller().Image().Topic(name)
		if !ok {
			continue
		}
		var parts []string
		for _, p := range topic.Partitions {
			parts = append(parts, fmt.Sprintf("%d of %d", len(p.ISR), len(p.Replicas)))
		}
		out[name] = strings.Join(parts, ", ")
	}
	return out
}

var raisedLine = regexp.MustCompile(`(?m)^\S+ level=INFO msg="internal topic gets more replicas: the cluster has grown, and its replication factor was not set" node=n[123] topic=(\S+) replication_factor=3$`)

// raisedTopics are the topics of which any node has said that they get more replicas, sorted, as often as it was said.
func raisedTopics(c *Cluster) []string {
	var out []string
	for _, m := range raisedLine.FindAllStringSubmatch(c.Log.String(), -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}

// A controlled stop moves the leaderships first: whoever produces meanwhile is refused by nobody.
func TestControlledStopUnderLoad(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed)
		if got := at(t, cl, 1, create("t", 3)).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		p, err := c.Client("producer", kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ctx, stop := context.WithCancel(t.Context())
		var worst time.Duration
		done := make(chan error, 1)
		go func() {
			for i := int32(0); ctx.Err() == nil; i++ {
				began := time.Now()
				within, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				err := p.ProduceSync(within, &kgo.Record{Partition: i % 3, Value: []byte("v")}).FirstErr()
				cancel()
				if err != nil {
					done <- err
					return
				}
				worst = max(worst, time.Since(began))
				time.Sleep(5 * time.Millisecond)
			}
			done <- nil
		}()
		for _, n := range nodes {
			time.Sleep(12 * time.Second)
			if err := n.Stop(); err != nil {
				t.Error(err)
			}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		stop()
		if err := <-done; err != nil {
			t.Errorf("a client saw %v", err)
		}
		t.Logf("the longest time without an acknowledgement was %v", worst)
		if worst > 3*time.Second {
			t.Errorf("an acknowledgement took %v", worst)
		}
	})
}
