package clients

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

const (
	copyName  = "sarama-copier"
	copyBatch = 40
)

func copierConfig(txnID string) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_1_0_0
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Metadata.Retry.Backoff = 100 * time.Millisecond
	c.Net.DialTimeout, c.Net.ReadTimeout = 2*time.Second, 10*time.Second
	if txnID != "" {
		c.Producer.Idempotent, c.Net.MaxOpenRequests, c.Producer.RequiredAcks = true, 1, sarama.WaitForAll
		c.Producer.Return.Successes, c.Producer.Partitioner = true, sarama.NewManualPartitioner
		c.Producer.Transaction.ID, c.Producer.Transaction.Timeout = txnID, 10*time.Second
	}
	return c
}

// A copier with sarama has each input in its output once, although its broker is killed again and again (scenario T14).
func TestSaramaCopierThroughRestarts(t *testing.T) {
	b := startBroker(t, map[string]string{"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"})
	messages, kills := 3000, 3
	if os.Getenv("KAJA_COMPAT_LONG") != "" {
		messages, kills = 30_000, 10
	}
	fillInput(t, b, messages)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []string, 1)
	var copied atomic.Int64 // messages of committed transactions
	go func() {
		var failed []string
		for ctx.Err() == nil {
			if err := saramaCopy(ctx, b.Addr, &copied); err != nil && ctx.Err() == nil {
				failed = append(failed, err.Error())
			}
		}
		done <- failed
	}()
	reach := func(n int) {
		t.Helper()
		err := poll.Until(t.Context(), 2*time.Minute, fmt.Sprint(n, " messages are copied"), func() (bool, error) {
			return copied.Load() >= int64(n), fmt.Errorf("%d are", copied.Load())
		})
		if err != nil {
			t.Error(err)
		}
	}
	for kill := range kills {
		reach((kill + 1) * messages / (kills + 2))
		if err := errors.Join(b.Kill(), b.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]int{}
	err := poll.Until(t.Context(), 2*time.Minute, "everything is copied", func() (bool, error) {
		clear(seen)
		return readOutput(b, seen) == nil && len(seen) >= messages, fmt.Errorf("%d of %d", len(seen), messages)
	})
	if err != nil {
		t.Error(err)
	}
	cancel()
	failed := <-done
	clear(seen)
	if err := readOutput(b, seen); err != nil {
		t.Fatal(err)
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
	if missing > 0 || twice > 0 {
		t.Errorf("of %d messages %d are missing and %d are there more than once; the copier failed with %.2000q", messages, missing, twice, failed)
	}
	t.Logf("%d failures of the copier", len(failed))
}

func fillInput(t *testing.T, b *target.Broker, messages int) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{b.Addr}, copierConfig(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	for _, topic := range []string{"in", "out"} {
		if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false); err != nil {
			t.Fatal(err)
		}
	}
	err = poll.Until(t.Context(), 10*time.Second, "topics are listed", func() (bool, error) {
		topics, err := admin.ListTopics()
		return topics["out"].NumPartitions == 2, err
	})
	if err != nil {
		t.Fatal(err)
	}
	c := copierConfig("")
	c.Producer.Return.Successes, c.Producer.Partitioner = true, sarama.NewRoundRobinPartitioner
	producer, err := sarama.NewSyncProducer([]string{b.Addr}, c)
	if err != nil {
		t.Fatal(err)
	}
	var all []*sarama.ProducerMessage
	for i := range messages {
		all = append(all, &sarama.ProducerMessage{Topic: "in", Value: sarama.StringEncoder(strconv.Itoa(i))})
	}
	if err := errors.Join(producer.SendMessages(all), producer.Close()); err != nil {
		t.Fatal(err)
	}
}

// saramaCopy copies from the group's offsets on until something fails or ctx ends. The producer comes first: once it has
// its id, nothing of its predecessor is open, and the offsets are final.
func saramaCopy(ctx context.Context, addr string, copied *atomic.Int64) (err error) {
	producer, err := sarama.NewAsyncProducer([]string{addr}, copierConfig(copyName))
	if err != nil {
		return err
	}
	defer func() {
		producer.AsyncClose()
		for range producer.Successes() {
			continue
		}
		for range producer.Errors() {
			continue
		}
	}()
	admin, err := sarama.NewClusterAdmin([]string{addr}, copierConfig(""))
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close() }()
	committed, err := admin.ListConsumerGroupOffsets(copyName, map[string][]int32{"in": {0, 1}})
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumer([]string{addr}, copierConfig(""))
	if err != nil {
		return err
	}
	defer func() { _ = consumer.Close() }()
	var parts [2]sarama.PartitionConsumer
	for p := range int32(2) {
		block := committed.GetBlock("in", p)
		if block == nil || !errors.Is(block.Err, sarama.ErrNoError) {
			return fmt.Errorf("no offset of partition %d: %+v", p, block)
		}
		if parts[p], err = consumer.ConsumePartition("in", p, max(block.Offset, 0)); err != nil {
			return err
		}
		defer parts[p].AsyncClose()
	}
	for ctx.Err() == nil {
		for p := range parts {
			n, err := copySome(ctx, producer, parts[p])
			if err != nil {
				return err
			}
			copied.Add(int64(n))
		}
	}
	return nil
}

// copySome copies what has come of one partition, in one transaction, and gives how many messages that were.
func copySome(ctx context.Context, producer sarama.AsyncProducer, from sarama.PartitionConsumer) (int, error) {
	var batch []*sarama.ConsumerMessage
	quiet := time.NewTimer(200 * time.Millisecond)
	defer quiet.Stop()
gather:
	for len(batch) < copyBatch {
		select {
		case m := <-from.Messages():
			batch = append(batch, m)
		case <-quiet.C:
			break gather
		case <-ctx.Done():
			break gather
		}
	}
	if len(batch) == 0 {
		return 0, nil
	}
	if err := producer.BeginTxn(); err != nil {
		return 0, err
	}
	for _, m := range batch {
		producer.Input() <- &sarama.ProducerMessage{Topic: "out", Partition: m.Partition, Value: sarama.ByteEncoder(m.Value)}
	}
	var failed error
	for range batch {
		select {
		case <-producer.Successes():
		case e := <-producer.Errors():
			failed = errors.Join(failed, e)
		}
	}
	last := batch[len(batch)-1]
	if failed == nil {
		failed = producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{"in": {{Partition: last.Partition, Offset: last.Offset + 1}}}, copyName)
	}
	if failed == nil {
		failed = producer.CommitTxn()
	}
	if failed != nil {
		return 0, errors.Join(failed, producer.AbortTxn())
	}
	return len(batch), nil
}

// readOutput reads topic out with read_committed, from its start to its end as of now, and counts its values.
func readOutput(b *target.Broker, seen map[string]int) error {
	client, err := sarama.NewClient([]string{b.Addr}, copierConfig(""))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return err
	}
	defer func() { _ = consumer.Close() }()
	for p := range int32(2) {
		part, err := consumer.ConsumePartition("out", p, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		quiet := time.NewTimer(time.Second)
	read:
		for {
			select {
			case m := <-part.Messages():
				seen[string(m.Value)]++
				quiet.Reset(300 * time.Millisecond)
			case <-quiet.C:
				break read
			}
		}
		if err := part.Close(); err != nil {
			return err
		}
	}
	return nil
}
