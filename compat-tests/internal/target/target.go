// Package target runs the brokers that the compatibility tests talk to: kaja, built from this repository, or a real Apache
// Kafka 4.4 as the answer to "what is right". Both are separate processes on 127.0.0.1 with one interface, so that each test
// can be run on either. Only processes started here are ended, by process id.
//
// Goroutines: one per running process, which waits for its end; Kill and Stop join it.
package target

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kind tells kaja and Kafka apart.
type Kind string

// The two kinds of broker.
const (
	Kaja  Kind = "kaja"
	Kafka Kind = "kafka"
)

// readyWithin bounds the time from start to the first useful answer, on a busy machine.
const readyWithin = 4 * time.Minute

// stopWithin bounds a polite stop.
const stopWithin = 40 * time.Second

// Options say how to make a broker.
type Options struct {
	Kind   Kind
	Dir    string            // an empty or absent directory: data, configuration and log go below it
	Config map[string]string // server properties on top of the defaults of New
	Binary string            // of kaja
	Jars   string            // directory of Kafka's jars
}

// Broker is one broker process, running or not. It is not safe for concurrent use.
type Broker struct {
	Kind     Kind
	Addr     string // host:port where clients connect
	Dir      string
	o        Options
	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process has ended; waitErr is set then
	waitErr  error
	starts   int
	settings map[string]string
}

// New chooses free ports and prepares a broker without starting it. Defaults common to both kinds: node id 1, one listener on
// 127.0.0.1, internal topics with one replica, no delay before the first rebalance of a group.
func New(o Options) (*Broker, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	b := &Broker{Kind: o.Kind, Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Dir: o.Dir, o: o}
	b.settings = map[string]string{
		"node.id":                          "1",
		"listeners":                        "PLAINTEXT://" + b.Addr,
		"log.dirs":                         b.DataDir(),
		"offsets.topic.replication.factor": "1",
		"group.initial.rebalance.delay.ms": "0",
	}
	switch o.Kind {
	case Kaja:
		b.settings["kaja.http.listener"] = ""
	case Kafka:
		controller, err := freePort()
		if err != nil {
			return nil, err
		}
		addKafkaSettings(b.settings, b.Addr, net.JoinHostPort("127.0.0.1", strconv.Itoa(controller)))
	default:
		return nil, fmt.Errorf("unknown kind of broker %q", o.Kind)
	}
	for k, v := range o.Config {
		b.settings[k] = v
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory of the broker: %w", err)
	}
	return b, nil
}

// handedOut are the ports that freePort has given: those of brokers that are prepared and do not listen yet are taken, too.
var handedOut sync.Map //nolint:gochecknoglobals // the process's ports

// freePort finds a port on 127.0.0.1 that nothing listens on and that it has not given before. It looks below the range that the
// system hands out to outgoing connections, so that a broker that was stopped finds its port free when it starts again.
func freePort() (int, error) {
	for range 1000 {
		port := 12000 + rand.IntN(20000)
		if _, taken := handedOut.LoadOrStore(port, true); taken {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port between 12000 and 32000 on 127.0.0.1")
}

// Set changes a setting before the next start.
func (b *Broker) Set(name, value string) { b.settings[name] = value }

// DataDir is where partitions lie.
func (b *Broker) DataDir() string { return filepath.Join(b.Dir, "data") }

// LogPath is the file that holds what the process printed, over all its starts.
func (b *Broker) LogPath() string { return filepath.Join(b.Dir, "broker.out") }

// Port is the port of Addr.
func (b *Broker) Port() string { return b.Addr[strings.LastIndexByte(b.Addr, ':')+1:] }

// PID is the process id of the running process.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// Start starts the process and returns when it answers Metadata with itself in it.
func (b *Broker) Start(ctx context.Context) error {
	if err := b.launch(ctx); err != nil {
		return err
	}
	return b.await(ctx)
}

// launch starts the process.
func (b *Broker) launch(ctx context.Context) error {
	if b.running() {
		return errors.New("broker runs already")
	}
	cmd, err := b.Command(ctx)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(b.LogPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open log of the broker: %w", err)
	}
	defer func() { _ = out.Close() }() // the process has its own descriptor
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = b.Dir
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", b.Kind, err)
	}
	b.starts++
	b.cmd, b.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) {
		b.waitErr = cmd.Wait()
		close(exited)
	}(b.exited)
	return nil
}

// await returns when the process answers; one that does not is killed.
func (b *Broker) await(ctx context.Context) error {
	err := poll.Until(ctx, readyWithin, fmt.Sprintf("%s at %s ready", b.Kind, b.Addr), b.ready)
	if err == nil && !b.running() {
		err = fmt.Errorf("%s ended before it was ready: %w", b.Kind, errExit(b.waitErr))
	}
	if err != nil {
		return errors.Join(err, b.Kill(), errors.New("end of its log:\n"+b.LogTail(30)))
	}
	return nil
}

// Command gives the command that Start starts, for who starts it in another place. A Kafka's directory is formatted before.
func (b *Broker) Command(ctx context.Context) (*exec.Cmd, error) {
	if b.Kind == Kafka {
		return b.kafkaCommand(ctx)
	}
	args := []string{"start"}
	for _, k := range sortedKeys(b.settings) {
		args = append(args, "--set", k+"="+b.settings[k])
	}
	return exec.Command(b.o.Binary, args...), nil
}

func errExit(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// ready asks for metadata. It is also true, so that nobody waits, when the process has ended.
func (b *Broker) ready() (bool, error) {
	if !b.running() {
		return true, nil
	}
	c, err := raw.Dial(b.Addr)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	c.Timeout = 5 * time.Second
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 8
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := c.Do(req)
	if err != nil {
		return false, err
	}
	m := resp.(*kmsg.MetadataResponse)
	if len(m.Brokers) == 0 || m.ControllerID < 0 {
		return false, fmt.Errorf("metadata has %d brokers, controller %d", len(m.Brokers), m.ControllerID)
	}
	return true, nil
}

func (b *Broker) running() bool {
	if b.cmd == nil {
		return false
	}
	select {
	case <-b.exited:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits until it is gone. A process that is not running is no error.
func (b *Broker) Kill() error {
	if b.cmd == nil {
		return nil
	}
	if err := b.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", b.Kind, err)
	}
	<-b.exited
	return nil
}

// Stop ends the process with SIGTERM and waits until it is gone; after stopWithin it kills it and reports that.
func (b *Broker) Stop() error {
	if b.cmd == nil {
		return nil
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", b.Kind, err)
	}
	select {
	case <-b.exited:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("%s did not stop within %v after SIGTERM", b.Kind, stopWithin), b.Kill())
	}
}

// Exited returns a channel that is closed when the process ends.
func (b *Broker) Exited() <-chan struct{} { return b.exited }

// LogTail returns the last lines of what the process printed.
func (b *Broker) LogTail(lines int) string {
	data, err := os.ReadFile(b.LogPath())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
