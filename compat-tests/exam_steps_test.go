package compattests_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

const bs = "--bootstrap-server $B "

func topics(args string) step  { return step{tool: "kafka-topics", args: bs + args} }
func configs(args string) step { return step{tool: "kafka-configs", args: bs + args} }
func groups(args string) step  { return step{tool: "kafka-consumer-groups", args: bs + args} }
func again(s step) step        { s.repeat = true; return s }

func producer(topic, stdin, args string) step {
	return step{tool: "kafka-console-producer", args: bs + "--topic " + topic + " " + args, stdin: stdin}
}

func consumer(args string) step {
	return step{tool: "kafka-console-consumer", args: bs + "--timeout-ms 15000 " + args, timeout: 40 * time.Second}
}

func TestExamTopics(t *testing.T) {
	examine(t, []step{
		topics("--create --topic et1 --partitions 3 --replication-factor 1"),
		topics("--create --topic et1"),
		topics("--create --topic et1 --if-not-exists"),
		topics("--create --topic et2 --partitions 2 --config retention.ms=3600000 --config cleanup.policy=compact,delete --config segment.bytes=2097152"),
		topics("--create --topic et.3 --partitions 1"),
		topics("--create --topic et_3 --partitions 1"),
		topics("--create --topic bad/name"),
		topics("--create --topic et4 --partitions 0"),
		topics("--create --topic et4 --replication-factor 5"),
		topics("--create --topic et4 --config no.such.config=1"),
		topics("--create --topic et4 --config retention.ms=abc"),
		topics("--create --topic et4 --config cleanup.policy=wrong"),
		topics("--create --topic et5 --replica-assignment 1,1"),
		topics("--create --topic et6 --replica-assignment 1"),
		topics("--create --topic et7 --replica-assignment 7"),
		again(topics("--describe --topic et1")),
		again(topics("--describe --topic et2")),
		again(topics("--describe --topic et.*")),
		topics("--describe --topic nothere"),
		topics("--describe --topic nothere --if-exists"),
		topics("--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ"),
		topics("--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ --if-exists"),
		topics("--describe --topic-id AAAA"),
		topics("--describe --under-replicated-partitions"),
		topics("--describe --unavailable-partitions"),
		topics("--describe --under-min-isr-partitions --topic et1"),
		topics("--describe --at-min-isr-partitions --topic et1"),
		topics("--describe --topics-with-overrides --topic et.*"),
		topics("--describe --topic et.* --exclude-internal --partition-size-limit-per-response 1"),
		topics("--list --topic et.*"),
		topics("--list --topic nothere"),
		topics("--alter --topic et1 --partitions 5"),
		again(topics("--describe --topic et1")),
		topics("--alter --topic et1 --partitions 5"),
		topics("--alter --topic et1 --partitions 2"),
		topics("--alter --topic nothere --partitions 2"),
		topics("--alter --topic nothere --partitions 2 --if-exists"),
		topics("--alter --topic et2 --partitions 4 --replica-assignment 1,1,1,1"),
		topics("--delete --topic et1"),
		topics("--delete --topic et1"),
		topics("--delete --topic nothere --if-exists"),
		topics("--delete --topic et.*"),
		again(topics("--list --topic et.*")),
		topics("--list --topic et1 --wrong-option"),
	})
}

func TestExamConfigs(t *testing.T) {
	describe := "--describe --entity-type topics --entity-name ec1"
	alter := "--alter --entity-type topics --entity-name ec1 "
	examine(t, []step{
		topics("--create --topic ec1 --partitions 1 --config max.message.bytes=2000000"),
		again(configs(describe)),
		again(configs("--describe --topic ec1")),
		configs(describe + " --all"),
		configs(alter + "--add-config retention.ms=1000000,retention.bytes=5000000"),
		again(configs(describe)),
		configs(alter + "--add-config cleanup.policy=[compact,delete]"),
		again(configs(describe)),
		configs(alter + "--delete-config retention.ms"),
		again(configs(describe)),
		configs(alter + "--delete-config retention.ms"),
		configs(alter + "--delete-config no.such"),
		configs(alter + "--add-config no.such=1"),
		configs(alter + "--add-config retention.ms=word"),
		configs(alter + "--add-config max.message.bytes=-5"),
		configs(alter + "--add-config min.insync.replicas=0"),
		configs(alter + "--add-config compression.type=zip"),
		configs(alter + "--add-config segment.bytes=10"),
		configs(alter + "--add-config message.timestamp.type=LogAppendTime,compression.type=zstd,flush.messages=100"),
		again(configs(describe)),
		configs(alter),
		configs("--describe --entity-type topics --entity-name nothere"),
		configs("--alter --entity-type topics --entity-name nothere --add-config retention.ms=1"),
		configs("--describe --entity-type brokers --entity-default"),
		configs("--describe --entity-type brokers --entity-name 1"),
		configs("--describe --entity-type brokers --entity-name 9"),
		configs("--alter --entity-type brokers --entity-default --add-config ec.own=1,log.retention.ms=700000000"),
		configs("--alter --entity-type brokers --entity-name 1 --add-config ec.own=2,ec.other=3"),
		configs("--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=3"),
		configs("--alter --entity-type brokers --entity-default --add-config log.cleaner.threads=3"),
		again(configs("--describe --entity-type brokers --entity-default")),
		again(configs("--describe --entity-type brokers --entity-name 1")),
		configs("--alter --entity-type brokers --entity-default --delete-config ec.own,log.retention.ms"),
		configs("--alter --entity-type brokers --entity-name 1 --delete-config ec.own,ec.other"),
		again(configs("--describe --entity-type brokers --entity-default")),
		again(configs("--describe --entity-type brokers --entity-name 1")),
		topics("--delete --topic ec1"),
	})
}

func TestExamConsole(t *testing.T) {
	examine(t, []step{
		topics("--create --topic eo1 --partitions 1"),
		producer("eo1", "k1:v1\nk2:v2\nk3:\n", "--reader-property parse.key=true --reader-property key.separator=:"),
		producer("eo1", "h1:a,h2:b\tk4:v4\n", "--reader-property parse.headers=true --reader-property parse.key=true --reader-property key.separator=:"),
		producer("eo1", "plain\n", "--compression-codec gzip"),
		producer("eo1", "N:N\n", "--reader-property parse.key=true --reader-property key.separator=: --reader-property null.marker=N --compression-codec lz4"),
		producer("eo1", "acks0\n", "--producer-property acks=0 --sync --timeout 0"),
		producer("eo1", "idem\n", "--producer-property enable.idempotence=true --compression-codec snappy"),
		consumer("--topic eo1 --from-beginning --max-messages 8 --formatter-property print.key=true --formatter-property print.headers=true --formatter-property print.offset=true --formatter-property print.partition=true --formatter-property print.timestamp=true"),
		consumer("--topic eo1 --partition 0 --offset 2 --max-messages 2 --formatter-property print.offset=true"),
		consumer("--topic eo1 --partition 0 --offset earliest --max-messages 1 --formatter-property print.epoch=true"),
		consumer("--topic eo1 --from-beginning --max-messages 8 --isolation-level read_committed --group eo-g1"),
		{tool: "kafka-console-consumer", args: bs + "--topic eo1 --group eo-g1 --timeout-ms 4000"},
		{tool: "kafka-console-consumer", args: bs + "--topic eo-absent --timeout-ms 3000 --consumer-property allow.auto.create.topics=false"},
		{tool: "kafka-console-consumer", args: bs + "--topic eo1 --partition 0 --offset 99 --timeout-ms 3000 --consumer-property auto.offset.reset=none"},
		consumer("--include eo1|eo2 --from-beginning --max-messages 3"),
		producer("bad/name", "x\n", "--producer-property max.block.ms=5000"),
		topics("--create --topic eo2 --config max.message.bytes=200"),
		producer("eo2", strings.Repeat("x", 400)+"\n", "--producer-property enable.idempotence=false"),
		topics("--create --topic eo3 --config cleanup.policy=compact"),
		producer("eo3", "nokey\n", ""),
		topics("--delete --topic eo1,eo2"),
	})
}

func TestExamOffsets(t *testing.T) {
	offsets := func(args string) step { return step{tool: "kafka-get-offsets", args: bs + args} }
	dr := func(json string) step {
		return step{tool: "kafka-delete-records", args: bs + "--offset-json-file " + json}
	}
	files := map[string]string{
		"seven.json":   `{"partitions":[{"topic":"ef1","partition":7,"offset":2}],"version":1}`,
		"nothere.json": `{"partitions":[{"topic":"nothere","partition":0,"offset":2}],"version":1}`,
		// The tool asks for a minute otherwise, and says then how often it did.
		"thrice":   "retries=2\n",
		"one.json": `{"partitions":[{"topic":"ef1","partition":0,"offset":2}],"version":1}`,
		"far.json": `{"partitions":[{"topic":"ef1","partition":0,"offset":99}],"version":1}`,
		"end.json": `{"partitions":[{"topic":"ef1","partition":0,"offset":-1}],"version":1}`,
		"low.json": `{"partitions":[{"topic":"ef1","partition":0,"offset":-2}],"version":1}`,
	}
	dir := t.TempDir()
	for name, text := range files {
		writeFile(t, dir+"/"+name, text)
	}
	examine(t, []step{
		topics("--create --topic ef1 --partitions 2"),
		producer("ef1", "a\nb\nc\nd\n", "--producer-property partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner --sync --timeout 0"),
		offsets("--topic ef1"),
		offsets("--topic ef1 --time -1"),
		offsets("--topic ef1 --time earliest"),
		offsets("--topic ef1 --time -3"),
		offsets("--topic ef1 --time -4"),
		offsets("--topic ef1 --time -5"),
		offsets("--topic ef1 --time -6"),
		offsets("--topic ef1 --time 0"),
		offsets("--topic ef1 --time 9999999999999"),
		offsets("--topic ef1 --partitions 0"),
		offsets("--topic-partitions ef1:0-1"),
		offsets("--topic-partitions ef1:7"),
		offsets("--topic nothere"),
		offsets("--topic ef.* --exclude-internal-topics"),
		offsets("--topic ef1 --time wrong"),
		dr(dir + "/one.json"),
		offsets("--topic ef1 --time earliest"),
		dr(dir + "/far.json"),
		dr(dir + "/low.json"),
		dr(dir + "/seven.json --command-config " + dir + "/thrice"),
		dr(dir + "/nothere.json --command-config " + dir + "/thrice"),
		dr(dir + "/end.json"),
		offsets("--topic ef1 --time earliest"),
		offsets("--topic ef1 --time latest"),
		topics("--delete --topic ef1"),
	})
}

func TestExamLogDirs(t *testing.T) {
	examine(t, []step{
		topics("--create --topic el1 --partitions 2"),
		producer("el1", "k:a\n", "--reader-property parse.key=true --reader-property key.separator=:"), // the key decides the partition
		again(step{tool: "kafka-log-dirs", args: bs + "--describe --topic-list el1"}),
		{tool: "kafka-log-dirs", args: bs + "--describe --topic-list nothere"},
		{tool: "kafka-log-dirs", args: bs + "--describe --topic-list el1 --broker-list 1"},
		{tool: "kafka-log-dirs", args: bs + "--describe --topic-list el1 --broker-list 9"},
		{tool: "kafka-log-dirs", args: bs},
		topics("--delete --topic el1"),
	})
}

// apiLine is one API in what kafka-broker-api-versions prints.
var apiLine = regexp.MustCompile(`(?m)^\t(\w+)\((\d+)\): (.*?),?$`)

// docLine is a row of docs/protocol-support.md: key, name, Kafka's versions, kaja's, and what differs.
var docLine = regexp.MustCompile(`(?m)^\| (\d+) \| (\w+) \| ([^|]*) \| ([^|]*?) ?\| (.*?) ?\|$`)

// documented is what docs/protocol-support.md tells of Kafka's APIs, as kafka-broker-api-versions writes it, and the keys that it says
// kaja does not serve.
func documented(t *testing.T) (kafkas map[string]string, missing map[string]bool) {
	t.Helper()
	doc, err := os.ReadFile("../docs/protocol-support.md")
	if err != nil {
		t.Fatal(err)
	}
	kafkas, missing = map[string]string{}, map[string]bool{}
	for _, m := range docLine.FindAllStringSubmatch(string(doc), -1) {
		if m[3] == "not advertised" {
			continue
		}
		low, high, _ := strings.Cut(m[3], "–")
		usable := low + " to " + high
		if high == "" {
			usable = low
		}
		kafkas[m[1]] = m[2] + ": " + usable
		if m[4] == "" {
			missing[m[1]] = true
			if m[5] == "" {
				t.Errorf("%s is not served, and docs/protocol-support.md does not say why", m[2])
			}
		}
	}
	if len(kafkas) < 40 {
		t.Fatalf("only %d rows of docs/protocol-support.md are recognised", len(kafkas))
	}
	return kafkas, missing
}

func TestExamAPIVersions(t *testing.T) {
	need(t, "java")
	read := func(b *target.Broker) map[string]string {
		r := tool(t, javatool.Command{Tool: "kafka-broker-api-versions", Args: []string{"--bootstrap-server", b.Addr}})
		if r.Exit != 0 || !strings.HasPrefix(r.Out, b.Addr+" (id: 1 rack: null isFenced: false) -> (\n") {
			t.Fatalf("kafka-broker-api-versions on %s: exit %d\n%.500s\n%s", b.Kind, r.Exit, r.Out, r.Err)
		}
		apis := map[string]string{}
		for _, m := range apiLine.FindAllStringSubmatch(r.Out, -1) {
			apis[m[2]] = m[1] + ": " + m[3]
		}
		return apis
	}
	got, want := read(sharedBroker(t)), read(examReference(t))
	if len(want) < 40 {
		t.Fatalf("only %d APIs recognised in Kafka's output", len(want))
	}
	listed, missing := documented(t)
	advertised := map[string]string{}
	for key, line := range want {
		if theirs, _, usable := strings.Cut(line, " [usable"); usable {
			advertised[key] = theirs
		}
	}
	if diff := cmp.Diff(advertised, listed); diff != "" {
		t.Errorf("Kafka's APIs (-as it says +as docs/protocol-support.md says)\n%s", diff)
	}
	if kind(t) == target.Kaja {
		for key := range missing {
			if line, there := got[key]; there && !strings.HasSuffix(line, ": UNSUPPORTED") {
				t.Errorf("%s is served, and docs/protocol-support.md says that it is not", line)
			}
			delete(got, key)
			delete(want, key)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("API versions (-Kafka 4.4 +%s)\n%s", kind(t), diff)
	}
}
