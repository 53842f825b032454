package compattests_test

import (
	"strings"
	"testing"
	"time"
)

// What people get wrong, at each of Kafka's tools: names that are not there, arguments that are missing or no sense, files that
// cannot be read. The other exams have the errors of kafka-topics, -configs, -console-*, -consumer-groups and -get-offsets.

func TestExamErrors(t *testing.T) {
	tool := func(name, args string) step { return step{tool: name, args: args} }
	at := func(name, args string) step { return step{tool: name, args: bs + args} }
	dir := t.TempDir()
	for name, text := range map[string]string{
		"broken.json":  `{"partitions":[{"topic"`,
		"empty.json":   `{"partitions":[]}`,
		"twice.json":   `{"partitions":[{"topic":"ee1","partition":0,"offset":0},{"topic":"ee1","partition":0,"offset":1}],"version":1}`,
		"version.json": `{"partitions":[{"topic":"ee1","partition":0,"offset":0}],"version":9}`,
		"elect.json":   `{"partitions":[{"topic":"ee1","partition":0},{"topic":"ee1","partition":9}]}`,
	} {
		writeFile(t, dir+"/"+name, text)
	}
	examine(t, []step{
		topics("--create --topic ee1 --partitions 1"),

		at("kafka-delete-records", "--offset-json-file "+dir+"/absent.json"),
		at("kafka-delete-records", "--offset-json-file "+dir+"/broken.json"),
		at("kafka-delete-records", "--offset-json-file "+dir+"/empty.json"),
		at("kafka-delete-records", "--offset-json-file "+dir+"/twice.json"),
		at("kafka-delete-records", "--offset-json-file "+dir+"/version.json"),
		at("kafka-delete-records", ""),

		at("kafka-log-dirs", "--describe --broker-list x"),
		at("kafka-log-dirs", "--describe --frobnicate"),
		tool("kafka-log-dirs", "--describe"),
		tool("kafka-broker-api-versions", ""),
		at("kafka-broker-api-versions", "--frobnicate"),

		tool("kafka-cluster", "cluster-id"),
		tool("kafka-cluster", "frobnicate "+bs),
		tool("kafka-cluster", "unregister "+bs),
		tool("kafka-cluster", "unregister "+bs+"--id 99"),
		tool("kafka-cluster", "unregister "+bs+"--id x"),

		at("kafka-features", "upgrade"),
		at("kafka-features", "upgrade --feature transaction.version=2"),
		at("kafka-features", "upgrade --feature transaction.version=2 --dry-run"),
		at("kafka-features", "upgrade --feature transaction.version=9"),
		at("kafka-features", "upgrade --feature transaction.version=x"),
		at("kafka-features", "upgrade --feature transaction.version"),
		at("kafka-features", "upgrade --feature no.such.feature=1"),
		at("kafka-features", "upgrade --metadata 4.4-IV2"),
		at("kafka-features", "upgrade --metadata 9.9-IV9"),
		at("kafka-features", "downgrade --feature transaction.version=1 --dry-run"),
		at("kafka-features", "downgrade --feature transaction.version=0 --dry-run"),
		at("kafka-features", "downgrade --feature transaction.version=2"),
		at("kafka-features", "disable --feature transaction.version --dry-run"),
		at("kafka-features", "disable --feature no.such.feature"),
		at("kafka-features", "version-mapping --release-version nonsense"),
		at("kafka-features", "feature-dependencies --feature no.such.feature=1"),
		tool("kafka-features", "describe"),

		at("kafka-leader-election", "--election-type preferred --path-to-json-file "+dir+"/absent.json"),
		at("kafka-leader-election", "--election-type preferred --path-to-json-file "+dir+"/elect.json"),
		at("kafka-leader-election", "--election-type preferred --path-to-json-file "+dir+"/broken.json"),
		at("kafka-leader-election", "--topic ee1 --partition 0"),

		at("kafka-transactions", "find-hanging"),
		at("kafka-transactions", "find-hanging --broker-id 1 --topic ee-absent"),
		at("kafka-transactions", "describe"),
		at("kafka-transactions", "describe-producers --topic ee1"),
		at("kafka-transactions", "describe-producers --topic ee1 --partition 0"),
		at("kafka-transactions", "abort --topic ee1 --partition 0"),
		at("kafka-transactions", "abort --topic ee1 --partition 0 --producer-id 99 --producer-epoch 0"),
		at("kafka-transactions", "frobnicate"),
		tool("kafka-transactions", "list"),

		at("kafka-groups", "--list --group-type nonsense"),
		at("kafka-groups", "--list --consumer --share"),
		at("kafka-groups", ""),

		at("kafka-verifiable-producer", "--max-messages 1"),
		at("kafka-verifiable-producer", "--topic ee1 --max-messages 1 --acks 7"),
		at("kafka-verifiable-consumer", "--topic ee1"),
		at("kafka-verifiable-consumer", "--topic ee1 --group-id ee-g --reset-policy nonsense"),

		at("kafka-producer-perf-test", "--num-records 5 --record-size 10 --throughput -1"),
		at("kafka-producer-perf-test", "--topic ee1 --num-records 5 --throughput -1"),
		at("kafka-producer-perf-test", "--topic ee1 --num-records 5 --record-size 10 --payload-file "+dir+"/absent --throughput -1"),
		tool("kafka-producer-perf-test", "--topic ee1 --num-records 5 --record-size 10 --throughput -1"),
		at("kafka-consumer-perf-test", "--num-records 5"),
		at("kafka-consumer-perf-test", "--topic ee1"),
		at("kafka-e2e-latency", "--topic ee1 --num-records 5 --producer-acks 2 --record-size 10"),
		at("kafka-e2e-latency", "--topic ee1"),

		tool("kafka-metadata-quorum", "describe --status"),
		at("kafka-metadata-quorum", ""),

		tool("kafka-client-metrics", "--list"),
		at("kafka-client-metrics", "--describe --name nobody"),
		at("kafka-client-metrics", "--delete"),
		topics("--delete --topic ee1"),
	})
}

// kafka-streams-application-reset takes an application back: the offsets of its input topics, and the topics that it made for itself.
func TestExamStreamsReset(t *testing.T) {
	reset := func(args string) step {
		return step{tool: "kafka-streams-application-reset", args: bs + args, timeout: 2 * time.Minute}
	}
	const app = "--application-id er-app "
	examine(t, []step{
		topics("--create --topic er-in --partitions 1"),
		topics("--create --topic er-app-store-changelog --partitions 1"),
		topics("--create --topic er-app-x-repartition --partitions 1"),
		producer("er-in", "a\nb\nc\n", ""),
		consumer("--topic er-in --group er-app --from-beginning --max-messages 3"),
		reset(app + "--input-topics er-in --dry-run"),
		reset(app + "--input-topics er-in --to-offset 1 --dry-run"),
		again(groups("--describe --group er-app")),
		reset(app + "--input-topics er-in --to-offset 1 --internal-topics er-app-none"),
		reset(app + "--input-topics er-none"),
		reset(app + "--input-topics er-in --to-offset 1"),
		again(groups("--describe --group er-app")),
		again(topics("--list --topic er-.*")),
		reset(app + "--input-topics er-in --shift-by 1"),
		again(groups("--describe --group er-app")),
		reset(app + "--input-topics er-in --to-latest"),
		reset(app + "--input-topics er-in --by-duration PT1M"),
		reset(app + "--input-topics er-in --to-datetime yesterday"),
		reset(app + "--input-topics er-in --from-file $DIR/absent.csv"),
		reset("--application-id er-never --input-topics er-in"),
		reset(app),
		reset("--input-topics er-in"),
		topics("--delete --topic er-in"),
	})
}

func groupTool(args string) step { return step{tool: "kafka-groups", args: bs + args} }

// kafka-configs --describe of everything of a kind, without a name.
func TestExamConfigsOfAll(t *testing.T) {
	describe := func(args string) step { return configs("--describe " + strings.TrimSpace(args)) }
	examine(t, []step{
		describe("--entity-type topics --entity-name ea-none"),
		describe("--entity-type topics --entity-default"),
		describe("--entity-type broker-loggers"),
		describe("--entity-type broker-loggers --entity-default"),
		describe("--entity-type broker-loggers --entity-name x"),
		describe("--entity-type brokers --entity-name x"),
		describe("--entity-type brokers"),
		describe("--entity-type brokers --all --entity-default"),
		describe("--entity-type nonsense"),
		describe(""),
		configs("--alter --entity-type brokers --entity-name 1 --add-config node.id=3"),
		configs("--alter --entity-type brokers --entity-default --add-config log.retention.ms=word"),
		configs("--alter --entity-type brokers --entity-default --delete-config no.such"),
		configs("--alter --entity-type brokers --entity-default --add-config-file $DIR/absent"),
		configs("--alter --entity-type topics --add-config retention.ms=1"),
		configs("--alter --entity-type topics --entity-name ea-none --delete-config retention.ms"),
	})
}
