package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/vfs/memfs"
)

// testBroker starts a whole broker on a disk in memory, and gives its address.
func testBroker(t *testing.T, set map[string]string) string {
	t.Helper()
	port := freePort(t)
	addr := net.JoinHostPort("127.0.0.1", port)
	env := broker.OSEnv(slog.New(slog.DiscardHandler))
	env.FS, env.Seed = memfs.New(time.Now), 1
	reg := prometheus.NewRegistry()
	env.Registerer, env.Gatherer = reg, reg
	cfg := config.Default("/data")
	all := map[string]string{"listeners": "PLAINTEXT://" + addr, "kaja.http.listener": "", "group.initial.rebalance.delay.ms": "0",
		"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
	for k, v := range set {
		all[k] = v
	}
	for k, v := range all {
		var err error
		if cfg, err = cfg.With(k, v); err != nil {
			t.Fatal(err)
		}
	}
	b, err := broker.New(env, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if err := b.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	return addr
}

// freePort is a port that was free a moment ago: the advertised address must be known before the node starts.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// cli runs one command line in this process.
func cli(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errOut, started: time.Now(), signals: make(chan os.Signal)}
	code = a.run(args)
	return code, out.String(), errOut.String()
}

// unstable is what differs from run to run, and what stands for it.
var unstable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`(id |(?i:cluster) |"id": "|"cluster_id": ")[A-Za-z0-9_-]{22}`), "${1}ID"},
	{regexp.MustCompile(`\b[0-9][0-9.]*(µs|ms)\b`), "TIME"},
	{regexp.MustCompile(`[0-9]+ APIs`), "N APIs"},
	{regexp.MustCompile(`"timestamp":1[0-9]{12}`), `"timestamp":NOW`},
}

func stable(text, addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	text = strings.ReplaceAll(text, addr, "BROKER")
	text = strings.ReplaceAll(text, port, "PORT")
	for _, u := range unstable {
		text = u.pattern.ReplaceAllString(text, u.with)
	}
	return text
}

// TestCommands runs the scripts in testdata/cli against a real broker each: the first line of an input is the command line,
// the others are standard input.
func TestCommands(t *testing.T) {
	datadriven.Walk(t, "testdata/cli", func(t *testing.T, path string) {
		addr := testBroker(t, nil)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			line, stdin, _ := strings.Cut(d.Input, "\n")
			if stdin != "" {
				stdin += "\n"
			}
			args := strings.Fields(strings.ReplaceAll(line, "BROKER", addr))[1:]
			if !strings.Contains(line, " -b ") && d.Cmd == "run" {
				args = append(args, "-b", addr)
			}
			for i := range args {
				args[i] = strings.Trim(args[i], "'")
			}
			code, out, errOut := cli(stdin, args...)
			text := stable(out, addr)
			for l := range strings.Lines(stable(errOut, addr)) {
				text += "2> " + l
			}
			if code != 0 {
				text += fmt.Sprintf("exit %d\n", code)
			}
			return text
		})
	})
}

// TestResetRefusesActiveGroup also shows what a member looks like.
func TestResetRefusesActiveGroup(t *testing.T) {
	addr := testBroker(t, nil)
	if code, _, stderr := cli("", "produce", "t", "a", "b", "-b", addr); code != 0 {
		t.Fatal(stderr)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ClientID("reader"), kgo.InstanceID("i1"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if f := client.PollRecords(ctx, 1); f.NumRecords() != 1 {
		t.Fatalf("poll: %v", f.Err())
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := cli("", "group", "describe", "g", "-b", addr)
	want := "Group g is Stable: 1 member, coordinator 1, lag 1\n" +
		"TOPIC  PARTITION  COMMITTED  LOG-END-OFFSET  LAG  MEMBER" + strings.Repeat(" ", 35) + "CLIENT  HOST\n" +
		"t      0          1          2               1    i1-UUID" // and the same padding as before the id was taken out
	if got := stable(out, addr); code != 0 || !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "reader  127.0.0.1\n") {
		t.Errorf("describe: exit %d, %s\n%q\nwant\n%q", code, stderr, got, want)
	}
	for _, args := range [][]string{{"group", "reset", "g", "--to", "start", "--execute"}, {"group", "delete", "g"}} {
		code, out, stderr := cli("", append(args, "-b", addr)...)
		text := map[string]string{
			"reset": "kaja: reset group g: assignments can only be reset if the group is inactive, but the current state is Stable\n" +
				"      Stop its members first; \"kaja group describe\" shows who they are.\n",
			"delete": "kaja: delete group g: NON_EMPTY_GROUP: The group is not empty.\n" +
				"      Stop the group's members first; \"kaja group describe\" shows who they are.\n",
		}[args[1]]
		if code != exitFatal || out != "" || stderr != text {
			t.Errorf("%v: exit %d\n%s%s\nwant\n%s", args, code, out, stderr, text)
		}
	}
}

// TestUnreachable: nothing listens, so every command ends at once and says what to do.
func TestUnreachable(t *testing.T) {
	addr := net.JoinHostPort("127.0.0.1", freePort(t))
	began := time.Now()
	for _, args := range []string{"topic list", "group list", "cluster info", "produce t x", "consume t", "txn list"} {
		code, out, stderr := cli("", append(strings.Fields(args), "-b", addr)...)
		want := "kaja: connect to " + addr + ": connection refused\n      Is a broker running there? \"kaja start\" starts one here; --bootstrap-server names another. \"kaja doctor\" looks closer.\n"
		if code != exitUnreachable || out != "" || stderr != want {
			t.Errorf("%s: exit %d\n%s%s\nwant\n%s", args, code, out, stderr, want)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("six refusals took %v", took)
	}
}

// TestInterrupted: a signal ends a reader cleanly, with what it has read.
func TestInterrupted(t *testing.T) {
	addr := testBroker(t, nil)
	if code, _, stderr := cli("", "produce", "t", "a", "-b", addr); code != 0 {
		t.Fatal(stderr)
	}
	signals := make(chan os.Signal, 1)
	var stderr buffer
	out := &signalling{want: "a\n", signals: signals}
	a := &app{stdin: strings.NewReader(""), stdout: out, stderr: &stderr, started: time.Now(), signals: signals}
	code := a.run([]string{"consume", "t", "-o", "start", "-b", addr})
	if code != 0 || out.String() != "a\n" || stderr.String() != "Consumed 1 record.\n" {
		t.Errorf("exit %d, %q, %q", code, out.String(), stderr.String())
	}
}

// signalling sends a signal once it was written what it waits for.
type signalling struct {
	buffer
	want    string
	signals chan os.Signal
}

func (s *signalling) Write(p []byte) (int, error) {
	n, err := s.buffer.Write(p)
	if s.String() == s.want {
		s.signals <- os.Interrupt
	}
	return n, err
}

// TestDoctor: where a client would be stuck, found and told.
func TestDoctor(t *testing.T) {
	nobody := net.JoinHostPort("127.0.0.1", freePort(t))
	other := testBroker(t, nil)
	const cluster = "AAAAAAAAAAAAAAAAAAAAAQ"
	twin := testBroker(t, map[string]string{"node.id": "2", "kaja.cluster.id": cluster})
	const todo = "      Clients are sent there. Set advertised.listeners of broker 1 to an address that clients can reach.\n"
	for name, tt := range map[string]struct {
		advertised, want string
	}{
		"nobody there":    {nobody, "fail  broker 1 at ADDRESS: ADDRESS: connection refused\n" + todo},
		"another cluster": {other, "fail  broker 1 at ADDRESS: another cluster answers there\n" + todo},
		"another broker":  {twin, "fail  broker 1 at ADDRESS: another broker of the cluster answers there\n" + todo},
	} {
		t.Run(name, func(t *testing.T) {
			addr := testBroker(t, map[string]string{"advertised.listeners": "PLAINTEXT://" + tt.advertised, "kaja.cluster.id": cluster})
			code, out, stderr := cli("", "doctor", "-b", addr)
			want := "ok    bootstrap server BROKER: answers in TIME, N APIs, Produce up to version 13, Fetch up to version 18\n" +
				"ok    it is cluster ID and tells clients of 1 broker: 1 at ADDRESS\n" + tt.want +
				"ok    0 partitions, each with a leader and all its replicas in sync\n"
			if got := strings.ReplaceAll(stable(out, addr), tt.advertised, "ADDRESS"); code != exitFatal || got != want || stderr != "kaja: 1 problem: a client here would not work\n" {
				t.Errorf("exit %d, %s\n%s\nwant\n%s", code, stderr, got, want)
			}
		})
	}
	t.Run("not Kafka", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		go func() { // ends with the listener
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_ = conn.Close()
			}
		}()
		addr := l.Addr().String()
		code, out, _ := cli("", "doctor", "-b", addr)
		want := "fail  bootstrap server " + addr + ": the connection was closed on the first request\n" +
			"      It takes connections and does not answer Kafka's first request: a listener with TLS or SASL, or not Kafka at all?\n"
		if code != exitFatal || out != want {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
}

func TestDialReason(t *testing.T) {
	err := &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "kafka-1"}}
	if got, want := dialReason(err), "the name kafka-1 cannot be resolved: no such host"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
