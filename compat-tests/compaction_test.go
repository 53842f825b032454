package compattests_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// compactionTopic is the topic of the tests of compaction; compactionSegment is small, so that a log has many segments.
const (
	compactionTopic   = "compacted"
	compactionSegment = 2000
)

// brokerOf starts a broker of a kind for one test, as ownBroker does.
func brokerOf(t *testing.T, k target.Kind, config map[string]string) *target.Broker {
	t.Helper()
	o := theSuite.options(t, k)
	o.Dir, o.Config = t.TempDir(), config
	b, err := target.New(o)
	if err != nil {
		t.Fatalf("prepare %s: %v", k, err)
	}
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Errorf("end %s: %v", k, err)
		}
	})
	keepLogOnFailure(t, b)
	if err := b.Start(t.Context()); err != nil {
		t.Fatalf("start %s: %v", k, err)
	}
	return b
}

// A real Kafka and kaja get the same histories of keyed records, tombstones, compressed batches, aborted and committed
// transactions in small segments, both compact them twice, the second time when delete horizons have passed, and readers of either
// isolation see the same records at the same offsets.
func TestCompactionAgainstKafka(t *testing.T) {
	need(t, "java")
	partitions := 50
	if n, err := strconv.Atoi(os.Getenv("KAJA_COMPACTION_PARTITIONS")); err == nil {
		partitions = n
	}
	settings := map[string]string{"log.cleaner.backoff.ms": "100", "log.cleaner.threads": "1", "transaction.state.log.num.partitions": "1"}
	brokers := []*target.Broker{brokerOf(t, kind(t), settings), brokerOf(t, target.Kafka, settings)}
	for _, b := range brokers {
		makeTopic(t, b, compactionTopic, int32(partitions), map[string]string{
			"cleanup.policy": "compact", "internal.segment.bytes": strconv.Itoa(compactionSegment), "min.cleanable.dirty.ratio": "1",
			"delete.retention.ms": "0", "file.delete.delay.ms": "100", "segment.ms": "604800000",
		})
	}
	const seed = 4710
	for phase := range 2 {
		for _, b := range brokers {
			writeHistory(t, b, partitions, rand.New(rand.NewPCG(seed, uint64(phase))), phase)
		}
		sameEnds(t, brokers, partitions)
		for _, b := range brokers {
			compact(t, b, partitions)
		}
	}
	for _, level := range []kgo.IsolationLevel{kgo.ReadCommitted(), kgo.ReadUncommitted()} {
		got, want := readCompacted(t, brokers[0], partitions, level), readCompacted(t, brokers[1], partitions, level)
		total := 0
		for p := range partitions {
			total += len(want[p])
			if !slices.Equal(got[p], want[p]) {
				t.Errorf("partition %d: %d records, Kafka has %d; the first that differs:\n%s", p, len(got[p]), len(want[p]), firstDifference(got[p], want[p]))
			}
		}
		t.Logf("%d records in %d partitions", total, partitions)
	}
	if t.Failed() {
		return
	}
	if err := brokers[0].Stop(); err != nil {
		t.Fatal(err)
	}
	checkDump(t, brokers[0], compactionTopic+"-[0-4]")
}

// sameEnds checks that the brokers took the same history before it is compacted.
func sameEnds(t *testing.T, brokers []*target.Broker, partitions int) {
	t.Helper()
	a, z := dial(t, brokers[0]), dial(t, brokers[1])
	for p := range int32(partitions) {
		if got, want := listOffset(t, a, compactionTopic, p, -1).Offset, listOffset(t, z, compactionTopic, p, -1).Offset; got != want {
			t.Errorf("partition %d ends at %d before compaction, Kafka's at %d", p, got, want)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			return fmt.Sprintf("got  %s\nwant %s", g, w)
		}
	}
	return ""
}

// writeHistory writes the same batches for the same random source, and at last a record that marks the end.
func writeHistory(t *testing.T, b *target.Broker, partitions int, rng *rand.Rand, phase int) {
	t.Helper()
	c := dial(t, b)
	base := int64(1_700_000_000_000) + int64(phase)*1_000_000
	for round := range 40 {
		req := kmsg.NewPtrProduceRequest()
		req.Version, req.Acks, req.TimeoutMillis = 9, -1, 20_000
		tp := kmsg.NewProduceRequestTopic()
		tp.Topic = compactionTopic
		for p := range int32(partitions) {
			part := kmsg.NewProduceRequestTopicPartition()
			part.Partition, part.Records = p, randomBatch(t, rng, base+int64(round), round)
			tp.Partitions = append(tp.Partitions, part)
		}
		req.Topics = append(req.Topics, tp)
		for _, p := range do[*kmsg.ProduceResponse](t, c, req).Topics[0].Partitions {
			wantCode(t, "produce", p.ErrorCode, 0)
		}
		if round%8 == 3 {
			writeTransaction(t, b, partitions, rng, base+int64(round), fmt.Sprintf("t%d", rng.IntN(2)))
		}
	}
	for p := range int32(partitions) { // rolls the segment; what is before it is sealed
		big := raw.NewBatch(raw.Record{Key: []byte("roll"), Value: make([]byte, compactionSegment-100)})
		end := raw.NewBatch(raw.Record{Key: []byte("end"), Value: []byte(strconv.Itoa(phase))})
		for _, batch := range []raw.Batch{big, end} {
			batch.BaseTimestamp, batch.MaxTimestamp = base, base
			mustProduce(t, c, compactionTopic, p, batch.Bytes())
		}
	}
}

func randomBatch(t *testing.T, rng *rand.Rand, ts int64, round int) []byte {
	t.Helper()
	records := make([]raw.Record, 1+rng.IntN(4))
	for i := range records {
		records[i] = raw.Record{Key: fmt.Appendf(nil, "k%d", rng.IntN(12)), Value: fmt.Appendf(nil, "%d-%d-%s", round, i, strings.Repeat("x", rng.IntN(90)))}
		if rng.IntN(5) == 0 {
			records[i].Value = nil
		}
	}
	batch := raw.NewBatch(records...)
	batch.BaseTimestamp, batch.MaxTimestamp = ts, ts
	// Different gzip writers give different lengths, and with them other segments: the bytes come from one place.
	compressed, err := batch.Compressed(int16(rng.IntN(5)))
	if err != nil {
		t.Fatal(err)
	}
	return compressed.Bytes()
}

// writeTransaction writes one transaction over some partitions, and ends it either way.
func writeTransaction(t *testing.T, b *target.Broker, partitions int, rng *rand.Rand, ts int64, id string) {
	t.Helper()
	ctx, cancel := withTimeout(t, time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range 1 + rng.IntN(8) {
		r := &kgo.Record{Topic: compactionTopic, Partition: int32(rng.IntN(partitions)), Timestamp: time.UnixMilli(ts),
			Key: fmt.Appendf(nil, "k%d", rng.IntN(12)), Value: fmt.Appendf(nil, "txn %s %d", id, ts)}
		if err := client.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.EndTransaction(ctx, kgo.TransactionEndTry(rng.IntN(2) == 0)); err != nil {
		t.Fatal(err)
	}
	awaitMarkers(t, b, partitions)
}

// awaitMarkers waits until no partition has an open transaction: a broker answers EndTxn before it has written all markers, and
// what comes after them must do so on both.
func awaitMarkers(t *testing.T, b *target.Broker, partitions int) {
	t.Helper()
	c := dial(t, b)
	ends := func(isolation int8) (out []int64) {
		req := kmsg.NewPtrListOffsetsRequest()
		req.Version, req.ReplicaID, req.IsolationLevel = 7, -1, isolation
		tp := kmsg.NewListOffsetsRequestTopic()
		tp.Topic = compactionTopic
		for p := range int32(partitions) {
			part := kmsg.NewListOffsetsRequestTopicPartition()
			part.Partition, part.Timestamp, part.CurrentLeaderEpoch = p, -1, -1
			tp.Partitions = append(tp.Partitions, part)
		}
		req.Topics = append(req.Topics, tp)
		for _, p := range do[*kmsg.ListOffsetsResponse](t, c, req).Topics[0].Partitions {
			wantCode(t, "list offsets", p.ErrorCode, 0)
			out = append(out, p.Offset)
		}
		return out
	}
	err := poll.Until(t.Context(), time.Minute, "markers of a transaction", func() (bool, error) {
		return slices.Equal(ends(1), ends(0)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// compact lets a broker compact everything that is sealed, waits until its checkpoint says so, and stops it again.
func compact(t *testing.T, b *target.Broker, partitions int) {
	t.Helper()
	alterTopic(t, b, compactionTopic, "min.cleanable.dirty.ratio", "0")
	want := map[string]int64{}
	for p := range partitions {
		logs, err := filepath.Glob(filepath.Join(b.DataDir(), fmt.Sprintf("%s-%d", compactionTopic, p), "*.log"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("segments of partition %d: %v, %v", p, logs, err)
		}
		slices.Sort(logs)
		active, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(logs[len(logs)-1]), ".log"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		want[strconv.Itoa(p)] = active
	}
	err := poll.Until(t.Context(), 3*time.Minute+time.Duration(partitions)*time.Second, "compaction by "+string(b.Kind), func() (bool, error) {
		data, err := os.ReadFile(filepath.Join(b.DataDir(), "cleaner-offset-checkpoint"))
		if err != nil {
			return false, err
		}
		done := 0
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line)
			if len(f) == 3 && f[0] == compactionTopic && strconv.FormatInt(want[f[1]], 10) == f[2] {
				done++
			}
		}
		return done == partitions, fmt.Errorf("%d of %d partitions", done, partitions)
	})
	if err != nil {
		t.Fatal(err)
	}
	alterTopic(t, b, compactionTopic, "min.cleanable.dirty.ratio", "1")
}

func alterTopic(t *testing.T, b *target.Broker, topic, name, value string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = name, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	wantCode(t, "alter "+name, do[*kmsg.IncrementalAlterConfigsResponse](t, dial(t, b), req).Resources[0].ErrorCode, 0)
}

// readCompacted reads every partition up to its last end record, as lines.
func readCompacted(t *testing.T, b *target.Broker, partitions int, level kgo.IsolationLevel) [][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.ConsumeTopics(compactionTopic), kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	out, ended := make([][]string, partitions), map[int32]bool{}
	for len(ended) < partitions {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%s: %d of %d partitions were read: %v", b.Kind, len(ended), partitions, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			value := fmt.Sprintf("%q", r.Value)
			if r.Value == nil {
				value = "tombstone"
			}
			out[r.Partition] = append(out[r.Partition], fmt.Sprintf("%06d %s %d %s", r.Offset, r.Key, r.Timestamp.UnixMilli(), value))
			if string(r.Key) == "end" && string(r.Value) == "1" {
				ended[r.Partition] = true
			}
		})
	}
	for _, lines := range out {
		slices.SortFunc(lines, cmp.Compare)
	}
	return out
}
