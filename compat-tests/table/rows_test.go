package main

import (
	"fmt"
	"os"
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
		if got := result(tests, output); got != want {
			t.Errorf("%s: %s, want %s", tests, got, want)
		}
	}
}

// What a client used on one node and on three is one line.
func TestVersionsAreJoined(t *testing.T) {
	names, seen := versions("    matrix_test.go:47: API versions of b: Fetch 4, Produce 7+9\nAPI versions of a: Fetch 18\n    x: API versions of b: Produce 8+9\n")
	if got, want := fmt.Sprint(names, seen), "[a b] map[a:map[Fetch:[18]] b:map[Fetch:[4] Produce:[7 8 9]]]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
