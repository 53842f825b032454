package api

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaAnswers holds what a running Kafka 4.4.0 (one broker, id 1, no configuration beyond its listeners) answered to the
// requests of metaCases, in order. KAJA_TEST_KAFKA=host:port asks such a broker again and rewrites the file.
const kafkaAnswers = "testdata/meta_kafka_4.4.0.json"

type metaCase struct {
	name string
	req  kmsg.Request
}

func TestMetadataAPIsAnswerAsKafka(t *testing.T) { answerAsKafka(t, metaCases(), kafkaAnswers) }

// answerAsKafka compares the answers to cases with those that a Kafka gave, which are kept in a file.
func answerAsKafka(t *testing.T, cases []metaCase, kafkaAnswers string) {
	n := newMetaNode(t, map[string]string{"node.id": "1"})
	want := map[string]json.RawMessage{}
	ask := kafkaAsker(t)
	if ask == nil {
		text, err := os.ReadFile(kafkaAnswers)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range cases {
		if ask != nil {
			want[c.name] = normal(t, ask(c.req))
		}
		var k, our any
		if err := json.Unmarshal(want[c.name], &k); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err := json.Unmarshal(normal(t, n.ask(t, c.req)), &our); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(k, our); d != "" {
			t.Errorf("%s (-kafka +kaja):\n%s", c.name, d)
		}
	}
	if len(want) != len(cases) {
		t.Errorf("%d recorded answers for %d requests", len(want), len(cases))
	}
	if ask != nil {
		text, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(kafkaAnswers, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// kafkaAsker asks a real Kafka, nil if there is none.
func kafkaAsker(t *testing.T) func(kmsg.Request) kmsg.Response {
	addr := os.Getenv("KAJA_TEST_KAFKA")
	if addr == "" {
		return nil
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(req kmsg.Request) kmsg.Response {
		t.Helper()
		if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
			t.Fatal(err)
		}
		size := make([]byte, 4)
		if _, err := io.ReadFull(conn, size); err != nil {
			t.Fatalf("%T v%d: %v", req, req.GetVersion(), err)
		}
		body := make([]byte, binary.BigEndian.Uint32(size))
		if _, err := io.ReadFull(conn, body); err != nil {
			t.Fatal(err)
		}
		body = body[4:]
		if req.IsFlexible() {
			body = body[1:] // no tags in the header
		}
		resp := req.ResponseKind()
		if err := resp.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	ask(deleteReq("meta.a", "meta-m", "meta-auto"))
	t.Cleanup(func() {
		ask(deleteReq("meta.a", "meta-m", "meta-auto"))
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return ask
}

// normal is an answer without what differs by nature (ids, addresses), and with topics in one order, which Kafka leaves open.
func normal(t testing.TB, r kmsg.Response) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(scrub("", v))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func scrub(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range []string{"TopicID", "UnknownTags", "ThrottleMillis", "Port", "Host", "ClusterID"} {
			delete(v, k)
		}
		for k, e := range v {
			v[k] = scrub(k, e)
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		for i := range v {
			v[i] = scrub(key, v[i])
		}
		if key == "Topics" {
			slices.SortFunc(v, func(a, b any) int {
				x, _ := json.Marshal(a)
				y, _ := json.Marshal(b)
				return bytes.Compare(x, y)
			})
		}
		return v
	}
	return v
}

func metaCases() []metaCase {
	return numbered(slices.Concat(createCases(), partitionCases(), alterCases(), describeConfigCases(), loggerCases(), metadataCases(), deleteCases()))
}

func numbered(all []metaCase) []metaCase {
	for i := range all {
		all[i].name = fmt.Sprintf("%03d %s v%d", i, all[i].name, all[i].req.GetVersion())
	}
	return all
}

// latest sets the newest version, which kmsg's own constructors leave at 0.
func latest(r kmsg.Request) kmsg.Request {
	r.SetVersion(r.MaxVersion())
	return r
}

func topicReq(name string, parts int32, rf int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	c := kmsg.NewCreateTopicsRequestTopic()
	c.Topic, c.NumPartitions, c.ReplicationFactor = name, parts, rf
	for i := 0; i < len(configs); i += 2 {
		e := kmsg.NewCreateTopicsRequestTopicConfig()
		if e.Name = configs[i]; configs[i+1] != "NULL" {
			e.Value = &configs[i+1]
		}
		c.Configs = append(c.Configs, e)
	}
	return c
}

func manualReq(name string, parts int32, rf int16, assignments ...[]int32) kmsg.CreateTopicsRequestTopic {
	c := topicReq(name, parts, rf)
	for i, replicas := range assignments {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), replicas
		c.ReplicaAssignment = append(c.ReplicaAssignment, a)
	}
	return c
}

func createReq(validate bool, topics ...kmsg.CreateTopicsRequestTopic) kmsg.Request {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.Topics, r.ValidateOnly, r.TimeoutMillis = topics, validate, 5000
	return latest(r)
}

func createCases() []metaCase {
	long := strings.Repeat("x", 250)
	cases := []metaCase{{"create", createReq(false, topicReq("meta.a", 2, 1, "retention.ms", "1000"), topicReq("meta-m", -1, -1))}}
	for _, c := range []kmsg.CreateTopicsRequestTopic{
		topicReq("meta.a", 1, 1), topicReq("meta_a", 1, 1), topicReq("a/b", 1, 1), topicReq("", 1, 1), topicReq(".", 1, 1),
		topicReq("..", 1, 1), topicReq(long, 1, 1), topicReq("meta-n", 0, 1), topicReq("meta-n", -2, 1), topicReq("meta-n", 1, 0),
		topicReq("meta-n", 1, -2), topicReq("meta-n", 1, 99), topicReq("meta-n", 10001, 1), topicReq("meta-n", 1, 1, "foo", "bar"),
		topicReq("meta-n", 1, 1, "retention.ms", "x"), topicReq("meta-n", 1, 1, "retention.ms", "NULL"),
		topicReq("__cluster_metadata", 1, 1), topicReq("meta-n", 1, 1, "segment.bytes", "5"), topicReq("meta-n", 1, 1),
		topicReq("meta-n", -1, -1, "cleanup.policy", "compact"), manualReq("meta-n", 1, -1, []int32{1}),
		manualReq("meta-n", -1, 1, []int32{1}), manualReq("meta-n", -1, -1, []int32{1}, []int32{}),
		manualReq("meta-n", -1, -1, []int32{1, 1}), manualReq("meta-n", -1, -1, []int32{7}),
		manualReq("meta-n", -1, -1, []int32{1}, []int32{1, 2}), manualReq("meta-n", -1, -1, []int32{1}, []int32{1}),
		topicReq("meta-n", 1, 1, "min.compaction.lag.ms", "10", "max.compaction.lag.ms", "5"),
	} {
		name := "validate " + c.Topic[:min(len(c.Topic), 20)]
		cases = append(cases, metaCase{name, createReq(true, c)})
	}
	for v := int16(2); v < 7; v++ {
		r := createReq(true, topicReq("meta-n", 1, 1), topicReq("meta.a", 1, 1))
		r.SetVersion(v)
		cases = append(cases, metaCase{"validate", r})
	}
	return append(cases, metaCase{"twice", createReq(true, topicReq("meta-q", 1, 1), topicReq("meta-q", 1, 1), topicReq("meta-r", 1, 1))})
}

func partitionsReq(topic string, count int32, assignments ...[]int32) kmsg.Request {
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.TimeoutMillis, r.ValidateOnly = 5000, true
	c := kmsg.NewCreatePartitionsRequestTopic()
	c.Topic, c.Count = topic, count
	for _, replicas := range assignments {
		a := kmsg.NewCreatePartitionsRequestTopicAssignment()
		a.Replicas = replicas
		c.Assignment = append(c.Assignment, a)
	}
	r.Topics = append(r.Topics, c)
	return latest(r)
}

func partitionCases() []metaCase {
	twice := partitionsReq("meta.a", 4).(*kmsg.CreatePartitionsRequest)
	twice.Topics = append(twice.Topics, twice.Topics[0])
	return []metaCase{
		{"more", partitionsReq("meta.a", 5)}, {"same", partitionsReq("meta.a", 2)}, {"fewer", partitionsReq("meta.a", 1)},
		{"unknown", partitionsReq("meta-none", 1)}, {"too many", partitionsReq("meta.a", 20000)},
		{"one assignment for two", partitionsReq("meta.a", 4, []int32{1})},
		{"unknown broker", partitionsReq("meta.a", 3, []int32{5})}, {"other factor", partitionsReq("meta.a", 3, []int32{1, 2})},
		{"no replica", partitionsReq("meta.a", 3, []int32{})}, {"twice", twice},
	}
}

type change struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value string
}

func incrementalReq(t kmsg.ConfigResourceType, name string, changes ...change) kmsg.Request {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = t, name
	for _, ch := range changes {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Op = ch.name, ch.op
		if ch.value != "NULL" {
			c.Value = &ch.value
		}
		res.Configs = append(res.Configs, c)
	}
	r.Resources, r.ValidateOnly = append(r.Resources, res), true
	return latest(r)
}

func alterReq(topics ...string) kmsg.Request {
	r := kmsg.NewPtrAlterConfigsRequest()
	r.ValidateOnly = true
	for _, name := range topics {
		res := kmsg.NewAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, name
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name, c.Value = "segment.ms", kmsg.StringPtr("100")
		res.Configs = append(res.Configs, c)
		r.Resources = append(r.Resources, res)
	}
	return latest(r)
}

func alterCases() []metaCase {
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	const set, del, add, sub = 0, 1, 2, 3
	one := func(name string, t kmsg.ConfigResourceType, res string, changes ...change) metaCase {
		return metaCase{name, incrementalReq(t, res, changes...)}
	}
	return []metaCase{
		one("set", topic, "meta.a", change{"retention.ms", set, "5000"}),
		one("unknown name", topic, "meta.a", change{"foo", set, "5000"}),
		one("out of range", topic, "meta.a", change{"retention.ms", set, "-5"}),
		one("append", topic, "meta.a", change{"cleanup.policy", add, "compact"}),
		one("append to a number", topic, "meta.a", change{"retention.ms", add, "5"}),
		one("subtract from a number", topic, "meta.a", change{"retention.ms", sub, "5"}),
		one("append nonsense", topic, "meta.a", change{"cleanup.policy", add, "xx"}),
		one("delete", topic, "meta.a", change{"retention.ms", del, "NULL"}),
		one("null", topic, "meta.a", change{"retention.ms", set, "NULL"}),
		one("unknown topic", topic, "meta-none", change{"retention.ms", set, "1"}),
		one("default topic", topic, "", change{"retention.ms", set, "1"}),
		one("bad topic", topic, "a/b", change{"retention.ms", set, "1"}),
		one("key twice", topic, "meta.a", change{"retention.ms", set, "1"}, change{"retention.ms", set, "2"}),
		one("read-only", broker, "1", change{"node.id", set, "1"}),
		one("broker", broker, "1", change{"log.retention.ms", set, "100000"}),
		one("other broker", broker, "2", change{"log.retention.ms", set, "100000"}),
		one("no broker", broker, "x", change{"log.retention.ms", set, "100000"}),
		one("all brokers", broker, "", change{"log.retention.ms", set, "100000"}),
		one("take min ISR away", broker, "", change{"min.insync.replicas", del, "NULL"}),
		one("min ISR of all", broker, "", change{"min.insync.replicas", set, "2"}),
		one("min ISR of one", broker, "1", change{"min.insync.replicas", set, "2"}),
		one("unknown type", 99, "1", change{"min.insync.replicas", set, "2"}),
		{"legacy", alterReq("meta.a", "meta-none")},
	}
}

func describeReq(t kmsg.ConfigResourceType, name string, synonyms bool, names ...string) kmsg.Request {
	r := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.ConfigNames = t, name, names
	r.Resources, r.IncludeSynonyms = append(r.Resources, res), synonyms
	return latest(r)
}

func describeConfigCases() []metaCase {
	const topic, broker = kmsg.ConfigResourceTypeTopic, kmsg.ConfigResourceTypeBroker
	return []metaCase{
		{"topic", describeReq(topic, "meta.a", false)},
		{"synonyms", describeReq(topic, "meta.a", true, "retention.ms", "segment.bytes", "cleanup.policy", "min.insync.replicas", "nope")},
		{"unknown topic", describeReq(topic, "meta-none", false)}, {"bad topic", describeReq(topic, "a/b", false)},
		{"other broker", describeReq(broker, "2", false)}, {"no broker", describeReq(broker, "x", false)},
		{"all brokers", describeReq(broker, "", true)},
		{"broker", describeReq(broker, "1", false, "node.id", "num.partitions", "min.insync.replicas")},
		{"unknown type", describeReq(99, "1", false)},
	}
}

// loggerCases are about what is configured and is neither topic nor broker. Kafka runs with more loggers than root, so those
// are asked for by name.
func loggerCases() []metaCase {
	const logger, group, metrics = kmsg.ConfigResourceTypeBrokerLogger, kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics
	const set, del, add, sub = 0, 1, 2, 3
	change1 := func(name string, op kmsg.IncrementalAlterConfigOp, value string) kmsg.Request {
		return incrementalReq(logger, "1", change{name, op, value})
	}
	cases := []metaCase{
		{"loggers", describeReq(logger, "1", true, "root", "nope")}, {"loggers of nobody", describeReq(logger, "", false)},
		{"loggers of another", describeReq(logger, "2", false)}, {"loggers of a word", describeReq(logger, "x", false)},
		{"group without a name", describeReq(group, "", false)}, {"client metrics without a name", describeReq(metrics, "", false)},
		{"level", change1("root", set, "DEBUG")}, {"no level", change1("root", set, "LOUD")}, {"level in small letters", change1("root", set, "debug")},
		{"null level", change1("root", set, "NULL")},
		{"unknown logger", change1("nope", set, "DEBUG")}, {"take the root level away", change1("root", del, "NULL")},
		{"append to a level", change1("root", add, "DEBUG")}, {"subtract from a level", change1("root", sub, "DEBUG")},
		{"take an unknown level away", change1("nope", del, "NULL")}, {"unknown operation", change1("root", 9, "DEBUG")},
		{"level of another", incrementalReq(logger, "2", change{"root", set, "DEBUG"})},
		{"level of all", incrementalReq(logger, "", change{"root", set, "DEBUG"})},
		{"level twice", incrementalReq(logger, "1", change{"root", set, "DEBUG"}, change{"root", set, "INFO"})},
	}
	legacy := alterReq("1").(*kmsg.AlterConfigsRequest)
	legacy.Resources[0].ResourceType = logger
	cases = append(cases, metaCase{"legacy", legacy})
	for _, types := range [][]int8{{}, {2}, {4}, {8}, {16}, {32}, {4, 8}, {8, 4}, {2, 2}, {3}, {4, 99}} {
		r := kmsg.NewPtrListConfigResourcesRequest()
		r.ResourceTypes = types
		cases = append(cases, metaCase{fmt.Sprint("resources", types), latest(r)})
	}
	v0 := kmsg.NewPtrListConfigResourcesRequest()
	return append(cases, metaCase{"resources", v0})
}

func metadataReq(version int16, names ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Version, r.AllowAutoTopicCreation = version, false
	r.IncludeTopicAuthorizedOperations, r.IncludeClusterAuthorizedOperations = version >= 8, version >= 8 && version <= 10
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		r.Topics = append(r.Topics, t)
	}
	return r
}

func partitionsOf(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) kmsg.Request {
	r := kmsg.NewPtrDescribeTopicPartitionsRequest()
	r.ResponsePartitionLimit, r.Cursor = limit, cursor
	for _, name := range names {
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = name
		r.Topics = append(r.Topics, t)
	}
	return latest(r)
}

func metadataCases() []metaCase {
	byID := metadataReq(13)
	t := kmsg.NewMetadataRequestTopic()
	t.TopicID = [16]byte{1, 2, 3}
	byID.Topics = append(byID.Topics, t)
	auto := metadataReq(13, "meta-auto")
	auto.AllowAutoTopicCreation = true
	cases := []metaCase{{"none", metadataReq(13)}, {"by id", byID}, {"auto-created", auto}}
	for v := range int16(14) {
		if v != 0 && v < 4 {
			continue // may always create topics
		}
		cases = append(cases, metaCase{"metadata", metadataReq(v, "meta.a", "a/b", "meta.a")})
	}
	for _, kind := range []int8{1, 2, 3} {
		r := kmsg.NewPtrDescribeClusterRequest()
		r.EndpointType, r.IncludeClusterAuthorizedOperations = kind, true
		cases = append(cases, metaCase{"cluster", latest(r)})
	}
	at := func(topic string, p int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: p}
	}
	empty, half := kmsg.NewPtrInitProducerIDRequest(), kmsg.NewPtrInitProducerIDRequest()
	empty.TransactionalID, half.ProducerID = kmsg.StringPtr(""), 5
	return append(cases,
		metaCase{"partitions", partitionsOf(100, nil, "meta.a", "meta-m", "meta-none", "a/b")},
		metaCase{"one partition", partitionsOf(1, nil, "meta.a", "meta-m")},
		metaCase{"two partitions", partitionsOf(2, nil, "meta.a", "meta-m")},
		metaCase{"from a cursor", partitionsOf(2, at("meta.a", 1), "meta.a", "meta-m")},
		metaCase{"cursor at another topic", partitionsOf(2, at("meta.b", 1), "meta.a", "meta-m")},
		metaCase{"negative cursor", partitionsOf(2, at("meta.a", -1), "meta.a", "meta-m")},
		metaCase{"cursor beyond the end", partitionsOf(2, at("meta.a", 10), "meta.a", "meta-m")},
		metaCase{"empty transactional id", latest(empty)}, metaCase{"id without epoch", latest(half)})
}

func deleteReq(names ...string) kmsg.Request {
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.TimeoutMillis = 5000
	for _, name := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		r.Topics = append(r.Topics, t)
	}
	return latest(r)
}

func deleteCases() []metaCase {
	bad := deleteReq("meta.a").(*kmsg.DeleteTopicsRequest)
	bad.Topics[0].TopicID = [16]byte{1}
	unknown := kmsg.NewDeleteTopicsRequestTopic()
	unknown.TopicID = [16]byte{9, 9}
	bad.Topics = append(bad.Topics, kmsg.NewDeleteTopicsRequestTopic(), unknown)
	return []metaCase{{"delete", deleteReq("meta.a", "meta-none", "meta-m", "meta-m")}, {"delete badly", bad}}
}

// Every version that is advertised is decoded, answered and encoded.
func TestMetadataAPIsServeTheirRanges(t *testing.T) {
	n := newMetaNode(t, map[string]string{"node.id": "1"})
	ranges := map[int16][2]int16{3: {0, 13}, 19: {2, 7}, 20: {1, 6}, 22: {0, 5}, 32: {1, 4}, 33: {0, 2}, 37: {0, 3}, 44: {0, 1}, 60: {0, 2}, 74: {0, 1}, 75: {0, 0}}
	for _, key := range slices.Sorted(maps.Keys(ranges)) {
		for v := ranges[key][0]; v <= ranges[key][1]; v++ {
			req := kmsg.RequestForKey(key)
			req.SetVersion(v)
			if resp := n.ask(t, req); resp.GetVersion() != v {
				t.Errorf("key %d version %d is answered in version %d", key, v, resp.GetVersion())
			}
		}
	}
}
