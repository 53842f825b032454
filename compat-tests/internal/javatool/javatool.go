// Package javatool runs Kafka's command line tools in one JVM that is kept: compat-tests/java/ToolRunner.java.
package javatool

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// toolsPackage is where the tools' main classes are.
const toolsPackage = "org.apache.kafka.tools."

// classes maps a tool's script name to its main class in toolsPackage.
var classes = map[string]string{ //nolint:gochecknoglobals // constant
	"kafka-topics":                    "TopicCommand",
	"kafka-configs":                   "ConfigCommand",
	"kafka-console-producer":          "ConsoleProducer",
	"kafka-console-consumer":          "consumer.ConsoleConsumer",
	"kafka-consumer-groups":           "consumer.group.ConsumerGroupCommand",
	"kafka-get-offsets":               "GetOffsetShell",
	"kafka-delete-records":            "DeleteRecordsCommand",
	"kafka-log-dirs":                  "LogDirsCommand",
	"kafka-broker-api-versions":       "BrokerApiVersionsCommand",
	"kafka-dump-log":                  "DumpLogSegments",
	"kafka-transactions":              "TransactionsCommand",
	"kafka-groups":                    "GroupsCommand",
	"kafka-cluster":                   "ClusterTool",
	"kafka-features":                  "FeatureCommand",
	"kafka-producer-perf-test":        "ProducerPerformance",
	"kafka-consumer-perf-test":        "ConsumerPerformance",
	"kafka-e2e-latency":               "EndToEndLatency",
	"kafka-verifiable-producer":       "VerifiableProducer",
	"kafka-verifiable-consumer":       "VerifiableConsumer",
	"kafka-client-metrics":            "ClientMetricsCommand",
	"kafka-leader-election":           "LeaderElectionCommand",
	"kafka-metadata-quorum":           "MetadataQuorumCommand",
	"kafka-streams-application-reset": "StreamsResetter",
}

// Command is one command line.
type Command struct {
	Tool    string // script name, such as kafka-topics
	Args    []string
	Stdin   string
	Timeout time.Duration // 0: one minute
	OutFile string        // not empty: standard output goes to this file, and Result.Out is empty
}

func (c Command) String() string { return c.Tool + " " + strings.Join(c.Args, " ") }

// Result is what a tool printed and how it ended.
type Result struct {
	Exit    int    `json:"exit"`
	Timeout bool   `json:"timeout"` // it had not ended in time; its thread runs on
	Out     string `json:"out"`
	Err     string `json:"err"` // without the lines of SLF4J, which say only that nothing is logged
}

// Runner is the JVM. It is safe for concurrent use; commands run one at a time.
type Runner struct {
	mu    sync.Mutex
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	noise strings.Builder // what the JVM itself printed on standard error
}

// Start starts the JVM with Kafka's jars and the directory of the compiled ToolRunner.
func Start(jars, runner string) (*Runner, error) {
	all, err := filepath.Glob(filepath.Join(jars, "*.jar"))
	if err != nil {
		return nil, fmt.Errorf("list jars: %w", err)
	}
	classPath, tools := []string{runner}, ""
	for _, jar := range all {
		if name := filepath.Base(jar); strings.HasPrefix(name, "kafka-tools-") && !strings.HasPrefix(name, "kafka-tools-api") {
			tools = jar
			continue
		}
		classPath = append(classPath, jar)
	}
	if tools == "" {
		return nil, fmt.Errorf("no kafka-tools jar in %s", jars)
	}
	r := &Runner{}
	r.cmd = exec.Command("java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.security.manager=allow",
		"--add-opens", "java.base/java.lang=ALL-UNNAMED", "-cp", strings.Join(classPath, ":"), "ToolRunner", tools)
	r.cmd.Stderr = &r.noise
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("pipe to the JVM: %w", err)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pipe from the JVM: %w", err)
	}
	r.out = bufio.NewReaderSize(stdout, 1<<20)
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the JVM: %w", err)
	}
	return r, nil
}

// Run runs one command and waits for its end.
func (r *Runner) Run(c Command) (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	class, ok := classes[c.Tool]
	if !ok {
		return Result{}, fmt.Errorf("no main class known for %s", c.Tool)
	}
	timeout := c.Timeout
	if timeout == 0 {
		timeout = time.Minute
	}
	line, err := json.Marshal(map[string]any{
		"class": toolsPackage + class, "args": append([]string{}, c.Args...), "stdin": c.Stdin, "timeoutMs": timeout.Milliseconds(),
		"outFile": c.OutFile,
	})
	if err != nil {
		return Result{}, fmt.Errorf("encode command: %w", err)
	}
	if _, err := r.stdin.Write(append(line, '\n')); err != nil {
		return Result{}, fmt.Errorf("send command to the JVM: %w (%s)", err, r.noise.String())
	}
	answer, err := r.out.ReadBytes('\n')
	if err != nil {
		return Result{}, fmt.Errorf("read the JVM's answer to %s: %w", c, err)
	}
	var result Result
	if err := json.Unmarshal(answer, &result); err != nil {
		return Result{}, fmt.Errorf("decode the JVM's answer to %s: %w", c, err)
	}
	result.Err = withoutSLF4J(result.Err)
	return result, nil
}

func withoutSLF4J(s string) string {
	var kept strings.Builder
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "SLF4J") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// Close ends the JVM.
func (r *Runner) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.stdin.Close(); err != nil {
		return fmt.Errorf("close pipe to the JVM: %w", err)
	}
	killer := time.AfterFunc(10*time.Second, func() { _ = r.cmd.Process.Kill() })
	defer killer.Stop()
	if err := r.cmd.Wait(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil
		}
		return fmt.Errorf("wait for the JVM: %w", err)
	}
	return nil
}
