package compattests_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cases from the field that concern admin calls, versions and internal topics.

// createTopic asks CreateTopics v7 for one topic.
func createTopic(t *testing.T, c *raw.Conn, name string, partitions int32, rf int16, validateOnly bool, configs map[string]string) kmsg.CreateTopicsResponseTopic {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.ValidateOnly = 7, 20_000, validateOnly
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, rf
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		v := configs[k]
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = k, &v
		topic.Configs = append(topic.Configs, config)
	}
	req.Topics = append(req.Topics, topic)
	return do[*kmsg.CreateTopicsResponse](t, c, req).Topics[0]
}

// B05: CreateTopics with validate-only answers as the real call would, and creates nothing.
func TestFieldB05ValidateOnly(t *testing.T) { onSizes(t, fieldB05ValidateOnly) }

func fieldB05ValidateOnly(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b05")
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	for _, bad := range []struct {
		name, topic string
		rf          int16
		configs     map[string]string
		code        int16
	}{
		{"existing", topic, 1, nil, 36},
		{"new", topic + "-new", 1, nil, 0},
		{"slash", "a/b", 1, nil, 17},
		{"too long", strings.Repeat("n", 250), 1, nil, 17},
		{"dot", ".", 1, nil, 17},
		{"bad config", topic + "-cfg", 1, map[string]string{"retention.ms": "never"}, 40},
		{"unknown config", topic + "-cfg", 1, map[string]string{"no.such": "1"}, 40},
		{"replication factor 99", topic + "-rf", 99, nil, 38},
	} {
		got := createTopic(t, c, bad.topic, 2, bad.rf, true, bad.configs)
		wantCode(t, bad.name, got.ErrorCode, bad.code)
	}
	got := createTopic(t, c, topic+"-defaults", -1, -1, true, map[string]string{"retention.bytes": "77"})
	if got.ErrorCode != 0 || got.NumPartitions != 1 || got.ReplicationFactor != 1 {
		t.Errorf("validate-only with defaults: code %d, %d partitions, RF %d", got.ErrorCode, got.NumPartitions, got.ReplicationFactor)
	}
	configs := map[string]string{}
	for _, cfg := range got.Configs {
		configs[cfg.Name] = deref(cfg.Value)
	}
	if configs["retention.bytes"] != "77" || configs["cleanup.policy"] != "delete" {
		t.Errorf("configs in the answer = %v, want retention.bytes=77 and the defaults", configs)
	}
	for _, m := range metadata(t, c, 9, false).Topics {
		if m.Topic != nil && strings.HasPrefix(*m.Topic, topic) && *m.Topic != topic {
			t.Errorf("topic %s was created", *m.Topic)
		}
	}
}

// B23: DescribeLogDirs in each version: all partitions, none, named ones, unknown ones.
func TestFieldB23LogDirs(t *testing.T) { onSizes(t, fieldB23LogDirs) }

func fieldB23LogDirs(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b23")
	makeTopic(t, b, topic, 2, nil)
	c := dial(t, b)
	mustProduce(t, c, topic, 0, raw.NewBatch(raw.Values("some bytes")...).Bytes())
	named := func(topic string, partitions ...int32) kmsg.DescribeLogDirsRequestTopic {
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = topic, partitions
		return rt
	}
	ask := func(version int16, topics []kmsg.DescribeLogDirsRequestTopic) map[string]int64 {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Version, req.Topics = version, topics
		resp := do[*kmsg.DescribeLogDirsResponse](t, c, req)
		if resp.ErrorCode != 0 || len(resp.Dirs) != 1 || resp.Dirs[0].ErrorCode != 0 || resp.Dirs[0].Dir != b.DataDir() {
			t.Fatalf("v%d: code %d, dirs %+v; want %s alone", version, resp.ErrorCode, resp.Dirs, b.DataDir())
		}
		if d := resp.Dirs[0]; version >= 4 && (d.TotalBytes <= 0 || d.UsableBytes <= 0 || d.UsableBytes > d.TotalBytes) {
			t.Errorf("v%d: %d of %d bytes usable", version, d.UsableBytes, d.TotalBytes)
		}
		sizes := map[string]int64{}
		for _, dt := range resp.Dirs[0].Topics {
			for _, p := range dt.Partitions {
				sizes[fmt.Sprintf("%s-%d", dt.Topic, p.Partition)] = p.Size
				if p.OffsetLag != 0 || p.IsFuture {
					t.Errorf("v%d: %s-%d: lag %d, future %v", version, dt.Topic, p.Partition, p.OffsetLag, p.IsFuture)
				}
			}
		}
		return sizes
	}
	for version := int16(1); version <= 4; version++ {
		all := ask(version, nil)
		if all[topic+"-0"] <= 60 {
			t.Errorf("v%d, all: partition 0 has %d bytes", version, all[topic+"-0"])
		}
		if size, ok := all[topic+"-1"]; !ok || size != 0 {
			t.Errorf("v%d, all: partition 1 there %v with %d bytes, want there and empty", version, ok, size)
		}
		if got := ask(version, []kmsg.DescribeLogDirsRequestTopic{}); len(got) != 0 {
			t.Errorf("v%d, none asked: %v", version, got)
		}
		got := ask(version, []kmsg.DescribeLogDirsRequestTopic{named(topic, 0, 9), named("b23-absent", 0)})
		if want := map[string]int64{topic + "-0": all[topic+"-0"]}; !maps.Equal(got, want) {
			t.Errorf("v%d, named: %v, want %v", version, got, want)
		}
	}
	need(t, "java")
	r := tool(t, javatool.Command{Tool: "kafka-log-dirs", Args: []string{"--bootstrap-server", b.Addr, "--describe"}})
	if r.Exit != 0 || !strings.Contains(r.Out, `"partition":"`+topic+`-0"`) {
		t.Errorf("kafka-log-dirs: exit %d\n%.2000s", r.Exit, r.Out)
	}
}

// B31: __consumer_offsets can be read by others: Kafka's partitioning, key and value schemas; nobody may write to it.
func TestFieldB31ConsumerOffsets(t *testing.T) { onSizes(t, fieldB31ConsumerOffsets) }

func fieldB31ConsumerOffsets(t *testing.T, b *target.Broker) {
	need(t, "kcat")
	makeTopic(t, b, "b31", 1, nil)
	c := dial(t, b)
	mustProduce(t, c, "b31", 0, raw.NewBatch(raw.Numbered("v", 0, 10)...).Bytes())
	member(t, b, "b31-group", "b31", kgo.ClientID("b31-client"))
	commitAlone(t, b, "b31-alone", "b31", 0, 7)
	awaitLeaders(t, b, "__consumer_offsets", 50)
	m := metadata(t, c, 9, false, "__consumer_offsets")
	if !m.Topics[0].IsInternal {
		t.Error("__consumer_offsets is not internal in Metadata")
	}
	cfg := describeTopicConfigs(t, c, "__consumer_offsets")
	if cfg["cleanup.policy"].value != "compact" {
		t.Errorf("cleanup.policy of __consumer_offsets = %q", cfg["cleanup.policy"].value)
	}
	// Partition: absolute value of the Java string hash of the group's name, mod 50.
	partitionOf := func(group string) string {
		h := int32(0)
		for _, r := range group {
			h = 31*h + r
		}
		if h < 0 {
			h = -h
		}
		return fmt.Sprint(max(h, 0) % 50)
	}
	type entry struct{ keyVersion, valueVersion int16 }
	seen := map[string][]entry{"b31-group": nil, "b31-alone": nil}
	for group := range seen {
		for _, h := range fetchBatches(t, c, "__consumer_offsets", atoi32(t, partitionOf(group)), 0) {
			for _, r := range plainRecords(t, h) {
				e := entry{int16(binary.BigEndian.Uint16(r.Key)), -1}
				if r.Value != nil {
					e.valueVersion = int16(binary.BigEndian.Uint16(r.Value))
				}
				switch e.keyVersion {
				case 0, 1:
					key := kmsg.NewOffsetCommitKey()
					if err := key.ReadFrom(r.Key); err != nil {
						t.Fatalf("offset key: %v", err)
					}
					if _, ours := seen[key.Group]; !ours {
						continue // another test's
					}
					if e.valueVersion < 3 || e.valueVersion > 4 || key.Topic != "b31" {
						t.Errorf("offset of %s for %s has value version %d", key.Group, key.Topic, e.valueVersion)
					}
					seen[key.Group] = append(seen[key.Group], e)
				case 2:
					key := kmsg.NewGroupMetadataKey()
					if err := key.ReadFrom(r.Key); err != nil {
						t.Fatalf("group key: %v", err)
					}
					seen[key.Group] = append(seen[key.Group], e)
				default:
					t.Errorf("key version %d", e.keyVersion)
				}
			}
		}
	}
	for group, want := range map[string]int16{"b31-group": 2, "b31-alone": 1} {
		if !slices.ContainsFunc(seen[group], func(e entry) bool { return e.keyVersion == want }) {
			t.Errorf("group %s: no record with key version %d in its partition, saw %v", group, want, seen[group])
		}
	}
	got := kcat(t, b, "", "-C", "-t", "__consumer_offsets", "-p", partitionOf("b31-alone"), "-o", "beginning", "-e", "-q", "-f", "%K\n")
	if len(lines(got)) == 0 {
		t.Error("kcat reads nothing from __consumer_offsets")
	}
	wantCode(t, "produce to __consumer_offsets", produce(t, c, "__consumer_offsets", 0,
		raw.NewBatch(raw.Record{Key: []byte("k"), Value: []byte("v")}).Bytes()).ErrorCode, 17)

	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Version, del.Groups = 2, []string{"b31-alone"}
	if r := do[*kmsg.DeleteGroupsResponse](t, c, del); r.Groups[0].ErrorCode != 0 {
		t.Fatalf("delete group: code %d", r.Groups[0].ErrorCode)
	}
	batches := fetchBatches(t, c, "__consumer_offsets", atoi32(t, partitionOf("b31-alone")), 0)
	last := plainRecords(t, batches[len(batches)-1])
	if r := last[len(last)-1]; r.Value != nil {
		t.Errorf("the last record after the group's deletion has a value of %d bytes, want null", len(r.Value))
	}
}

// B44: ApiVersions in every version, and fixed-version clients.
func TestFieldB44ApiVersions(t *testing.T) {
	b := sharedBroker(t)
	c := dial(t, b)
	ask := func(version int16, name string) *kmsg.ApiVersionsResponse {
		t.Helper()
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, name, "1.0"
		return do[*kmsg.ApiVersionsResponse](t, c, req)
	}
	for version := range int16(6) {
		for range 2 {
			if resp := ask(version, "raw"); resp.ErrorCode != 0 || len(resp.ApiKeys) < 28 {
				t.Errorf("v%d: code %d, %d keys", version, resp.ErrorCode, len(resp.ApiKeys))
			}
		}
	}
	// v5 names the cluster and the node that the client means to talk to (KIP-1242).
	cluster, other := deref(metadata(t, c, 8, false, "b44").ClusterID), "AAAAAAAAAAAAAAAAAAAAAA"
	for _, tt := range []struct {
		name    string
		cluster *string
		node    int32
		want    int16
	}{
		{"neither", nil, -1, 0}, {"this one", &cluster, 1, 0}, {"another cluster", &other, 1, 129}, {"another node", &cluster, 9, 129},
		{"a cluster alone", &cluster, -1, 42}, {"a node alone", nil, 1, 42}, {"again this one", &cluster, 1, 0},
	} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion, req.ClusterID, req.NodeID = 5, "raw", "1.0", tt.cluster, tt.node
		wantCode(t, "v5 for "+tt.name, do[*kmsg.ApiVersionsResponse](t, c, req).ErrorCode, tt.want)
	}
	wantCode(t, "odd software name", ask(3, "what is this?").ErrorCode, 42)
	for _, version := range []int16{99, 6, -1} {
		c.Timeout = 10 * time.Second
		if _, err := c.Send(versioned{version}); err != nil {
			t.Fatal(err)
		}
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("ApiVersions v%d: %v", version, err)
		}
		resp := kmsg.NewApiVersionsResponse()
		if err := resp.ReadFrom(frame[4:]); err != nil {
			t.Fatalf("ApiVersions v%d: answer is not of v0: %v", version, err)
		}
		if resp.ErrorCode != 35 || len(resp.ApiKeys) != 1 || resp.ApiKeys[0].ApiKey != 18 || resp.ApiKeys[0].MinVersion != 0 || resp.ApiKeys[0].MaxVersion != 5 {
			t.Errorf("ApiVersions v%d: code %d, keys %+v; want 35 and key 18 from 0 to 5", version, resp.ErrorCode, resp.ApiKeys)
		}
	}
	if resp := ask(3, "raw"); resp.ErrorCode != 0 {
		t.Errorf("connection after too new versions: code %d", resp.ErrorCode)
	}
	old := dial(t, b)
	old.Timeout = 10 * time.Second
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 0
	if _, err := old.Send(req); err != nil {
		t.Fatal(err)
	}
	if closed, err := old.AtEOF(); !closed || err != nil {
		t.Errorf("DescribeConfigs v0: closed %v, %v; want the connection closed", closed, err)
	}
}

// versioned is an ApiVersions request that claims a version.
type versioned struct{ version int16 }

func (v versioned) Key() int16                { return 18 }
func (versioned) MaxVersion() int16           { return 4 }
func (versioned) SetVersion(int16)            {}
func (v versioned) GetVersion() int16         { return v.version }
func (versioned) IsFlexible() bool            { return true }
func (versioned) ReadFrom([]byte) error       { return nil }
func (versioned) ResponseKind() kmsg.Response { return kmsg.NewPtrApiVersionsResponse() }
func (versioned) AppendTo(dst []byte) []byte {
	return append(dst, 4, 'r', 'a', 'w', 2, '1', 0) // name, version, no tags
}

// B53: a topic is created once however many ask for it at the same time; bad names and a forbidding request create nothing.
func TestFieldB53AutoCreate(t *testing.T) {
	onNodesWith(t, map[string]string{"num.partitions": "3"}, fieldB53AutoCreate)
}

func fieldB53AutoCreate(t *testing.T, nodes []*target.Broker) {
	b := nodes[0]
	answers := make(chan int16, 50)
	ids := make(chan [16]byte, 50)
	for i := range 50 {
		go func() {
			c, err := raw.Dial(nodes[i%len(nodes)].Addr)
			if err != nil {
				t.Error(err)
				answers <- -99
				ids <- [16]byte{}
				return
			}
			defer func() { _ = c.Close() }()
			req := kmsg.NewPtrMetadataRequest()
			req.Version, req.AllowAutoTopicCreation = 12, true
			topic := kmsg.NewMetadataRequestTopic()
			name := "b53"
			topic.Topic = &name
			req.Topics = append(req.Topics, topic)
			code, id := int16(-99), [16]byte{}
			err = poll.Until(t.Context(), 20*time.Second, "b53 is there", func() (bool, error) {
				resp, err := c.Do(req)
				if err != nil {
					return false, err
				}
				mt := resp.(*kmsg.MetadataResponse).Topics[0]
				code, id = mt.ErrorCode, mt.TopicID
				if code != 0 && code != 3 && code != 5 {
					return true, nil
				}
				return code == 0 && len(mt.Partitions) == 3, nil
			})
			if err != nil {
				t.Error(err)
			}
			answers <- code
			ids <- id
		}()
	}
	distinct := map[[16]byte]bool{}
	for range 50 {
		wantCode(t, "metadata that creates", <-answers, 0)
		distinct[<-ids] = true
	}
	if len(distinct) != 1 {
		t.Errorf("%d topic ids were seen, want one", len(distinct))
	}
	c := dial(t, b)
	wantCode(t, "not allowed by the request", metadata(t, c, 9, false, "b53-no").Topics[0].ErrorCode, 3)
	wantCode(t, "bad name", metadata(t, c, 9, true, "b53/bad").Topics[0].ErrorCode, 17)
	var names []string
	for _, topic := range metadata(t, c, 9, false).Topics {
		names = append(names, *topic.Topic)
	}
	if diff := cmp.Diff([]string{"b53"}, names); diff != "" {
		t.Errorf("topics (-want +got)\n%s", diff)
	}
}

// B53: with auto-creation off nothing is created.
func TestFieldB53AutoCreateOff(t *testing.T) {
	b := ownBroker(t, map[string]string{"auto.create.topics.enable": "false"})
	c := dial(t, b)
	wantCode(t, "switched off", metadata(t, c, 9, true, "b53-off").Topics[0].ErrorCode, 3)
	wantCode(t, "produce to it", produce(t, c, "b53-off", 0, raw.NewBatch(raw.Values("x")...).Bytes()).ErrorCode, 3)
	if n := len(metadata(t, c, 9, false).Topics); n != 0 {
		t.Errorf("%d topics, want none", n)
	}
}

// B56: what Connect and its like create at start: defaults by −1, compacted topics, answers with source and type.
func TestFieldB56InternalTopicsOfOthers(t *testing.T) { onSizes(t, fieldB56InternalTopicsOfOthers) }

func fieldB56InternalTopicsOfOthers(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b56")
	c := dial(t, b)
	set := map[string]string{"cleanup.policy": "compact", "min.compaction.lag.ms": "1000", "message.timestamp.type": "LogAppendTime"}
	created := createTopic(t, c, topic, -1, -1, false, set)
	if created.ErrorCode != 0 || created.NumPartitions != 1 || created.ReplicationFactor != 1 {
		t.Fatalf("create: code %d (%s), %d partitions, RF %d", created.ErrorCode, deref(created.ErrorMessage), created.NumPartitions, created.ReplicationFactor)
	}
	awaitLeaders(t, b, topic, 1)
	wantCode(t, "create again", createTopic(t, c, topic, -1, -1, false, set).ErrorCode, 36)
	got := describeTopicConfigs(t, c, topic)
	for name, want := range set {
		if g := got[name]; g.value != want || g.source != kmsg.ConfigSourceDynamicTopicConfig {
			t.Errorf("%s = %+v, want %s set on the topic", name, g, want)
		}
	}
	for name, kind := range map[string]kmsg.ConfigType{
		"cleanup.policy": kmsg.ConfigTypeList, "min.compaction.lag.ms": kmsg.ConfigTypeLong,
		"message.timestamp.type": kmsg.ConfigTypeString, "max.message.bytes": kmsg.ConfigTypeInt, "min.cleanable.dirty.ratio": kmsg.ConfigTypeDouble,
	} {
		if g := got[name]; g.kind != kind || g.doc == "" {
			t.Errorf("%s has type %v and documentation %q, want type %v and some", name, g.kind, g.doc, kind)
		}
	}
}

type topicConfig struct {
	value, doc string
	source     kmsg.ConfigSource
	kind       kmsg.ConfigType
}

func describeTopicConfigs(t *testing.T, c *raw.Conn, topic string) map[string]topicConfig {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version, req.IncludeDocumentation = 4, true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	req.Resources = append(req.Resources, r)
	resp := do[*kmsg.DescribeConfigsResponse](t, c, req)
	if resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("describe configs of %s: code %d", topic, resp.Resources[0].ErrorCode)
	}
	got := map[string]topicConfig{}
	for _, cfg := range resp.Resources[0].Configs {
		doc := ""
		if cfg.Documentation != nil {
			doc = *cfg.Documentation
		}
		got[cfg.Name] = topicConfig{value: deref(cfg.Value), doc: doc, source: cfg.Source, kind: cfg.ConfigType}
	}
	return got
}

// commitAlone commits an offset for a group without members.
func commitAlone(t *testing.T, b *target.Broker, group, topic string, partition int32, offset int64) {
	t.Helper()
	c := dial(t, b)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch = partition, offset, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	err := poll.Until(t.Context(), 30*time.Second, "commit for "+group, func() (bool, error) {
		findCoordinator(t, c, group)
		code := do[*kmsg.OffsetCommitResponse](t, c, req).Topics[0].Partitions[0].ErrorCode
		return code == 0, fmt.Errorf("code %d", code)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// findCoordinator waits until a group has a coordinator that has loaded it; the first question makes Kafka create the topic of offsets.
func findCoordinator(t *testing.T, c *raw.Conn, group string) {
	t.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version, req.CoordinatorKeys = 4, []string{group}
	err := poll.Until(t.Context(), 30*time.Second, "coordinator of "+group, func() (bool, error) {
		code := do[*kmsg.FindCoordinatorResponse](t, c, req).Coordinators[0].ErrorCode
		if code == 0 {
			code = fetchOffsets(t, c, 7, group, "").ErrorCode
		}
		return code == 0, fmt.Errorf("code %d", code)
	})
	if err != nil {
		t.Fatal(err)
	}
}
