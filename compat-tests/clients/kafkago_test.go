package clients

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	kafka "github.com/segmentio/kafka-go"

	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafka-go's Writer and Reader, with a group, in each codec.
func TestKafkaGo(t *testing.T) {
	b := startBroker(t, nil)
	admin := &kafka.Client{Addr: kafka.TCP(b.Addr)}
	created, err := admin.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: "kg", NumPartitions: 2, ReplicationFactor: 1}}})
	if err != nil || created.Errors["kg"] != nil {
		t.Fatalf("create topic: %v, %v", err, created.Errors)
	}
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	const perCodec = 200
	for _, codec := range codecs {
		w := &kafka.Writer{Addr: kafka.TCP(b.Addr), Topic: "kg", Compression: codec, RequiredAcks: kafka.RequireAll, BatchTimeout: 20 * time.Millisecond, Balancer: &kafka.RoundRobin{}}
		messages := make([]kafka.Message, perCodec)
		for i := range messages {
			messages[i] = kafka.Message{Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "value %s %d", codec, i), Headers: []kafka.Header{{Key: "h", Value: []byte("v")}}}
		}
		if err := errors.Join(w.WriteMessages(t.Context(), messages...), w.Close()); err != nil {
			t.Fatalf("write with %s: %v", codec, err)
		}
	}
	want := perCodec * len(codecs)
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{b.Addr}, GroupID: "kgg", Topic: "kg", StartOffset: kafka.FirstOffset, MaxWait: 500 * time.Millisecond})
	seen := map[string]bool{}
	for len(seen) < want {
		m, err := r.ReadMessage(t.Context())
		if err != nil {
			t.Fatalf("read after %d of %d: %v", len(seen), want, err)
		}
		at := fmt.Sprintf("%d@%d", m.Partition, m.Offset)
		if seen[at] || len(m.Headers) != 1 {
			t.Fatalf("%s read twice, or with %d headers", at, len(m.Headers))
		}
		seen[at] = true
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	offsets, err := admin.OffsetFetch(t.Context(), &kafka.OffsetFetchRequest{GroupID: "kgg", Topics: map[string][]int{"kg": {0, 1}}})
	if err != nil || offsets.Topics["kg"][0].CommittedOffset+offsets.Topics["kg"][1].CommittedOffset != int64(want) {
		t.Errorf("committed: %+v, %v", offsets, err)
	}
	checkSnappy(t, b.Addr)
}

// B40: kafka-go frames snappy as Java does, and what is stored is what it sent.
func checkSnappy(t *testing.T, addr string) {
	t.Helper()
	c, err := raw.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	framed := 0
	for p := range int32(2) {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.ReplicaID, req.MaxBytes, req.SessionEpoch = 11, -1, 64<<20, -1
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = "kg"
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, 64<<20, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := raw.Split(resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range batches {
			if h.Codec() == raw.Snappy && string(h.Raw[61:69]) == "\x82SNAPPY\x00" {
				framed++
			}
		}
	}
	if framed == 0 {
		t.Error("no batch with framed snappy is stored")
	}
}

// B53: fifty writers that meet a fresh name at the same time make one topic, and lose nothing.
func TestKafkaGoAutoCreate(t *testing.T) {
	b := startBroker(t, map[string]string{"num.partitions": "3"})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			w := &kafka.Writer{Addr: kafka.TCP(b.Addr), Topic: "auto", AllowAutoTopicCreation: true, BatchTimeout: 10 * time.Millisecond, MaxAttempts: 30,
				WriteBackoffMin: 50 * time.Millisecond, RequiredAcks: kafka.RequireAll}
			var err error
			for range 20 { // the writer itself gives up at once on a topic that is not there yet
				if err = w.WriteMessages(t.Context(), kafka.Message{Value: fmt.Append(nil, i)}); !errors.Is(err, kafka.UnknownTopicOrPartition) && !errors.Is(err, kafka.LeaderNotAvailable) {
					break
				}
			}
			if err := errors.Join(err, w.Close()); err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	admin := &kafka.Client{Addr: kafka.TCP(b.Addr)}
	ends, err := admin.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{"auto": {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1), kafka.LastOffsetOf(2)}}})
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, p := range ends.Topics["auto"] {
		n += p.LastOffset
	}
	if n < 50 || len(ends.Topics["auto"]) != 3 {
		t.Errorf("%d records in %d partitions, want 50 in 3", n, len(ends.Topics["auto"]))
	}
}
