package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// What an admin request has changed is what the node that answered it shows in the next one, on one node and at each of three,
// with no wait between. Kafka shows the old state for a moment.
func TestAdminChangesAreSeenAtOnce(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("nodes=%d", nodes), func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				c := NewCluster(t, seed)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := c.StartAll(ctx, c.Form(nodes, "log.dirs=/data,/other")...); err != nil {
					t.Fatal(err)
				}
				cl, err := c.Client("client", kgo.MaxVersions(kversion.V4_0_0())) // these name topics, later ones their ids
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(cl.Close)
				for round := range 3 {
					for id := 1; id <= nodes; id++ {
						w := writer{t: t, cl: cl, node: id, replicas: int16(nodes), topic: fmt.Sprintf("t-%d-%d", id, round)}
						w.topics()
						w.configs()
						w.records()
						w.directories()
						w.groups()
						w.features()
						w.gone()
					}
				}
			})
		})
	}
}

// writer asks one node and looks there at what it got.
type writer struct {
	t        *testing.T
	cl       *kgo.Client
	node     int
	replicas int16
	topic    string
}

func (w writer) ask(req kmsg.Request) kmsg.Response { w.t.Helper(); return at(w.t, w.cl, w.node, req) }

func (w writer) must(what string, code int16, text *string) {
	w.t.Helper()
	if code != 0 {
		w.t.Fatalf("%s at node %d: %v %v", what, w.node, kerr.ErrorForCode(code), text)
	}
}

func (w writer) metadata() kmsg.MetadataResponseTopic {
	w.t.Helper()
	return w.ask(metadataOf(w.topic)).(*kmsg.MetadataResponse).Topics[0]
}

// partitions checks that so many have a leader, for each of the APIs that show it.
func (w writer) partitions(want int) {
	w.t.Helper()
	m := w.metadata()
	if m.ErrorCode != 0 || len(m.Partitions) != want || slices.ContainsFunc(m.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader < 0 || p.ErrorCode != 0 }) {
		w.t.Fatalf("Metadata at node %d after %d partitions: %+v", w.node, want, m)
	}
	describe := kmsg.NewPtrDescribeTopicPartitionsRequest()
	describe.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: w.topic}}
	if got := w.ask(describe).(*kmsg.DescribeTopicPartitionsResponse).Topics[0]; got.ErrorCode != 0 || len(got.Partitions) != want {
		w.t.Fatalf("DescribeTopicPartitions at node %d: code %d, %d partitions, want %d", w.node, got.ErrorCode, len(got.Partitions), want)
	}
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	shown := 0
	for _, d := range w.ask(dirs).(*kmsg.DescribeLogDirsResponse).Dirs {
		for _, dt := range d.Topics {
			if dt.Topic == w.topic {
				shown += len(dt.Partitions)
			}
		}
	}
	if shown != want { // each node has a replica of each
		w.t.Fatalf("DescribeLogDirs at node %d: %d partitions, want %d", w.node, shown, want)
	}
}

// config is one setting of a resource, as DescribeConfigs has it; "" where it is not there.
func (w writer) config(kind kmsg.ConfigResourceType, name, setting string) (value string, source kmsg.ConfigSource) {
	w.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: []string{setting}}}
	got := w.ask(req).(*kmsg.DescribeConfigsResponse).Resources[0]
	w.must("DescribeConfigs of "+name, got.ErrorCode, got.ErrorMessage)
	if len(got.Configs) == 0 || got.Configs[0].Value == nil {
		return "", 0
	}
	return *got.Configs[0].Value, got.Configs[0].Source
}

func (w writer) wantConfig(kind kmsg.ConfigResourceType, name, setting, value string, source kmsg.ConfigSource) {
	w.t.Helper()
	if got, from := w.config(kind, name, setting); got != value || from != source {
		w.t.Fatalf("%s of %q at node %d is %q from %v, want %q from %v", setting, name, w.node, got, from, value, source)
	}
}

func (w writer) alter(kind kmsg.ConfigResourceType, name, setting string, value *string) {
	w.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	c := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: setting, Value: value}
	if value == nil {
		c.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kind, ResourceName: name, Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{c}}}
	got := w.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	w.must("IncrementalAlterConfigs of "+name, got.ErrorCode, got.ErrorMessage)
}

func (w writer) topics() {
	w.t.Helper()
	made := create(w.topic, w.replicas)
	made.Topics[0].Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: new("60001")}}
	got := w.ask(made).(*kmsg.CreateTopicsResponse).Topics[0]
	w.must("CreateTopics", got.ErrorCode, got.ErrorMessage)
	w.partitions(3)
	w.wantConfig(kmsg.ConfigResourceTypeTopic, w.topic, "retention.ms", "60001", kmsg.ConfigSourceDynamicTopicConfig)
	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.TimeoutMillis, grow.Topics = 10_000, []kmsg.CreatePartitionsRequestTopic{{Topic: w.topic, Count: 5}}
	grown := w.ask(grow).(*kmsg.CreatePartitionsResponse).Topics[0]
	w.must("CreatePartitions", grown.ErrorCode, grown.ErrorMessage)
	w.partitions(5)
}

func (w writer) configs() {
	w.t.Helper()
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	w.alter(topic, w.topic, "retention.ms", new("60002"))
	w.wantConfig(topic, w.topic, "retention.ms", "60002", kmsg.ConfigSourceDynamicTopicConfig)
	w.alter(topic, w.topic, "retention.ms", nil)
	w.wantConfig(topic, w.topic, "retention.ms", "604800000", kmsg.ConfigSourceDefaultConfig)
	whole := kmsg.NewPtrAlterConfigsRequest()
	whole.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: topic, ResourceName: w.topic, Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "flush.messages", Value: new("77")}}}}
	altered := w.ask(whole).(*kmsg.AlterConfigsResponse).Resources[0]
	w.must("AlterConfigs", altered.ErrorCode, altered.ErrorMessage)
	w.wantConfig(topic, w.topic, "flush.messages", "77", kmsg.ConfigSourceDynamicTopicConfig)

	id := fmt.Sprint(w.node)
	w.alter(broker, "", "log.retention.ms", new("700001"))
	w.wantConfig(broker, "", "log.retention.ms", "700001", kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	w.wantConfig(broker, id, "log.retention.ms", "700001", kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	w.wantConfig(topic, w.topic, "retention.ms", "700001", kmsg.ConfigSourceDynamicDefaultBrokerConfig)
	w.alter(broker, id, "log.retention.ms", new("700002"))
	w.wantConfig(broker, id, "log.retention.ms", "700002", kmsg.ConfigSourceDynamicBrokerConfig)
	w.wantConfig(topic, w.topic, "retention.ms", "700002", kmsg.ConfigSourceDynamicBrokerConfig)
	w.alter(broker, id, "log.retention.ms", nil)
	w.alter(broker, "", "log.retention.ms", nil)
	w.wantConfig(topic, w.topic, "retention.ms", "604800000", kmsg.ConfigSourceDefaultConfig)
}

// records writes to a partition that the node leads, at once, and deletes what it wrote.
func (w writer) records() {
	w.t.Helper()
	i := slices.IndexFunc(w.metadata().Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == int32(w.node) })
	if i < 0 {
		w.t.Fatalf("node %d leads none of 5 partitions", w.node)
	}
	partition := w.metadata().Partitions[i].Partition
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
	for range 2 {
		b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
	}
	records, _, err := b.Build(nil, compress.New())
	if err != nil {
		w.t.Fatal(err)
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis = -1, 10_000
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: w.topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: records}}}}
	written := w.ask(produce).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	w.must("Produce to a topic that was just made", written.ErrorCode, written.ErrorMessage)
	drop := kmsg.NewPtrDeleteRecordsRequest()
	drop.TimeoutMillis = 10_000
	drop.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: w.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: 1}}}}
	w.must("DeleteRecords", w.ask(drop).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode, nil)
	list := kmsg.NewPtrListOffsetsRequest()
	list.ReplicaID = -1
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: w.topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Partition: partition, Timestamp: -2, CurrentLeaderEpoch: -1}}}}
	if got := w.ask(list).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != 1 {
		w.t.Fatalf("the log starts at %d after DeleteRecords to 1: %v", got.Offset, kerr.ErrorForCode(got.ErrorCode))
	}
}

// directories brings the node's own replicas into its other log directory, and takes one of them back.
func (w writer) directories() {
	w.t.Helper()
	const here, other = "/data", "/other"
	where := func(partition int32) (dirs []string) { // the one that it is on its way to is the last
		for _, d := range w.ask(kmsg.NewPtrDescribeLogDirsRequest()).(*kmsg.DescribeLogDirsResponse).Dirs {
			for _, dt := range d.Topics {
				for _, p := range dt.Partitions {
					switch {
					case dt.Topic != w.topic || p.Partition != partition:
					case p.IsFuture:
						dirs = append(dirs, d.Dir)
					default:
						dirs = slices.Insert(dirs, 0, d.Dir)
					}
				}
			}
		}
		return dirs
	}
	bring := func(dir string, partition int32) {
		req := kmsg.NewPtrAlterReplicaLogDirsRequest()
		req.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: dir, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: w.topic, Partitions: []int32{partition}}}}}
		w.must("AlterReplicaLogDirs", w.ask(req).(*kmsg.AlterReplicaLogDirsResponse).Topics[0].Partitions[0].ErrorCode, nil)
		if got := where(partition); len(got) == 0 || got[len(got)-1] != dir {
			w.t.Fatalf("%s-%d is in %v at node %d after it was to go to %s", w.topic, partition, got, w.node, dir)
		}
	}
	for partition := range int32(5) {
		to := here
		if where(partition)[0] == here {
			to = other
		}
		bring(to, partition)
		if partition == 0 {
			bring(where(partition)[0], partition) // back, or it is there already
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // gone looks at a topic that lies still
		if !slices.ContainsFunc([]int32{0, 1, 2, 3, 4}, func(p int32) bool { return len(where(p)) > 1 }) {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal("the replicas are still on their way")
		}
	}
}

// groups commits for a group at its coordinator, takes one offset back, and the group as a whole.
func (w writer) groups() {
	w.t.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{w.topic}
	found := w.ask(find).(*kmsg.FindCoordinatorResponse).Coordinators[0]
	w.must("FindCoordinator", found.ErrorCode, found.ErrorMessage)
	w.node = int(found.NodeID)
	committed := func() []int64 {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: w.topic, MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: w.topic, Partitions: []int32{0, 1}}}}}
		got := w.ask(req).(*kmsg.OffsetFetchResponse).Groups[0]
		w.must("OffsetFetch", got.ErrorCode, nil)
		var out []int64
		for _, p := range got.Topics[0].Partitions {
			out = append(out, p.Offset)
		}
		return out
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation = w.topic, -1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: w.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 0, Offset: 5, LeaderEpoch: -1}, {Partition: 1, Offset: 6, LeaderEpoch: -1}}}}
	w.must("OffsetCommit", w.ask(commit).(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode, nil)
	if got := committed(); !slices.Equal(got, []int64{5, 6}) {
		w.t.Fatalf("committed 5 and 6, and it is %v", got)
	}
	drop := kmsg.NewPtrOffsetDeleteRequest()
	drop.Group = w.topic
	drop.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: w.topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}}}}
	w.must("OffsetDelete", w.ask(drop).(*kmsg.OffsetDeleteResponse).ErrorCode, nil)
	if got := committed(); !slices.Equal(got, []int64{5, -1}) {
		w.t.Fatalf("one offset was deleted, and they are %v", got)
	}
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{w.topic}
	w.must("DeleteGroups", w.ask(del).(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode, nil)
	if got := committed(); !slices.Equal(got, []int64{-1, -1}) {
		w.t.Fatalf("the group was deleted, and its offsets are %v", got)
	}
	for _, g := range w.ask(kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse).Groups {
		if g.Group == w.topic {
			w.t.Fatalf("group %s is listed after it was deleted", g.Group)
		}
	}
}

func (w writer) features() {
	w.t.Helper()
	for _, level := range []int16{1, 2} {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = "transaction.version", level, int8(3-level) // 2: a downgrade without loss, 1: an upgrade
		req.TimeoutMillis, req.FeatureUpdates = 10_000, []kmsg.UpdateFeaturesRequestFeatureUpdate{u}
		got := w.ask(req).(*kmsg.UpdateFeaturesResponse)
		w.must("UpdateFeatures", got.ErrorCode, got.ErrorMessage)
		versions := kmsg.NewPtrApiVersionsRequest()
		versions.ClientSoftwareName, versions.ClientSoftwareVersion = "sim", "1"
		answer := w.ask(versions).(*kmsg.ApiVersionsResponse)
		i := slices.IndexFunc(answer.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return f.Name == "transaction.version" })
		if i < 0 || answer.FinalizedFeatures[i].MaxVersionLevel != level {
			w.t.Fatalf("transaction.version is %+v at node %d after it was set to %d", answer.FinalizedFeatures, w.node, level)
		}
	}
}

// gone deletes the topic and makes it again.
func (w writer) gone() {
	w.t.Helper()
	before := w.metadata().TopicID
	drop := kmsg.NewPtrDeleteTopicsRequest()
	drop.TimeoutMillis, drop.Topics = 10_000, []kmsg.DeleteTopicsRequestTopic{{Topic: &w.topic}}
	w.must("DeleteTopics", w.ask(drop).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode, nil)
	if m := w.metadata(); m.ErrorCode != kerr.UnknownTopicOrPartition.Code {
		w.t.Fatalf("Metadata at node %d after the topic was deleted: %+v", w.node, m)
	}
	got := w.ask(create(w.topic, w.replicas)).(*kmsg.CreateTopicsResponse).Topics[0]
	w.must("CreateTopics once more", got.ErrorCode, got.ErrorMessage)
	w.partitions(3)
	if m := w.metadata(); m.TopicID == before {
		w.t.Fatalf("the new topic has the old one's id %x", before)
	}
}

// The node that answered ElectLeaders shows the leaders that it elected, and the one that answered UnregisterBroker knows that broker
// no more, in the next request, at each of three nodes.
func TestBrokerChangesAreSeenAtOnce(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes, cl := threeBrokers(t, seed, "auto.leader.rebalance.enable=false")
		replicated(t, c, "t", 3, nil)
		whole(t, c, "t", time.Minute)
		for id := 1; id <= 3; id++ {
			w := writer{t: t, cl: cl, node: id, replicas: 3, topic: "t"}
			away := nodes[id%3]
			if err := away.Stop(); err != nil {
				t.Fatal(err)
			}
			mustStart(t, away)
			whole(t, c, "t", time.Minute)
			w.elect()

			if err := away.Stop(); err != nil {
				t.Fatal(err)
			}
			w.unregister(int32(id%3 + 1))
			mustStart(t, away)
			whole(t, c, "t", time.Minute)
			awaitMembers(t, c, "1* 2* 3*", time.Minute)
		}
	})
}

// elect brings every partition back to its preferred leader.
func (w writer) elect() {
	w.t.Helper()
	preferred := func() (n int) {
		for _, p := range w.metadata().Partitions {
			if p.Leader == p.Replicas[0] {
				n++
			}
		}
		return n
	}
	if n := preferred(); n == 3 {
		w.t.Fatal("every partition is led by its preferred leader although that one was away")
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis = 10_000
	got := w.ask(req).(*kmsg.ElectLeadersResponse)
	w.must("ElectLeaders", got.ErrorCode, nil)
	for _, rt := range got.Topics {
		for _, p := range rt.Partitions {
			w.must(fmt.Sprint("ElectLeaders of ", rt.Topic, "-", p.Partition), p.ErrorCode, p.ErrorMessage)
		}
	}
	if n := preferred(); n != 3 {
		w.t.Fatalf("node %d shows %d of 3 partitions led by the preferred leaders that were just elected", w.node, n)
	}
}

// unregister has the cluster forget a broker that has stopped.
func (w writer) unregister(id int32) {
	w.t.Helper()
	known := func() bool {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType, req.IncludeFencedBrokers = 1, true
		got := w.ask(req).(*kmsg.DescribeClusterResponse)
		w.must("DescribeCluster", got.ErrorCode, got.ErrorMessage)
		return slices.ContainsFunc(got.Brokers, func(b kmsg.DescribeClusterResponseBroker) bool { return b.NodeID == id })
	}
	if !known() {
		w.t.Fatalf("node %d does not show broker %d, which is only stopped", w.node, id)
	}
	unregister(w.t, w.cl, w.node, int(id))
	if known() {
		w.t.Fatalf("node %d shows broker %d, which it has just unregistered", w.node, id)
	}
}
