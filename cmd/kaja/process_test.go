package main_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "kaja")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "kaja")
		if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
			return 1
		}
		return m.Run()
	}())
}

// command is the binary with an empty environment but for a home of its own.
func command(t testing.TB, home string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = []string{"HOME=" + home}
	return cmd
}

// fails runs a command line that must end by itself, and gives its exit code and standard error.
func fails(t *testing.T, home string, args ...string) (int, string) {
	t.Helper()
	cmd := command(t, home, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if err == nil {
		t.Fatalf("%v succeeded", args)
	}
	return cmd.ProcessState.ExitCode(), stderr.String()
}

// running is a started node.
type running struct {
	*exec.Cmd
	address, http string
	log           *bytes.Buffer
	drained       chan struct{}
}

var (
	listensLine = regexp.MustCompile(`listens +PLAINTEXT (\S+)`)
	metricsLine = regexp.MustCompile(`metrics +http://(\S+)/metrics`)
)

// start starts a node on free ports and waits until it says that it is ready.
func start(t testing.TB, home string, args ...string) *running {
	t.Helper()
	args = append([]string{"start", "--set", "listeners=PLAINTEXT://localhost:0", "--set", "kaja.http.listener=127.0.0.1:0"}, args...)
	n := &running{Cmd: command(t, home, args...), log: &bytes.Buffer{}, drained: make(chan struct{})}
	n.Stderr = n.log
	out, err := n.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n.ProcessState == nil {
			_ = n.Process.Kill()
			_ = n.Wait()
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := listensLine.FindStringSubmatch(lines.Text()); m != nil {
			n.address = m[1]
		}
		if m := metricsLine.FindStringSubmatch(lines.Text()); m != nil {
			n.http = m[1]
		}
		if strings.Contains(lines.Text(), "Stop with Ctrl-C") {
			go func() { _, _ = io.Copy(io.Discard, out); close(n.drained) }()
			return n
		}
	}
	_ = n.Wait()
	t.Fatalf("the node did not start:\n%s", n.log)
	return nil
}

// stop sends sig and gives the exit code.
func (n *running) stop(t *testing.T, sig os.Signal) int {
	t.Helper()
	if err := n.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	<-n.drained
	_ = n.Wait() // the exit code says it
	return n.ProcessState.ExitCode()
}

func TestProcessStartsAndStops(t *testing.T) {
	home := t.TempDir()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		n := start(t, home)
		c, err := net.Dial("tcp", n.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		resp, err := http.Get("http://" + n.http + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("/readyz: %s", resp.Status)
		}
		if code := n.stop(t, sig); code != 0 {
			t.Errorf("%v: exit code %d:\n%s", sig, code, n.log)
		}
		for _, want := range []string{"Transitioning from RECOVERY to RUNNING", "Kafka Server started", "[KafkaServer id=1] started", "stopped"} {
			if !strings.Contains(n.log.String(), want) {
				t.Errorf("no %q in the log:\n%s", want, n.log)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(home, ".local/share/kaja/meta.properties")); err != nil {
		t.Error(err)
	}
}

// A signal to stop that comes while the node starts ends it cleanly, at whatever moment; one that comes before the program has
// begun ends it as it ends any program, and then nothing was written. The next start works in both cases.
func TestProcessStoppedWhileItStarts(t *testing.T) {
	home := t.TempDir()
	data := filepath.Join(home, ".local/share/kaja")
	clean := 0
	for i := 0; clean < 15 && i < 200; i++ {
		cmd := command(t, home, "start", "--set", "listeners=PLAINTEXT://localhost:0", "--set", "kaja.http.listener=")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Duration(i%40) * time.Millisecond) // any moment of the start is to be hit
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		_, statErr := os.Stat(data)
		switch status := cmd.ProcessState.Sys().(syscall.WaitStatus); {
		case status.Signaled() && status.Signal() == syscall.SIGTERM && stderr.Len() == 0 && (clean > 0 || errors.Is(statErr, fs.ErrNotExist)): //nolint:misspell // the name in package syscall
		case status.ExitStatus() == 0 && strings.Contains(stderr.String(), "stopped"):
			clean++
		default:
			t.Fatalf("after %d ms: %v, data directory: %v\n%s", i%40, cmd.ProcessState, statErr, &stderr)
		}
	}
	if clean < 15 {
		t.Errorf("only %d of 200 starts got as far as catching the signal", clean)
	}
	n := start(t, home)
	if code := n.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d:\n%s", code, n.log)
	}
}

// The file that Kafka ships for a combined node works, but for the ports and the directory, which a test must choose.
func TestProcessTakesKafkasFile(t *testing.T) {
	n := start(t, t.TempDir(), "../../broker/config/testdata/combined.properties",
		"--set", "listeners=PLAINTEXT://:0,CONTROLLER://:0", "--set", "log.dirs="+t.TempDir())
	if code := n.stop(t, syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d:\n%s", code, n.log)
	}
	if got := strings.Count(n.log.String(), "setting has no effect"); got != 2 {
		t.Errorf("%d settings without effect:\n%s", got, n.log)
	}
}

func TestProcessSurvivesQuitAndItsLogReader(t *testing.T) {
	n := start(t, t.TempDir(), "--log-format", "text")
	if err := n.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", n.address); err != nil {
		t.Fatal(err)
	}
	if code := n.stop(t, syscall.SIGTERM); code != 0 || !strings.Contains(n.log.String(), "goroutine stacks follow") {
		t.Errorf("exit code %d:\n%s", code, n.log)
	}
}

func TestProcessSaysWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	other, full := t.TempDir(), t.TempDir()
	meta := "version=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\nnode.id=9\ndirectory.id=I60pJPaATqq13q6xCIXvcg\n"
	if err := os.WriteFile(filepath.Join(other, "meta.properties"), []byte(meta), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(full, "letter.txt"), []byte("dear"), 0o644); err != nil {
		t.Fatal(err)
	}
	used := t.TempDir()
	start(t, t.TempDir(), "--set", "log.dirs="+used)
	const free = "--set listeners=PLAINTEXT://localhost:0 --set kaja.http.listener= "
	tests := []struct {
		name, args string
		code       int
		want       []string
	}{
		{"port taken", "--set kaja.http.listener= --set listeners=PLAINTEXT://" + taken.Addr().String(), 1, []string{"address already in use", "Another process listens there"}},
		{"HTTP port taken", "--set listeners=PLAINTEXT://localhost:0 --set kaja.http.listener=" + taken.Addr().String(), 1, []string{"address already in use", "kaja.http.listener"}},
		{"not this machine's address", "--set kaja.http.listener= --set listeners=PLAINTEXT://192.0.2.1:9092", 1, []string{"not one of this machine's"}},
		{"a file in the way", free + "--set log.dirs=" + file, 1, []string{file, "Choose a directory with log.dirs"}},
		{"a file above", free + "--set log.dirs=" + file + "/data", 1, []string{file, "Choose a directory with log.dirs"}},
		{"directory in use", free + "--set log.dirs=" + used, 1, []string{"lock directory " + used, "another process uses it", "Stop the other process"}},
		{"another node's directory", free + "--set log.dirs=" + other, 1, []string{"it belongs to node 9, and this is node 1", "Set node.id=9"}},
		{"another cluster's directory", free + "--set node.id=9 --set kaja.cluster.id=4L6g3nShT-eMCtK--X86sw --set log.dirs=" + other, 1, []string{"it belongs to cluster 5L6g3nShT-eMCtK--X86sw"}},
		{"somebody's directory", free + "--set log.dirs=" + full, 1, []string{"found letter.txt", "Nothing was changed"}},
		{"wrong setting", "--set num.partitions=x", 1, []string{"kaja: num.partitions (from --set num.partitions): Invalid value x"}},
		{"wrong command line", "--set num.partitions", 2, []string{`kaja: --set "num.partitions" is not name=value`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			code, stderr := fails(t, home, append([]string{"start"}, strings.Fields(tt.args)...)...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("no %q in:\n%s", want, stderr)
				}
			}
			if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
				t.Errorf("left in the home directory: %v (%v)", left, err)
			}
		})
	}
	if left, err := os.ReadDir(full); err != nil || len(left) != 1 {
		t.Errorf("somebody's directory has now %v (%v)", left, err)
	}
}
