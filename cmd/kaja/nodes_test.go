package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
)

// nodeSecret is what the nodes of these tests share.
const nodeSecret = "a secret of this cluster alone"

// onDisk is an app that reads files and directories of this machine, with no environment.
func onDisk(out, errOut *buffer) *app {
	return &app{stdin: strings.NewReader(""), stdout: out, stderr: errOut, started: time.Now(), signals: make(chan os.Signal), readFile: os.ReadFile, hostname: os.Hostname}
}

// nodeCommand runs `kaja node` and what follows it, with settings as --set gives them.
func nodeCommand(verb string, settings ...string) (code int, stdout, stderr string) {
	var out, errOut buffer
	args := []string{"node", verb}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	code = onDisk(&out, &errOut).run(args)
	return code, out.String(), errOut.String()
}

// joinable are the settings of a node that others can join: at controller they take other nodes, at client clients.
func joinable(dir, client, controller string) []string {
	listeners := "PLAINTEXT://" + client + ",CONTROLLER://" + controller
	return []string{"log.dirs=" + dir, "listeners=" + listeners, "advertised.listeners=" + listeners, "controller.listener.names=CONTROLLER",
		"kaja.cluster.secret=" + nodeSecret, "kaja.http.listener="}
}

// running starts the node that the settings describe. stop ends it.
func running(t *testing.T, settings []string) (b *broker.Broker, stop func()) {
	t.Helper()
	cfg, _, err := onDisk(nil, nil).load(startFlags{set: settings})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = broker.New(quietEnv(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(stop)
	return b, stop
}

// Of a node that runs `kaja node token` prints one string with its address, the cluster's id and the secret, and nothing else.
// `kaja start --token` makes settings of it, and a node that is given nothing besides joins.
func TestNodeToken(t *testing.T) {
	client, controller := net.JoinHostPort("127.0.0.1", freePort(t)), net.JoinHostPort("127.0.0.1", freePort(t))
	settings := joinable(t.TempDir(), client, controller)
	b, _ := running(t, settings)

	code, out, stderr := nodeCommand("token", settings...)
	want := token{Address: controller, ClusterID: b.ClusterID(), Secret: nodeSecret}
	if code != exitOK || out != want.String()+"\n" || stderr != "" {
		t.Fatalf("exit %d, %q, %q; want %q", code, out, stderr, want)
	}
	text := strings.TrimSuffix(out, "\n")
	if got, err := parseToken(text); err != nil || got != want || !regexp.MustCompile(`^kaja1\.[A-Za-z0-9_-]+$`).MatchString(text) {
		t.Errorf("the token %q holds %+v: %v", text, got, err)
	}
	code, out, stderr = nodeCommand("add", settings...)
	if command := "Run this on the new machine; the port must be reachable from the others:\n\n" +
		"  kaja start --set listeners=PLAINTEXT://:9092 --join " + controller + " --token " + text + "\n"; code != exitOK || out != command || stderr != "" {
		t.Errorf("exit %d\n%s%s\nwant\n%s", code, out, stderr, command)
	}

	for _, tt := range []struct {
		name, join, servers string
	}{
		{"the token alone", "", controller},
		{"--join says where", "other:9093", "other:9093"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"start", "--set", "node.id=2", "--token", text}
			if tt.join != "" {
				args = append(args, "--join", tt.join)
			}
			r := run(t, &fakeNode{start: fine, close: fine}, nil, nil, []os.Signal{os.Interrupt}, args...)
			if r.code != exitOK {
				t.Fatalf("exit %d: %s", r.code, r.err)
			}
			if at := r.cfg.List("controller.quorum.bootstrap.servers"); !slices.Equal(at, []string{tt.servers}) ||
				r.cfg.String("kaja.cluster.id") != b.ClusterID() || r.cfg.String("kaja.cluster.secret") != nodeSecret {
				t.Errorf("it joins at %q the cluster %q by the secret %q", at, r.cfg.String("kaja.cluster.id"), r.cfg.String("kaja.cluster.secret"))
			}
		})
	}
	joins(t, text, client)
}

// joins starts another node with the token, and looks at whom the node at addr then knows.
func joins(t *testing.T, text, addr string) {
	t.Helper()
	second := net.JoinHostPort("127.0.0.1", freePort(t))
	signals, ready, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan int, 1)
	var errOut buffer
	a := onDisk(nil, &errOut)
	a.stdout, a.signals = &announced{want: " is ready after ", ready: ready}, signals
	a.newNode = func(_ *slog.Logger, _ *slog.LevelVar, cfg *config.Config) (node, error) {
		return broker.New(quietEnv(), cfg)
	}
	args := []string{"start", "--token", text, "--set", "log.dirs=" + t.TempDir(), "--set", "listeners=PLAINTEXT://" + second, "--set", "kaja.http.listener="}
	go func() { ended <- a.run(args) }()
	select {
	case <-ready:
	case code := <-ended:
		t.Fatalf("the node that joins has ended with %d: %s", code, &errOut)
	}
	code, out, stderr := cli("", "node", "list", "--json", "-b", addr)
	var nodes []listedNode
	if err := json.Unmarshal([]byte(out), &nodes); code != exitOK || err != nil {
		t.Fatalf("exit %d, %v: %s%s", code, err, out, stderr)
	}
	for i := range nodes {
		nodes[i].Behind = nil // it changes with every heartbeat
	}
	if want := []listedNode{{ID: 1, Quorum: "leads", Broker: "up", Host: addr}, {ID: 2, Quorum: "follows", Broker: "up", Host: second}}; !slices.Equal(nodes, want) {
		t.Errorf("the nodes are %+v, want %+v", nodes, want)
	}
	signals <- os.Interrupt
	if code := <-ended; code != exitOK {
		t.Errorf("the node that joined has ended with %d: %s", code, &errOut)
	}
}

// announced closes ready once it was written what it waits for.
type announced struct {
	buffer
	want  string
	ready chan struct{}
}

func (s *announced) Write(p []byte) (int, error) {
	before := strings.Contains(s.String(), s.want)
	n, err := s.buffer.Write(p)
	if !before && strings.Contains(s.String(), s.want) {
		close(s.ready)
	}
	return n, err
}

// A node that others cannot reach, or that shares nothing with them, is told what to set first, and what it is told will do. One
// whose settings would do is told what else is wrong.
func TestNodeTokenSaysWhatToSetFirst(t *testing.T) {
	const (
		head         = "      Set this first, and start the node again:\n"
		noSecret     = "kaja: make a token: this node has no secret that other nodes could share\n" + head + "        kaja.cluster.secret=SECRET\n"
		unreached    = "kaja: make a token: other machines cannot reach this node, which listens on "
		listeners    = "        listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n        controller.listener.names=CONTROLLER\n"
		secret       = "kaja.cluster.secret=" + nodeSecret
		toController = "controller.listener.names=CONTROLLER"
	)
	certified := []string{"controller.listener.names=CONTROLLER", "inter.broker.listener.name=INTERNAL",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL", "ssl.client.auth=required",
		"ssl.keystore.type=PEM", "ssl.keystore.location=/nowhere/node.pem", "ssl.truststore.type=PEM", "ssl.truststore.location=/nowhere/ca.pem"}
	for _, tt := range []struct {
		name string
		set  []string
		want string
	}{
		{"no setting at all", nil, noSecret + listeners},
		{"a secret but no controller listener", []string{secret}, unreached + "localhost only\n" + head + listeners},
		{"a controller listener of this machine alone", []string{secret, toController, "listeners=PLAINTEXT://:9092,CONTROLLER://127.0.0.1:9093"},
			unreached + "127.0.0.1 only\n" + head + listeners},
		{"by IPv6", []string{secret, toController, "listeners=PLAINTEXT://:9092,CONTROLLER://[::1]:9093"}, unreached + "::1 only\n" + head + listeners},
		{"no secret", []string{"listeners=PLAINTEXT://:9092"}, noSecret},
		{"a controller listener but no secret", []string{toController, "listeners=PLAINTEXT://:9092,CONTROLLER://:9093"}, noSecret},
		{"certificates", append([]string{"listeners=PLAINTEXT://:9092,INTERNAL://:9094,CONTROLLER://localhost:9095"}, certified...),
			unreached + "localhost only\n" + head + "        listeners=PLAINTEXT://:9092,INTERNAL://:9094,CONTROLLER://:9095\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			settings := append([]string{"log.dirs=" + dir}, tt.set...)
			code, out, stderr := nodeCommand("token", settings...)
			if got := regexp.MustCompile(`secret=[A-Za-z0-9_-]{44}\n`).ReplaceAllString(stderr, "secret=SECRET\n"); code != exitFatal || out != "" || got != tt.want {
				t.Fatalf("exit %d\n%s%s\nwant\n%s", code, out, got, tt.want)
			}
			// With what it is told to set there is nothing left to set.
			_, told, _ := strings.Cut(stderr, head)
			for line := range strings.Lines(told) {
				settings = append(settings, strings.TrimSpace(line))
			}
			code, out, stderr = nodeCommand("token", settings...)
			want := "kaja: make a token: " + dir + " belongs to no cluster yet\n      Start the node first, and name its settings by --config and --set as at its start.\n"
			if code != exitFatal || out != "" || stderr != want {
				t.Errorf("with these settings: exit %d\n%s%s\nwant\n%s", code, out, stderr, want)
			}
		})
	}
	t.Run("a node that has stopped", func(t *testing.T) {
		controller := net.JoinHostPort("127.0.0.1", freePort(t))
		settings := joinable(t.TempDir(), net.JoinHostPort("127.0.0.1", freePort(t)), controller)
		_, stop := running(t, settings)
		stop()
		code, out, stderr := nodeCommand("token", settings...)
		want := "kaja: make a token: this node does not answer at " + controller + ": dial tcp " + controller + ": connect: connection refused\n" +
			"      Start it; if it runs, advertised.listeners must name an address of CONTROLLER that other machines reach.\n"
		if code != exitFatal || out != "" || stderr != want {
			t.Errorf("exit %d\n%s%s\nwant\n%s", code, out, stderr, want)
		}
	})
}
