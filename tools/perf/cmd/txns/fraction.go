package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fraction measures how much a producer is slowed down by transactions that it commits every interval: records a second
// of a transactional producer and of one that is idempotent only, in turn, rounds times.
func fraction(addr string, partitions int, length, interval time.Duration, rounds int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(2*rounds)*(length+time.Minute))
	defer cancel()
	topic := fmt.Sprintf("perf-fraction-%d", time.Now().UnixNano())
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := createTopic(ctx, client, topic, partitions); err != nil {
		return err
	}
	for round := range rounds {
		plain, err := stream(ctx, addr, topic, "", length, interval)
		if err != nil {
			return err
		}
		txn, err := stream(ctx, addr, topic, fmt.Sprint(topic, "-", round), length, interval)
		if err != nil {
			return err
		}
		fmt.Printf("%s partitions=%d interval=%v idempotent records/s=%.0f transactional records/s=%.0f fraction=%.2f\n",
			addr, partitions, interval, plain, txn, txn/plain)
	}
	return nil
}

// stream produces 1,000-byte records as fast as they are acknowledged, and gives how many a second; with an id in
// transactions.
func stream(ctx context.Context, addr, topic, id string, length, interval time.Duration) (float64, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(20_000),
		kgo.RetryBackoffFn(func(int) time.Duration { return clientBackoff }), kgo.MetadataMinAge(clientBackoff)}
	if id != "" {
		opts = append(opts, kgo.TransactionalID(id))
	}
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	value := bytes.Repeat([]byte("0123456789"), 100)
	var acked atomic.Int64
	var failed atomic.Pointer[error]
	began := time.Now()
	for end := began.Add(length); time.Now().Before(end); {
		if id != "" {
			if err := client.BeginTransaction(); err != nil {
				return 0, err
			}
		}
		for until := time.Now().Add(interval); time.Now().Before(until); {
			client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(&err)
					return
				}
				acked.Add(1)
			})
		}
		if id != "" {
			if err := errors.Join(client.Flush(ctx), client.EndTransaction(ctx, kgo.TryCommit)); err != nil {
				return 0, err
			}
		}
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(acked.Load()) / time.Since(began).Seconds(), nil
}
