// Command confluent is confluent-kafka-go (librdkafka) as a program of the client matrix.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"
	"github.com/kajamq/kaja/compat-tests/clients/internal/scenario"
)

func main() { scenario.Main(client{}) }

type client struct{}

const perCodec = 100

func config(r *scenario.Run, more kafka.ConfigMap) *kafka.ConfigMap {
	c := kafka.ConfigMap{"bootstrap.servers": strings.Join(r.Addresses, ","), "client.id": r.Name, "reconnect.backoff.max.ms": 500,
		// As in py/confluent.py.
		"metadata.recovery.strategy": "none"}
	maps.Copy(c, more)
	return &c
}

func admin(r *scenario.Run, do func(ctx context.Context, a *kafka.AdminClient) error) error {
	a, err := kafka.NewAdminClient(config(r, nil))
	if err != nil {
		return err
	}
	defer a.Close()
	return do(context.Background(), a)
}

func listed(a *kafka.AdminClient, topic string) bool {
	m, err := a.GetMetadata(nil, true, 10_000)
	if err != nil {
		return false
	}
	_, there := m.Topics[topic]
	return there
}

// Admin makes the topic.
func (client) Admin(r *scenario.Run) error {
	return admin(r, func(ctx context.Context, a *kafka.AdminClient) error {
		made, err := a.CreateTopics(ctx, []kafka.TopicSpecification{{Topic: r.Name, NumPartitions: 2, ReplicationFactor: r.Replicas}})
		if err != nil || made[0].Error.Code() != kafka.ErrNoError {
			return fmt.Errorf("create topic: %w, %v", err, made)
		}
		r.Check("topic is listed", scenario.Until(func() bool { return listed(a, r.Name) }), nil)
		r.Check("configs are described", scenario.Until(func() bool {
			configs, err := a.DescribeConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: r.Name}})
			return err == nil && len(configs) == 1 && len(configs[0].Config) > 20
		}), nil)
		return nil
	})
}

// produce sends values and returns when all are delivered.
func produce(p *kafka.Producer, topic string, values []string, headers ...kafka.Header) error {
	deliveries := make(chan kafka.Event, len(values))
	for _, v := range values {
		m := &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: kafka.PartitionAny}, Key: []byte(v), Value: []byte(v), Headers: headers}
		if err := p.Produce(m, deliveries); err != nil {
			return err
		}
	}
	for range values {
		if m, ok := (<-deliveries).(*kafka.Message); ok && m.TopicPartition.Error != nil {
			return m.TopicPartition.Error
		}
	}
	return nil
}

// producer makes a producer whose general events are thrown away.
func producer(r *scenario.Run, more kafka.ConfigMap) (*kafka.Producer, error) {
	p, err := kafka.NewProducer(config(r, more))
	if err != nil {
		return nil, err
	}
	go func() {
		for range p.Events() { //nolint:revive // nothing to do
		}
	}()
	return p, nil
}

// Codecs sends and reads.
func (client) Codecs(r *scenario.Run) error {
	want := 0
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		p, err := producer(r, kafka.ConfigMap{"compression.type": codec, "linger.ms": 20})
		if err != nil {
			return err
		}
		var values []string
		for i := range perCodec {
			values = append(values, fmt.Sprint(codec, i))
		}
		err = produce(p, r.Name, values, kafka.Header{Key: "h", Value: []byte("v")})
		p.Close()
		r.Check("produced with "+codec, err == nil, err)
		want += perCodec
	}
	c, err := kafka.NewConsumer(config(r, kafka.ConfigMap{"group.id": r.Name + "-g", "auto.offset.reset": "earliest", "enable.auto.commit": false}))
	if err != nil {
		return err
	}
	if err := c.Subscribe(r.Name, nil); err != nil {
		return err
	}
	seen, good := map[string]bool{}, true
	for end := time.Now().Add(2 * time.Minute); len(seen) < want && time.Now().Before(end); {
		if m, ok := c.Poll(500).(*kafka.Message); ok {
			seen[string(m.Key)] = true
			good = good && string(m.Key) == string(m.Value) && len(m.Headers) == 1
		}
	}
	r.Check("group reads all, with keys, values and headers", good && len(seen) == want, len(seen))
	_, err = c.Commit()
	return errors.Join(err, c.Close())
}

// Sender is idempotent.
func (client) Sender(r *scenario.Run, topic string) (send func(values []string) error, end func() error, err error) {
	p, err := producer(r, kafka.ConfigMap{"enable.idempotence": true})
	if err != nil {
		return nil, nil, err
	}
	return func(values []string) error { return produce(p, topic, values) }, func() error { p.Close(); return nil }, nil
}

type transactions struct {
	r *scenario.Run
	p *kafka.Producer
	c *kafka.Consumer // only for the metadata of the group
}

// Transactions are those of a producer; the group's metadata are an idle consumer's.
func (client) Transactions(r *scenario.Run) (scenario.Transactions, error) {
	c, err := kafka.NewConsumer(config(r, kafka.ConfigMap{"group.id": r.Name + "-txn-g"}))
	if err != nil {
		return nil, err
	}
	t := &transactions{r: r, c: c}
	return t, t.renew()
}

// retrying repeats a call for as long as its error may be retried, at most for half a minute: a librdkafka whose only broker was gone may
// wait for its coordinator for good, and another producer finds it.
func retrying(call func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		err := call(ctx)
		e, ok := errors.AsType[kafka.Error](err)
		if !ok || !e.IsRetriable() || ctx.Err() != nil {
			return err
		}
	}
}

func (t *transactions) renew() error {
	if t.p != nil {
		t.p.Close()
	}
	var err error
	if t.p, err = producer(t.r, kafka.ConfigMap{"transactional.id": t.r.Name + "-id", "transaction.timeout.ms": 30000}); err != nil {
		return err
	}
	return retrying(t.p.InitTransactions)
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
	if err := t.p.BeginTransaction(); err != nil {
		return err
	}
	if err := produce(t.p, t.r.Name+"-txn", values); err != nil {
		return err
	}
	metadata, err := t.c.GetConsumerGroupMetadata()
	if err != nil {
		return err
	}
	topic := t.r.Name + "-flow"
	offsets := []kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: kafka.Offset(offset)}}
	if err := retrying(func(ctx context.Context) error { return t.p.SendOffsetsToTransaction(ctx, offsets, metadata) }); err != nil {
		return err
	}
	if commit {
		return retrying(t.p.CommitTransaction)
	}
	return retrying(t.p.AbortTransaction)
}

// Close ends producer and consumer.
func (t *transactions) Close() error { t.p.Close(); return t.c.Close() }

// Member reads in a group.
func (client) Member(r *scenario.Run, mode string, member int, read func(string), stop <-chan struct{}) error {
	more := kafka.ConfigMap{"group.id": r.Name + "-" + mode, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200, "session.timeout.ms": 10000,
		"heartbeat.interval.ms": 500, "partition.assignment.strategy": "range"}
	switch mode {
	case "cooperative":
		more["partition.assignment.strategy"] = "cooperative-sticky"
	case "static":
		more["group.instance.id"] = fmt.Sprint("i", member)
	}
	c, err := kafka.NewConsumer(config(r, more))
	if err != nil {
		return err
	}
	if err := c.Subscribe(r.Name+"-group", nil); err != nil {
		return err
	}
	commit := func() error {
		_, err := c.Commit()
		if e, ok := errors.AsType[kafka.Error](err); ok && e.Code() == kafka.ErrNoOffset {
			return nil
		}
		return err
	}
	for {
		select {
		case <-stop:
			if !scenario.Until(func() bool { return commit() == nil }) {
				return errors.Join(errors.New("last commit"), commit())
			}
			return c.Close()
		default:
		}
		if m, ok := c.Poll(100).(*kafka.Message); ok {
			read(string(m.Value))
		}
	}
}

// End deletes.
func (client) End(r *scenario.Run) error {
	return admin(r, func(ctx context.Context, a *kafka.AdminClient) error {
		groups, err := a.DescribeConsumerGroups(ctx, []string{r.Name + "-g"})
		r.Check("group is described", err == nil && groups.ConsumerGroupDescriptions[0].State == kafka.ConsumerGroupStateEmpty, err)
		if _, err := a.DeleteConsumerGroups(ctx, []string{r.Name + "-g"}); err != nil {
			return err
		}
		if _, err := a.DeleteTopics(ctx, []string{r.Name}); err != nil {
			return err
		}
		r.Check("topic is deleted", scenario.Until(func() bool { return !listed(a, r.Name) }), nil)
		return nil
	})
}
