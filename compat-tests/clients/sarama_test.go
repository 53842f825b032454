package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// B44: sarama without negotiation sends the versions of the release it was told; each release from 1.0 on, which KEDA and Watermill are
// still told, must work.
func TestSaramaFixedVersions(t *testing.T) {
	b := startBroker(t, nil)
	versions := []sarama.KafkaVersion{sarama.V1_0_0_0, sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.V3_6_0_0, sarama.V4_1_0_0, sarama.MaxVersion}
	if os.Getenv("KAJA_COMPAT_LONG") != "" {
		versions = slices.DeleteFunc(slices.Clone(sarama.SupportedVersions), func(v sarama.KafkaVersion) bool { return !v.IsAtLeast(sarama.V1_0_0_0) })
	}
	for _, version := range versions {
		for _, negotiate := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s negotiate %v", version, negotiate), func(t *testing.T) {
				config := sarama.NewConfig()
				config.Version, config.ApiVersionsRequest = version, negotiate
				config.Producer.Return.Successes, config.Producer.RequiredAcks = true, sarama.WaitForAll
				config.Consumer.Offsets.Initial = sarama.OffsetOldest
				config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
				saramaScenario(t, b, config, fresh(t))
			})
		}
	}
}

func saramaScenario(t *testing.T, b *target.Broker, config *sarama.Config, topic string) {
	t.Helper()
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	admin, err := sarama.NewClusterAdmin([]string{b.Addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false); err != nil {
		t.Fatal(err)
	}
	// As 1.0 sarama describes configs with version 0, which neither Kafka 4.4 nor kaja serves, also to list topics, and cannot
	// delete groups.
	old := !config.Version.IsAtLeast(sarama.V2_1_0_0)
	// Kafka answers before the topic can be seen.
	err = poll.Until(t.Context(), 10*time.Second, "topic is listed", func() (bool, error) {
		if old {
			described, err := admin.DescribeTopics([]string{topic})
			return err == nil && len(described) == 1 && len(described[0].Partitions) == 2, err
		}
		topics, err := admin.ListTopics()
		return topics[topic].NumPartitions == 2, err
	})
	if err != nil {
		t.Error(err)
	}
	if old {
		codecs = codecs[:4] // zstd came with 2.1
	} else if _, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic}); err != nil {
		t.Errorf("describe config: %v", err)
	}
	const perCodec = 200
	for _, codec := range codecs {
		produceConfig := *config
		produceConfig.Producer.Compression = codec
		produceConfig.Producer.Partitioner = sarama.NewManualPartitioner
		producer, err := sarama.NewSyncProducer([]string{b.Addr}, &produceConfig)
		if err != nil {
			t.Fatal(err)
		}
		messages := make([]*sarama.ProducerMessage, perCodec)
		for i := range messages {
			messages[i] = &sarama.ProducerMessage{Topic: topic, Partition: int32(i % 2), Key: sarama.StringEncoder(fmt.Sprint(i)), Value: sarama.StringEncoder(fmt.Sprint(codec, i)),
				Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("v")}}}
		}
		if err := producer.SendMessages(messages); err != nil {
			t.Fatalf("produce with %s: %v", codec, err)
		}
		if err := producer.Close(); err != nil {
			t.Error(err)
		}
	}
	want := perCodec * len(codecs)
	readAlone(t, b, config, topic, want)
	readInGroup(t, b, config, topic, want)
	groups, err := admin.ListConsumerGroups()
	if _, there := groups[topic+"-g"]; err != nil || !there {
		t.Errorf("groups: %v, %v", groups, err)
	}
	offsets, err := admin.ListConsumerGroupOffsets(topic+"-g", map[string][]int32{topic: {0, 1}})
	if err != nil || offsets.GetBlock(topic, 0).Offset != int64(want/2) {
		t.Errorf("offsets of the group: %+v, %v", offsets, err)
	}
	if err := admin.DeleteConsumerGroup(topic + "-g"); err != nil && !old {
		t.Errorf("delete group: %v", err)
	}
	if err := admin.DeleteTopic(topic); err != nil {
		t.Errorf("delete topic: %v", err)
	}
}

func readAlone(t *testing.T, b *target.Broker, config *sarama.Config, topic string, want int) {
	t.Helper()
	consumer, err := sarama.NewConsumer([]string{b.Addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = consumer.Close() }()
	for p := range int32(2) {
		pc, err := consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		for offset := range int64(want / 2) {
			select {
			case m := <-pc.Messages():
				if m.Offset != offset || len(m.Headers) != 1 {
					t.Fatalf("partition %d: offset %d with %d headers, want %d with 1", p, m.Offset, len(m.Headers), offset)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("partition %d: nothing at %d", p, offset)
			}
		}
		if err := pc.Close(); err != nil {
			t.Error(err)
		}
	}
}

// counter is a group handler that counts and marks.
type counter struct {
	want int
	got  chan int64
}

func (counter) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (counter) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads one partition.
func (c counter) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			session.MarkMessage(m, "")
			c.got <- m.Offset
		case <-session.Context().Done():
			return nil
		}
	}
}

func readInGroup(t *testing.T, b *target.Broker, config *sarama.Config, topic string, want int) {
	t.Helper()
	group, err := sarama.NewConsumerGroup([]string{b.Addr}, topic+"-g", config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	handler := counter{want: want, got: make(chan int64, want)}
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{topic}, handler); err != nil && !errors.Is(err, sarama.ErrClosedConsumerGroup) {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for n := range want {
		select {
		case <-handler.got:
		case <-time.After(40 * time.Second):
			t.Fatalf("group read %d of %d", n, want)
		}
	}
	cancel()
	if err := errors.Join(<-ended, group.Close()); err != nil {
		t.Error(err)
	}
}

// B58: with acks=0 nothing is answered, and what was sent arrives.
func TestSaramaNoResponse(t *testing.T) {
	b := startBroker(t, nil)
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0
	config.Producer.RequiredAcks, config.Producer.Return.Successes = sarama.NoResponse, true
	producer, err := sarama.NewSyncProducer([]string{b.Addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 { // the first makes the topic
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "acks0", Value: sarama.StringEncoder(fmt.Sprint(i))}); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if err := producer.Close(); err != nil {
		t.Error(err)
	}
	client, err := sarama.NewClient([]string{b.Addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	err = poll.Until(t.Context(), 20*time.Second, "100 records arrive", func() (bool, error) {
		end, err := client.GetOffset("acks0", 0, sarama.OffsetNewest)
		return end == 100, fmt.Errorf("end %d: %w", end, err)
	})
	if err != nil {
		t.Error(err)
	}
	names, err := client.Topics()
	if err != nil || !slices.Contains(names, "acks0") {
		t.Errorf("topics %v, %v", names, err)
	}
}
