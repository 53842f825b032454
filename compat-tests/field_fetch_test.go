package compattests_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cases from the field that concern fetching.

// B02: the first batch comes back whole however small the limits are.
func TestFieldB02BatchLargerThanLimits(t *testing.T) { onSizes(t, fieldB02BatchLargerThanLimits) }

func fieldB02BatchLargerThanLimits(t *testing.T, b *target.Broker) {
	need(t, "kcat")
	topic := fresh(t, "b02")
	makeTopic(t, b, topic, 2, map[string]string{"max.message.bytes": "5000000"})
	c := dial(t, b)
	big := strings.Repeat("B", 2_000_000)
	mustProduce(t, c, topic, 0, raw.NewBatch(raw.Values(big)...).Bytes())
	want := []string{big}
	for i := range 10 {
		mustProduce(t, c, topic, 0, raw.NewBatch(raw.Values(fmt.Sprint(i))...).Bytes())
		mustProduce(t, c, topic, 1, raw.NewBatch(raw.Values(fmt.Sprint(i))...).Bytes())
		want = append(want, fmt.Sprint(i))
	}
	got := lines(kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q",
		"-X", "fetch.message.max.bytes=1000", "-X", "fetch.max.bytes=1000", "-X", "message.max.bytes=1000", "-X", "receive.message.max.bytes=6000000"))
	if len(got) != len(want) || got[0] != big {
		t.Fatalf("kcat read %d records, want %d with the large one first", len(got), len(want))
	}
	wantLines(t, "the small records", got[1:], want[1:])

	req := fetchRequest(topic, 0, 0)
	req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 1, 1
	second := kmsg.NewFetchRequestTopicPartition()
	second.Partition, second.PartitionMaxBytes, second.CurrentLeaderEpoch = 1, 1, -1
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
	resp := do[*kmsg.FetchResponse](t, c, req)
	for _, p := range resp.Topics[0].Partitions {
		batches, err := raw.Split(p.RecordBatches)
		if err != nil {
			t.Fatal(err)
		}
		if p.Partition == 0 && (len(batches) != 1 || len(batches[0].Raw) < 2_000_000) {
			t.Errorf("first partition: %d batches in %d bytes, want the large one alone", len(batches), len(p.RecordBatches))
		}
		if p.Partition == 1 && len(batches) != 0 {
			t.Errorf("second partition: %d batches, want none", len(batches))
		}
	}
}

// B20: fetching outside the log is answered with OFFSET_OUT_OF_RANGE at once, and clients reset.
func TestFieldB20OffsetOutOfRange(t *testing.T) { onSizes(t, fieldB20OffsetOutOfRange) }

func fieldB20OffsetOutOfRange(t *testing.T, b *target.Broker) {
	need(t, "kcat")
	topic := fresh(t, "b20")
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	mustProduce(t, c, topic, 0, raw.NewBatch(raw.Numbered("", 0, 10)...).Bytes())
	del := kmsg.NewPtrDeleteRecordsRequest()
	del.Version, del.TimeoutMillis = 2, 10_000
	dt := kmsg.NewDeleteRecordsRequestTopic()
	dt.Topic = topic
	dp := kmsg.NewDeleteRecordsRequestTopicPartition()
	dp.Offset = 3
	dt.Partitions = append(dt.Partitions, dp)
	del.Topics = append(del.Topics, dt)
	if p := do[*kmsg.DeleteRecordsResponse](t, c, del).Topics[0].Partitions[0]; p.ErrorCode != 0 || p.LowWatermark != 3 {
		t.Fatalf("delete records: %+v", p)
	}
	fetch := func(offset int64) (kmsg.FetchResponseTopicPartition, time.Duration) {
		req := fetchRequest(topic, 0, offset)
		req.MaxWaitMillis, req.MinBytes = 1500, 1
		began := time.Now()
		return fetchOnce(t, c, req), time.Since(began)
	}
	for _, offset := range []int64{2, 11, 1000, -1} {
		p, took := fetch(offset)
		if p.ErrorCode != 1 || p.HighWatermark != -1 || p.LastStableOffset != -1 || p.LogStartOffset != -1 || took > time.Second {
			t.Errorf("fetch at %d: code %d, HW %d, LSO %d, LSTART %d after %v; want 1, -1, -1, -1 at once", offset,
				p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, took)
		}
	}
	for _, offset := range []int64{3, 9} {
		if p, _ := fetch(offset); p.ErrorCode != 0 || len(p.RecordBatches) == 0 || p.HighWatermark != 10 || p.LogStartOffset != 3 {
			t.Errorf("fetch at %d: code %d, %d bytes, HW %d, LSTART %d", offset, p.ErrorCode, len(p.RecordBatches), p.HighWatermark, p.LogStartOffset)
		}
	}
	if p, took := fetch(10); p.ErrorCode != 0 || len(p.RecordBatches) != 0 || took < 1400*time.Millisecond {
		t.Errorf("fetch at the end: code %d, %d bytes after %v; want nothing after 1.5s", p.ErrorCode, len(p.RecordBatches), took)
	}
	got := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "1000", "-e", "-q", "-X", "auto.offset.reset=earliest")
	wantLines(t, "kcat after a reset", lines(got), []string{"3", "4", "5", "6", "7", "8", "9"})
}

// B25: max wait and min bytes are kept, in sessions too, and data ends the wait.
func TestFieldB25LongPoll(t *testing.T) { onSizesLong(t, fieldB25LongPoll) }

func fieldB25LongPoll(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b25")
	makeTopic(t, b, topic, 2, nil)
	producer := dial(t, b)
	mustProduce(t, producer, topic, 0, raw.NewBatch(raw.Values(strings.Repeat("x", 10_000))...).Bytes())
	c := dial(t, b)
	timed := func(req *kmsg.FetchRequest) (*kmsg.FetchResponse, time.Duration) {
		t.Helper()
		began := time.Now()
		resp := do[*kmsg.FetchResponse](t, c, req)
		return resp, time.Since(began)
	}
	between := func(what string, took, from, to time.Duration) {
		t.Helper()
		if took < from || took > to {
			t.Errorf("%s took %v, want between %v and %v", what, took, from, to)
		}
	}
	req := fetchRequest(topic, 0, 1)
	req.MaxWaitMillis, req.MinBytes = 2000, 1
	_, took := timed(req)
	between("fetch at the end", took, 1950*time.Millisecond, 3*time.Second)
	req.MinBytes = 0
	_, took = timed(req)
	between("fetch with min bytes 0", took, 0, 500*time.Millisecond)
	req = fetchRequest(topic, 0, 0)
	req.MaxWaitMillis, req.MinBytes = 1500, 1<<20
	resp, took := timed(req)
	between("fetch with large min bytes", took, 1450*time.Millisecond, 3*time.Second)
	if len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		t.Error("fetch with large min bytes: what is there must be returned at the end of the wait")
	}
	req = fetchRequest(topic, 0, 99)
	req.MaxWaitMillis, req.MinBytes = 3000, 1
	resp, took = timed(req)
	between("fetch with an error", took, 0, time.Second)
	wantCode(t, "fetch with an error", resp.Topics[0].Partitions[0].ErrorCode, 1)

	full := fetchRequest(topic, 0, 1)
	full.SessionEpoch, full.MinBytes = 0, 0
	second := kmsg.NewFetchRequestTopicPartition()
	second.Partition, second.PartitionMaxBytes, second.CurrentLeaderEpoch = 1, 1<<20, -1
	full.Topics[0].Partitions = append(full.Topics[0].Partitions, second)
	resp, _ = timed(full)
	if resp.SessionID == 0 {
		t.Fatal("no fetch session was made")
	}
	next := kmsg.NewPtrFetchRequest()
	next.Version, next.ReplicaID, next.MaxWaitMillis, next.MinBytes, next.MaxBytes = 12, -1, 2000, 1, 1<<20
	next.SessionID, next.SessionEpoch = resp.SessionID, 1
	resp, took = timed(next)
	between("empty incremental fetch", took, 1950*time.Millisecond, 3*time.Second)
	if len(resp.Topics) != 0 {
		t.Errorf("empty incremental fetch lists %d topics, want none", len(resp.Topics))
	}
	next.SessionEpoch, next.MaxWaitMillis = 2, 10_000
	corr, err := c.Send(next)
	if err != nil {
		t.Fatal(err)
	}
	mustProduce(t, producer, topic, 1, raw.NewBatch(raw.Values("wake")...).Bytes())
	began := time.Now()
	answer, err := c.Receive(next, corr)
	if err != nil {
		t.Fatal(err)
	}
	between("wake by data on the session's other partition", time.Since(began), 0, time.Second)
	woken := answer.(*kmsg.FetchResponse)
	if len(woken.Topics) != 1 || len(woken.Topics[0].Partitions) != 1 || woken.Topics[0].Partitions[0].Partition != 1 {
		t.Errorf("woken fetch holds %+v, want partition 1 alone", woken.Topics)
	}
}

// B25: an idle consumer asks once per max wait.
func TestFieldB25IdleConsumer(t *testing.T) {
	b := sharedBroker(t)
	topic := fresh(t, "b25i")
	makeTopic(t, b, topic, 1, nil)
	hook := &fetchCounter{}
	client := newClient(t, b, kgo.ConsumeTopics(topic), kgo.FetchMaxWait(500*time.Millisecond), kgo.WithHooks(hook))
	ctx, cancel := withTimeout(t, 4*time.Second)
	defer cancel()
	client.PollFetches(ctx)
	if n := hook.n.Load(); n > 12 || n < 3 {
		t.Errorf("%d fetches in 4 s with a max wait of 500 ms, want about 8", n)
	}
}

// B52: consumers that start at the end of partitions are answered, and get a new record within milliseconds.
func TestFieldB52FromTheEnd(t *testing.T) { onSizes(t, fieldB52FromTheEnd) }

func fieldB52FromTheEnd(t *testing.T, b *target.Broker) {
	set := need(t, "kcat", "python")
	topic := fresh(t, "b52")
	makeTopic(t, b, topic, 3, nil)
	c := dial(t, b)
	mustProduce(t, c, topic, 1, raw.NewBatch(raw.Values("old")...).Bytes())
	for name, start := range map[string]func(t *testing.T) *process{
		"kcat": func(t *testing.T) *process {
			return startProcess(t, "kcat", "-b", b.Addr, "-C", "-t", topic, "-o", "end", "-c", "1", "-u")
		},
		"kafka-python": func(t *testing.T) *process {
			return startProcess(t, set.Python(), "py/from_end.py", b.Addr, topic)
		},
	} {
		t.Run(name, func(t *testing.T) { feedUntil(t, b, topic, start(t)) })
	}
	t.Run("franz-go group", func(t *testing.T) {
		client := newClient(t, b, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(fresh(t, "b52g")), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			ctx, cancel := withTimeout(t, 30*time.Second)
			defer cancel()
			fetches := client.PollFetches(ctx)
			if fetches.NumRecords() == 0 {
				t.Errorf("nothing read: %v", fetches.Err())
			}
		}()
		feedUntilClosed(t, b, topic, joined)
	})
}

// feedUntil produces a record every 100 ms until the consumer has printed one.
func feedUntil(t *testing.T, b *target.Broker, topic string, p *process) {
	t.Helper()
	feedUntilClosed(t, b, topic, p.done)
	if out := p.out.String(); !strings.Contains(out, "new") {
		t.Errorf("printed %q (%s), want a new record", out, p.err.String())
	}
}

func feedUntilClosed(t *testing.T, b *target.Broker, topic string, done <-chan struct{}) {
	t.Helper()
	c := dial(t, b)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(40 * time.Second)
	for i := int32(0); ; i++ {
		select {
		case <-done:
			return
		case <-limit:
			t.Fatal("no record was delivered within 40 s")
		case <-tick.C:
			mustProduce(t, c, topic, i%3, raw.NewBatch(raw.Values("new")...).Bytes())
		}
	}
}
