package compattests_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load is an idempotent producer with acks=all that runs until it is stopped, and remembers what was acknowledged.
type load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	acked  [][]string // per partition, in the order of sending
}

// startLoad sends numbered values, spread evenly over the partitions of a topic.
func startLoad(t *testing.T, b *target.Broker, topic string, partitions int, prefix string, opts ...kgo.Opt) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, acked: make([][]string, partitions)}
	client := newClient(t, b, append([]kgo.Opt{
		kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(2000),
	}, opts...)...)
	l.wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			value := fmt.Sprintf("%s%d", prefix, i)
			client.Produce(ctx, &kgo.Record{Partition: int32(i % partitions), Value: []byte(value)}, func(r *kgo.Record, err error) {
				if err != nil {
					return
				}
				l.mu.Lock()
				l.acked[r.Partition] = append(l.acked[r.Partition], string(r.Value))
				l.mu.Unlock()
			})
		}
		client.Close()
	})
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, values := range l.acked {
		n += len(values)
	}
	return n
}

// stop ends the producer without waiting for what is not acknowledged, and returns what is.
func (l *load) stop() [][]string {
	l.cancel()
	l.wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.acked)
}

// readPartition reads the values of a partition from its start to its present end.
func readPartition(t *testing.T, b *target.Broker, topic string, partition int32) []string {
	t.Helper()
	end := listOffset(t, dial(t, b), topic, partition, -1).Offset
	var values []string
	if end == 0 {
		return nil
	}
	client := newClient(t, b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	defer client.Close()
	for next := int64(0); next < end; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s-%d at %d: %v", topic, partition, next, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			values = append(values, string(r.Value))
			next = r.Offset + 1
		})
	}
	return values
}

// checkAcked compares what is stored with what was acknowledged: each acknowledged value once, in the order of sending.
// Values that were sent but not acknowledged may be there too, once.
func checkAcked(t *testing.T, b *target.Broker, topic string, acked [][]string) {
	t.Helper()
	for p, want := range acked {
		checkAckedOf(t, b, topic, p, want)
	}
}

// checkAckedOf is checkAcked of one partition, which b leads.
func checkAckedOf(t *testing.T, b *target.Broker, topic string, p int, want []string) {
	t.Helper()
	stored := readPartition(t, b, topic, int32(p))
	seen := make(map[string]int, len(stored))
	for at, v := range stored {
		if first, twice := seen[v]; twice {
			t.Fatalf("%s-%d: %.100s is stored at %d and at %d", topic, p, v, first, at)
		}
		seen[v] = at
	}
	last := -1
	for _, v := range want {
		at, there := seen[v]
		if !there {
			t.Fatalf("%s-%d: %s was acknowledged and is lost (%d acknowledged, %d stored)", topic, p, v, len(want), len(stored))
		}
		if at < last {
			t.Fatalf("%s-%d: %s at %d is out of order", topic, p, v, at)
		}
		last = at
	}
}
