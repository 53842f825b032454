package clients

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
)

// Idempotent and transactional producers of sarama, as releases before and after the second version of transactions: committed
// records are read, aborted ones are not.
func TestSaramaTransactions(t *testing.T) {
	b := startBroker(t, nil)
	for _, version := range []sarama.KafkaVersion{sarama.V1_0_0_0, sarama.V2_8_0_0, sarama.MaxVersion} {
		t.Run(version.String(), func(t *testing.T) {
			topic := fresh(t)
			config := sarama.NewConfig()
			config.Version = version
			config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
			config.Producer.RequiredAcks, config.Producer.Return.Successes = sarama.WaitForAll, true
			config.Producer.Transaction.ID = topic + "-id"
			config.Consumer.IsolationLevel = sarama.ReadCommitted
			makeTopic(t, b.Addr, config, topic)
			producer, err := sarama.NewSyncProducer([]string{b.Addr}, config)
			if err != nil {
				t.Fatal(err)
			}
			send := func(value string) {
				t.Helper()
				if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}); err != nil {
					t.Fatal(err)
				}
			}
			var want []string
			for round := range 6 {
				if err := producer.BeginTxn(); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					value := fmt.Sprintf("%d/%d", round, i)
					send(value)
					if round%2 == 0 {
						want = append(want, value)
					}
				}
				end := producer.CommitTxn
				if round%2 == 1 {
					end = producer.AbortTxn
				}
				if err := end(); err != nil {
					t.Fatal(err)
				}
			}
			if err := producer.Close(); err != nil {
				t.Error(err)
			}
			if got := readValues(t, b.Addr, config, topic, len(want)); !slices.Equal(got, want) {
				t.Errorf("read %v\nwant %v", got, want)
			}
		})
	}
}

// makeTopic makes a topic and waits until it can be seen: Kafka answers before.
func makeTopic(t *testing.T, addr string, config *sarama.Config, topic string) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		t.Fatal(err)
	}
	err = poll.Until(t.Context(), 20*time.Second, "topic is seen", func() (bool, error) {
		described, err := admin.DescribeTopics([]string{topic})
		return err == nil && len(described) == 1 && len(described[0].Partitions) == 1, err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readValues reads the first n values of partition 0.
func readValues(t *testing.T, addr string, config *sarama.Config, topic string, n int) []string {
	t.Helper()
	consumer, err := sarama.NewConsumer([]string{addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = consumer.Close() }()
	pc, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pc.Close() }()
	var got []string
	for range n {
		select {
		case m := <-pc.Messages():
			got = append(got, string(m.Value))
		case <-time.After(20 * time.Second):
			t.Fatalf("only %v came", got)
		}
	}
	return got
}

// A producer and a consumer that were there before go on when the node is killed and started again, and nothing acknowledged is
// lost or told twice.
func TestSaramaThroughARestart(t *testing.T) {
	b := startBroker(t, nil)
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Idempotent, config.Net.MaxOpenRequests = true, 1
	config.Producer.RequiredAcks, config.Producer.Return.Successes = sarama.WaitForAll, true
	config.Producer.Retry.Max, config.Producer.Retry.Backoff = 200, 100*time.Millisecond
	config.Metadata.Retry.Max = 200
	makeTopic(t, b.Addr, config, "restarted")
	producer, err := sarama.NewSyncProducer([]string{b.Addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := sarama.NewConsumer([]string{b.Addr}, config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = consumer.Close() }()
	var pc sarama.PartitionConsumer
	for i := range 60 {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "restarted", Value: sarama.StringEncoder(fmt.Sprint(i))}); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if i == 0 {
			if pc, err = consumer.ConsumePartition("restarted", 0, sarama.OffsetOldest); err != nil {
				t.Fatal(err)
			}
		}
		if i%20 == 10 {
			if err := b.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := b.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := producer.Close(); err != nil {
		t.Error(err)
	}
	for i := range 60 {
		select {
		case m := <-pc.Messages():
			if string(m.Value) != fmt.Sprint(i) || m.Offset != int64(i) {
				t.Fatalf("%s at %d, want %d", m.Value, m.Offset, i)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("nothing at %d", i)
		}
	}
	if err := pc.Close(); err != nil {
		t.Error(err)
	}
}
