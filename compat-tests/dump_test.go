package compattests_test

import (
	"bufio"
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// dumpComplaint matches what kafka-dump-log says about files that are not right.
var dumpComplaint = regexp.MustCompile(`(?i)isvalid: false|mismatch|not found in the log|out of order|non-secutive|non-consecutive|corrupt|bytes? at the end|found invalid|exception`)

// kafka-dump-log is content with small segments of every kind, a group's offsets included, and after a kill.
func TestDumpLog(t *testing.T) {
	need(t, "java")
	b := ownBroker(t, map[string]string{"log.segment.bytes": "1048576", "log.index.interval.bytes": "1024"})
	c := dial(t, b)
	makeTopic(t, b, "dump", 2, nil)
	id, epoch := initProducer(t, c)
	for i := range 60 {
		batch := raw.NewBatch(raw.Numbered(strings.Repeat("0123456789", 300), i, 20)...).Idempotent(id, epoch, int32(i*20))
		compressed, err := batch.Compressed(int16(i % 5))
		if err != nil {
			t.Fatal(err)
		}
		mustProduce(t, c, "dump", 0, compressed.Bytes())
		mustProduce(t, c, "dump", 1, raw.NewBatch(raw.Numbered("v", i, 3)...).Bytes())
	}
	member(t, b, "dump-group", "dump", kgo.ClientID("d")).Close()
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitLeaders(t, b, "dump", 2)
	mustProduce(t, dial(t, b), "dump", 0, raw.NewBatch(raw.Values("after")...).Bytes())
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	checkDump(t, b, "dump-*")
	checkDump(t, b, "__consumer_offsets-*")
}

// startLines sends lines "key<TAB>value" with the partition chosen by the key; what was acknowledged is remembered.
func startLines(t *testing.T, b *target.Broker, topic string, partitions int, lines *bufio.Scanner) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{cancel: cancel, acked: make([][]string, partitions)}
	client := newClient(t, b, kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.SnappyCompression()))
	l.wg.Go(func() {
		for ctx.Err() == nil && lines.Scan() {
			key, value, _ := strings.Cut(lines.Text(), "\t")
			client.Produce(ctx, &kgo.Record{Key: []byte(key), Value: []byte(value)}, func(r *kgo.Record, err error) {
				if err != nil {
					return
				}
				l.mu.Lock()
				l.acked[r.Partition] = append(l.acked[r.Partition], string(r.Value))
				l.mu.Unlock()
			})
		}
		<-ctx.Done()
		client.Close()
	})
	t.Cleanup(func() { l.stop() })
	return l
}

// awaitRecords waits until a topic holds so many records.
func awaitRecords(t *testing.T, b *target.Broker, topic string, records int64) {
	t.Helper()
	c := dial(t, b)
	err := poll.Until(t.Context(), 2*time.Minute, fmt.Sprint(records, " records in ", topic), func() (bool, error) {
		var n int64
		for p := range int32(realPartitions) {
			n += listOffset(t, c, topic, p, -1).Offset
		}
		return n >= records, fmt.Errorf("%d records", n)
	})
	if err != nil {
		t.Fatal(err)
	}
}
