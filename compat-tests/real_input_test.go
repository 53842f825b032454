package compattests_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// realPartitions is the number of partitions that real input is spread over.
const realPartitions = 12

// sourceLines writes the Go toolchain's own source tree as lines "key<TAB>value" into a file: the key is the directory of
// the file, the value starts with a running number, so that each line occurs once. It returns the number of lines.
func sourceLines(t *testing.T, path string) (count int, size int64) {
	t.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatalf("find the Go toolchain: %v", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "src")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	err = filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		for line := range bytes.Lines(data) {
			line = bytes.TrimRight(line, "\r\n")
			if !utf8.Valid(line) || bytes.ContainsAny(line, "\t\x00\r\n") || len(line) > 100_000 {
				line = bytes.Map(func(r rune) rune {
					if r < ' ' || r == utf8.RuneError {
						return ' '
					}
					return r
				}, line[:min(len(line), 100_000)])
			}
			n, err := fmt.Fprintf(w, "%s\t%d %s\n", dir, count, line)
			if err != nil {
				return err
			}
			count++
			size += int64(n)
		}
		return nil
	})
	if err := errors.Join(err, w.Flush(), f.Close()); err != nil {
		t.Fatalf("write source lines: %v", err)
	}
	return count, size
}

// digest is what is compared of a set of lines: their number, the hash of the sorted lines, and for each key the hash of
// its lines in order.
type digest struct {
	count  int
	sorted string
	keys   map[string]string
}

// digestOf reads lines "key<TAB>value". The lines of a key must come in order; those of different keys may mix.
func digestOf(t *testing.T, r *bufio.Scanner) digest {
	t.Helper()
	r.Buffer(make([]byte, 1<<20), 4<<20)
	var all []string
	perKey := map[string][]string{}
	for r.Scan() {
		line := r.Text()
		key, value, ok := strings.Cut(line, "\t")
		if !ok {
			t.Fatalf("line without a key: %.200q", line)
		}
		all = append(all, line)
		perKey[key] = append(perKey[key], value)
	}
	if err := r.Err(); err != nil {
		t.Fatalf("read lines: %v", err)
	}
	slices.Sort(all)
	d := digest{count: len(all), sorted: hashLines(all), keys: make(map[string]string, len(perKey))}
	for key, values := range perKey {
		d.keys[key] = hashLines(values)
	}
	return d
}

func hashLines(lines []string) string {
	h := sha256.New()
	for _, l := range lines {
		_, _ = h.Write([]byte(l)) // never fails
		_, _ = h.Write([]byte{'\n'})
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (d digest) compare(t *testing.T, what string, want digest) {
	t.Helper()
	if d.count != want.count || d.sorted != want.sorted {
		t.Errorf("%s: %d lines with sha256 %s, want %d with %s", what, d.count, d.sorted, want.count, want.sorted)
	}
	wrong := 0
	for key, h := range want.keys {
		if d.keys[key] != h {
			wrong++
		}
	}
	if wrong > 0 || len(d.keys) != len(want.keys) {
		t.Errorf("%s: the order of %d of %d keys differs (%d keys read)", what, wrong, len(want.keys), len(d.keys))
	}
}

// TestRealInput feeds the Go toolchain's source tree through kcat with each codec and reads it back with a different client
// each time.
func TestRealInput(t *testing.T) {
	set := need(t, "kcat", "python", "node", "java")
	b := ownBroker(t, nil)
	dir := t.TempDir()
	input := filepath.Join(dir, "input")
	count, size := sourceLines(t, input)
	want := digestFile(t, input)
	t.Logf("input: %d lines, %d MB, %d keys", count, size>>20, len(want.keys))
	readers := map[string]func(t *testing.T, topic, out string){
		"none": func(t *testing.T, topic, out string) {
			toFile(t, out, nil, "kcat", "-b", b.Addr, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", `%k\t%s\n`)
		},
		"gzip": func(t *testing.T, topic, out string) { franzToFile(t, b, topic, out, count) },
		"snappy": func(t *testing.T, topic, out string) {
			toFile(t, out, nil, set.Python(), "py/dump_topic.py", b.Addr, topic, strconv.Itoa(count))
		},
		"lz4": func(t *testing.T, topic, out string) {
			toFile(t, out, []string{"NODE_PATH=" + set.NodePath()}, "node", "js/dump_topic.js", b.Addr, topic, strconv.Itoa(count))
		},
		"zstd": func(t *testing.T, topic, out string) {
			r := tool(t, javatool.Command{Tool: "kafka-console-consumer", Timeout: 5 * time.Minute, Args: []string{
				"--bootstrap-server", b.Addr, "--topic", topic, "--from-beginning", "--max-messages", strconv.Itoa(count), "--timeout-ms", "60000",
				"--formatter-property", "print.key=true",
			}, OutFile: out})
			if r.Exit != 0 || r.Timeout {
				t.Errorf("console consumer: %+v", r)
			}
		},
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			topic := "real-" + codec
			makeTopic(t, b, topic, realPartitions, nil)
			began := time.Now()
			feed(t, b, topic, codec, input)
			fed := time.Since(began)
			out := filepath.Join(dir, codec)
			readers[codec](t, topic, out)
			digestFile(t, out).compare(t, codec, want)
			t.Logf("%s: fed in %v, read back in %v", codec, fed, time.Since(began)-fed)
			if err := os.Remove(out); err != nil {
				t.Error(err)
			}
		})
	}
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	checkDump(t, b, "real-*")
}

func digestFile(t *testing.T, path string) digest {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	return digestOf(t, bufio.NewScanner(f))
}

// feed runs kcat with a file as its input.
func feed(t *testing.T, b *target.Broker, topic, codec, input string) {
	t.Helper()
	toFile(t, os.DevNull, nil, "kcat", "-b", b.Addr, "-P", "-t", topic, "-K", "\t", "-z", codec, "-l", "-X", "queue.buffering.max.messages=200000", input)
}

// toFile runs a program whose standard output goes to a file; it must end with 0.
func toFile(t *testing.T, path string, env []string, name string, args ...string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr lockedBuffer
	cmd.Stdout, cmd.Stderr, cmd.Env = f, &stderr, append(os.Environ(), env...)
	err = cmd.Run()
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatalf("%s %s: %v\n%.3000s", name, strings.Join(args, " "), err, stderr.String())
	}
}

func franzToFile(t *testing.T, b *target.Broker, topic, path string, count int) {
	t.Helper()
	client := newClient(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	ctx, cancel := withTimeout(t, 5*time.Minute)
	defer cancel()
	for n := 0; n < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d of %d records: %v", n, count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			_, _ = fmt.Fprintf(w, "%s\t%s\n", r.Key, r.Value) // Flush reports what fails
			n++
		})
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestRealInputKilled kills the broker in the middle of such a load, twice: fed by an idempotent franz-go producer that
// records what was acknowledged, and by an idempotent kcat that goes on by itself.
func TestRealInputKilled(t *testing.T) {
	need(t, "kcat")
	b := ownBroker(t, nil)
	dir := t.TempDir()
	input := filepath.Join(dir, "input")
	count, _ := sourceLines(t, input)

	t.Run("franz-go", func(t *testing.T) {
		makeTopic(t, b, "killed-franz", realPartitions, nil)
		f, err := os.Open(input)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		scanner := bufio.NewScanner(f)
		scanner.Buffer(make([]byte, 1<<20), 4<<20)
		load := startLines(t, b, "killed-franz", realPartitions, scanner)
		load.await(t, count/4)
		restart(t, b, false)
		awaitLeaders(t, b, "killed-franz", realPartitions)
		load.await(t, count/2)
		acked := load.stop()
		checkAcked(t, b, "killed-franz", acked)
		t.Logf("%d of %d lines were acknowledged", load.count(), count)
	})

	t.Run("kcat", func(t *testing.T) {
		makeTopic(t, b, "killed-kcat", realPartitions, nil)
		p := startProcess(t, "kcat", "-b", b.Addr, "-P", "-t", "killed-kcat", "-K", "\t", "-z", "lz4", "-l", "-E", "-X", "enable.idempotence=true",
			"-X", "message.timeout.ms=120000", "-X", "queue.buffering.max.messages=20000", "-X", "reconnect.backoff.max.ms=500", input)
		awaitRecords(t, b, "killed-kcat", int64(count/4))
		restart(t, b, false)
		select {
		case <-p.done:
		case <-time.After(4 * time.Minute):
			t.Fatalf("kcat did not end: %s", p.err.String())
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Fatalf("kcat ended with %d: %.2000s", code, p.err.String())
		}
		// All was acknowledged, so all must be there, once and in order.
		out := filepath.Join(dir, "out")
		toFile(t, out, nil, "kcat", "-b", b.Addr, "-C", "-t", "killed-kcat", "-o", "beginning", "-e", "-q", "-f", `%k\t%s\n`)
		digestFile(t, out).compare(t, "after the kill", digestFile(t, input))
	})
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("java"); err == nil {
		checkDump(t, b, "killed-*")
	}
}

// checkDump runs kafka-dump-log over each segment of the topics that match.
func checkDump(t *testing.T, b *target.Broker, topics string) {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(b.DataDir(), topics, "*.log"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("segments of %s: %v, %v", topics, segments, err)
	}
	indexes, err := filepath.Glob(filepath.Join(b.DataDir(), topics, "*index"))
	if err != nil {
		t.Fatal(err)
	}
	printed := filepath.Join(t.TempDir(), "dump")
	for batch := range slices.Chunk(append(segments, indexes...), 16) {
		r := tool(t, javatool.Command{Tool: "kafka-dump-log", Timeout: 4 * time.Minute, OutFile: printed, Args: []string{
			"--deep-iteration", "--index-sanity-check", "--files", strings.Join(batch, ","),
		}})
		if r.Exit != 0 || r.Timeout {
			t.Errorf("kafka-dump-log of %s: exit %d, timeout %v\n%.2000s", strings.Join(batch, " "), r.Exit, r.Timeout, r.Err)
		}
		passed, records := readDump(t, printed)
		if passed == 0 && slices.ContainsFunc(batch, func(s string) bool { return strings.HasSuffix(s, ".index") }) {
			t.Errorf("kafka-dump-log passed no index of %s", strings.Join(batch, " "))
		}
		if records < 0 {
			return
		}
	}
}

// readDump looks for complaints in what kafka-dump-log printed. It returns the number of indexes that passed, and −1
// records once it has complained enough.
func readDump(t *testing.T, path string) (passed, records int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	scanner := bufio.NewScanner(f)
	scanner.Buffer(make([]byte, 1<<20), 64<<20)
	complaints := 0
	for scanner.Scan() {
		line := scanner.Text()
		switch {
		case strings.HasPrefix(line, "| offset:"): // a record, with keys and values left out
			records++
		case strings.Contains(line, "passed sanity check"):
			passed++
		case dumpComplaint.MatchString(line):
			complaints++
			t.Errorf("kafka-dump-log complains: %.300s", line)
			if complaints > 10 {
				return passed, -1
			}
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return passed, records
}
