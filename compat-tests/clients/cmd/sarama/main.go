// Command sarama is sarama as a program of the client matrix, as the version of Kafka that SARAMA_VERSION names.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/kajamq/kaja/compat-tests/clients/internal/scenario"
)

func main() { scenario.Main(client{}) }

type client struct{}

const perCodec = 100

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.MaxVersion
	if v := os.Getenv("SARAMA_VERSION"); v != "max" {
		var err error
		if c.Version, err = sarama.ParseKafkaVersion(v); err != nil {
			panic(err)
		}
	}
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Net.WriteTimeout = 2*time.Second, 20*time.Second, 20*time.Second
	c.Metadata.Retry.Max, c.Metadata.Retry.Backoff = 100, 100*time.Millisecond
	c.Admin.Retry.Max = 50
	c.Producer.RequiredAcks, c.Producer.Return.Successes = sarama.WaitForAll, true
	c.Producer.Retry.Max, c.Producer.Retry.Backoff = 200, 100*time.Millisecond
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	c.Consumer.Offsets.Retry.Max = 50
	c.Consumer.Group.Session.Timeout, c.Consumer.Group.Heartbeat.Interval = 10*time.Second, 500*time.Millisecond
	c.Consumer.Group.Rebalance.Retry.Max, c.Consumer.Group.Rebalance.Retry.Backoff = 50, 200*time.Millisecond
	return c
}

// old says that sarama describes configs in a version that is not served any more, also to list topics, and deletes no groups.
func old() bool { return !config().Version.IsAtLeast(sarama.V2_1_0_0) }

func admin(r *scenario.Run, do func(a sarama.ClusterAdmin) error) error {
	a, err := sarama.NewClusterAdmin(r.Addresses, config())
	if err != nil {
		return err
	}
	return errors.Join(do(a), a.Close())
}

// listed says whether the topic can be seen, in one way or the other.
func listed(a sarama.ClusterAdmin, topic string) bool {
	described, err := a.DescribeTopics([]string{topic})
	return err == nil && len(described) == 1 && len(described[0].Partitions) == 2
}

// Admin makes the topic.
func (client) Admin(r *scenario.Run) error {
	return admin(r, func(a sarama.ClusterAdmin) error {
		if err := a.CreateTopic(r.Name, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: int16(r.Replicas)}, false); err != nil {
			return err
		}
		r.Check("topic is described", scenario.Until(func() bool { return listed(a, r.Name) }), nil)
		if !old() {
			r.Check("configs are described", scenario.Until(func() bool {
				configs, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: r.Name})
				return err == nil && len(configs) > 20
			}), nil)
		}
		return nil
	})
}

func messages(topic string, values []string, headers ...sarama.RecordHeader) (out []*sarama.ProducerMessage) {
	for _, v := range values {
		out = append(out, &sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(v), Value: sarama.StringEncoder(v), Headers: headers})
	}
	return out
}

// Codecs sends and reads.
func (client) Codecs(r *scenario.Run) error {
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	if old() {
		codecs = codecs[:4] // zstd came with 2.1
	}
	for _, codec := range codecs {
		c := config()
		c.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer(r.Addresses, c)
		if err != nil {
			return err
		}
		var values []string
		for i := range perCodec {
			values = append(values, fmt.Sprint(codec, i))
		}
		err = errors.Join(producer.SendMessages(messages(r.Name, values, sarama.RecordHeader{Key: []byte("h"), Value: []byte("v")})), producer.Close())
		r.Check(fmt.Sprint("produced with ", codec), err == nil, err)
	}
	stop, seen, good := make(chan struct{}), map[string]bool{}, true
	want := perCodec * len(codecs)
	timer := time.AfterFunc(2*time.Minute, func() { close(stop) })
	err := consume(r, config(), r.Name+"-g", r.Name, stop, func(m *sarama.ConsumerMessage) {
		seen[string(m.Key)] = true
		good = good && string(m.Key) == string(m.Value) && len(m.Headers) == 1
		if len(seen) == want && timer.Stop() {
			close(stop)
		}
	})
	r.Check("group reads all, with keys, values and headers", good && len(seen) == want, len(seen))
	return err
}

// Sender is idempotent.
func (client) Sender(r *scenario.Run, topic string) (send func(values []string) error, end func() error, err error) {
	c := config()
	c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	producer, err := sarama.NewSyncProducer(r.Addresses, c)
	if err != nil {
		return nil, nil, err
	}
	return func(values []string) error { return producer.SendMessages(messages(topic, values)) }, producer.Close, nil
}

type transactions struct {
	r        *scenario.Run
	producer sarama.SyncProducer
}

// Transactions are those of a synchronous producer.
func (client) Transactions(r *scenario.Run) (scenario.Transactions, error) {
	t := &transactions{r: r}
	return t, t.renew()
}

func (t *transactions) renew() error {
	if t.producer != nil {
		_ = t.producer.Close()
	}
	c := config()
	c.Producer.Idempotent, c.Net.MaxOpenRequests = true, 1
	c.Producer.Transaction.ID, c.Producer.Transaction.Timeout = t.r.Name+"-id", 30*time.Second
	c.Producer.Transaction.Retry.Max, c.Producer.Transaction.Retry.Backoff = 200, 100*time.Millisecond
	var err error
	t.producer, err = sarama.NewSyncProducer(t.r.Addresses, c)
	return err
}

// Attempt makes one transaction.
func (t *transactions) Attempt(values []string, offset int64, commit bool) error {
	err := t.attempt(values, offset, commit)
	if err != nil {
		for r := t.renew(); r != nil; r = t.renew() {
			fmt.Println("again", r)
		}
	}
	return err
}

func (t *transactions) attempt(values []string, offset int64, commit bool) error {
	if err := t.producer.BeginTxn(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	if err := t.producer.SendMessages(messages(t.r.Name+"-txn", values)); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{t.r.Name + "-flow": {{Partition: 0, Offset: offset}}}
	if err := t.producer.AddOffsetsToTxn(offsets, t.r.Name+"-txn-g"); err != nil {
		return fmt.Errorf("add offsets: %w", err)
	}
	if commit {
		return t.producer.CommitTxn()
	}
	return t.producer.AbortTxn()
}

// Close ends the producer.
func (t *transactions) Close() error { return t.producer.Close() }

// handler reads the partitions of a member.
type handler struct{ read func(*sarama.ConsumerMessage) }

// Setup is sarama's.
func (handler) Setup(sarama.ConsumerGroupSession) error { return nil }

// Cleanup is sarama's.
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim reads one partition.
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			h.read(m)
			session.MarkMessage(m, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func consume(r *scenario.Run, c *sarama.Config, group, topic string, stop <-chan struct{}, read func(*sarama.ConsumerMessage)) error {
	g, err := sarama.NewConsumerGroup(r.Addresses, group, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-stop; cancel() }()
	messages := make(chan *sarama.ConsumerMessage)
	go func() {
		defer close(messages)
		for ctx.Err() == nil {
			if err := g.Consume(ctx, []string{topic}, handler{func(m *sarama.ConsumerMessage) { messages <- m }}); err != nil {
				fmt.Fprintln(os.Stderr, "consume:", err) // it is tried again
			}
		}
	}()
	for m := range messages {
		read(m)
	}
	return g.Close()
}

// Member reads in a group.
func (client) Member(r *scenario.Run, mode string, member int, read func(string), stop <-chan struct{}) error {
	c := config()
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyRange()}
	switch mode {
	case "cooperative":
		c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
	case "static":
		c.Consumer.Group.InstanceId = fmt.Sprint("i", member)
	}
	return consume(r, c, r.Name+"-"+mode, r.Name+"-group", stop, func(m *sarama.ConsumerMessage) { read(string(m.Value)) })
}

// End deletes.
func (client) End(r *scenario.Run) error {
	return admin(r, func(a sarama.ClusterAdmin) error {
		groups, err := a.ListConsumerGroups()
		_, there := groups[r.Name+"-g"]
		r.Check("group is listed", err == nil && there, err)
		offsets, err := a.ListConsumerGroupOffsets(r.Name+"-g", map[string][]int32{r.Name: {0, 1}})
		r.Check("offsets of the group", err == nil && offsets.GetBlock(r.Name, 0).Offset+offsets.GetBlock(r.Name, 1).Offset >= 4*perCodec, err)
		if !old() {
			err = a.DeleteConsumerGroup(r.Name + "-g")
			r.Check("group is deleted", err == nil, err)
		}
		err = a.DeleteTopic(r.Name)
		r.Check("topic is deleted", err == nil && scenario.Until(func() bool { return !listed(a, r.Name) }), err)
		return nil
	})
}
