package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
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

// A cluster that has grown: the internal topics that one node made for itself get a replica on each of three, and groups
// go on.
func TestInternalTopicsGrow(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		if err := c.StartAll(ctx, nodes...); err != nil {
			t.Fatal(err)
		}
		// As if they had been made while one node was there: with one replica.
		cl, err := c.Client("client")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		r := create(image.OffsetsTopic, 1)
		if got := at(t, cl, 2, r).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			topic, _ := c.Controller(time.Minute).controller().Image().Topic(image.OffsetsTopic)
			whole := topic != nil
			for _, p := range topic.Partitions {
				whole = whole && len(p.Replicas) == 3 && len(p.ISR) == 3
			}
			if whole {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("after a minute the topic is %+v", topic.Partitions[0])
			}
		}
	})
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
