package compattests_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// assignments records which member owns which partitions, from the clients' callbacks.
type assignments struct {
	mu       sync.Mutex
	owned    map[string]map[int32]bool
	assigned map[string]int // calls with partitions, by member
	revoked  map[string]int // partitions taken away, by member
}

func newAssignments() *assignments {
	return &assignments{owned: map[string]map[int32]bool{}, assigned: map[string]int{}, revoked: map[string]int{}}
}

// options makes the callbacks of one member and topic.
func (a *assignments) options(name, topic string) []kgo.Opt {
	lost := func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, p := range m[topic] {
			delete(a.owned[name], p)
			a.revoked[name]++
		}
	}
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.owned[name] == nil {
				a.owned[name] = map[int32]bool{}
			}
			if len(m[topic]) > 0 {
				a.assigned[name]++
			}
			for _, p := range m[topic] {
				a.owned[name][p] = true
			}
		}),
		kgo.OnPartitionsRevoked(lost), kgo.OnPartitionsLost(lost),
	}
}

// split waits until the named members own all partitions, each about as many and none twice.
func (a *assignments) split(t *testing.T, partitions int, members ...string) {
	t.Helper()
	err := poll.Until(t.Context(), 45*time.Second, fmt.Sprint("partitions split among ", members), func() (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		all := map[int32]bool{}
		n := 0
		for _, m := range members {
			if k := len(a.owned[m]); k < partitions/len(members) || k > (partitions+len(members)-1)/len(members) {
				return false, fmt.Errorf("%s owns %d", m, k)
			}
			n += len(a.owned[m])
			maps.Copy(all, a.owned[m])
		}
		return n == partitions && len(all) == partitions, fmt.Errorf("%d owned, %d different", n, len(all))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFranzIdempotentProducer(t *testing.T) {
	b := sharedBroker(t)
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			topic := fresh(t, "f")
			makeTopic(t, b, topic, 3, nil)
			client := newClient(t, b, kgo.ProducerBatchCompression(codec), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			want := make([][]string, 3)
			for i := range 6000 {
				p := i % 3
				v := fmt.Sprint("value-", i)
				want[p] = append(want[p], v)
				client.Produce(t.Context(), &kgo.Record{Partition: int32(p), Value: []byte(v), Headers: []kgo.RecordHeader{{Key: "h", Value: nil}}}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
			}
			if err := client.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			for p, w := range want {
				wantLines(t, fmt.Sprint("partition ", p), readPartition(t, b, topic, int32(p)), w)
			}
		})
	}
}

func TestFranzClassicGroups(t *testing.T) {
	b := sharedBroker(t)
	for _, c := range []struct {
		name        string
		balancer    kgo.GroupBalancer
		cooperative bool
	}{
		{"range", kgo.RangeBalancer(), false},
		{"roundrobin", kgo.RoundRobinBalancer(), false},
		{"sticky", kgo.StickyBalancer(), false},
		{"cooperative-sticky", kgo.CooperativeStickyBalancer(), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			topic, group := fresh(t, "fg"), fresh(t, "fgg")
			makeTopic(t, b, topic, 6, nil)
			fillPartitions(t, b, topic, 6)
			a := newAssignments()
			join := func(name string) *kgo.Client {
				client := newClient(t, b, append(a.options(name, topic), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(c.balancer),
					kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks(), kgo.HeartbeatInterval(500*time.Millisecond))...)
				keepPolling(t, client)
				return client
			}
			join("one")
			a.split(t, 6, "one")
			second := join("two")
			a.split(t, 6, "one", "two")
			a.mu.Lock()
			revoked := a.revoked["one"]
			a.mu.Unlock()
			if c.cooperative && revoked != 3 {
				t.Errorf("cooperative: %d partitions were taken from the first member, want the 3 that moved", revoked)
			}
			join("three")
			a.split(t, 6, "one", "two", "three")
			second.Close()
			a.split(t, 6, "one", "three")
		})
	}
}

// A static member that comes back within its session keeps its partitions, and nobody is rebalanced.
func TestFranzStaticMembers(t *testing.T) {
	b := sharedBroker(t)
	topic, group := fresh(t, "fs"), fresh(t, "fsg")
	makeTopic(t, b, topic, 4, nil)
	fillPartitions(t, b, topic, 4)
	a := newAssignments()
	join := func(name, instance string) *kgo.Client {
		client := newClient(t, b, append(a.options(name, topic), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.InstanceID(instance),
			kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(30*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))...)
		keepPolling(t, client)
		return client
	}
	join("one", "i1")
	a.split(t, 4, "one")
	gone := join("two", "i2")
	a.split(t, 4, "one", "two")
	a.mu.Lock()
	kept := slices.Sorted(maps.Keys(a.owned["two"]))
	before := a.assigned["one"]
	a.mu.Unlock()
	gone.Close() // franz-go's static members don't leave
	join("two again", "i2")
	err := poll.Until(t.Context(), 20*time.Second, "the static member is back", func() (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		got := slices.Sorted(maps.Keys(a.owned["two again"]))
		return slices.Equal(got, kept), fmt.Errorf("owns %v, had %v", got, kept)
	})
	if err != nil {
		t.Error(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if after := a.assigned["one"]; after != before {
		t.Errorf("the other member was assigned %d times more", after-before)
	}
}

// A group goes on after the broker was killed: no record is skipped, commits hold, and so does membership.
func TestFranzGroupThroughRestart(t *testing.T) {
	b := ownBroker(t, nil)
	makeTopic(t, b, "fr", 2, nil)
	read := &readings{}
	client := newClient(t, b, kgo.ConsumerGroup("frg"), kgo.ConsumeTopics("fr"), kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.SessionTimeout(45*time.Second))
	read.follow(t, client)
	fillPartitions(t, b, "fr", 2)
	read.await(t, 10)
	if err := client.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := kadm.NewClient(newClient(t, b))
	describe := func() kadm.DescribedGroup {
		var g kadm.DescribedGroup
		err := poll.Until(t.Context(), 30*time.Second, "group described", func() (bool, error) {
			described, err := admin.DescribeGroups(t.Context(), "frg")
			if err != nil {
				return false, err
			}
			g = described["frg"]
			return g.Err == nil && g.State == "Stable", fmt.Errorf("%s: %w", g.State, g.Err)
		})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	before := describe()
	restart(t, b, false)
	awaitLeaders(t, b, "fr", 2)
	fillPartitions(t, b, "fr", 2)
	read.await(t, 20)
	after := describe()
	if len(before.Members) != 1 || len(after.Members) != 1 || before.Members[0].MemberID != after.Members[0].MemberID {
		t.Errorf("members before %v, after %v: want the same one", before.Members, after.Members)
	}
	read.once(t)
	offsets, err := admin.FetchOffsets(t.Context(), "frg")
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		if o, ok := offsets.Lookup("fr", p); !ok || o.At != 5 {
			t.Errorf("partition %d: committed %v, want 5", p, o.At)
		}
	}
}

// readings collects what a consumer reads.
type readings struct {
	mu     sync.Mutex
	values []string // partition, offset and value of each record
}

func (r *readings) follow(t *testing.T, client *kgo.Client) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			fetches := client.PollFetches(t.Context())
			if fetches.IsClientClosed() || t.Context().Err() != nil {
				return
			}
			r.mu.Lock()
			fetches.EachRecord(func(record *kgo.Record) {
				r.values = append(r.values, fmt.Sprintf("%d@%d", record.Partition, record.Offset))
			})
			r.mu.Unlock()
		}
	})
	t.Cleanup(wg.Wait)
}

func (r *readings) await(t *testing.T, n int) {
	t.Helper()
	err := poll.Until(t.Context(), 60*time.Second, fmt.Sprint(n, " records read"), func() (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.values) >= n, fmt.Errorf("%d read", len(r.values))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *readings) once(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	for _, v := range r.values {
		if seen[v] {
			t.Errorf("%s was read twice", v)
		}
		seen[v] = true
	}
}

func TestFranzAdmin(t *testing.T) {
	b := sharedBroker(t)
	admin := kadm.NewClient(newClient(t, b))
	topic := fresh(t, "fa")
	ctx, cancel := withTimeout(t, time.Minute)
	defer cancel()
	if _, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("1000000")}, topic); err != nil {
		t.Fatal(err)
	}
	awaitLeaders(t, b, topic, 2)
	fillPartitions(t, b, topic, 2)
	if _, err := admin.UpdatePartitions(ctx, 4, topic); err != nil {
		t.Errorf("add partitions: %v", err)
	}
	awaitLeaders(t, b, topic, 4)
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range map[int32]int64{0: 5, 1: 5, 2: 0, 3: 0} {
		if o, ok := ends.Lookup(topic, p); !ok || o.Offset != want || o.Err != nil {
			t.Errorf("end of partition %d = %+v, want %d", p, o, want)
		}
	}
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 3, 0)
	deleted, err := admin.DeleteRecords(ctx, offsets)
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := deleted.Lookup(topic, 0); !ok || d.LowWatermark != 3 || d.Err != nil {
		t.Errorf("delete records: %+v", d)
	}
	if _, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: kadm.StringPtr("500000")}}, topic); err != nil {
		t.Errorf("alter configs: %v", err)
	}
	if responses, err := admin.DeleteTopics(ctx, topic); err != nil || responses.Error() != nil {
		t.Errorf("delete topic: %v, %v", err, responses.Error())
	}
	checkGone(t, b, topic)
}

func checkGone(t *testing.T, b *target.Broker, topic string) {
	t.Helper()
	c := dial(t, b)
	err := poll.Until(t.Context(), 15*time.Second, topic+" is gone", func() (bool, error) {
		return metadata(t, c, 9, false, topic).Topics[0].ErrorCode == 3, nil
	})
	if err != nil {
		t.Error(err)
	}
}
