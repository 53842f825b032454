package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The versions in the table are those that are pinned.
func TestVersionsArePinned(t *testing.T) {
	pins := map[string]struct{ file, before string }{
		"confluent-kafka (Python, librdkafka)":        {"../install/requirements.txt", "confluent-kafka=="},
		"confluent-kafka-go (librdkafka)":             {"../clients/go.mod", "confluent-kafka-go/v2 v"},
		"rdkafka (Rust, librdkafka)":                  {"../rust/Cargo.toml", `version = "=`},
		"@confluentinc/kafka-javascript (librdkafka)": {"../install/confluentjs/package.json", `kafka-javascript": "`},
		"kafka-python":                   {"../install/requirements.txt", "\nkafka-python=="},
		"aiokafka":                       {"../install/requirements.txt", "aiokafka=="},
		"kafkajs":                        {"../install/package.json", `"kafkajs": "`},
		"@platformatic/kafka":            {"../install/package.json", `"@platformatic/kafka": "`},
		"franz-go":                       {"../../go.mod", "twmb/franz-go v"},
		"sarama":                         {"../clients/go.mod", "IBM/sarama v"},
		"segmentio/kafka-go":             {"../clients/go.mod", "segmentio/kafka-go v"},
		"kafka-clients":                  {"../install/install.sh", ""},
		"kafka-topics":                   {"../install/pom.xml", "<kafka.version>"},
		"Kafka Connect distributed":      {"../install/connect-pom.xml", "<connect.version>"},
		"MirrorMaker 2":                  {"../install/connect-pom.xml", "<connect.version>"},
		"Spring Kafka (Spring Boot)":     {"../install/spring-pom.xml", "<version>"},
		"Telegraf":                       {"../install/install.sh", "telegraf_version=v"},
		"OpenTelemetry collector":        {"../install/otelcol.yaml", "kafkaexporter v"},
		"franz-go's own suite":           {"../install/suites.txt", "pkg/kgo v"},
		"sarama's own functional suite":  {"../install/suites.txt", "IBM/sarama v"},
		"kafka-go's own suite":           {"../install/suites.txt", "segmentio/kafka-go v"},
		"confluent-kafka-go's own suite": {"../install/suites.txt", "confluent-kafka-go/v2/kafka v"},
	}
	for _, r := range rows {
		pin, ok := pins[r.client]
		if !ok {
			continue
		}
		if strings.Contains(r.one, "/franz-go-old/") {
			pin.file = "../clients/go.franz-old.mod"
		}
		data, err := os.ReadFile(pin.file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), pin.before+r.version) {
			t.Errorf("%s %s: %s has another version", r.client, r.version, pin.file)
		}
	}
}

func TestResult(t *testing.T) {
	const output = "--- PASS: TestA (0.1s)\n    --- PASS: TestA/x (0.0s)\n    --- FAIL: TestA/y (0.0s)\n--- SKIP: TestB (0.0s)\n--- FAIL: TestC (1s)\n"
	for tests, want := range map[string]string{
		"TestA": "pass", "TestA/x": "pass", "TestA/.*": "1 of 2 pass", "TestB": "not run", "TestC": "0 of 1 pass", "TestNone": "not run", "TestA|TestC": "1 of 2 pass",
	} {
		if got := result(tests, []string{output}); got != want {
			t.Errorf("%s: %s, want %s", tests, got, want)
		}
	}
}

// Of a test that several runs have, the last one counts, all of it; one that was skipped or cut off there did not run there.
func TestLastRunCounts(t *testing.T) {
	runs := []string{
		"--- FAIL: TestA (1s)\n--- PASS: TestB (1s)\n--- PASS: TestC (1s)\n--- FAIL: TestD (1s)\n",
		"--- PASS: TestA (1s)\n--- FAIL: TestB (1s)\n--- SKIP: TestC (0s)\n=== RUN   TestD\npanic: test timed out\n",
		"--- PASS: TestB (1s)\n--- FAIL: TestB (1s)\n--- PASS: TestB (1s)\n",
	}
	for tests, want := range map[string]string{"TestA": "pass", "TestB": "2 of 3 pass", "TestC": "pass", "TestD": "0 of 1 pass", "Test[AB]": "3 of 4 pass"} {
		if got := result(tests, runs); got != want {
			t.Errorf("%s: %s, want %s", tests, got, want)
		}
	}
}

// The files that a pattern matches are read in the order of their names, so that what was kept of earlier runs comes before the last run.
func TestRunsAreRead(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"compat-kaja.txt", "compat-kaja-20261130T235900Z.txt", "compat-kaja-20261201T000100Z.txt", "clients-kaja.txt", "compat-kafka.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := read(filepath.Join(dir, "compat-kaja*.txt") + "," + filepath.Join(dir, "clients-kaja*.txt") + "," + filepath.Join(dir, "clients-kafka*.txt"))
	want := []string{"compat-kaja-20261130T235900Z.txt", "compat-kaja-20261201T000100Z.txt", "compat-kaja.txt", "clients-kaja.txt"}
	if err != nil || !slices.Equal(runs, want) {
		t.Errorf("%v, %v, want %v", runs, err, want)
	}
}

// What a client used on one node and on three is one line.
func TestVersionsAreJoined(t *testing.T) {
	names, seen := versions([]string{"    matrix_test.go:47: API versions of b: Fetch 4, Produce 7+9\nAPI versions of a: Fetch 18\n", "    x: API versions of b: Produce 8+9\n"})
	if got, want := fmt.Sprint(names, seen), "[a b] map[a:map[Fetch:[18]] b:map[Fetch:[4] Produce:[7 8 9]]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Where nothing ran, the document as it is has the word, if it is of the same version; what ran replaces it.
func TestWhatDidNotRunStays(t *testing.T) {
	was := page(document{}, []string{"--- PASS: TestMatrix/kcat/one (1s)\n--- PASS: TestMatrix/kafkajs/one (1s)\nAPI versions of kcat: Fetch 11\nAPI versions of kafkajs: Fetch 4\n"},
		[]string{"--- FAIL: TestMatrix/kcat/three (1s)\n"})
	if got := page(parse(was), nil, nil); got != was {
		t.Errorf("nothing ran, and the document has changed:\n%s\nwas\n%s", got, was)
	}
	got := page(parse(was), []string{"--- FAIL: TestMatrix/kcat/one (1s)\nAPI versions of kcat: Fetch 12\n"}, []string{"--- PASS: TestMatrix/kcat/three (1s)\n"})
	for what, want := range map[string]string{
		"kcat": "| 0 of 1 pass | not run | not run | pass |", "kafkajs": "| pass | not run | not run | not run |",
	} {
		i := strings.Index(got, "\n| "+what+" |")
		if line, _, _ := strings.Cut(got[i+1:], "\n"); !strings.HasSuffix(line, want) {
			t.Errorf("%s, want it to end with %s", line, want)
		}
	}
	for _, want := range []string{"\n| kcat | Fetch 12 |\n", "\n| kafkajs | Fetch 4 |\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
	kcat := rows[slices.IndexFunc(rows, func(r row) bool { return r.client == "kcat" })]
	older := parse(strings.ReplaceAll(was, "| kcat | "+kcat.version+" |", "| kcat | 0.1 |") + "| gone | Fetch 1 |\n")
	got = page(older, nil, nil)
	if want := fmt.Sprintf("\n| kcat | %s | %s | not run | not run | not run | not run |\n", kcat.version, kcat.what); !strings.Contains(got, want) {
		t.Errorf("what another version did counts for this one:\n%s", got)
	}
	for _, line := range []string{"\n| kcat | Fetch 11 |\n", "\n| gone | Fetch 1 |\n"} {
		if strings.Contains(got, line) {
			t.Errorf("the versions of another version, or of a client that is gone, stay: %q", line)
		}
	}
}
