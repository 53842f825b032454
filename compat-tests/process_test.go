package compattests_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lockedBuffer may be read while a process writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// process is a foreign program that runs beside the test.
type process struct {
	cmd      *exec.Cmd
	out, err lockedBuffer
	stdin    *os.File      // of startFollowing: the program's standard input
	done     chan struct{} // closed when it has ended
}

// terminate tells the program, which is what, to stop, and waits until it has.
func (p *process) terminate(t *testing.T, what string) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(connectWithin):
		t.Fatalf("%s does not stop", what)
	}
}

// startProcess starts a program; it is killed when the test ends.
func startProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("end %s: %v", name, err)
		}
		<-p.done
	})
	return p
}

// runScript runs a script of this directory; it must end with 0. It returns what it printed on standard output.
func runScript(t *testing.T, interpreter string, args []string, stdin string, env ...string) string {
	t.Helper()
	abs, err := filepath.Abs(args[0])
	if err != nil {
		t.Fatal(err)
	}
	o := execute(t, 3*time.Minute, stdin, env, interpreter, append([]string{abs}, args[1:]...)...)
	if o.Exit != 0 {
		t.Fatalf("%s ended with %d\nstdout: %.3000s\nstderr: %.6000s", strings.Join(args, " "), o.Exit, o.Out, o.Err)
	}
	return o.Out
}

// newClient makes a franz-go client that is closed when the test ends.
func newClient(t *testing.T, b *target.Broker, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Addr)}, opts...)...)
	if err != nil {
		t.Fatalf("make client: %v", err)
	}
	t.Cleanup(client.Close)
	return client
}

func withTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// fetchCounter counts the Fetch requests that a client writes.
type fetchCounter struct{ n atomic.Int64 }

// OnBrokerWrite is franz-go's hook.
func (f *fetchCounter) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == 1 {
		f.n.Add(1)
	}
}
