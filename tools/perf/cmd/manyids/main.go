// Command manyids makes a broker remember many producers: producer ids that have written one batch each, and transactional
// ids that were initialised. It prints the resident memory of the broker's process before and after.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	addr := flag.String("broker", "127.0.0.1:9092", "address of the only broker")
	pid := flag.Int("pid", 0, "its process, for its memory")
	producers := flag.Int("producers", 0, "producer ids that write a batch")
	partitions := flag.Int("partitions", 50, "partitions that they are spread over")
	txnIDs := flag.Int("transactional-ids", 0, "transactional ids that are initialised")
	flag.Parse()
	if err := run(*addr, *pid, *producers, *partitions, *txnIDs); err != nil {
		fmt.Fprintln(os.Stderr, "manyids:", err)
		os.Exit(1)
	}
}

func run(addr string, pid, producers, partitions, txnIDs int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 30_000
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "many-ids", NumPartitions: int32(partitions), ReplicationFactor: 1}}
	resp, err := create.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return err
	}
	meta, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	node := client.Broker(int(meta.Brokers[0].NodeID))
	before, began := resident(pid), time.Now()
	err = parallel(producers/partitions, 32, func(i int) error { return produce(ctx, node, i, partitions) })
	if err != nil {
		return err
	}
	fmt.Printf("%d producer ids in %v: resident %d MiB before, %d MiB after\n", producers, time.Since(began).Round(time.Second), before, resident(pid))
	before, began = resident(pid), time.Now()
	err = parallel(txnIDs, 64, func(i int) error {
		id := fmt.Sprintf("transactional-id-%06d", i)
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &id, 60_000
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d transactional ids in %v: resident %d MiB before, %d MiB after\n", txnIDs, time.Since(began).Round(time.Second), before, resident(pid))
	return nil
}

// produce sends one batch of a producer id of its own to each partition.
func produce(ctx context.Context, node *kgo.Broker, i, partitions int) error {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 30_000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "many-ids"
	for p := range partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = int32(p), oneRecord(int64(1_000_000+i*partitions+p))
		t.Partitions = append(t.Partitions, rp)
	}
	req.Version = 12
	req.Topics = []kmsg.ProduceRequestTopic{t}
	got, err := node.Request(ctx, atVersion{req, 12})
	if err != nil {
		return err
	}
	for _, p := range got.(*kmsg.ProduceResponse).Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// atVersion keeps a client from choosing a version that names topics by id.
type atVersion struct {
	*kmsg.ProduceRequest
	max int16
}

// MaxVersion implements kmsg.Request.
func (a atVersion) MaxVersion() int16 { return a.max }

// oneRecord is a batch of one record of an idempotent producer.
func oneRecord(id int64) []byte {
	be := binary.BigEndian
	record := []byte{0, 0, 0, 1, 2, 'v', 0} // attributes, deltas of time and offset, null key, one byte, no headers
	b := make([]byte, 61, 61+1+len(record))
	be.PutUint32(b[12:], 0xffffffff)
	b[16] = 2
	now := uint64(time.Now().UnixMilli())
	be.PutUint64(b[27:], now)
	be.PutUint64(b[35:], now)
	be.PutUint64(b[43:], uint64(id))
	be.PutUint32(b[57:], 1)
	b = append(append(b, byte(2*len(record))), record...)
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func parallel(n, workers int, do func(i int) error) error {
	var mu sync.Mutex
	var failed error
	next := 0
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= n || failed != nil
				mu.Unlock()
				if stop {
					return
				}
				if err := do(i); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// resident is the resident memory of a process in MiB, 0 if it can't be told.
func resident(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kb, _ := strconv.Atoi(fields[1])
			return kb / 1024
		}
	}
	return 0
}
