package compattests_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/clients"
	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// The tests that need a broker run when KAJA_COMPAT=1 (set by `make test` and `make compat`). KAJA_COMPAT_TARGET says which
// broker they talk to: kaja (default) or kafka, a real Kafka 4.4, to prove that what they expect is right.
// KAJA_COMPAT_BINARY names a kaja binary to use instead of building one. KAJA_COMPAT_LOGS names a directory that receives
// the log of each broker of a failed test. KAJA_COMPAT_LONG=1 (set by `make long`) runs B10, B13, B17, B22 and B44 at full size.

var theSuite = &suite{} //nolint:gochecknoglobals // what TestMain must end, filled by the first test that needs it

// suite holds what several tests share. Each part is made when it is first needed.
type suite struct {
	mu      sync.Mutex
	dir     string // of the shared brokers and the binary
	set     clients.Set
	binary  string
	shared  map[string]*target.Broker
	runner  *javatool.Runner
	startMu sync.Mutex
	names   map[string]int // that fresh gave, and how often
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if err := theSuite.close(); err != nil {
		fmt.Fprintln(os.Stderr, "end of the compatibility tests:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func (s *suite) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.runner != nil {
		errs = append(errs, s.runner.Close())
	}
	for _, b := range s.shared {
		errs = append(errs, b.Kill())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// prepareLocked makes the suite's directory and finds the clients.
func (s *suite) prepareLocked(t *testing.T) {
	t.Helper()
	if s.dir != "" {
		return
	}
	dir, err := os.MkdirTemp("", "kaja-compat-") //nolint:usetesting // it outlives the test that needs it first
	if err != nil {
		t.Fatalf("make directory: %v", err)
	}
	set, err := clients.Default()
	if err != nil {
		t.Fatalf("find clients: %v", err)
	}
	s.dir, s.set, s.shared = dir, set, map[string]*target.Broker{}
}

// kind is the kind of broker under test.
func kind(t *testing.T) target.Kind {
	t.Helper()
	if os.Getenv("KAJA_COMPAT") == "" {
		t.Skip("needs a broker process: set KAJA_COMPAT=1, or run `make compat`")
	}
	switch k := target.Kind(os.Getenv("KAJA_COMPAT_TARGET")); k {
	case "":
		return target.Kaja
	case target.Kaja, target.Kafka:
		return k
	default:
		t.Fatalf("KAJA_COMPAT_TARGET=%q: want kaja or kafka", k)
		return ""
	}
}

// long reports whether the tests may take as long as their cases say; without it they are cut down to what CI has time for.
func long() bool { return os.Getenv("KAJA_COMPAT_LONG") != "" }

// need skips the test when a foreign client is not there; in CI the test fails instead.
func need(t *testing.T, names ...string) clients.Set {
	t.Helper()
	kind(t)
	s := theSuite
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepareLocked(t)
	for _, name := range names {
		err := s.set.Check(name)
		switch {
		case err == nil:
		case os.Getenv("CI") == "true":
			t.Fatalf("a client that CI must have is not there (not a fault of the broker): %v", err)
		default:
			t.Skipf("client not there: %v", err)
		}
	}
	return s.set
}

// options fills in what a broker of a kind is started with, and builds kaja the first time.
func (s *suite) options(t *testing.T, k target.Kind) target.Options {
	t.Helper()
	if k == target.Kafka {
		need(t, "java")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prepareLocked(t)
	if k == target.Kaja && s.binary == "" {
		s.binary = os.Getenv("KAJA_COMPAT_BINARY")
		if s.binary == "" {
			binary := filepath.Join(s.dir, "kaja")
			build := exec.Command("go", "build", "-o", binary, "../cmd/kaja")
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			out, err := build.CombinedOutput()
			if err != nil {
				t.Fatalf("build kaja: %v\n%s", err, out)
			}
			s.binary = binary
		}
	}
	return target.Options{Kind: k, Binary: s.binary, Jars: s.set.Jars()}
}

// sharedBroker is the one broker that the tests which disturb nothing share.
func sharedBroker(t *testing.T) *target.Broker {
	t.Helper()
	return sharedAs(t, kind(t), "under-test")
}

// sharedAs gives the shared broker of a name, and starts it when it is first asked for.
func sharedAs(t *testing.T, k target.Kind, name string) *target.Broker {
	t.Helper()
	s := theSuite
	s.startMu.Lock()
	defer s.startMu.Unlock()
	o := s.options(t, k)
	s.mu.Lock()
	b := s.shared[name]
	s.mu.Unlock()
	if b != nil {
		keepLogOnFailure(t, b)
		return b
	}
	o.Dir = filepath.Join(s.dir, name)
	b, err := target.New(o)
	if err != nil {
		t.Fatalf("prepare shared %s: %v", k, err)
	}
	if err := b.Start(context.Background()); err != nil {
		t.Fatalf("start shared %s: %v", k, err)
	}
	s.mu.Lock()
	s.shared[name] = b
	s.mu.Unlock()
	keepLogOnFailure(t, b)
	return b
}

// ownBroker starts a broker for one test, with settings of its own. It is killed when the test ends.
func ownBroker(t *testing.T, config map[string]string) *target.Broker {
	t.Helper()
	return startOwn(t, kind(t), config)
}

// startOwn is ownBroker for a kind of broker.
func startOwn(t *testing.T, k target.Kind, config map[string]string) *target.Broker {
	t.Helper()
	o := theSuite.options(t, k)
	o.Dir, o.Config = t.TempDir(), config
	b, err := target.New(o)
	if err != nil {
		t.Fatalf("prepare %s: %v", o.Kind, err)
	}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Errorf("end %s: %v", o.Kind, err)
		}
	})
	keepLogOnFailure(t, b)
	if err := b.Start(t.Context()); err != nil {
		t.Fatalf("start %s: %v", o.Kind, err)
	}
	return b
}

func keepLogOnFailure(t *testing.T, b *target.Broker) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		t.Logf("end of the log of %s at %s:\n%s", b.Kind, b.Addr, b.LogTail(15))
		dir := os.Getenv("KAJA_COMPAT_LOGS")
		if dir == "" {
			return
		}
		data, err := os.ReadFile(b.LogPath())
		if err == nil {
			err = errors.Join(os.MkdirAll(dir, 0o755),
				os.WriteFile(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+"-"+string(b.Kind)+"-"+b.Port()+".log"), data, 0o644))
		}
		if err != nil {
			t.Logf("keep log: %v", err)
		}
	})
}

// restart kills or stops a broker and starts it again.
func restart(t *testing.T, b *target.Broker, politely bool) {
	t.Helper()
	end := b.Kill
	if politely {
		end = b.Stop
	}
	if err := end(); err != nil {
		t.Fatalf("end %s: %v", b.Kind, err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatalf("start %s again: %v", b.Kind, err)
	}
}

// tool runs one of Kafka's command line tools in the shared JVM.
func tool(t *testing.T, c javatool.Command) javatool.Result {
	t.Helper()
	set := need(t, "java")
	s := theSuite
	s.mu.Lock()
	if s.runner == nil {
		runner, err := javatool.Start(set.Jars(), set.JavaRunner())
		if err != nil {
			s.mu.Unlock()
			t.Fatalf("start the JVM of the tools: %v", err)
		}
		s.runner = runner
	}
	runner := s.runner
	s.mu.Unlock()
	result, err := runner.Run(c)
	if err != nil {
		t.Fatalf("run %s: %v", c, err)
	}
	return result
}

// output is what a foreign program printed.
type output struct {
	Out, Err string
	Exit     int
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// execute runs a foreign program with a bound on its time. It fails the test only if the program can't be run or overruns.
func execute(t *testing.T, atMost time.Duration, stdin string, env []string, name string, args ...string) output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = 5 * time.Second
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	o := output{Out: out.String(), Err: errOut.String(), Exit: cmd.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		t.Fatalf("%s %s: not done within %v\nstdout: %.2000s\nstderr: %.4000s", name, strings.Join(args, " "), atMost, o.Out, o.Err)
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("%s: %v", name, err)
	}
	return o
}

// kcat runs kcat against a broker; it must end with 0.
func kcat(t *testing.T, b *target.Broker, stdin string, args ...string) string {
	t.Helper()
	o := execute(t, 90*time.Second, stdin, nil, "kcat", append([]string{"-b", b.Addr}, args...)...)
	if o.Exit != 0 {
		t.Fatalf("kcat %s ended with %d\nstdout: %.2000s\nstderr: %.4000s", strings.Join(args, " "), o.Exit, o.Out, o.Err)
	}
	return o.Out
}

// fresh makes a name that no other test uses, nor this one when it is repeated.
func fresh(t *testing.T, what string) string {
	t.Helper()
	name := strings.ToLower(what + "-" + strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	s := theSuite
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = map[string]int{}
	}
	s.names[name]++
	if n := s.names[name]; n > 1 {
		return fmt.Sprint(name, "-", n)
	}
	return name
}
