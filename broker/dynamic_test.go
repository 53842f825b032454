package broker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alter changes one config of a broker ("" for all) or of its loggers, and gives the error code and text.
func (c *client) alter(t kmsg.ConfigResourceType, resource, name string, value *string) (int16, string) {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = t, resource
	ch := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	ch.Name, ch.Value = name, value
	if value == nil {
		ch.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	res.Configs = append(res.Configs, ch)
	req.Resources = append(req.Resources, res)
	got := c.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
	if got.ErrorMessage == nil {
		return got.ErrorCode, ""
	}
	return got.ErrorCode, *got.ErrorMessage
}

// served reports whether a new connection is kept. It returns once the node has forgotten it; the connections from before must
// have been answered, so that the node knows them.
func (n *node) served() bool {
	n.t.Helper()
	before := n.gauge("kaja_server_connections")
	defer func() {
		for deadline := time.Now().Add(10 * time.Second); n.gauge("kaja_server_connections") != before; runtime.Gosched() {
			if time.Now().After(deadline) {
				n.t.Fatal("a closed connection is not forgotten")
			}
		}
	}()
	conn, err := net.Dial("tcp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, &kmsg.ApiVersionsRequest{}, 1)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(frame); err != nil {
		return false
	}
	_, err = io.ReadFull(conn, make([]byte, 4))
	if errors.Is(err, context.DeadlineExceeded) {
		n.t.Fatal(err)
	}
	return err == nil
}

// The bounds of connections change with the answer to the request, for one broker and for all, and are there again after a
// restart.
func TestConnectionLimitsAreAlteredAtOnce(t *testing.T) {
	const broker = kmsg.ConfigResourceTypeBroker
	fs := memfs.New(time.Now)
	n := start(t, fs, nil)
	c := n.dial()
	set := func(resource, name string, value *string) {
		t.Helper()
		if code, text := c.alter(broker, resource, name, value); code != 0 {
			t.Fatalf("%s: %d %s", name, code, text)
		}
	}
	want := func(served bool) {
		t.Helper()
		if n.served() != served {
			t.Fatalf("a new connection is served: %v", !served)
		}
	}
	c.ask(kmsg.NewPtrApiVersionsRequest())
	want(true)
	set("", "max.connections.per.ip", new("1"))
	want(false)
	set("1", "max.connections.per.ip.overrides", new("127.0.0.1:2"))
	want(true)
	set("1", "max.connections.per.ip.overrides", nil)
	want(false)
	for _, bad := range []struct{ name, value, text string }{
		{"max.connections.per.ip.overrides", "here:1", `max.connections.per.ip.overrides: "here:1" is not address:number, with an IP address`},
		{"max.connections", "0", "max.connections: 0 shuts everybody out; set a number or leave it out"},
		{"max.connections.per.ip", "0", "max.connections.per.ip: 0 shuts everybody out; it needs max.connections.per.ip.overrides"},
		{"socket.send.buffer.bytes", "1000", "Cannot update these configs dynamically: [socket.send.buffer.bytes]"},
	} {
		if code, text := c.alter(broker, "1", bad.name, &bad.value); code != 42 || text != bad.text {
			t.Errorf("%s=%s: %d %q, want 42 %q", bad.name, bad.value, code, text, bad.text)
		}
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	n = start(t, fs, nil)
	c = n.dial()
	c.ask(kmsg.NewPtrApiVersionsRequest())
	want(false)
	set("", "max.connections.per.ip", nil)
	want(true)
}

// The node's logger is asked for its level with every line, and that is what the request changes.
func TestLoggerIsAlteredAtOnce(t *testing.T) {
	env := OSEnv(slog.New(slog.DiscardHandler))
	env.FS, env.Seed, env.LogLevel = memfs.New(time.Now), 1, new(slog.LevelVar)
	n := startIn(t, env, nil)
	c := n.dial()
	for _, step := range []struct {
		set  string
		want slog.Level
	}{{"WARN", slog.LevelWarn}, {"TRACE", slog.LevelDebug - 4}, {"FATAL", slog.LevelError + 4}, {"DEBUG", slog.LevelDebug}, {"ERROR", slog.LevelError}, {"INFO", slog.LevelInfo}} {
		if code, text := c.alter(kmsg.ConfigResourceTypeBrokerLogger, "1", "root", &step.set); code != 0 {
			t.Fatal(code, text)
		}
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 4
		res := kmsg.NewDescribeConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBrokerLogger, "1"
		req.Resources = append(req.Resources, res)
		configs := c.ask(req).(*kmsg.DescribeConfigsResponse).Resources[0].Configs
		if got := env.LogLevel.Level(); got != step.want || len(configs) != 1 || *configs[0].Value != step.set {
			t.Errorf("%s: level %v, described %v", step.set, got, configs)
		}
	}
}

// What was altered for this broker goes before what was altered for all, and that before what was given at start.
func TestProducerExpirationIsAltered(t *testing.T) {
	cfg, err := config.Default("/d").With("producer.id.expiration.ms", "3000")
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, memfs.New(time.Now), map[string]string{"producer.id.expiration.ms": "3000"})
	c := n.dial()
	topics := topicConfigs{cfg}
	for _, step := range []struct {
		resource string
		value    *string
		want     time.Duration
	}{{"", new("2000"), 2 * time.Second}, {"1", new("1000"), time.Second}, {"1", nil, 2 * time.Second}, {"", nil, 3 * time.Second}} {
		if code, text := c.alter(kmsg.ConfigResourceTypeBroker, step.resource, "producer.id.expiration.ms", step.value); code != 0 {
			t.Fatal(code, text)
		}
		if got := topics.log(n.Image(), image.OffsetsTopic).ProducerIDExpiration; got != step.want {
			t.Errorf("%q: %v, want %v", step.resource, got, step.want)
		}
	}
}
