package compattests_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/clients"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// needBuilt is need for a program that takes minutes to build: only the long tests use it, whether it is there or not.
func needBuilt(t *testing.T, name string) clients.Set {
	t.Helper()
	if !long() {
		t.Skip("its installation takes minutes: KAJA_COMPAT_LONG=1")
	}
	return need(t, name)
}

// awaitNumbered waits until prefix with each of the numbers from 000 on, n of them, is in a file.
func awaitNumbered(t *testing.T, p *process, path, prefix string, n int) {
	t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("%s%03d", prefix, i))
	}
	awaitFile(t, path, func(got []string) error {
		select {
		case <-p.done:
			t.Fatal("the pipeline has ended")
		default:
		}
		var found []string
		for _, w := range want {
			if strings.Contains(strings.Join(got, "\n"), w) {
				found = append(found, w)
			}
		}
		if !slices.Equal(found, want) {
			return fmt.Errorf("%d of %d", len(found), len(want))
		}
		return nil
	})
}

// rsyslog takes lines from TCP and sends them to a topic (omkafka); a second one reads the topic in a group (imkafka) into a file.
func TestRsyslog(t *testing.T) {
	need(t, "rsyslog")
	onNodes(t, func(t *testing.T, nodes []*target.Broker) {
		dir := t.TempDir()
		makeTopics(t, addresses(nodes), 2, len(nodes), "syslog")
		tcp, out := freeAddr(t), filepath.Join(dir, "out.txt")
		host, port, _ := net.SplitHostPort(tcp)
		start := func(name, config string) *process {
			path := filepath.Join(dir, name+".conf")
			writeFile(t, path, fmt.Sprintf("global(workDirectory=%q)\n%s", dir, config))
			return startFollowing(t, nil, "/usr/sbin/rsyslogd", "-n", "-f", path, "-i", filepath.Join(dir, name+".pid"))
		}
		sender := start("sender", `module(load="imtcp")
module(load="omkafka")
input(type="imtcp" address="`+host+`" port="`+port+`")
template(name="line" type="string" string="%msg%")
action(type="omkafka" broker=`+quoted(nodes)+` topic="syslog" template="line" partitions.auto="on"
  confParam=["acks=all","compression.codec=snappy","queue.buffering.max.ms=20"] action.resumeRetryCount="-1")
`)
		reader := start("reader", `module(load="imkafka")
module(load="omfile")
template(name="line" type="string" string="%msg%\n")
ruleset(name="all") { action(type="omfile" file="`+out+`" template="line") }
input(type="imkafka" topic="syslog" broker=`+quoted(nodes)+` consumergroup="rsyslog" ruleset="all" parseHostname="off" confParam=["auto.offset.reset=earliest"])
`)
		send := func(from, to int) {
			t.Helper()
			err := poll.Until(t.Context(), connectWithin, "rsyslog takes lines", func() (bool, error) {
				select {
				case <-sender.done:
					t.Fatal("rsyslog has ended")
				default:
				}
				conn, err := net.Dial("tcp", tcp)
				if err != nil {
					return false, err
				}
				defer func() { _ = conn.Close() }()
				for i := from; i < to; i++ {
					if _, err := fmt.Fprintf(conn, "<13>Nov 30 12:00:00 host app: line %03d\n", i); err != nil {
						t.Fatal(err)
					}
				}
				return true, nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		send(0, 200)
		awaitNumbered(t, reader, out, "line ", 200)
		loseNode(t, nodes)
		send(200, 400)
		awaitNumbered(t, reader, out, "line ", 400)
	})
}

// quoted is the addresses of nodes as a list of strings in JSON, TOML, YAML and RainerScript.
func quoted(nodes []*target.Broker) string {
	return `["` + strings.ReplaceAll(addresses(nodes), ",", `","`) + `"]`
}

// loseNode kills one of several nodes for good, or the only one, which is started again.
func loseNode(t *testing.T, nodes []*target.Broker) {
	t.Helper()
	if len(nodes) == 1 {
		restart(t, nodes[0], false)
		return
	}
	if err := nodes[0].Kill(); err != nil {
		t.Fatal(err)
	}
}

// Telegraf writes the lines of a file as metrics to a topic, and another one reads them in a group into a file. A node is killed
// under them.
func TestTelegraf(t *testing.T) {
	set := needBuilt(t, "telegraf")
	onNodes(t, func(t *testing.T, nodes []*target.Broker) {
		dir := t.TempDir()
		in, out := filepath.Join(dir, "in.txt"), filepath.Join(dir, "out.txt")
		start := func(name, config string) *process {
			path := filepath.Join(dir, name+".conf")
			writeFile(t, path, "[agent]\n  interval = \"1s\"\n  flush_interval = \"1s\"\n  omit_hostname = true\n"+config)
			return startFollowing(t, nil, set.Built("telegraf"), "--config", path)
		}
		metrics := func(n int) {
			var lines strings.Builder
			for i := range n {
				fmt.Fprintf(&lines, "birds,kind=rook name=\"bird %03d\" %d\n", i, time.Now().UnixNano()+int64(i))
			}
			writeFile(t, in, lines.String())
		}
		metrics(100)
		codecs := []string{"0", "1", "2", "3", "4"}
		var readers []*process
		for _, codec := range codecs {
			makeTopics(t, addresses(nodes), 2, len(nodes), "telegraf"+codec)
			start("writer"+codec, fmt.Sprintf("[[inputs.file]]\n  files = [%q]\n[[outputs.kafka]]\n  brokers = %s\n  topic = \"telegraf%s\"\n  version = \"2.1.0\"\n  compression_codec = %s\n  required_acks = -1\n  idempotent_writes = %v\n  max_retry = 3\n",
				in, quoted(nodes), codec, codec, codec != "0"))
			readers = append(readers, start("reader"+codec, fmt.Sprintf("[[inputs.kafka_consumer]]\n  brokers = %s\n  topics = [\"telegraf%s\"]\n  consumer_group = \"telegraf%s\"\n  offset = \"oldest\"\n  version = \"2.1.0\"\n  data_format = \"influx\"\n[[outputs.file]]\n  files = [%q]\n",
				quoted(nodes), codec, codec, out+codec)))
			awaitNumbered(t, readers[len(readers)-1], out+codec, "bird ", 100)
		}
		loseNode(t, nodes)
		metrics(200)
		for i, codec := range codecs {
			awaitNumbered(t, readers[i], out+codec, "bird ", 200)
		}
	})
}

// The OpenTelemetry collector takes logs by OTLP and sends them to a topic, and reads the topic in a group and prints them. A node is
// killed under it.
func TestOpenTelemetryCollector(t *testing.T) {
	set := needBuilt(t, "otelcol")
	onNodes(t, func(t *testing.T, nodes []*target.Broker) {
		otlp, config := freeAddr(t), filepath.Join(t.TempDir(), "config.yaml")
		makeTopics(t, addresses(nodes), 2, len(nodes), "otlp_logs")
		writeFile(t, config, `receivers:
  otlp: {protocols: {http: {endpoint: "`+otlp+`"}}}
  kafka: {brokers: `+quoted(nodes)+`, group_id: otel, initial_offset: earliest, logs: {topics: [otlp_logs]}}
exporters:
  kafka: {brokers: `+quoted(nodes)+`, logs: {topic: otlp_logs}, producer: {compression: zstd, required_acks: -1}}
  debug: {verbosity: detailed}
service:
  telemetry: {metrics: {level: none}}
  pipelines:
    logs/in: {receivers: [otlp], exporters: [kafka]}
    logs/out: {receivers: [kafka], exporters: [debug]}
`)
		p := startFollowing(t, nil, set.Built("otelcol"), "--config", config)
		post := func(i int) {
			t.Helper()
			body := fmt.Appendf(nil, `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"log %03d"}}]}]}]}`, i)
			err := poll.Until(t.Context(), connectWithin, "the collector takes logs", func() (bool, error) {
				select {
				case <-p.done:
					t.Fatal("the collector has ended")
				default:
				}
				resp, err := http.Post("http://"+otlp+"/v1/logs", "application/json", bytes.NewReader(body))
				if err != nil {
					return false, err
				}
				defer func() { _ = resp.Body.Close() }()
				return resp.StatusCode == http.StatusOK, fmt.Errorf("%s", resp.Status)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		back := func(n int) {
			t.Helper()
			err := poll.Until(t.Context(), connectWithin, "all logs come back", func() (bool, error) {
				printed := p.err.String() + p.out.String()
				found := 0
				for i := range n {
					if strings.Contains(printed, fmt.Sprintf("Str(log %03d)", i)) {
						found++
					}
				}
				return found == n, fmt.Errorf("%d of %d", found, n)
			})
			if err != nil {
				t.Error(err)
			}
		}
		const logs = 50
		for i := range logs {
			post(i)
		}
		back(logs)
		loseNode(t, nodes)
		for i := range logs {
			post(logs + i)
		}
		back(2 * logs)
	})
}
