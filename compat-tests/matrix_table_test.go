package compattests_test

import (
	"path/filepath"

	"github.com/kajamq/kaja/compat-tests/internal/clients"
)

// matrixClient is a client of the matrix: a program as doc.go describes it, and what it can do.
type matrixClient struct {
	name       string
	needs      []string // what the installer must have put there
	command    func(set clients.Set) (args, env []string)
	steps      []string
	quick      []string // its steps in CI, where that has not all: some of them hang in the client now and then
	checks     int      // at least so many are made
	resends    bool     // it has no idempotent producer: what it sends again may be there twice
	noOffsets  bool     // its transactions take no offsets
	reads      bool     // its transactions take the offsets of messages that it has read itself, from NAME-in
	readersDie bool     // where a node is gone its readers end their process with a TypeError: none is killed under them
	sturdy     bool     // a node is killed under it in CI, too
	slow       bool     // it takes minutes to install
}

const eager, cooperative, static = "group:eager", "group:cooperative", "group:static"

// steps are what every client does, with its own groups, and transactions where it has them.
func steps(txn bool, groups ...string) []string {
	out := []string{"admin", "codecs", "flow"}
	if txn {
		out = append(out, "txn")
	}
	return append(append(out, groups...), "end")
}

var matrix = []matrixClient{ //nolint:gochecknoglobals // a table
	{name: "kcat", needs: []string{"kcat", "python"}, command: python("kcat.py"), steps: []string{"admin", "codecs", "flow", "txn", eager, cooperative, static}, checks: 8, resends: true, noOffsets: true},
	{name: "confluent-kafka-python", needs: []string{"python"}, command: python("confluent.py"), steps: steps(true, eager, cooperative, static), checks: 18},
	{name: "kafka-python", needs: []string{"python"}, command: python("kafka_python.py"), steps: steps(true, eager, cooperative, static), quick: steps(true), checks: 20},
	{name: "aiokafka", needs: []string{"python"}, command: python("aio.py"), steps: steps(true, eager, static), checks: 15},
	{name: "kafkajs", needs: []string{"node"}, command: node("kafkajs.js"), steps: steps(true, eager), checks: 15},
	{name: "platformatic", needs: []string{"node"}, command: node("platformatic.mjs"), steps: steps(true, eager, static), quick: steps(true), checks: 8, resends: true, readersDie: true},
	{name: "kafka-clients-2.1", needs: []string{"javaclients"}, command: java("2.1.1"), steps: steps(true, eager), checks: 12},
	{name: "kafka-clients-3.9", needs: []string{"javaclients"}, command: java("3.9.1"), steps: steps(true, eager, cooperative, static), checks: 15},
	{name: "kafka-clients-4.4", needs: []string{"javaclients"}, command: java("4.4.0"), steps: steps(true, eager, cooperative, static), checks: 15, sturdy: true},
	{name: "franz-go", needs: []string{"goclients"}, command: goProgram("franz"), steps: steps(true, eager, cooperative, static), checks: 10, reads: true, sturdy: true},
	{name: "franz-go-old", needs: []string{"goclients"}, command: goProgram("franz-old"), steps: steps(true, eager, cooperative, static), checks: 10, reads: true},
	{name: "sarama-1.0", needs: []string{"goclients"}, command: goProgram("sarama", "SARAMA_VERSION=1.0.0"), steps: steps(true, eager), checks: 8},
	{name: "sarama-2.1", needs: []string{"goclients"}, command: goProgram("sarama", "SARAMA_VERSION=2.1.0"), steps: steps(true, eager), checks: 9},
	{name: "sarama-max", needs: []string{"goclients"}, command: goProgram("sarama", "SARAMA_VERSION=max"), steps: steps(true, eager, cooperative, static), checks: 9, sturdy: true},
	{name: "kafka-go", needs: []string{"goclients"}, command: goProgram("kafkago"), steps: steps(false, eager), checks: 9, resends: true},
	{name: "confluent-kafka-go", needs: []string{"goclients"}, command: goProgram("confluent"), steps: steps(true, eager, cooperative, static), checks: 9},
	{name: "rdkafka", needs: []string{"rdkafka"}, command: func(set clients.Set) (args, env []string) { return []string{set.Rdkafka()}, nil },
		steps: steps(true, eager, cooperative, static), checks: 9, slow: true},
	{name: "confluent-kafka-javascript", needs: []string{"confluentjs"}, command: func(set clients.Set) (args, env []string) {
		return []string{"node", filepath.Join("js", "confluent.js")}, []string{"NODE_PATH=" + set.ConfluentJS()}
	}, steps: steps(true, eager, cooperative, static), checks: 9, slow: true},
}

func python(script string) func(clients.Set) (args, env []string) {
	return func(set clients.Set) (args, env []string) {
		return []string{set.Python(), filepath.Join("py", script)}, nil
	}
}

func node(script string) func(clients.Set) (args, env []string) {
	return func(set clients.Set) (args, env []string) {
		return []string{"node", filepath.Join("js", script)}, []string{"NODE_PATH=" + set.NodePath(), "KAFKAJS_NO_PARTITIONER_WARNING=1"}
	}
}

// java runs ClientScenario, compiled against a release of kafka-clients.
func java(version string) func(clients.Set) (args, env []string) {
	return func(set clients.Set) (args, env []string) {
		dir := set.JavaClient(version)
		return []string{"java", "-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", dir + ":" + dir + "/*", "ClientScenario"}, nil
	}
}

func goProgram(name string, env ...string) func(clients.Set) (args, env []string) {
	return func(set clients.Set) ([]string, []string) { return []string{set.GoProgram(name)}, env }
}
