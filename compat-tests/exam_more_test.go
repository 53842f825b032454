package compattests_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestExamLeaderElection(t *testing.T) {
	election := func(args string) step { return step{tool: "kafka-leader-election", args: bs + args} }
	examine(t, []step{
		topics("--create --topic el1 --partitions 2 --replication-factor 1"),
		again(topics("--describe --topic el1")),
		election("--election-type preferred --topic el1 --partition 0"),
		election("--election-type unclean --topic el1 --partition 1"),
		election("--election-type preferred --topic el1 --partition 7"),
		election("--election-type preferred --topic nothere --partition 0"),
		election("--election-type preferred --topic el1"),
		election("--election-type newest --topic el1 --partition 0"),
		election("--election-type preferred"),
	})
}

// quorums are numbers and ids, which are each quorum's own.
var quorums = []rule{ //nolint:gochecknoglobals // a table
	{regexp.MustCompile(`\b[A-Za-z0-9_-]{22}\b`), "ID"},
	{regexp.MustCompile(`-?\b\d+\b`), "N"},
	{regexp.MustCompile(`[ \t]+`), " "}, // columns are as wide as their numbers
}

// kafka-metadata-quorum describes the quorum in the words in which it describes Kafka's, but for numbers and ids: of a node with a
// controller listener as Kafka's has one, and of a node as `kaja start` makes it, whose controller is reached where its broker is.
func TestExamMetadataQuorum(t *testing.T) {
	need(t, "java")
	read := func(t *testing.T, b *target.Broker, args string) []string {
		r := tool(t, javatool.Command{Tool: "kafka-metadata-quorum", Args: strings.Fields("--bootstrap-server " + b.Addr + " " + args)})
		t.Logf("%s prints for %s:\n%s%s", b.Kind, args, r.Out, r.Err)
		out := []string{fmt.Sprint("exit ", r.Exit)}
		for _, line := range append(lines(r.Out), lines(r.Err)...) {
			if strings.HasPrefix(line, "\tat ") {
				continue
			}
			for _, q := range quorums {
				line = q.pattern.ReplaceAllString(line, q.with)
			}
			out = append(out, strings.TrimSpace(line))
		}
		return out
	}
	want := examReference(t)
	apart := sharedBroker(t)
	if kind(t) == target.Kaja {
		apart = kajaWithController(t)
	}
	for _, args := range []string{"describe --status", "describe --replication", "describe --replication --human-readable", "describe --status --replication",
		"describe", "describe --status --human-readable", "frobnicate"} {
		w := read(t, want, args)
		if diff := compareTranscripts(w, read(t, apart, args)); diff != "" {
			t.Errorf("%s (-Kafka 4.4 +%s)\n%s", args, apart.Kind, diff)
		}
		plain := read(t, sharedBroker(t), args)
		for i := range plain {
			plain[i] = strings.ReplaceAll(plain[i], `["PLAINTEXT://`, `["CONTROLLER://`)
		}
		if diff := compareTranscripts(w, plain); diff != "" {
			t.Errorf("%s, without a controller listener (-Kafka 4.4 +%s)\n%s", args, kind(t), diff)
		}
	}
}

// kajaWithController starts a node of kaja with a controller listener, as every Kafka has one.
func kajaWithController(t *testing.T) *target.Broker {
	t.Helper()
	o := theSuite.options(t, target.Kaja)
	o.Dir = t.TempDir()
	b, err := target.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.Set("listeners", "PLAINTEXT://"+b.Addr+",CONTROLLER://"+freeAddr(t))
	b.Set("controller.listener.names", "CONTROLLER")
	b.Set("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT")
	t.Cleanup(func() { _ = b.Kill() })
	keepLogOnFailure(t, b)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// verified is a report of kafka-replica-verification that both partitions are the same on all replicas up to their five records.
var verified = regexp.MustCompile(`(?m)^\S+ \S+: max lag is 0 for partition rv1-[01] at offset 5 among 2 partitions$`)

// kafka-replica-verification reads every replica as a debugging consumer (replica id -2) and compares: on Kafka, on one node and on three
// it comes to the same report.
func TestExamReplicaVerification(t *testing.T) {
	set := need(t, "java")
	run := func(bootstrap string) {
		t.Helper()
		client := clientAt(t, bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range int32(10) {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "rv1", Partition: i % 2, Value: []byte("verified")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		p := startFollowing(t, nil, javaClass(set.Jars(), "org.apache.kafka.tools.ReplicaVerificationTool", "--broker-list", bootstrap,
			"--topics-include", "rv1", "--report-interval-ms", "300", "--max-wait-ms", "100")...)
		err := poll.Until(t.Context(), connectWithin, "a report", func() (bool, error) {
			select {
			case <-p.done:
				t.Fatal("the tool has ended")
			default:
			}
			return verified.MatchString(p.out.String()), fmt.Errorf("%s", p.out.String())
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	for _, b := range []*target.Broker{sharedBroker(t), examReference(t)} {
		makeTopic(t, b, "rv1", 2, nil)
		run(b.Addr)
	}
	nodes := ownNodes(t, 3)
	makeTopics(t, addresses(nodes), 2, len(nodes), "rv1")
	run(addresses(nodes))
}

// A Fetch as replica -2 is a consumer's: with read_committed it ends before an open transaction.
func TestFetchAsADebuggingConsumer(t *testing.T) {
	b := sharedBroker(t)
	topic := fresh(t, "debug")
	makeTopic(t, b, topic, 1, nil)
	p := newRawProducer(t, b, topic, false)
	p.begin(topic, 0)
	p.send(topic, 0, 0, "undecided")
	c := dial(t, b)
	for _, replica := range []int32{-1, -2} {
		for level, want := range []bool{true, false} {
			req := fetchRequest(topic, 0, 0)
			req.ReplicaID, req.IsolationLevel = replica, int8(level)
			if got := len(fetchOnce(t, c, req).RecordBatches) > 0; got != want {
				t.Errorf("replica %d at isolation level %d gets records: %v, want %v", replica, level, got, want)
			}
		}
	}
	p.end(false)
}
