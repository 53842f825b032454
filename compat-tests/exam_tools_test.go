package compattests_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

func TestExamCluster(t *testing.T) {
	cluster := func(args string) step { return step{tool: "kafka-cluster", args: args} }
	features := func(args string) step { return step{tool: "kafka-features", args: bs + args} }
	examine(t, []step{
		cluster("cluster-id " + bs),
		cluster("list-endpoints " + bs),
		cluster("list-endpoints " + bs + "--include-fenced-brokers"),
		cluster("list-endpoints --bootstrap-controller $B"),
		features("version-mapping --release-version 4.4-IV2"),
		features("feature-dependencies --feature transaction.version=2"),
		features("frobnicate"),
	})
}

// featureLine is one feature; the epoch behind it is of the metadata.
var featureLine = regexp.MustCompile(`^Feature: (\S+)\s+(.*?)\s+Epoch: `)

// What `kafka-features describe` prints of the features that kaja has is what it prints of Kafka's.
func TestExamFeatures(t *testing.T) {
	need(t, "java")
	read := func(b *target.Broker) map[string]string {
		r := tool(t, javatool.Command{Tool: "kafka-features", Args: []string{"--bootstrap-server", b.Addr, "describe"}})
		if r.Exit != 0 {
			t.Fatalf("exit %d\n%s%s", r.Exit, r.Out, r.Err)
		}
		out := map[string]string{}
		t.Logf("%s prints:\n%s", b.Kind, r.Out)
		for _, line := range lines(r.Out) {
			if m := featureLine.FindStringSubmatch(line); m != nil {
				out[m[1]] = m[2]
			}
		}
		return out
	}
	got, want := read(sharedBroker(t)), read(examReference(t))
	for name, line := range got {
		theirs := want[name]
		switch name {
		case "metadata.version": // kaja writes the newest one only
			_, line, _ = strings.Cut(line, "Finalized")
			_, theirs, _ = strings.Cut(theirs, "Finalized")
		case "kraft.version": // its controllers are not KRaft's
			continue
		}
		if line == "" || line != theirs {
			t.Errorf("%s: %q, Kafka has %q", name, line, theirs)
		}
	}
	for _, name := range []string{"metadata.version", "transaction.version", "eligible.leader.replicas.version"} {
		if got[name] == "" {
			t.Errorf("%s is not listed", name)
		}
	}
}

func TestExamLoggers(t *testing.T) {
	alter := "--alter --entity-type broker-loggers --entity-name 1 "
	examine(t, []step{
		configs(alter + "--add-config root=WARN"),
		configs(alter + "--add-config root=loud"),
		configs(alter + "--add-config no.such.logger=DEBUG"),
		configs(alter + "--delete-config root"),
		configs("--describe --entity-type broker-loggers --entity-name 9"),
		configs("--alter --entity-type broker-loggers --entity-default --add-config root=INFO"),
	})
	read := func(b *target.Broker) []string {
		r := tool(t, javatool.Command{Tool: "kafka-configs", Args: strings.Fields("--bootstrap-server " + b.Addr + " --describe --entity-type broker-loggers --entity-name 1")})
		if r.Exit != 0 {
			t.Fatal(r.Out, r.Err)
		}
		return lines(r.Out)
	}
	want := read(examReference(t))
	got := read(sharedBroker(t))
	for _, line := range got { // Kafka has loggers of its classes besides
		if !slices.Contains(want, line) {
			t.Errorf("listed, and not by Kafka: %s", line)
		}
	}
	if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "root=") }) {
		t.Errorf("root is not listed: %q", got)
	}
}

// Every setting that `kafka-configs --describe --all` lists for a broker is one that it lists for Kafka, with the same value, source
// and synonyms, but for what says where the two brokers are.
func TestExamBrokerConfigs(t *testing.T) {
	read := func(b *target.Broker, args string) map[string]string {
		r := tool(t, javatool.Command{Tool: "kafka-configs", Args: strings.Fields("--bootstrap-server " + b.Addr + " --describe " + args)})
		if r.Exit != 0 {
			t.Fatalf("exit %d\n%s%s", r.Exit, r.Out, r.Err)
		}
		out := map[string]string{}
		for _, line := range lines(newNormalizer(b, "/nowhere").text(r.Out)) {
			name, rest, ok := strings.Cut(strings.TrimSpace(line), "=")
			if ok && strings.HasPrefix(line, "  ") {
				out[name] = rest
			}
		}
		return out
	}
	// Given to the two when they were started, each in its own way.
	started := strings.Fields(`advertised.listeners listeners log.dir log.dirs metadata.log.dir controller.quorum.voters controller.quorum.bootstrap.servers
		controller.listener.names listener.security.protocol.map inter.broker.listener.name process.roles node.id broker.id
		share.coordinator.state.topic.min.isr share.coordinator.state.topic.replication.factor
		transaction.state.log.min.isr transaction.state.log.replication.factor offsets.topic.replication.factor`)
	// Other defaults on purpose (docs/limits.md): a dead broker is replaced sooner.
	started = append(started, "broker.heartbeat.interval.ms", "broker.session.timeout.ms")
	got, want := sharedBroker(t), examReference(t)
	for _, args := range []string{"--entity-type brokers --entity-name 1 --all", "--entity-type brokers --entity-name 1", "--entity-type brokers --entity-default"} {
		ours, kafkas := read(got, args), read(want, args)
		listed := 0
		for name, value := range ours {
			if slices.Contains(started, name) || strings.HasPrefix(name, "kaja.") || strings.HasPrefix(name, "compat") {
				continue // the last are what the environment of the tests gives as KAJA_COMPAT…
			}
			listed++
			if theirs, there := kafkas[name]; !there {
				t.Errorf("%s: %s=%s is listed, and Kafka does not", args, name, value)
			} else if theirs != value {
				t.Errorf("%s: %s\n got  %s\n want %s", args, name, value, theirs)
			}
		}
		if strings.HasSuffix(args, "--all") && listed < 200 {
			t.Errorf("only %d settings are listed, Kafka has %d", listed, len(kafkas))
		}
	}
}

func TestExamOtherResources(t *testing.T) {
	examine(t, []step{
		configs("--describe --entity-type groups --entity-name nobody"),
		configs("--describe --entity-type client-metrics"),
		configs("--describe --entity-type client-metrics --entity-name nobody"),
		{tool: "kafka-client-metrics", args: bs + "--list"},
		{tool: "kafka-client-metrics", args: bs + "--describe"},
		configs("--describe --entity-type topics --entity-name er-none"),
	})
}

// digits are what a run measures or draws.
var digits = regexp.MustCompile(`\d[\d.,]*`)

// Tools that measure print the same words around their numbers.
func TestExamPerformanceTools(t *testing.T) {
	need(t, "java")
	got, want := sharedBroker(t), examReference(t)
	for _, b := range []*target.Broker{got, want} {
		for _, topic := range []string{"ep1", "ep2", "ep3"} {
			if r := tool(t, topics("--create --topic "+topic+" --partitions 1").command(b, "")); r.Exit != 0 {
				t.Fatal(r.Out, r.Err)
			}
		}
	}
	text := func(b *target.Broker, s step) []string {
		r := tool(t, s.command(b, ""))
		if r.Timeout {
			return []string{"did not end in time"}
		}
		out := []string{}
		for _, line := range lines(r.Out + r.Err) {
			if line = digits.ReplaceAllString(line, "N"); len(out) == 0 || out[len(out)-1] != line { // one line an interval
				out = append(out, line)
			}
		}
		return append(out, "exit "+string(rune('0'+r.Exit)))
	}
	for _, s := range []step{
		{tool: "kafka-producer-perf-test", args: bs + "--topic ep1 --num-records 5000 --record-size 100 --throughput -1 --command-property acks=all"},
		{tool: "kafka-producer-perf-test", args: bs + "--topic ep1 --num-records 500 --record-size 100 --throughput -1 --transaction-duration-ms 100"},
		{tool: "kafka-consumer-perf-test", args: bs + "--topic ep1 --num-records 5000 --timeout 20000"},
		{tool: "kafka-e2e-latency", args: bs + "--topic ep2 --num-records 50 --producer-acks all --record-size 20"},
	} {
		t.Run(s.tool, func(t *testing.T) {
			w, g := text(want, s), text(got, s)
			t.Logf("Kafka 4.4 prints:\n%s", strings.Join(w, "\n"))
			if diff := compareTranscripts(w, g); diff != "" {
				t.Errorf("(-Kafka 4.4 +%s)\n%s", got.Kind, diff)
			}
		})
	}
}

// eventTime is what the verifiable tools draw or measure.
var eventTime = regexp.MustCompile(`"(timestamp|avg_throughput|minOffset)":[\d.Ee-]+`)

// The verifiable producer and consumer tell what was acknowledged and read, in order, as with Kafka.
func TestExamVerifiableTools(t *testing.T) {
	need(t, "java")
	got, want := sharedBroker(t), examReference(t)
	run := func(b *target.Broker) []string {
		var out []string
		for _, s := range []step{
			topics("--create --topic ev1 --partitions 1"),
			{tool: "kafka-verifiable-producer", args: bs + "--topic ev1 --max-messages 20 --acks -1 --throughput 1000"},
			{tool: "kafka-verifiable-consumer", args: bs + "--topic ev1 --group-id ev-g --max-messages 20 --verbose --reset-policy earliest", timeout: 30 * time.Second},
			{tool: "kafka-verifiable-consumer", args: bs + "--topic ev1 --group-id ev-h --group-instance-id i1 --max-messages 5 --assignment-strategy org.apache.kafka.clients.consumer.CooperativeStickyAssignor --reset-policy earliest", timeout: 30 * time.Second},
			again(groups("--describe --group ev-g")),
		} {
			r := tool(t, s.command(b, ""))
			for _, line := range newNormalizer(b, "/nowhere").transcript(r) {
				out = append(out, eventTime.ReplaceAllString(line, `"$1":N`))
			}
		}
		return out
	}
	w, g := run(want), run(got)
	t.Logf("Kafka 4.4 prints:\n%s", strings.Join(w, "\n"))
	if diff := compareTranscripts(w, g); diff != "" {
		t.Errorf("(-Kafka 4.4 +%s)\n%s", got.Kind, diff)
	}
}
