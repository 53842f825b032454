// Command kafkago is segmentio/kafka-go as a program of the client matrix.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kajamq/kaja/compat-tests/clients/internal/scenario"
	kafka "github.com/segmentio/kafka-go"
)

func main() { scenario.Main(client{}) }

type client struct{}

const perCodec = 100

func admin(r *scenario.Run) *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP(r.Addresses...), Timeout: 20 * time.Second}
}

func listed(r *scenario.Run) bool {
	m, err := admin(r).Metadata(context.Background(), &kafka.MetadataRequest{Topics: []string{r.Name}})
	return err == nil && len(m.Topics) == 1 && m.Topics[0].Error == nil && len(m.Topics[0].Partitions) == 2
}

// Admin makes the topic.
func (client) Admin(r *scenario.Run) error {
	made, err := admin(r).CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: r.Name, NumPartitions: 2, ReplicationFactor: r.Replicas}}})
	if err == nil {
		err = made.Errors[r.Name]
	}
	if err != nil {
		return err
	}
	r.Check("topic is listed", scenario.Until(func() bool { return listed(r) }), nil)
	return nil
}

func writer(r *scenario.Run, topic string, codec kafka.Compression) *kafka.Writer {
	return &kafka.Writer{Addr: kafka.TCP(r.Addresses...), Topic: topic, Compression: codec, RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond,
		MaxAttempts: 200, WriteBackoffMin: 50 * time.Millisecond, WriteBackoffMax: 300 * time.Millisecond, Balancer: &kafka.Hash{},
		Transport: &kafka.Transport{MetadataTTL: time.Second, DialTimeout: 2 * time.Second}}
}

func messages(values []string, headers ...kafka.Header) (out []kafka.Message) {
	for _, v := range values {
		out = append(out, kafka.Message{Key: []byte(v), Value: []byte(v), Headers: headers})
	}
	return out
}

// Codecs sends and reads.
func (client) Codecs(r *scenario.Run) error {
	want := 0
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		w := writer(r, r.Name, codec)
		var values []string
		for i := range perCodec {
			values = append(values, fmt.Sprint(codec, i))
		}
		err := errors.Join(w.WriteMessages(context.Background(), messages(values, kafka.Header{Key: "h", Value: []byte("v")})...), w.Close())
		r.Check(fmt.Sprint("produced with codec ", int(codec)), err == nil, err)
		want += perCodec
	}
	reader := kafka.NewReader(readerConfig(r, r.Name+"-g", r.Name))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	seen, good := map[string]bool{}, true
	for len(seen) < want {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("read after %d: %w", len(seen), err)
		}
		seen[string(m.Key)] = true
		good = good && string(m.Key) == string(m.Value) && len(m.Headers) == 1
	}
	r.Check("group reads all, with keys, values and headers", good, len(seen))
	return reader.Close()
}

func readerConfig(r *scenario.Run, group, topic string) kafka.ReaderConfig {
	return kafka.ReaderConfig{Brokers: r.Addresses, GroupID: group, Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 300 * time.Millisecond,
		SessionTimeout: 10 * time.Second, HeartbeatInterval: 500 * time.Millisecond, RebalanceTimeout: 15 * time.Second, JoinGroupBackoff: 200 * time.Millisecond,
		ReadBackoffMax: 300 * time.Millisecond, MaxAttempts: 50, WatchPartitionChanges: false}
}

// Sender is not idempotent: what is sent again may be there twice.
func (client) Sender(r *scenario.Run, topic string) (send func(values []string) error, end func() error, err error) {
	w := writer(r, topic, 0)
	return func(values []string) error { return w.WriteMessages(context.Background(), messages(values)...) }, w.Close, nil
}

// Transactions are not there.
func (client) Transactions(*scenario.Run) (scenario.Transactions, error) {
	return nil, errors.New("kafka-go has no transactional producer")
}

// Member reads in a group. A commit that fails because the group rebalances is no fault: the message is read again.
func (client) Member(r *scenario.Run, mode string, _ int, read func(string), stop <-chan struct{}) error {
	reader := kafka.NewReader(readerConfig(r, r.Name+"-"+mode, r.Name+"-group"))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-stop; cancel() }()
	for ctx.Err() == nil {
		m, err := reader.FetchMessage(ctx)
		if err != nil {
			continue
		}
		read(string(m.Value))
		_ = reader.CommitMessages(ctx, m)
	}
	return reader.Close()
}

// End deletes.
func (client) End(r *scenario.Run) error {
	// Its connections of before the restart are found closed by the first request.
	committed := func() bool {
		offsets, err := admin(r).OffsetFetch(context.Background(), &kafka.OffsetFetchRequest{GroupID: r.Name + "-g", Topics: map[string][]int{r.Name: {0, 1}}})
		return err == nil && offsets.Topics[r.Name][0].CommittedOffset+offsets.Topics[r.Name][1].CommittedOffset == 5*perCodec
	}
	r.Check("offsets of the group", scenario.Until(committed), nil)
	r.Check("topic is deleted", scenario.Until(func() bool {
		_, err := admin(r).DeleteTopics(context.Background(), &kafka.DeleteTopicsRequest{Topics: []string{r.Name}})
		return err == nil && !listed(r)
	}), nil)
	return nil
}
