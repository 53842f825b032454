package compattests_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// After a stop, and after SIGKILL in the middle of a load, the metadata shows what a real Kafka 4.4 shows after the same:
// leader, leader epoch, replicas, in-sync and eligible replicas, and what OffsetForLeaderEpoch says of each epoch so far.
func TestMetadataAfterStopAndKill(t *testing.T) {
	t.Parallel() // it waits, beside a broker of its own
	need(t, "java")
	type life struct {
		b     *target.Broker
		lines []string
	}
	lives := []*life{{b: ownBroker(t, nil)}, {b: startOwn(t, target.Kafka, nil)}}
	const topic, partitions = "lives", 2
	for _, l := range lives {
		makeTopic(t, l.b, topic, partitions, nil)
		l.lines = append(l.lines, "made", describeLives(t, l.b, topic))
		for i, politely := range []bool{true, false} {
			c := dial(t, l.b)
			for p := range int32(partitions) {
				mustProduce(t, c, topic, p, raw.NewBatch(raw.Numbered(fmt.Sprint("life-", i, "-"), 0, 3)...).Bytes())
			}
			restart(t, l.b, politely)
			awaitLeaders(t, l.b, topic, partitions)
			l.lines = append(l.lines, fmt.Sprintf("stop %d, politely %v", i+1, politely), describeLives(t, l.b, topic))
		}
	}
	if diff := cmp.Diff(lives[1].lines, lives[0].lines); diff != "" {
		t.Errorf("(-Kafka 4.4 +%s)\n%s", lives[0].b.Kind, diff)
	}
	t.Logf("Kafka 4.4 shows:\n%s", strings.Join(lives[1].lines, "\n"))
}

// describeLives renders what Metadata, DescribeTopicPartitions and OffsetForLeaderEpoch say of a topic, once a node that has
// just started has elected itself everywhere.
func describeLives(t *testing.T, b *target.Broker, topic string) string {
	t.Helper()
	c := dial(t, b)
	var out string
	err := poll.Until(t.Context(), 20*time.Second, "a leader in the in-sync set everywhere", func() (bool, error) {
		var lines []string
		m := metadata(t, c, 12, false, topic).Topics[0]
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
		rt.Topic = topic
		req.Topics = append(req.Topics, rt)
		d := do[*kmsg.DescribeTopicPartitionsResponse](t, c, req).Topics[0]
		for i, p := range m.Partitions {
			e := d.Partitions[i]
			lines = append(lines, fmt.Sprintf("metadata %d: code %d leader %d epoch %d replicas %v isr %v offline %v",
				p.Partition, p.ErrorCode, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas))
			lines = append(lines, fmt.Sprintf("describe %d: code %d leader %d epoch %d replicas %v isr %v elr %v last known elr %v offline %v",
				e.Partition, e.ErrorCode, e.LeaderID, e.LeaderEpoch, e.Replicas, e.ISR, e.EligibleLeaderReplicas, e.LastKnownELR, e.OfflineReplicas))
			if p.ErrorCode != 0 || p.Leader < 0 || e.LeaderID < 0 {
				return false, fmt.Errorf("%s", lines[len(lines)-2])
			}
			for epoch := int32(0); epoch <= p.LeaderEpoch+1; epoch++ {
				lines = append(lines, epochEnd(t, c, topic, p.Partition, epoch))
			}
		}
		out = strings.Join(lines, "\n")
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func epochEnd(t *testing.T, c *raw.Conn, topic string, partition, epoch int32) string {
	t.Helper()
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = 4, -1
	rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = partition, -1, epoch
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	p := do[*kmsg.OffsetForLeaderEpochResponse](t, c, req).Topics[0].Partitions[0]
	return fmt.Sprintf("  epoch %d of %d: code %d epoch %d end %d", epoch, partition, p.ErrorCode, p.LeaderEpoch, p.EndOffset)
}
