package compattests_test

import (
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
	"github.com/kajamq/kaja/internal/loopdisk"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cases from the field that concern retention and disks.

// b07Batch is one record with a timestamp of the producer's.
func b07Batch(timestamp int64) []byte {
	b := raw.NewBatch(raw.Values("a record of fifty bytes or so, one to each segment")...)
	b.BaseTimestamp, b.MaxTimestamp = timestamp, timestamp
	return b.Bytes()
}

// awaitStart waits until a partition's log starts at an offset.
func awaitStart(t *testing.T, c *raw.Conn, topic string, want int64) {
	t.Helper()
	err := poll.Until(t.Context(), 30*time.Second, fmt.Sprintf("%s starts at %d", topic, want), func() (bool, error) {
		got := listOffset(t, c, topic, 0, -2).Offset
		return got == want, fmt.Errorf("it starts at %d", got)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// B07: retention goes by the largest timestamp of a segment. A producer that counts seconds loses its records at once, the active
// segment's after a roll, and is refused where message.timestamp.before.max.ms says so; one that counts microseconds keeps them until
// retention.bytes lets them go, is warned of, and is refused where message.timestamp.after.max.ms says so. The broker's clock is not
// misled.
func TestFieldB07TimestampsOfOtherUnits(t *testing.T) {
	b := ownBroker(t, map[string]string{"log.retention.check.interval.ms": "300"})
	c := dial(t, b)
	hour := strconv.FormatInt(time.Hour.Milliseconds(), 10)
	create := func(topic string, more map[string]string) {
		configs := map[string]string{"retention.ms": hour, "internal.segment.bytes": "200", "message.timestamp.after.max.ms": "9223372036854775807"}
		for k, v := range more {
			configs[k] = v
		}
		makeTopic(t, b, topic, 1, configs)
	}
	now := time.Now()

	create("b07", nil)
	for i, ts := range []int64{now.Unix(), now.UnixMicro(), now.UnixMilli(), now.UnixMilli()} {
		if base := mustProduce(t, c, "b07", 0, b07Batch(ts)); base != int64(i) {
			t.Fatalf("record %d is at %d", i, base)
		}
	}
	awaitStart(t, c, "b07", 1)
	alterTopic(t, b, "b07", "retention.bytes", "150")
	awaitStart(t, c, "b07", 2)
	if b.Kind == target.Kaja {
		data, err := os.ReadFile(b.LogPath())
		if err != nil || strings.Count(string(data), "segment has timestamps in the future") != 1 {
			t.Errorf("the broker does not warn once of timestamps in the future: %v", err)
		}
	}

	create("b07-active", nil)
	mustProduce(t, c, "b07-active", 0, b07Batch(now.Unix()))
	awaitStart(t, c, "b07-active", 1)
	if end := listOffset(t, c, "b07-active", 0, -1).Offset; end != 1 {
		t.Errorf("end %d, want 1", end)
	}
	if base := mustProduce(t, c, "b07-active", 0, b07Batch(now.UnixMilli())); base != 1 {
		t.Errorf("the next record is at %d, want 1", base)
	}
	if _, err := os.Stat(filepath.Join(b.DataDir(), "b07-active-0", "00000000000000000001.log")); err != nil {
		t.Errorf("the active segment went without a roll: %v", err)
	}

	// Each limit refuses its side, names the record, and lets the other side in.
	for _, tt := range []struct {
		topic, limit      string
		refused, accepted int64
	}{
		{"b07-after", "message.timestamp.after.max.ms", now.UnixMicro(), now.Unix()},
		{"b07-before", "message.timestamp.before.max.ms", now.Unix(), now.UnixMicro()},
	} {
		create(tt.topic, map[string]string{"retention.ms": "-1", tt.limit: hour})
		p := produce(t, c, tt.topic, 0, b07Batch(tt.refused))
		wantCode(t, tt.limit, p.ErrorCode, 32)
		if len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 0 || deref(p.ErrorMessage) != "One or more records have been rejected due to invalid timestamp" {
			t.Errorf("%s: %q, records %+v", tt.limit, deref(p.ErrorMessage), p.ErrorRecords)
		}
		if end := listOffset(t, c, tt.topic, 0, -1).Offset; end != 0 {
			t.Errorf("%s: end %d, want nothing stored", tt.limit, end)
		}
		if base := mustProduce(t, c, tt.topic, 0, b07Batch(tt.accepted)); base != 0 {
			t.Errorf("%s: the other unit is at %d, want 0", tt.limit, base)
		}
	}

	create("b07-broker", map[string]string{"message.timestamp.type": "LogAppendTime"})
	for _, ts := range []int64{now.Unix(), now.UnixMicro()} {
		if p := produce(t, c, "b07-broker", 0, b07Batch(ts)); p.ErrorCode != 0 || p.LogAppendTime < now.UnixMilli() {
			t.Errorf("LogAppendTime: code %d, time %d, want one of %d or later", p.ErrorCode, p.LogAppendTime, now.UnixMilli())
		}
	}
	for _, h := range fetchBatches(t, c, "b07-broker", 0, 0) {
		const appendTime = 8
		if late := time.Since(time.UnixMilli(h.MaxTimestamp)); h.Attributes&appendTime == 0 || late < 0 || late > time.Hour {
			t.Errorf("stored batch: attributes %#x, time %d", h.Attributes, h.MaxTimestamp)
		}
	}
	if start := listOffset(t, c, "b07-broker", 0, -2).Offset; start != 0 {
		t.Errorf("starts at %d, want 0", start)
	}
}

// B55: on a full disk producers are told a retriable error on connections that stay open, and neither they nor the log run wild;
// readers, commits and deletions go on. When space is back each producer's records are there, once and in order.
func TestFieldB55DiskFull(t *testing.T) {
	set := need(t, "kcat", "python")
	if kind(t) == target.Kafka {
		t.Skip("Kafka ends when its only log directory is full")
	}
	disk := loopdisk.InMemory(t, 64<<20)
	b := ownBroker(t, map[string]string{"log.dirs": filepath.Join(disk.Mount, "data"), "log.segment.delete.delay.ms": "500",
		"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"})
	topics := []string{"b55-kcat", "b55-franz", "b55-python"}
	for _, topic := range append([]string{"b55-ballast"}, topics...) {
		makeTopic(t, b, topic, 1, nil)
	}
	c := dial(t, b)
	value := func(i int) string { // compression finds nothing in it
		rng, out := rand.New(rand.NewPCG(55, uint64(i))), make([]byte, 60_000)
		for j := range out {
			out[j] = byte(' ' + rng.IntN(95))
		}
		return fmt.Sprint(i, " ", string(out))
	}
	for i := range 850 { // 51 MB
		mustProduce(t, c, "b55-ballast", 0, raw.NewBatch(raw.Values(value(i))...).Bytes())
	}
	const records = 250 // 15 MB of each producer, of which none finds room before the disk is full, and all without the ballast
	all := make([]string, records)
	for i := range all {
		all[i] = value(i)
	}
	input := filepath.Join(t.TempDir(), "input")
	writeFile(t, input, strings.Join(all, "\n")+"\n")
	abs, err := filepath.Abs("py/produce_lines.py")
	if err != nil {
		t.Fatal(err)
	}
	foreign := []*process{
		startProcess(t, "kcat", "-b", b.Addr, "-P", "-t", topics[0], "-p", "0", "-X", "enable.idempotence=true", "-l", input),
		startProcess(t, set.Python(), abs, b.Addr, topics[2], "0", input),
	}
	client := newClient(t, b, kgo.DefaultProduceTopic(topics[1]))
	franz := make(chan error, records)
	for _, v := range all {
		client.Produce(t.Context(), kgo.StringRecord(v), func(_ *kgo.Record, err error) { franz <- err })
	}

	full := produceRequest("b55-ballast", 0, raw.NewBatch(raw.Values(value(0))...).Bytes())
	refused, lines := 0, 0
	var since time.Time
	err = poll.Until(t.Context(), time.Minute, "the disk is full", func() (bool, error) {
		if onlyPartition(t, do[*kmsg.ProduceResponse](t, c, full)).ErrorCode != 56 {
			refused = 0 // what others wanted was larger
			return false, nil
		}
		if refused++; refused == 1 {
			since, lines = time.Now(), strings.Count(b.LogTail(1<<20), "\n")
		}
		return refused >= 50 && time.Since(since) > time.Second, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fetchOnce(t, c, fetchRequest("b55-ballast", 0, 0)); got.ErrorCode != 0 || len(got.RecordBatches) == 0 {
		t.Errorf("fetch on the full disk: code %d, %d bytes", got.ErrorCode, len(got.RecordBatches))
	}
	commitAlone(t, b, "b55-group", "b55-ballast", 0, 7)
	if at := committed(t, c, "b55-group", "b55-ballast", 0); at != 7 {
		t.Errorf("committed offset %d, want 7", at)
	}
	if more := strings.Count(b.LogTail(1<<20), "\n") - lines; more > 10 {
		t.Errorf("%d lines of log for %d refused records of this test and those of three producers", more, refused)
	}
	for i, p := range foreign {
		select {
		case <-p.done:
			t.Fatalf("producer %d gave up on the full disk: %s", i, p.err.String())
		default:
		}
	}

	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TimeoutMillis, del.TopicNames = 4, 20_000, []string{"b55-ballast"}
	wantCode(t, "delete a topic on the full disk", do[*kmsg.DeleteTopicsResponse](t, c, del).Topics[0].ErrorCode, 0)
	for i, p := range foreign {
		select {
		case <-p.done:
		case <-time.After(90 * time.Second):
			t.Fatalf("producer %d is not done with space again: %s", i, p.err.String())
		}
		if !p.cmd.ProcessState.Success() {
			t.Errorf("producer %d: %v: %s", i, p.cmd.ProcessState, p.err.String())
		}
	}
	if err := client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range all {
		if err := <-franz; err != nil {
			t.Errorf("franz-go: %v", err)
		}
	}
	check := func() {
		t.Helper()
		c := dial(t, b)
		for _, topic := range topics {
			var got []string
			for _, h := range fetchBatches(t, c, topic, 0, 0) {
				values, err := h.Values()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, values...)
			}
			if !slices.Equal(got, all) {
				t.Errorf("%s holds %d records, want the %d that were sent, in order", topic, len(got), len(all))
			}
		}
	}
	check()
	restart(t, b, false)
	check()
}
