package compattests_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// mirrored is one direction of TestMirrorMaker: a topic at its source and its copy at the destination.
type mirrored struct {
	from, to *target.Broker
	topic    string
	copy     string
	group    string
}

// MirrorMaker 2 copies topics from a real Kafka to the broker under test and, at the same time, back: records with keys, headers, times
// and partitions; configs, also those that change; partitions that are added; and committed offsets of groups.
func TestMirrorMaker(t *testing.T) {
	set := need(t, "connect", "java")
	a, b := startOwn(t, target.Kafka, nil), ownBroker(t, nil)
	directions := []mirrored{
		{a, b, "from-a", "a.from-a", "group-a"},
		{b, a, "from-b", "b.from-b", "group-b"},
	}
	for _, d := range directions {
		makeTopic(t, d.from, d.topic, 2, map[string]string{"retention.ms": "7200001", "cleanup.policy": "compact,delete", "max.message.bytes": "1200000"})
		d.write(t, 0, 200)
		d.commit(t)
	}
	settings := map[string]string{
		"clusters": "a,b", "a.bootstrap.servers": a.Addr, "b.bootstrap.servers": b.Addr,
		"a->b.enabled": "true", "b->a.enabled": "true", "a->b.topics": "from-.*", "b->a.topics": "from-.*", "groups": "group-.*",
		"replication.factor": "1", "checkpoints.topic.replication.factor": "1", "heartbeats.topic.replication.factor": "1",
		"offset-syncs.topic.replication.factor": "1", "offset.storage.replication.factor": "1", "status.storage.replication.factor": "1",
		"config.storage.replication.factor": "1", "offset.storage.partitions": "2", "status.storage.partitions": "1",
		"refresh.topics.interval.seconds": "1", "refresh.groups.interval.seconds": "1", "sync.topic.configs.interval.seconds": "1",
		"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "1", "emit.checkpoints.interval.seconds": "1",
		"emit.heartbeats.interval.seconds": "1", "offset.lag.max": "0", "producer.linger.ms": "0",
	}
	properties := writeProperties(t, filepath.Join(t.TempDir(), "mm2.properties"), settings)
	mm := startFollowing(t, nil, javaClass(set.Connect(), "org.apache.kafka.connect.mirror.MirrorMaker", properties)...)
	for _, d := range directions {
		d.awaitCopy(t, mm, 200)
		// MirrorMaker translates no offset below the last one that was copied before its checkpoint task had started, and
		// the task starts beside the copying (OffsetSyncStore); so what is committed in a middle lies above.
		d.awaitEndOffset(t)
	}
	for _, d := range directions {
		d.write(t, 200, 300)
		d.commit(t)
		d.awaitCopy(t, mm, 300)
		d.checkOffsets(t)
		d.checkConfigs(t, map[string]string{"retention.ms": "7200001", "cleanup.policy": "compact,delete", "max.message.bytes": "1200000"})
		alterTopic(t, d.from, d.topic, "retention.ms", "7200002")
		d.addPartitions(t, 3)
	}
	for _, d := range directions {
		d.awaitPartitions(t, 3)
		d.checkConfigs(t, map[string]string{"retention.ms": "7200002"})
		d.write(t, 300, 360)
		d.awaitCopy(t, mm, 360)
		if values := readAll(t, d.to, "heartbeats", 1); len(values) == 0 {
			t.Errorf("%s has no heartbeats", d.to.Kind)
		}
	}
}

// write writes the records from to to-1 to the source, round the partitions that are there.
func (d mirrored) write(t *testing.T, from, to int) {
	t.Helper()
	client := newClient(t, d.from, kgo.DefaultProduceTopic(d.topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	for i := from; i < to; i++ {
		r := kgo.KeyStringRecord(fmt.Sprint("key ", i), fmt.Sprint("value ", i))
		r.Timestamp = time.UnixMilli(time.Now().UnixMilli() - 60_000 + int64(i))
		r.Headers = []kgo.RecordHeader{{Key: "h", Value: fmt.Append(nil, "header ", i)}, {Key: "null"}}
		if i%7 == 0 {
			r.Value = nil
		}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// commit commits the end of partition 0 and, 25 records before it, an offset within partition 1 for the group.
func (d mirrored) commit(t *testing.T) {
	t.Helper()
	admin := kadm.NewClient(newClient(t, d.from))
	ends, err := admin.ListEndOffsets(t.Context(), d.topic)
	if err != nil {
		t.Fatal(err)
	}
	offsets := kadm.Offsets{}
	for p := range int32(2) {
		end, _ := ends.Lookup(d.topic, p)
		offsets.AddOffset(d.topic, p, end.Offset-25*int64(p), -1)
	}
	if err := admin.CommitAllOffsets(t.Context(), d.group, offsets); err != nil {
		t.Fatal(err)
	}
}

// awaitCopy waits until n records are at the destination, and compares all with the source.
func (d mirrored) awaitCopy(t *testing.T, mm *process, n int) {
	t.Helper()
	count := func() (total int64) {
		ends, err := kadm.NewClient(newClient(t, d.to)).ListEndOffsets(t.Context(), d.copy)
		if err != nil {
			return -1
		}
		ends.Each(func(o kadm.ListedOffset) { total += max(o.Offset, 0) })
		return total
	}
	err := poll.Until(t.Context(), connectWithin, fmt.Sprintf("%d records of %s at %s", n, d.topic, d.to.Kind), func() (bool, error) {
		select {
		case <-mm.done:
			t.Fatal("MirrorMaker has ended")
		default:
		}
		got := count()
		return got >= int64(n), fmt.Errorf("%d records", got)
	})
	if err != nil {
		t.Fatal(err)
	}
	want, got := readAll(t, d.from, d.topic, n), readAll(t, d.to, d.copy, n)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%s at %s and its copy at %s (-source +copy):\n%.3000s", d.topic, d.from.Kind, d.to.Kind, diff)
	}
}

// awaitEndOffset waits until the group's offset at the end of partition 0 is there: the checkpoint task is at work.
func (d mirrored) awaitEndOffset(t *testing.T) {
	t.Helper()
	source, dest := kadm.NewClient(newClient(t, d.from)), kadm.NewClient(newClient(t, d.to))
	want := d.committed(t, source, d.topic, 0)
	err := poll.Until(t.Context(), connectWithin, "first offset of "+d.group, func() (bool, error) {
		got := d.committed(t, dest, d.copy, 0)
		return got == want, fmt.Errorf("the copy's offset is %d, the source's %d", got, want)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkOffsets waits until the group's offsets are there: the end of partition 0; in partition 1 not beyond what was committed.
func (d mirrored) checkOffsets(t *testing.T) {
	t.Helper()
	source, dest := kadm.NewClient(newClient(t, d.from)), kadm.NewClient(newClient(t, d.to))
	both := func(admin *kadm.Client, topic string) []int64 {
		return []int64{d.committed(t, admin, topic, 0), d.committed(t, admin, topic, 1)}
	}
	want := both(source, d.topic)
	err := poll.Until(t.Context(), connectWithin, "offsets of "+d.group, func() (bool, error) {
		got := both(dest, d.copy)
		if got[1] > want[1] || got[0] > want[0] {
			t.Fatalf("%s: the copy's offsets %d are beyond the source's %d", d.group, got, want)
		}
		return got[0] == want[0] && got[1] > 0, fmt.Errorf("the copy's offsets are %d, the source's %d", got, want)
	})
	if err != nil {
		t.Error(err)
	}
}

// committed is what the group has committed for a partition, -1 for nothing.
func (d mirrored) committed(t *testing.T, admin *kadm.Client, topic string, p int32) int64 {
	t.Helper()
	all, err := admin.FetchOffsets(t.Context(), d.group)
	if err != nil {
		return -1
	}
	o, there := all.Lookup(topic, p)
	if !there {
		return -1
	}
	return o.At
}

// checkConfigs waits until the copy has these configs.
func (d mirrored) checkConfigs(t *testing.T, want map[string]string) {
	t.Helper()
	admin := kadm.NewClient(newClient(t, d.to))
	err := poll.Until(t.Context(), connectWithin, "configs of "+d.copy, func() (bool, error) {
		described, err := admin.DescribeTopicConfigs(t.Context(), d.copy)
		if err != nil || len(described) != 1 {
			return false, err
		}
		found := 0
		for _, c := range described[0].Configs {
			if value, there := want[c.Key]; there && c.MaybeValue() == value {
				found++
			}
		}
		return found == len(want), fmt.Errorf("%d of %v", found, want)
	})
	if err != nil {
		t.Error(err)
	}
}

func (d mirrored) addPartitions(t *testing.T, n int) {
	t.Helper()
	answers, err := kadm.NewClient(newClient(t, d.from)).UpdatePartitions(t.Context(), n, d.topic)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (d mirrored) awaitPartitions(t *testing.T, n int) {
	t.Helper()
	for _, at := range []struct {
		b     *target.Broker
		topic string
	}{{d.from, d.topic}, {d.to, d.copy}} {
		err := poll.Until(t.Context(), connectWithin, "partitions of "+at.topic, func() (bool, error) {
			described, err := kadm.NewClient(newClient(t, at.b)).ListTopics(t.Context(), at.topic)
			if err != nil {
				return false, err
			}
			got := len(described[at.topic].Partitions)
			return got == n, fmt.Errorf("%d partitions", got)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads at least n records of a topic as text, in the order of partitions and offsets.
func readAll(t *testing.T, b *target.Broker, topic string, n int) []string {
	t.Helper()
	client := newClient(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(t.Context(), connectWithin)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		records = append(records, client.PollFetches(ctx).Records()...)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%s at %s: %d of %d records: %v", topic, b.Kind, len(records), n, err)
		}
	}
	slices.SortFunc(records, func(x, y *kgo.Record) int {
		return cmp.Or(cmp.Compare(x.Partition, y.Partition), cmp.Compare(x.Offset, y.Offset))
	})
	var out []string
	for _, r := range records {
		var headers []string
		for _, h := range r.Headers {
			headers = append(headers, fmt.Sprintf("%s=%q", h.Key, h.Value))
		}
		out = append(out, fmt.Sprintf("%d: %q=%q null=%v at %d [%s]", r.Partition, r.Key, r.Value, r.Value == nil, r.Timestamp.UnixMilli(), strings.Join(headers, " ")))
	}
	return out
}
