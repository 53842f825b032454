package compattests_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// awaitLeaders waits until Metadata shows a leader for each partition of a topic and the leader serves it.
func awaitLeaders(t *testing.T, b *target.Broker, topic string, partitions int) {
	t.Helper()
	c := dial(t, b)
	at := map[int32]*raw.Conn{}
	err := poll.Until(t.Context(), 20*time.Second, "leaders of "+topic, func() (bool, error) {
		m := metadata(t, c, 8, false, topic)
		if len(m.Topics) != 1 || m.Topics[0].ErrorCode != 0 || len(m.Topics[0].Partitions) != partitions {
			return false, fmt.Errorf("metadata: %+v", m.Topics)
		}
		for _, node := range m.Brokers {
			if at[node.NodeID] == nil {
				at[node.NodeID] = dialAddr(t, net.JoinHostPort(node.Host, strconv.Itoa(int(node.Port))))
			}
		}
		for _, p := range m.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 || at[p.Leader] == nil {
				return false, fmt.Errorf("partition %d: %+v", p.Partition, p)
			}
			// Kafka shows a leader a moment before that leader has heard of it.
			if o := listOffset(t, at[p.Leader], topic, p.Partition, -1); o.ErrorCode != 0 {
				return false, fmt.Errorf("end of partition %d: code %d", p.Partition, o.ErrorCode)
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// metadata asks for topics by name; without names it asks for all.
func metadata(t *testing.T, c *raw.Conn, version int16, create bool, topics ...string) *kmsg.MetadataResponse {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	req.Version = version
	req.AllowAutoTopicCreation = create
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	return do[*kmsg.MetadataResponse](t, c, req)
}

// produceRequest builds a Produce request with acks=all at version 9.
func produceRequest(topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 20_000
	tp := kmsg.NewProduceRequestTopic()
	tp.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	tp.Partitions = append(tp.Partitions, p)
	req.Topics = append(req.Topics, tp)
	return req
}

// produce sends records and returns the partition's answer.
func produce(t *testing.T, c *raw.Conn, topic string, partition int32, records []byte) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	return onlyPartition(t, do[*kmsg.ProduceResponse](t, c, produceRequest(topic, partition, records)))
}

func onlyPartition(t *testing.T, resp *kmsg.ProduceResponse) kmsg.ProduceResponseTopicPartition {
	t.Helper()
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("produce response has no single partition: %+v", resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

// mustProduce sends records that must be taken, and returns their base offset.
func mustProduce(t *testing.T, c *raw.Conn, topic string, partition int32, records []byte) int64 {
	t.Helper()
	p := produce(t, c, topic, partition, records)
	if p.ErrorCode != 0 {
		t.Fatalf("produce to %s-%d: code %d: %s", topic, partition, p.ErrorCode, deref(p.ErrorMessage))
	}
	return p.BaseOffset
}

// fetchRequest builds a sessionless Fetch of one partition at version 12 that waits for nothing.
func fetchRequest(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 12, -1, 0, 0, 64<<20
	req.SessionEpoch = -1
	tp := kmsg.NewFetchRequestTopic()
	tp.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 64<<20
	p.CurrentLeaderEpoch = -1
	tp.Partitions = append(tp.Partitions, p)
	req.Topics = append(req.Topics, tp)
	return req
}

func fetchOnce(t *testing.T, c *raw.Conn, req *kmsg.FetchRequest) kmsg.FetchResponseTopicPartition {
	t.Helper()
	resp := do[*kmsg.FetchResponse](t, c, req)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("fetch response has no single partition: code %d %+v", resp.ErrorCode, resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

// fetchBatches reads a partition from an offset to its high watermark and returns its batches.
func fetchBatches(t *testing.T, c *raw.Conn, topic string, partition int32, from int64) []raw.Header {
	t.Helper()
	var all []raw.Header
	for {
		p := fetchOnce(t, c, fetchRequest(topic, partition, from))
		if p.ErrorCode != 0 {
			t.Fatalf("fetch %s-%d at %d: code %d", topic, partition, from, p.ErrorCode)
		}
		batches, err := raw.Split(p.RecordBatches)
		if err != nil {
			t.Fatalf("fetch %s-%d at %d: %v", topic, partition, from, err)
		}
		if len(batches) == 0 {
			if from < p.HighWatermark {
				t.Fatalf("fetch %s-%d at %d: nothing below the high watermark %d", topic, partition, from, p.HighWatermark)
			}
			return all
		}
		all = append(all, batches...)
		last := batches[len(batches)-1]
		from = last.BaseOffset + int64(last.LastOffsetDelta) + 1
	}
}

// listOffset asks ListOffsets for the end (-1), the start (-2) or another special time.
func listOffset(t *testing.T, c *raw.Conn, topic string, partition int32, timestamp int64) kmsg.ListOffsetsResponseTopicPartition {
	t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 7, -1
	tp := kmsg.NewListOffsetsRequestTopic()
	tp.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	tp.Partitions = append(tp.Partitions, p)
	req.Topics = append(req.Topics, tp)
	resp := do[*kmsg.ListOffsetsResponse](t, c, req)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("list offsets response has no single partition: %+v", resp.Topics)
	}
	return resp.Topics[0].Partitions[0]
}

// initProducer asks for a new producer id.
func initProducer(t *testing.T, c *raw.Conn) (id int64, epoch int16) {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 4, 60_000, -1, -1
	err := poll.Until(t.Context(), 20*time.Second, "a producer id", func() (bool, error) {
		resp := do[*kmsg.InitProducerIDResponse](t, c, req)
		id, epoch = resp.ProducerID, resp.ProducerEpoch
		if resp.ErrorCode == 14 { // Kafka has no block of ids yet
			return false, fmt.Errorf("code %d", resp.ErrorCode)
		}
		if resp.ErrorCode != 0 {
			t.Fatalf("init producer id: code %d", resp.ErrorCode)
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return id, epoch
}

// wantCode compares an error code by its number.
func wantCode(t *testing.T, what string, got int16, want ...int16) {
	t.Helper()
	for _, w := range want {
		if got == w {
			return
		}
	}
	t.Errorf("%s: code %d, want %v", what, got, want)
}

// numberedAt makes a batch of one record with a given value and time.
func numberedAt(ts int64, value int) raw.Batch {
	batch := raw.NewBatch(raw.Values(fmt.Sprint(value))...)
	batch.BaseTimestamp, batch.MaxTimestamp = ts, ts
	return batch
}

// plainRecords reads the records of an uncompressed batch.
func plainRecords(t *testing.T, h raw.Header) []kmsg.Record {
	t.Helper()
	if h.Codec() != raw.None {
		t.Fatalf("batch at %d is compressed with codec %d", h.BaseOffset, h.Codec())
	}
	records := make([]kmsg.Record, 0, h.Count)
	rest := h.Raw[61:]
	for range h.Count {
		length, n := binary.Varint(rest)
		if n <= 0 || int(length) > len(rest)-n {
			t.Fatalf("record of batch at %d is cut", h.BaseOffset)
		}
		r := kmsg.NewRecord()
		if err := r.ReadFrom(rest[:n+int(length)]); err != nil {
			t.Fatalf("record of batch at %d: %v", h.BaseOffset, err)
		}
		records = append(records, r)
		rest = rest[n+int(length):]
	}
	return records
}

func atoi32(t *testing.T, s string) int32 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}
