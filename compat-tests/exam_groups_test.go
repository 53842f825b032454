package compattests_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fill produces the same records, at the same record times, into a topic of each broker.
func fill(t *testing.T, topic string, brokers ...*target.Broker) {
	t.Helper()
	for _, b := range brokers {
		c := dial(t, b)
		for p := range int32(2) {
			for i := range 5 {
				batch := numberedAt(int64(1_700_000_000_000+i*1000), i)
				mustProduce(t, c, topic, p, batch.Bytes())
			}
		}
	}
}

func TestExamGroupsWithoutMembers(t *testing.T) {
	need(t, "java")
	got, reference := sharedBroker(t), examReference(t)
	for _, b := range []*target.Broker{got, reference} {
		makeTopic(t, b, "eg1", 2, map[string]string{"retention.ms": "-1"})
		makeTopic(t, b, "eg2", 1, nil)
	}
	fill(t, "eg1", got, reference)
	resetTo := "--reset-offsets --group eg-a --topic eg1 "
	offsets := again(groups("--describe --group eg-a"))
	examine(t, []step{
		groups("--describe --group eg-none"),
		groups("--describe --group eg-none --members"),
		groups("--describe --group eg-none --state"),
		consumer("--topic eg1 --group eg-a --from-beginning --max-messages 10"),
		offsets,
		again(groups("--describe --group eg-a --offsets")),
		again(groups("--describe --group eg-a --offsets --verbose")),
		again(groups("--describe --group eg-a --members")),
		again(groups("--describe --group eg-a --members --verbose")),
		again(groups("--describe --group eg-a --state")),
		again(groups("--describe --group eg-a --state --verbose")),
		groups(resetTo + "--to-earliest --dry-run"),
		groups(resetTo + "--to-earliest --execute"),
		offsets,
		groups(resetTo + "--to-latest --execute"),
		offsets,
		groups(resetTo + "--to-offset 3 --execute"),
		offsets,
		groups(resetTo + "--shift-by 1 --execute"),
		offsets,
		groups(resetTo + "--shift-by -100 --execute"),
		groups(resetTo + "--shift-by 100 --execute"),
		groups(resetTo + "--to-current --execute"),
		groups(resetTo + "--to-datetime 2023-11-14T22:13:22.000Z --execute"),
		offsets,
		groups(resetTo + "--to-datetime 2100-01-01T00:00:00.000Z --execute"),
		groups(resetTo + "--to-datetime yesterday --execute"),
		groups(resetTo + "--by-duration PT1M --execute"),
		groups(resetTo + "--by-duration P20000D --execute"),
		groups("--reset-offsets --group eg-a --topic eg1:1 --to-offset 2 --execute"),
		offsets,
		groups("--reset-offsets --group eg-a --all-topics --to-offset 4 --execute"),
		groups("--reset-offsets --group eg-a --topic eg-absent --to-earliest --execute"),
		groups("--reset-offsets --group eg-new --topic eg1 --to-latest --execute"),
		again(groups("--describe --group eg-new")),
		groups("--reset-offsets --group eg-a --all-topics --to-current --export"),
		groups("--reset-offsets --group eg-a --group eg-new --all-topics --to-current --export --dry-run"),
		groups(resetTo + "--from-file $DIR/absent.csv --execute"),
		groups(resetTo),
		groups("--reset-offsets --all-groups --topic eg1 --to-offset 1 --dry-run"),
		groups("--delete-offsets --group eg-a --topic eg1:1"),
		offsets,
		groups("--delete-offsets --group eg-a --topic eg-absent"),
		groups("--delete-offsets --group eg-none --topic eg1"),
		groups("--delete-offsets --group eg-a --topic eg1"),
		groups("--describe --group eg-a"),
		groups("--delete --group eg-none"),
		groups("--delete --group eg-new"),
		groups("--delete --group eg-a --group eg-none"),
		groups("--validate-regex a.*"),
		groups("--list --state nonsense"),
		groups("--list --type nonsense"),
		groups("--describe --group eg-a --all-groups"),
		groups("--describe"),
		groups("--wrong-verb"),
	})
}

// resetFile writes the plan that --from-file reads.
func TestExamGroupsFromFile(t *testing.T) {
	need(t, "java")
	for _, b := range []*target.Broker{sharedBroker(t), examReference(t)} {
		makeTopic(t, b, "eff1", 2, map[string]string{"retention.ms": "-1"})
		fill(t, "eff1", b)
	}
	plan := t.TempDir() + "/plan.csv"
	writeFile(t, plan, "\"eff1\",0,2\n\"eff1\",1,4\n")
	examine(t, []step{
		groups("--reset-offsets --group eff-a --topic eff1 --to-earliest --execute"),
		groups("--reset-offsets --group eff-a --from-file " + plan + " --dry-run"),
		groups("--reset-offsets --group eff-a --from-file " + plan + " --execute"),
		again(groups("--describe --group eff-a")),
		groups("--delete --group eff-a"),
	})
}

// TestExamGroupsWithMembers looks at groups that a franz-go member and a static member hold open on both brokers. Client
// ids and hosts are the same on both; member ids hold a UUID.
func TestExamGroupsWithMembers(t *testing.T) {
	need(t, "java")
	brokers := []*target.Broker{sharedBroker(t), examReference(t)}
	for _, b := range brokers {
		makeTopic(t, b, "em1", 2, map[string]string{"retention.ms": "-1"})
		fill(t, "em1", b)
		member(t, b, "em-active", "em1", kgo.ClientID("client-a"))
		member(t, b, "em-static", "em1", kgo.ClientID("client-s"), kgo.InstanceID("i-1"))
	}
	examine(t, []step{
		again(groups("--describe --group em-active")),
		groups("--describe --group em-active --offsets --verbose"),
		groups("--describe --group em-active --members"),
		groups("--describe --group em-active --members --verbose"),
		groups("--describe --group em-active --state"),
		groups("--describe --group em-active --state --verbose"),
		groups("--describe --group em-static --members --verbose"),
		groups("--describe --group em-static"),
		groups("--describe --group em-active --group em-static --state"),
		groups("--describe --all-groups --state Stable"),
		groups("--reset-offsets --group em-active --topic em1 --to-earliest --execute"),
		groups("--delete --group em-active"),
		groups("--delete-offsets --group em-active --topic em1:0"),
		groups("--list --state Stable --type classic"),
	})
}

// TestExamGroupLists uses brokers of its own, because --list and --all-groups show the groups of other tests too.
func TestExamGroupLists(t *testing.T) {
	need(t, "java")
	got, reference := sharedAs(t, kind(t), "lists"), sharedAs(t, target.Kafka, "lists-reference")
	for _, b := range []*target.Broker{got, reference} {
		makeTopic(t, b, "lists", 2, map[string]string{"retention.ms": "-1"})
		fill(t, "lists", b)
		member(t, b, "l-active", "lists", kgo.ClientID("client-a"))
	}
	examineOn(t, got, reference, []step{
		groups("--reset-offsets --group l-empty --topic lists --to-offset 3 --execute"),
		again(groups("--list")),
		groups("--list --state"),
		groups("--list --type"),
		groups("--list --state --type"),
		groups("--list --state Empty"),
		groups("--list --state Stable,Empty"),
		groups("--list --state Dead"),
		groups("--list --type classic"),
		groups("--list --type consumer"),
		groupTool("--list"),
		groupTool("--list --group-type classic"),
		groupTool("--list --group-type consumer"),
		groupTool("--list --protocol consumer"),
		groupTool("--list --protocol nonsense"),
		groupTool("--list --consumer"),
		groupTool("--list --share"),
		groupTool("--list --streams"),
		again(groups("--describe --all-groups")),
		groups("--describe --all-groups --members"),
		groups("--describe --all-groups --members --verbose"),
		groups("--describe --all-groups --state"),
		groups("--describe --all-groups --offsets --verbose"),
		groups("--reset-offsets --all-groups --all-topics --to-earliest --dry-run"),
		groups("--delete --all-groups"),
		again(groups("--list")),
		again(topics("--list")),
		topics("--list --exclude-internal"),
		topics("--describe --exclude-internal"),
		topics("--describe --topic-id AAAAAAAAAAAAAAAAAAAAAA"), // Kafka's tool takes the zero id for none: all topics
		topics("--describe --topic __consumer_offsets"),
		configs("--describe --entity-type topics --entity-name __consumer_offsets"),
		configs("--describe --entity-type topics --entity-name __consumer_offsets --all"),
		configs("--describe --entity-type topics"),
		configs("--describe --entity-type groups"),
	})
}

// member runs a classic group member until the test ends, and returns when the group has partitions and has committed the
// end of each. It heartbeats in the background.
func member(t *testing.T, b *target.Broker, group, topic string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(b.Addr), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.Balancers(kgo.RangeBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}, opts...)...)
	if err != nil {
		t.Fatalf("make member of %s: %v", group, err)
	}
	t.Cleanup(client.Close)
	read := 0
	err = poll.Until(t.Context(), 30*time.Second, "member of "+group+" reads", func() (bool, error) {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil && !strings.Contains(err.Error(), "context") {
			return false, err
		}
		read += fetches.NumRecords()
		return read >= 10, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatalf("commit for %s: %v", group, err)
	}
	return client
}
