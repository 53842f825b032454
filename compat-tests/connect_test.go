package compattests_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
)

// connectWithin bounds what Connect needs for a start, a rebalance or a flush, on a busy machine.
const connectWithin = 2 * time.Minute

// javaClass is the command line of a class of a set of jars, in a small JVM.
func javaClass(jars, class string, args ...string) []string {
	return append([]string{"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(jars, "*"), class}, args...)
}

// writeProperties writes a Java properties file and gives its path. No value has what would have to be escaped.
func writeProperties(t *testing.T, path string, settings map[string]string) string {
	t.Helper()
	var text strings.Builder
	for k, v := range settings {
		fmt.Fprintf(&text, "%s=%s\n", k, v)
	}
	writeFile(t, path, text.String())
	return path
}

// appendLines adds the lines from to to-1 to a file.
func appendLines(t *testing.T, path string, from, to int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(numbers(from, to-1))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// awaitFile waits until a file satisfies a condition, given as what is wrong with its lines.
func awaitFile(t *testing.T, path string, wrong func([]string) error) {
	t.Helper()
	err := poll.Until(t.Context(), connectWithin, path, func() (bool, error) {
		data, err := os.ReadFile(path)
		if err == nil {
			err = wrong(lines(string(data)))
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// exactly wants the lines 1 to n, in order.
func exactly(n int) func([]string) error {
	return func(got []string) error {
		if want := lines(numbers(1, n)); !slices.Equal(got, want) {
			return fmt.Errorf("%d lines, want 1 to %d in order", len(got), n)
		}
		return nil
	}
}

// allOf wants each of the lines 1 to n, and no other.
func allOf(n int) func([]string) error {
	return func(got []string) error {
		got = slices.Clone(got)
		slices.Sort(got)
		want := lines(numbers(1, n))
		slices.Sort(want)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			return fmt.Errorf("%d different lines, want %d", len(got), n)
		}
		return nil
	}
}

// A standalone worker of Kafka Connect copies a file through a topic to another, and goes on where it was when it is started again.
func TestConnectStandalone(t *testing.T) {
	set := need(t, "connect")
	b, dir := ownBroker(t, nil), t.TempDir() // its group stays: others list all of a shared broker's
	in, out, topic := filepath.Join(dir, "in.txt"), filepath.Join(dir, "out.txt"), fresh(t, "lines")
	worker := writeProperties(t, filepath.Join(dir, "worker.properties"), map[string]string{
		"bootstrap.servers": b.Addr, "listeners": "http://" + freeAddr(t), "plugin.discovery": "service_load", "plugin.path": set.ConnectPlugins(),
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"offset.storage.file.filename": filepath.Join(dir, "offsets"), "offset.flush.interval.ms": "200",
	})
	source := writeProperties(t, filepath.Join(dir, "source.properties"), map[string]string{
		"name": "source", "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "file": in, "topic": topic,
	})
	sink := writeProperties(t, filepath.Join(dir, "sink.properties"), map[string]string{
		"name": fresh(t, "sink"), "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "file": out, "topics": topic,
	})
	command := javaClass(set.Connect(), "org.apache.kafka.connect.cli.ConnectStandalone", worker, source, sink)
	for round := range 2 {
		appendLines(t, in, round*400+1, round*400+401)
		p := startFollowing(t, nil, command...)
		awaitFile(t, out, exactly((round+1)*400))
		p.terminate(t, "the worker")
	}
	if err := exactly(800)(committedValues(t, b.Addr, topic)); err != nil {
		t.Error("in the topic:", err)
	}
}

// connectWorker is a worker of a distributed Kafka Connect.
type connectWorker struct {
	url string
	*process
}

// startWorker starts a distributed worker and waits until it answers.
func startWorker(t *testing.T, bootstrap string, replicas int) *connectWorker {
	t.Helper()
	set := need(t, "connect")
	address, rf := freeAddr(t), fmt.Sprint(replicas)
	file := writeProperties(t, filepath.Join(t.TempDir(), "worker.properties"), map[string]string{
		"bootstrap.servers": bootstrap, "listeners": "http://" + address, "plugin.discovery": "service_load", "plugin.path": set.ConnectPlugins(),
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.storage.StringConverter",
		"group.id": "connect-cluster", "exactly.once.source.support": "enabled", "offset.flush.interval.ms": "500",
		"config.storage.topic": "connect-configs", "config.storage.replication.factor": rf,
		"offset.storage.topic": "connect-offsets", "offset.storage.replication.factor": rf, "offset.storage.partitions": "5",
		"status.storage.topic": "connect-status", "status.storage.replication.factor": rf, "status.storage.partitions": "3",
		"scheduled.rebalance.max.delay.ms": "1000", "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000",
	})
	w := &connectWorker{url: "http://" + address}
	w.process = startFollowing(t, nil, javaClass(set.Connect(), "org.apache.kafka.connect.cli.ConnectDistributed", file)...)
	var connectors []string
	w.await(t, "the worker answers", "/connectors", &connectors, func() error { return nil })
	return w
}

// call makes a request to the worker and decodes the answer.
func (w *connectWorker) call(t *testing.T, method, path string, body, answer any) error {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err = io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return json.Unmarshal(text, answer)
}

// await asks until the answer has nothing wrong.
func (w *connectWorker) await(t *testing.T, what, path string, answer any, wrong func() error) {
	t.Helper()
	err := poll.Until(t.Context(), connectWithin, what, func() (bool, error) {
		select {
		case <-w.done:
			t.Fatalf("%s: the worker has ended", what)
		default:
		}
		err := w.call(t, http.MethodGet, path, nil, answer)
		if err == nil {
			err = wrong()
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// put makes a connector or changes it. While workers rebalance they refuse that with 409; it is tried again.
func (w *connectWorker) put(t *testing.T, name string, config map[string]string) {
	t.Helper()
	err := poll.Until(t.Context(), connectWithin, "connector "+name, func() (bool, error) {
		var answer any
		err := w.call(t, http.MethodPut, "/connectors/"+name+"/config", config, &answer)
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// connectorStatus is what a worker says of a connector.
type connectorStatus struct {
	Connector connectPart
	Tasks     []connectPart
}

type connectPart struct {
	State    string
	WorkerID string `json:"worker_id"`
	Trace    string
}

// running waits until a connector and its one task run, on one of the workers, and gives the worker of the task.
func (w *connectWorker) running(t *testing.T, name string, workers ...*connectWorker) *connectWorker {
	t.Helper()
	var s connectorStatus
	var on *connectWorker
	w.await(t, name+" runs", "/connectors/"+name+"/status", &s, func() error {
		if s.Connector.State != "RUNNING" || len(s.Tasks) != 1 || s.Tasks[0].State != "RUNNING" {
			return fmt.Errorf("status %+v", s)
		}
		for _, candidate := range workers {
			if "http://"+s.Tasks[0].WorkerID == candidate.url {
				on = candidate
				return nil
			}
		}
		return fmt.Errorf("the task is on %s", s.Tasks[0].WorkerID)
	})
	return on
}

// Two distributed workers of Kafka Connect with an exactly-once source; the one that has its task is killed, the other takes over:
// every line is in the topic once and in order, and in the sink's file. The worker's topics are compacted, with the partitions that it
// asked for.
func TestConnectDistributed(t *testing.T) {
	need(t, "connect")
	onNodesLong(t, func(t *testing.T, nodes []*target.Broker) {
		bootstrap, dir := addresses(nodes), t.TempDir()
		in, out := filepath.Join(dir, "in.txt"), filepath.Join(dir, "out.txt")
		makeTopics(t, bootstrap, 1, len(nodes), "connected") // what a source's producer has made by itself has one replica
		workers := []*connectWorker{startWorker(t, bootstrap, len(nodes)), startWorker(t, bootstrap, len(nodes))}
		appendLines(t, in, 1, 501)
		workers[0].put(t, "source", map[string]string{
			"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": "1", "file": in, "topic": "connected",
			"exactly.once.support": "required", "transaction.boundary": "poll",
		})
		workers[1].put(t, "sink", map[string]string{
			"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "tasks.max": "1", "file": out, "topics": "connected",
			"consumer.override.isolation.level": "read_committed",
		})
		killed := workers[0].running(t, "source", workers...)
		workers[1].running(t, "sink", workers...)
		awaitFile(t, out, allOf(500))
		left := workers[0]
		if killed == left {
			left = workers[1]
		}
		_ = killed.cmd.Process.Kill()
		<-killed.done
		if len(nodes) > 1 {
			if err := leaderOf(t, nodes, "connected", 0).Kill(); err != nil {
				t.Fatal(err)
			}
		}
		appendLines(t, in, 501, 1001)
		left.running(t, "source", left)
		left.running(t, "sink", left)
		awaitFile(t, out, allOf(1000))
		if err := exactly(1000)(committedValues(t, bootstrap, "connected")); err != nil {
			t.Error("in the topic:", err)
		}
		third := startWorker(t, bootstrap, len(nodes))
		appendLines(t, in, 1001, 1201)
		left.put(t, "source", map[string]string{
			"connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector", "tasks.max": "1", "file": in, "topic": "connected",
			"exactly.once.support": "required", "transaction.boundary": "poll", "batch.size": "300", // of less than what is there the task leaves the rest in its buffer
		})
		awaitFile(t, out, allOf(1200))
		third.running(t, "source", left, third)
		if err := exactly(1200)(committedValues(t, bootstrap, "connected")); err != nil {
			t.Error("in the topic:", err)
		}
		checkConnectTopics(t, bootstrap)
	})
}

func checkConnectTopics(t *testing.T, bootstrap string) {
	t.Helper()
	admin := kadm.NewClient(clientAt(t, bootstrap))
	for topic, partitions := range map[string]int{"connect-configs": 1, "connect-offsets": 5, "connect-status": 3} {
		described, err := admin.ListTopics(t.Context(), topic)
		if err != nil || len(described[topic].Partitions) != partitions {
			t.Errorf("%s has %d partitions (%v), want %d", topic, len(described[topic].Partitions), err, partitions)
		}
		configs, err := admin.DescribeTopicConfigs(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		policy := ""
		for _, c := range configs[0].Configs {
			if c.Key == "cleanup.policy" {
				policy = c.MaybeValue()
			}
		}
		if policy != "compact" {
			t.Errorf("%s has the cleanup policy %q", topic, policy)
		}
	}
}
