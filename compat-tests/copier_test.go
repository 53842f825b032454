package compattests_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// copiers are programs that copy a topic exactly once: what to run before ADDRESS IN OUT NAME, and its environment.
func copiers(t *testing.T) map[string]func() (args, env []string) {
	t.Helper()
	return map[string]func() (args, env []string){
		"librdkafka": func() (args, env []string) {
			return []string{need(t, "python").Python(), "py/txn_copy.py"}, nil
		},
		"kafkajs": func() (args, env []string) {
			return []string{"node", "js/txn_copy.js"}, []string{"NODE_PATH=" + need(t, "node").NodePath()}
		},
		"java": func() (args, env []string) {
			return []string{"java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(need(t, "java").Jars(), "*"), "java/TxnCopy.java"}, nil
		},
	}
}

// A program that reads, transforms and writes in transactions has each input in its output once, although the broker, which
// coordinates its transactions and its group, is killed again and again, and the program itself once (scenario T14).
func TestCopiersThroughRestarts(t *testing.T) {
	kind(t)
	for name, command := range copiers(t) {
		t.Run(name, func(t *testing.T) {
			args, env := command()
			b := ownBroker(t, map[string]string{"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3",
				"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"})
			copyThroughRestarts(t, b, func() *process {
				return startFollowing(t, env, append(slices.Clone(args), b.Addr, "in", "out", "copy-"+name)...)
			})
		})
	}
}

// startFollowing starts a foreign program whose standard input stays open; it is killed when the test ends.
func startFollowing(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	p.cmd.WaitDelay = 5 * time.Second
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdin, p.stdin = in, w
	if err := errors.Join(p.cmd.Start(), in.Close()); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = w.Close()
		<-p.done
		if t.Failed() {
			t.Logf("%s printed:\n%.3000s\n%.3000s", args[0], p.out.String(), p.err.String())
		}
	})
	return p
}

// copyThroughRestarts fills topic in, copies it under faults, and compares topic out with it.
func copyThroughRestarts(t *testing.T, b *target.Broker, start func() *process) {
	t.Helper()
	const faults = 4
	part := 600 // messages that are there when the first fault comes, and that each fault finds new
	if long() {
		part = 6000
	}
	messages := part * (faults + 1)
	makeTopic(t, b, "in", 2, nil)
	makeTopic(t, b, "out", 2, nil)
	producer := newClient(t, b, kgo.DefaultProduceTopic("in"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	fill := func(k int) {
		for i := range part {
			producer.Produce(t.Context(), kgo.StringRecord(strconv.Itoa(k*part+i)), func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		if err := producer.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fill(0)
	copier := start()
	seen := map[string]int{}
	reader := newClient(t, b, kgo.ConsumeTopics("out"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	read, struck := 0, 0
	deadline := time.Now().Add(3 * time.Minute)
	for read < messages && time.Now().Before(deadline) {
		ctx, cancel := withTimeout(t, 500*time.Millisecond)
		reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++; read++ })
		cancel()
		if struck < faults && read > struck*part+part/4 {
			struck++
			fill(struck)
			t.Logf("fault %d after %d messages", struck, read)
			if struck == 2 {
				_ = copier.cmd.Process.Kill()
				<-copier.done
				copier = start()
			} else {
				restart(t, b, false)
			}
		}
	}
	select {
	case <-copier.done:
		t.Errorf("the copier has ended: %v", copier.cmd.ProcessState)
	default:
	}
	if struck < faults {
		t.Errorf("only %d of %d faults", struck, faults)
	}
	missing, twice := 0, 0
	for i := range messages {
		switch n := seen[strconv.Itoa(i)]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	if missing > 0 || twice > 0 || len(seen) > messages {
		t.Errorf("of %d messages %d are missing and %d are there more than once; %d different ones", messages, missing, twice, len(seen))
	}
	c := dial(t, b)
	err := poll.Until(t.Context(), 20*time.Second, "nothing is open", func() (bool, error) {
		var open []string
		for p := range int32(2) {
			if end, stable := listOffset(t, c, "out", p, -1).Offset, stableOffset(t, c, "out", p); end != stable {
				open = append(open, fmt.Sprintf("out-%d: %d of %d", p, stable, end))
			}
		}
		return len(open) == 0, fmt.Errorf("%v", open)
	})
	if err != nil {
		t.Error(err)
	}
}
