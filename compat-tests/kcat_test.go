package compattests_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// makeTopic creates a topic by a raw request and waits for nothing: the answer must mean that it is there.
func makeTopic(t *testing.T, b *target.Broker, name string, partitions int32, configs map[string]string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	req.TimeoutMillis = 30_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	if replicas := replicasLedBy(b); replicas != nil {
		topic.NumPartitions, topic.ReplicationFactor = -1, -1
		for p := range partitions {
			topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: replicas})
		}
	}
	for k, v := range configs {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, &v
		topic.Configs = append(topic.Configs, c)
	}
	req.Topics = append(req.Topics, topic)
	resp := do[*kmsg.CreateTopicsResponse](t, dial(t, b), req)
	if code := resp.Topics[0].ErrorCode; code != 0 {
		t.Fatalf("create topic %s: code %d: %v", name, code, deref(resp.Topics[0].ErrorMessage))
	}
	awaitLeaders(t, b, name, int(partitions))
}

func deref(s *string) string {
	if s == nil {
		return "(no message)"
	}
	return *s
}

// dial opens a raw connection that is closed when the test ends.
func dial(t *testing.T, b *target.Broker) *raw.Conn {
	t.Helper()
	return dialAddr(t, b.Addr)
}

// dialAddr is dial by address.
func dialAddr(t *testing.T, addr string) *raw.Conn {
	t.Helper()
	c, err := raw.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// do sends a request on a raw connection; no answer is fatal.
func do[R kmsg.Response](t *testing.T, c *raw.Conn, req kmsg.Request) R {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

func lines(s string) []string {
	s = strings.TrimSuffix(s, "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

func numbers(from, to int) string {
	var s strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintln(&s, i)
	}
	return s.String()
}

func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: (-want +got)\n%.3000s", what, diff)
	}
}

func TestKcatMetadata(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	topic := fresh(t, "m")
	makeTopic(t, b, topic, 3, nil)
	var got struct {
		Brokers []struct {
			ID   int    `json:"id"`
			Name string `json:"name"`
		} `json:"brokers"`
		Topics []struct {
			Topic      string `json:"topic"`
			Partitions []struct {
				Partition int                `json:"partition"`
				Leader    int                `json:"leader"`
				Replicas  []struct{ ID int } `json:"replicas"`
				ISRs      []struct{ ID int } `json:"isrs"`
				Error     string             `json:"error"`
			} `json:"partitions"`
		} `json:"topics"`
	}
	if err := json.Unmarshal([]byte(kcat(t, b, "", "-L", "-J", "-t", topic)), &got); err != nil {
		t.Fatalf("decode kcat -L -J: %v", err)
	}
	if len(got.Brokers) != 1 || got.Brokers[0].ID != 1 || got.Brokers[0].Name != b.Addr {
		t.Errorf("brokers = %+v, want broker 1 at %s", got.Brokers, b.Addr)
	}
	if len(got.Topics) != 1 || got.Topics[0].Topic != topic || len(got.Topics[0].Partitions) != 3 {
		t.Fatalf("topics = %+v, want %s with 3 partitions", got.Topics, topic)
	}
	for i, p := range got.Topics[0].Partitions {
		if p.Partition != i || p.Leader != 1 || len(p.Replicas) != 1 || len(p.ISRs) != 1 || p.Error != "" {
			t.Errorf("partition %d = %+v, want led and replicated by broker 1", i, p)
		}
	}
}

func TestKcatCodecs(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			topic := fresh(t, "c")
			makeTopic(t, b, topic, 1, nil)
			kcat(t, b, numbers(1, 5000), "-P", "-t", topic, "-p", "0", "-z", codec, "-X", "acks=all")
			got := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
			wantLines(t, "consumed", lines(got), lines(numbers(1, 5000)))
		})
	}
}

func TestKcatPositions(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	topic := fresh(t, "p")
	makeTopic(t, b, topic, 1, nil)
	kcat(t, b, numbers(1, 10), "-P", "-t", topic, "-p", "0")
	for _, c := range []struct{ name, offset, want string }{
		{"beginning", "beginning", numbers(1, 10)},
		{"offset", "7", numbers(8, 10)},
		{"from the end back", "-3", numbers(8, 10)},
		{"end", "end", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", c.offset, "-e", "-q")
			wantLines(t, "consumed", lines(got), lines(c.want))
		})
	}
	t.Run("query", func(t *testing.T) {
		for _, c := range []struct{ at, want string }{{"-2", "0"}, {"-1", "10"}, {"0", "0"}, {"99999999999999", "-1"}} {
			got := kcat(t, b, "", "-Q", "-t", topic+":0:"+c.at)
			if want := topic + " [0] offset " + c.want + "\n"; got != want {
				t.Errorf("-Q at %s = %q, want %q", c.at, got, want)
			}
		}
	})
}

func TestKcatTimestamps(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	topic := fresh(t, "t")
	makeTopic(t, b, topic, 1, map[string]string{"retention.ms": "-1"}) // the records are old
	for i, ts := range []int64{1_000_000, 2_000_000, 3_000_000} {
		batch := raw.NewBatch(raw.Values(fmt.Sprint(i))...)
		batch.BaseTimestamp, batch.MaxTimestamp = ts, ts
		mustProduce(t, dial(t, b), topic, 0, batch.Bytes())
	}
	got := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "s@1500000", "-e", "-q", "-f", "%o %T %s\n")
	wantLines(t, "from a time", lines(got), []string{"1 2000000 1", "2 3000000 2"})
	got = kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "s@1000000", "-o", "e@3000000", "-e", "-q", "-f", "%o\n")
	wantLines(t, "between times", lines(got), []string{"0", "1"})
	if got := kcat(t, b, "", "-Q", "-t", topic+":0:2000001"); got != topic+" [0] offset 2\n" {
		t.Errorf("-Q by time = %q", got)
	}
}

func TestKcatKeysHeadersNulls(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	topic := fresh(t, "k")
	makeTopic(t, b, topic, 1, nil)
	kcat(t, b, "k1:v1\nk2:\n:v3\n", "-P", "-t", topic, "-p", "0", "-K:", "-Z", "-H", "h=1", "-H", "h=2", "-H", "empty=")
	out := kcat(t, b, "", "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J")
	type message struct {
		Key, Payload *string
		Headers      []string
	}
	var got []message
	for _, line := range lines(out) {
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("decode %s: %v", line, err)
		}
		got = append(got, m)
	}
	s := func(v string) *string { return &v }
	headers := []string{"h", "1", "h", "2", "empty", ""}
	want := []message{{s("k1"), s("v1"), headers}, {s("k2"), nil, headers}, {nil, s("v3"), headers}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got)\n%s", diff)
	}
}

func TestKcatGroup(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	topic, group := fresh(t, "g"), fresh(t, "group")
	makeTopic(t, b, topic, 4, nil)
	var in strings.Builder
	for i := range 400 {
		fmt.Fprintf(&in, "k%d:%d\n", i, i)
	}
	kcat(t, b, in.String(), "-P", "-t", topic, "-K:")
	first := lines(kcat(t, b, "", "-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", topic))
	slices.Sort(first)
	want := make([]string, 400)
	for i := range want {
		want[i] = fmt.Sprint(i)
	}
	slices.Sort(want)
	wantLines(t, "first reading of the group", first, want)
	kcat(t, b, "k:after\n", "-P", "-t", topic, "-K:")
	again := lines(kcat(t, b, "", "-G", group, "-e", "-q", "-X", "auto.offset.reset=earliest", topic))
	wantLines(t, "second reading of the group", again, []string{"after"})
}

// An idempotent producer works, and read_committed reads up to the end.
func TestKcatIdempotentAndFollow(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	topic := fresh(t, "i")
	makeTopic(t, b, topic, 1, nil)
	kcat(t, b, numbers(1, 2000), "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", "-z", "lz4")
	got := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-X", "isolation.level=read_committed")
	wantLines(t, "read committed", lines(got), lines(numbers(1, 2000)))
}

// The Java consumer reads what kcat wrote, and kcat what the Java producer wrote.
func TestConsoleToolsAndKcat(t *testing.T) {
	need(t, "kcat", "java")
	b := sharedBroker(t)
	topic := fresh(t, "j")
	makeTopic(t, b, topic, 1, nil)
	kcat(t, b, "a:1\nb:2\n", "-P", "-t", topic, "-p", "0", "-K:", "-z", "snappy")
	r := tool(t, javatool.Command{Tool: "kafka-console-producer", Stdin: "c:3\nd:4\n", Args: []string{
		"--bootstrap-server", b.Addr, "--topic", topic, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:", "--compression-codec", "zstd",
	}})
	if r.Exit != 0 {
		t.Fatalf("console producer: %+v", r)
	}
	want := []string{"a:1", "b:2", "c:3", "d:4"}
	wantLines(t, "kcat", lines(kcat(t, b, "", "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")), want)
	r = tool(t, javatool.Command{Tool: "kafka-console-consumer", Timeout: 40 * time.Second, Args: []string{
		"--bootstrap-server", b.Addr, "--topic", topic, "--from-beginning", "--max-messages", "4", "--timeout-ms", "20000",
		"--formatter-property", "print.key=true", "--formatter-property", "key.separator=:",
	}})
	wantLines(t, "console consumer", lines(r.Out), want)
	if !strings.Contains(r.Err, "Processed a total of 4 messages") {
		t.Errorf("console consumer's standard error = %q", r.Err)
	}
}
