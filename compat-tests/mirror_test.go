package compattests_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// site is one of the two clusters of a mirror.
type site struct {
	name     string // MirrorMaker's name of it
	replicas int    // of its topics
	nodes    []*target.Broker
}

func (s *site) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	return clientAt(t, addresses(s.nodes), opts...)
}

func (s *site) admin(t *testing.T) *kadm.Client {
	t.Helper()
	return kadm.NewClient(s.client(t))
}

func (s *site) String() string {
	return fmt.Sprintf("%s (%s)", s.name, s.nodes[0].Kind)
}

// mirrored is one direction of a mirror: a topic at its source and its copy at the destination.
type mirrored struct {
	from, to *site
	topic    string
	copy     string
	group    string
	repeats  bool // the copy may have records again
	mm       *process
}

var mirroredConfigs = map[string]string{"retention.ms": "7200001", "cleanup.policy": "compact,delete", "max.message.bytes": "1200000"} //nolint:gochecknoglobals // constant

// MirrorMaker 2 copies topics from a real Kafka to the broker under test and, at the same time, back: records with keys, headers, times
// and partitions; configs, also those that change; partitions that are added; and committed offsets of groups.
//
// Of three nodes one is killed while records are written and copied. MirrorMaker promises then, as any source of Connect does, that each
// record is copied at least once and that none is passed over: its producer waits for all replicas, has one request under way and sends
// it again for as long as it takes, but is not idempotent, and a task that begins anew goes on where it had last stored its offsets. So a
// copy may go back and have again, in order, what it had already; TestMirrorMakerExactlyOnce is without that.
func TestMirrorMaker(t *testing.T) {
	need(t, "connect", "java")
	onNodesLong(t, func(t *testing.T, nodes []*target.Broker) { mirror(t, nodes, len(nodes) > 1, nil) })
}

// With Connect's exactly-once support MirrorMaker writes records and its offsets in transactions: who reads what is committed reads each
// record once and in order, also where a node was killed.
func TestMirrorMakerExactlyOnce(t *testing.T) {
	need(t, "connect", "java")
	if !long() {
		t.Skip("KAJA_COMPAT_LONG=1 has it")
	}
	mirror(t, ownNodes(t, 3), false, map[string]string{
		"a.exactly.once.source.support": "enabled", "b.exactly.once.source.support": "enabled",
		"dedicated.mode.enable.internal.rest": "true", "listeners": "http://" + freeAddr(t),
		"a.consumer.isolation.level": "read_committed", "b.consumer.isolation.level": "read_committed",
	})
}

// mirror copies between a Kafka and nodes of the broker under test; of several one is killed.
func mirror(t *testing.T, nodes []*target.Broker, repeats bool, more map[string]string) {
	t.Helper()
	a, b := &site{"a", 1, []*target.Broker{startOwn(t, target.Kafka, nil)}}, &site{"b", len(nodes), nodes}
	directions := []*mirrored{
		{from: a, to: b, topic: "from-a", copy: "a.from-a", group: "group-a", repeats: repeats},
		{from: b, to: a, topic: "from-b", copy: "b.from-b", group: "group-b", repeats: repeats},
	}
	for _, d := range directions {
		d.make(t, 3)
		d.write(t, 0, 200)
		d.commit(t)
	}
	mm := startMirrorMaker(t, a, b, more)
	for _, d := range directions {
		d.mm = mm
		d.awaitCopy(t)
		// MirrorMaker translates no offset below the last one that was copied before its checkpoint task had started, and
		// the task starts beside the copying (OffsetSyncStore); so what is committed in a middle lies above.
		d.checkOffsets(t, false)
	}
	written := 300
	for _, d := range directions {
		d.write(t, 200, written)
		d.commit(t)
		d.awaitCopy(t)
		d.checkOffsets(t, true)
		d.checkConfigs(t, mirroredConfigs)
	}
	if len(nodes) > 1 {
		written = killUnderMirror(t, directions, b, written)
		for _, d := range directions {
			d.awaitCopy(t)
			d.commit(t)
			d.checkOffsets(t, true)
		}
	}
	for _, d := range directions {
		alterTopic(t, d.from.nodes[0], d.topic, "retention.ms", "7200002")
		d.addPartitions(t, 4)
	}
	for _, d := range directions {
		d.awaitPartitions(t, 4)
		d.checkConfigs(t, map[string]string{"retention.ms": "7200002"})
		d.write(t, written, written+60)
		d.awaitCopy(t)
		if len(committedRecords(t, addresses(d.to.nodes), "heartbeats")) == 0 {
			t.Errorf("%s has no heartbeats", d.to)
		}
	}
	checkReplicas(t, b)
	mm.terminate(t, "MirrorMaker")
	for _, d := range directions { // no record has come after those that were waited for
		source, copied := committedRecords(t, addresses(d.from.nodes), d.topic), committedRecords(t, addresses(d.to.nodes), d.copy)
		t.Logf("%s from %s to %s: %d records, %d more in the copy", d.topic, d.from, d.to, len(source), len(copied)-len(source))
		if lacks, wrong := d.judge(byPartition(source), byPartition(copied)); lacks > 0 || wrong != "" {
			t.Errorf("in the end %d records of %s are not at %s; %s", lacks, d.topic, d.to, wrong)
		}
	}
}

// startMirrorMaker starts a MirrorMaker that copies in both directions.
func startMirrorMaker(t *testing.T, a, b *site, more map[string]string) *process {
	t.Helper()
	settings := map[string]string{
		"clusters": "a,b", "a->b.topics": "from-.*", "b->a.topics": "from-.*", "groups": "group-.*", "offset.storage.partitions": "2", "status.storage.partitions": "1",
		"refresh.topics.interval.seconds": "1", "refresh.groups.interval.seconds": "1", "sync.topic.configs.interval.seconds": "1",
		"sync.group.offsets.enabled": "true", "sync.group.offsets.interval.seconds": "1", "emit.checkpoints.interval.seconds": "1",
		"emit.heartbeats.interval.seconds": "1", "offset.lag.max": "0", "producer.linger.ms": "0",
	}
	for _, way := range [][2]*site{{a, b}, {b, a}} {
		from, to := way[0], way[1]
		settings[to.name+".bootstrap.servers"] = addresses(to.nodes)
		for _, of := range []string{"offset", "status", "config"} {
			settings[to.name+"."+of+".storage.replication.factor"] = fmt.Sprint(to.replicas)
		}
		arrow := from.name + "->" + to.name + "."
		settings[arrow+"enabled"] = "true"
		settings[arrow+"offset-syncs.topic.replication.factor"] = fmt.Sprint(from.replicas)
		for _, of := range []string{"", "checkpoints.topic.", "heartbeats.topic."} {
			settings[arrow+of+"replication.factor"] = fmt.Sprint(to.replicas)
		}
	}
	maps.Copy(settings, more)
	properties := writeProperties(t, filepath.Join(t.TempDir(), "mm2.properties"), settings)
	return startFollowing(t, nil, javaClass(need(t, "connect").Connect(), "org.apache.kafka.connect.mirror.MirrorMaker", properties)...)
}

// make makes the topic at its source.
func (d *mirrored) make(t *testing.T, partitions int32) {
	t.Helper()
	configs := map[string]*string{}
	for name, value := range mirroredConfigs {
		configs[name] = &value
	}
	if _, err := d.from.admin(t).CreateTopic(t.Context(), partitions, int16(d.from.replicas), configs, d.topic); err != nil {
		t.Fatal(err)
	}
}

func (d *mirrored) writer(t *testing.T) *kgo.Client {
	t.Helper()
	return d.from.client(t, kgo.DefaultProduceTopic(d.topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
}

// write writes the records from to to-1 to the source, round the partitions that are there.
func (d *mirrored) write(t *testing.T, from, to int) {
	t.Helper()
	client := d.writer(t)
	for i := from; i < to; i++ {
		if err := client.ProduceSync(t.Context(), mirroredRecord(i)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func mirroredRecord(i int) *kgo.Record {
	r := kgo.KeyStringRecord(fmt.Sprint("key ", i), fmt.Sprint("value ", i))
	r.Timestamp = time.UnixMilli(time.Now().UnixMilli() - 60_000 + int64(i))
	r.Headers = []kgo.RecordHeader{{Key: "h", Value: fmt.Append(nil, "header ", i)}, {Key: "null"}}
	if i%7 == 0 {
		r.Value = nil
	}
	return r
}

// commit commits the end of partition 0 and, 25 records before it, an offset within partition 1 for the group.
func (d *mirrored) commit(t *testing.T) {
	t.Helper()
	admin := d.from.admin(t)
	ends, err := admin.ListEndOffsets(t.Context(), d.topic)
	if err := errors.Join(err, ends.Error()); err != nil {
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

// awaitCopy waits until all records of the source are at the destination, and nothing else is.
func (d *mirrored) awaitCopy(t *testing.T) {
	t.Helper()
	want := byPartition(committedRecords(t, addresses(d.from.nodes), d.topic))
	d.follow(t, func(got map[int32][]string) bool {
		lacks, wrong := d.judge(want, got)
		if wrong != "" {
			t.Fatalf("%s at %s and its copy at %s: %s", d.topic, d.from, d.to, wrong)
		}
		return lacks == 0
	})
}

// follow reads the copy from its start until it has enough, as text, by partition.
func (d *mirrored) follow(t *testing.T, enough func(map[int32][]string) bool) {
	t.Helper()
	client := d.to.client(t, kgo.ConsumeTopics(d.copy), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), connectWithin)
	defer cancel()
	var records []*kgo.Record
	for !enough(byPartition(records)) {
		select {
		case <-d.mm.done:
			t.Fatal("MirrorMaker has ended")
		default:
		}
		records = append(records, client.PollFetches(ctx).Records()...)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%s is not copied to %s: %d records are: %v", d.topic, d.to, len(records), err)
		}
	}
}

// byPartition renders records in the order of their offsets.
func byPartition(records []*kgo.Record) map[int32][]string {
	out := map[int32][]string{}
	for _, r := range slices.SortedFunc(slices.Values(records), func(x, y *kgo.Record) int { return cmp.Compare(x.Offset, y.Offset) }) {
		out[r.Partition] = append(out[r.Partition], mirroredText(r))
	}
	return out
}

// mirroredText is what the copy of a record must have of it.
func mirroredText(r *kgo.Record) string {
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, fmt.Sprintf("%s=%q", h.Key, h.Value))
	}
	return fmt.Sprintf("%q=%q null=%v at %d [%s]", r.Key, r.Value, r.Value == nil, r.Timestamp.UnixMilli(), strings.Join(headers, " "))
}

// checkOffsets waits until the group's offsets are at the destination: in partition 0 behind the last copied record and, if asked for,
// some in the middle of partition 1. Who goes on from there meets every record that was not read at the source.
func (d *mirrored) checkOffsets(t *testing.T, middle bool) {
	t.Helper()
	source, dest := d.from.admin(t), d.to.admin(t)
	written, copied := committedRecords(t, addresses(d.from.nodes), d.topic), committedRecords(t, addresses(d.to.nodes), d.copy)
	end := int64(0)
	for _, r := range copied {
		if r.Partition == 0 {
			end = r.Offset + 1
		}
	}
	want := d.committed(t, source, d.topic)
	err := poll.Until(t.Context(), connectWithin, "offsets of "+d.group, func() (bool, error) {
		got := d.committed(t, dest, d.copy)
		for p := range int32(2) {
			after := mirroredFrom(copied, p, got[p])
			for r := range mirroredFrom(written, p, want[p]) {
				if !after[r] {
					t.Fatalf("%s, partition %d: the copy's offset %d is beyond the source's %d: %s", d.group, p, got[p], want[p], r)
				}
			}
		}
		return got[0] == end && (!middle || got[1] > 0), fmt.Errorf("the copy's offsets are %d, the source's %d; the copy ends at %d", got, want, end)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mirroredFrom are the records of a partition from an offset on.
func mirroredFrom(records []*kgo.Record, p int32, offset int64) map[string]bool {
	out := map[string]bool{}
	for _, r := range records {
		if r.Partition == p && r.Offset >= offset {
			out[mirroredText(r)] = true
		}
	}
	return out
}

// committed is what the group has committed for partitions 0 and 1, -1 for nothing.
func (d *mirrored) committed(t *testing.T, admin *kadm.Client, topic string) [2]int64 {
	t.Helper()
	out := [2]int64{-1, -1}
	all, err := admin.FetchOffsets(t.Context(), d.group)
	if err != nil {
		return out
	}
	for p := range out {
		if o, there := all.Lookup(topic, int32(p)); there {
			out[p] = o.At
		}
	}
	return out
}

// checkConfigs waits until the copy has these configs.
func (d *mirrored) checkConfigs(t *testing.T, want map[string]string) {
	t.Helper()
	admin := d.to.admin(t)
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

func (d *mirrored) addPartitions(t *testing.T, n int) {
	t.Helper()
	answers, err := d.from.admin(t).UpdatePartitions(t.Context(), n, d.topic)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (d *mirrored) awaitPartitions(t *testing.T, n int) {
	t.Helper()
	for _, at := range []struct {
		s     *site
		topic string
	}{{d.from, d.topic}, {d.to, d.copy}} {
		err := poll.Until(t.Context(), connectWithin, "partitions of "+at.topic, func() (bool, error) {
			topic := metadata(t, dial(t, at.s.nodes[0]), 12, false, at.topic).Topics[0]
			return len(topic.Partitions) == n, fmt.Errorf("%d partitions", len(topic.Partitions))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
