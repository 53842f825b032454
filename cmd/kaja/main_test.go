package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
)

// fakeNode starts and closes as its functions say, and ends by itself with err after a while, 0 for never.
type fakeNode struct {
	start, close func(ctx context.Context) error
	ends         time.Duration
	err          error
	over         chan struct{} // closed when the test is
}

func block(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
func fine(context.Context) error      { return nil }

func (n *fakeNode) Start(ctx context.Context) error { return n.start(ctx) }
func (n *fakeNode) Close(ctx context.Context) error { return n.close(ctx) }

func (n *fakeNode) Wait() error {
	ends := make(<-chan time.Time)
	if n.ends > 0 {
		ends = time.After(n.ends)
	}
	select {
	case <-ends:
		return n.err
	case <-n.over:
		return nil
	}
}

func (n *fakeNode) Screen(version string, took time.Duration, ignored int) broker.Screen {
	return broker.Screen{NodeID: 7, ClusterID: "c", Dirs: []string{"/data"}, Version: version, Took: took, Ignored: ignored}
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type result struct {
	code        int
	out, err    string
	exited      int // code of an immediate end, -1 if there was none
	cfg         *config.Config
	closedAfter time.Duration
}

// run runs a command line in virtual time. The signals come one second apart, the first after one second.
func run(t *testing.T, n *fakeNode, files map[string]string, env []string, signals []os.Signal, args ...string) result {
	t.Helper()
	r := result{exited: -1}
	synctest.Test(t, func(t *testing.T) {
		var out, stderr buffer
		if n == nil {
			n = &fakeNode{}
		}
		n.over = make(chan struct{})
		c := make(chan os.Signal, 8)
		began := time.Now()
		a := &app{stdout: &out, stderr: &stderr, env: env, started: began, signals: c,
			readFile: func(name string) ([]byte, error) {
				if s, ok := files[name]; ok {
					return []byte(s), nil
				}
				return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
			},
			hostname: func() (string, error) { return "me", nil },
			exit:     func(code int) { r.exited = code },
			newNode:  func(_ *slog.Logger, _ *slog.LevelVar, cfg *config.Config) (node, error) { r.cfg = cfg; return n, nil },
		}
		go func() {
			for _, s := range signals {
				time.Sleep(time.Second)
				c <- s
			}
		}()
		r.code = a.run(args)
		r.closedAfter = time.Since(began)
		close(n.over)
		time.Sleep(time.Hour) // whatever is left gets its end
		r.out, r.err = out.String(), stderr.String()
	})
	return r
}

func TestStartAndStop(t *testing.T) {
	r := run(t, &fakeNode{start: fine, close: fine},
		map[string]string{"f": "node.id=7\nnum.io.threads=9\n"}, []string{"HOME=/h"}, []os.Signal{syscall.SIGTERM}, "start", "f", "--set", "num.partitions=5")
	if r.code != exitOK || r.closedAfter != time.Second {
		t.Errorf("code %d after %v: %s", r.code, r.closedAfter, r.err)
	}
	for _, want := range []string{"Transitioning from RECOVERY to RUNNING", "Kafka Server started", "[KafkaServer id=7] started", "setting has no effect", "name=num.io.threads", "stopping", "stopped"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in the log:\n%s", want, r.err)
		}
	}
	if !strings.Contains(r.out, "is ready after 0s: node 7 of cluster c") || !strings.Contains(r.out, "1 given settings have no effect") {
		t.Errorf("screen: %s", r.out)
	}
	if r.cfg.NodeID() != 7 || r.cfg.Int("num.partitions") != 5 {
		t.Error("settings are lost")
	}
}

func TestExitCodes(t *testing.T) {
	started := func(wait time.Duration, err error) *fakeNode {
		return &fakeNode{start: fine, close: fine, ends: wait, err: err}
	}
	failing := &fakeNode{start: func(context.Context) error {
		return &broker.StartError{What: "open the listeners", Err: errors.New("address already in use"), Todo: "Choose another port."}
	}, close: fine}
	term, hup, quit := os.Signal(syscall.SIGTERM), os.Signal(syscall.SIGHUP), os.Signal(syscall.SIGQUIT)
	tests := []struct {
		name    string
		node    *fakeNode
		args    string
		signals []os.Signal
		code    int
		stderr  string
	}{
		{"no command shows help", nil, "", nil, exitOK, ""},
		{"unknown command", nil, "strat", nil, exitUsage, `kaja: unknown command "strat" for "kaja"`},
		{"unknown flag", nil, "start --what", nil, exitUsage, "kaja: unknown flag: --what"},
		{"too many files", nil, "start a b", nil, exitUsage, "kaja: accepts at most 1 arg(s), received 2"},
		{"file twice", nil, "start a --config b", nil, exitUsage, "kaja: the properties file is given twice"},
		{"not a setting", nil, "start --set x", nil, exitUsage, `kaja: --set "x" is not name=value`},
		{"file missing", nil, "start nowhere.properties", nil, exitFatal, "kaja: read the properties file: open nowhere.properties: file does not exist"},
		{"wrong settings, all told", nil, "start --set num.partitions=0 --override node.id=x", nil, exitFatal, "kaja: node.id (from --set node.id): Invalid value x for configuration node.id: Not a number of type INT\nkaja: num.partitions (from --set num.partitions): Invalid value 0"},
		{"wrong log level", nil, "start --log-level loud", nil, exitFatal, "kaja: kaja.log.level (from --set kaja.log.level): Invalid value loud for configuration kaja.log.level: String must be one of (case insensitive): debug, info, warn, error"},
		{"a token without a secret, and no certificate", nil, "start --token " + token{Address: "a:9093", ClusterID: "Ab0cd1efSnqZk3yQm7uT5A"}.String(), nil, exitFatal, "kaja: join a cluster: its nodes prove themselves by certificates, and this one has none\n      Give this node listeners and ssl.* settings"},
		{"a way to join, and no proof", nil, "start --join a:9093 --set node.id=2", nil, exitFatal, "kaja: join a cluster: nothing proves that this node may\n      Give --token"},
		{"a token cut short", nil, "start --token kaja1.e30", nil, exitUsage, "kaja: --token: the token is cut short or damaged; copy it whole"},
		{"a failed start", failing, "start", nil, exitFatal, "kaja: open the listeners: address already in use\n      Choose another port.\n"},
		{"ends by itself", started(time.Second, errors.New("raft store failed")), "start", nil, exitFatal, "kaja: raft store failed"},
		{"SIGHUP stops", started(time.Hour, nil), "start", []os.Signal{hup}, exitOK, "stopping"},
		{"SIGQUIT shows stacks and goes on", started(time.Hour, nil), "start", []os.Signal{quit, term}, exitOK, "goroutine stacks follow\ngoroutine "},
		{"a stop while starting", &fakeNode{start: block, close: fine}, "start", []os.Signal{term}, exitOK, "stopped"},
		{"a failed stop", &fakeNode{start: fine, close: func(context.Context) error { return errors.New("flush failed") }}, "start", []os.Signal{term}, exitFatal, "kaja: stop: flush failed"},
		{"a stop that hangs", &fakeNode{start: fine, close: block}, "start", []os.Signal{term}, exitFatal, "kaja: stop: context deadline exceeded"},
		{"version", nil, "version", nil, exitOK, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := run(t, tt.node, nil, nil, tt.signals, strings.Fields(tt.args)...)
			if r.code != tt.code || !strings.Contains(r.err, tt.stderr) || r.exited != -1 {
				t.Errorf("code %d, want %d; stderr:\n%s\nwant in it: %s", r.code, tt.code, r.err, tt.stderr)
			}
		})
	}
}

func TestSecondSignalStopsAtOnce(t *testing.T) {
	for name, n := range map[string]*fakeNode{
		"while stopping": {start: fine, close: block},
		"while starting": {start: func(context.Context) error { time.Sleep(time.Minute); return nil }, close: block},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, n, nil, nil, []os.Signal{syscall.SIGINT, syscall.SIGTERM}, "start")
			if r.exited != exitFatal || r.closedAfter != 2*time.Second || !strings.Contains(r.err, "stopping at once") {
				t.Errorf("exit %d after %v: %s", r.exited, r.closedAfter, r.err)
			}
		})
	}
}

func TestLogFormats(t *testing.T) {
	n := &fakeNode{start: fine, close: fine}
	r := run(t, n, nil, nil, []os.Signal{syscall.SIGQUIT, syscall.SIGTERM}, "start", "--log-format", "json", "--log-level", "info")
	if r.out != "" {
		t.Errorf("a screen among JSON lines: %s", r.out)
	}
	for l := range strings.Lines(r.err) {
		if !strings.HasPrefix(l, "{") {
			t.Errorf("not JSON: %s", l)
		}
	}
	r = run(t, n, nil, []string{"KAFKA_LOG4J_ROOT_LOGLEVEL=WARN"}, []os.Signal{syscall.SIGTERM}, "start")
	if r.err != "" {
		t.Errorf("lines below WARN: %s", r.err)
	}
}
