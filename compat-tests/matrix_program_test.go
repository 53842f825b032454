package compattests_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
)

// verdict is the last line of a client program.
var verdict = regexp.MustCompile(`(?m)^(\d+) passed, (\d+) failed$`)

// program is a running client program of the matrix; its lines are described in doc.go.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended and all its lines are taken
	err   lockedBuffer

	mu      sync.Mutex
	step    string
	steps   map[string]bool // that have begun
	history history
	events  int                       // acknowledgements of flow, or transactions of known outcome, of this step
	read    map[string]map[string]int // of this step: by member, how often each value was read
	checks  []string                  // "ok …" and "FAILED …"
	lines   []string
}

// startProgram starts a client program; it is killed when the test ends.
func startProgram(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{}), history: history{outcomes: map[int]string{}}, steps: map[string]bool{}}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.err
	p.cmd.WaitDelay = 5 * time.Second
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			p.take(lines.Text())
		}
		_, _ = io.Copy(io.Discard, stdout)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("end %s: %v", args[0], err)
		}
		<-p.done
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("%s printed in the end:\n%s\n%.6000s", strings.Join(args, " "), strings.Join(p.lines[max(0, len(p.lines)-40):], "\n"), p.err.String())
		}
	})
	return p
}

func (p *program) take(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
	words := strings.Fields(line)
	if len(words) < 2 {
		return
	}
	switch words[0] {
	case "step":
		p.step, p.events, p.read = words[1], 0, map[string]map[string]int{}
		p.steps[p.step] = true
	case "ok", "FAILED":
		p.checks = append(p.checks, line)
	case "read":
		if p.read[words[1]] == nil {
			p.read[words[1]] = map[string]int{}
		}
		p.read[words[1]][words[2]]++
	case "unknown": // it counts, and is no progress
		p.history.record(words)
	case "acked", "committed", "aborted":
		p.history.record(words)
		p.events++
	}
}

// await waits until ready, which is called with the lock held, says so. It fails the test at once where a check of the program has failed
// or the program has ended.
func (p *program) await(what string, ready func() bool) {
	p.t.Helper()
	broken := ""
	err := poll.Until(p.t.Context(), stepWithin, what, func() (bool, error) {
		ended := false
		select {
		case <-p.done:
			ended = true
		default:
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if ready() {
			return true, nil
		}
		if i := slices.IndexFunc(p.checks, func(c string) bool { return strings.HasPrefix(c, "FAILED") }); i >= 0 {
			broken = p.checks[i]
		} else if ended {
			broken = "the program has ended: " + p.cmd.ProcessState.String()
		}
		return broken != "", nil
	})
	if err != nil || broken != "" {
		p.t.Fatalf("%s: %v %s", what, err, broken)
	}
}

// begun waits until a step has begun; a short one may be over by then.
func (p *program) begun(step string) {
	p.t.Helper()
	p.await("step "+step, func() bool { return p.steps[step] })
}

// advance waits until n more things have happened in a step.
func (p *program) advance(what string, n int) {
	p.t.Helper()
	p.mu.Lock()
	from := p.events
	p.mu.Unlock()
	p.await(what, func() bool { return p.events >= from+n })
}

// tell ends the step that goes on.
func (p *program) tell() {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, "next\n"); err != nil {
		p.t.Fatalf("tell the program to go on: %v", err)
	}
}

// finish waits for the program's end, which must be a good one.
func (p *program) finish() {
	p.t.Helper()
	p.await("the program ends", func() bool { return len(p.lines) > 0 && verdict.MatchString(p.lines[len(p.lines)-1]) })
	select {
	case <-p.done:
	case <-time.After(stepWithin):
		p.t.Fatal("the program has printed its last line and does not end")
	}
	m := verdict.FindStringSubmatch(p.lines[len(p.lines)-1])
	if m[2] != "0" || p.cmd.ProcessState.ExitCode() != 0 {
		p.t.Errorf("%s, %s", m[0], p.cmd.ProcessState)
	}
}

// judge reads what a program printed that is no part of the matrix and checks by itself.
func judge(t *testing.T, program, out string, least int) {
	t.Helper()
	m := verdict.FindStringSubmatch(out)
	if m == nil || m[2] != "0" {
		t.Fatalf("%s printed:\n%s", program, out)
	}
	if n := strings.Count(out, "ok "); n < least {
		t.Errorf("%s made %d checks, want at least %d:\n%s", program, n, least, out)
	}
	t.Log(m[0])
}
