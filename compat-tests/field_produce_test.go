package compattests_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cases from the field that concern producing. Each name starts with the case's number. Codes are the protocol's.

// B01: a broker that does not list Produce from version 0 makes librdkafka believe that gzip, snappy and lz4 are not there.
func TestFieldB01CodecsAskedForAreStored(t *testing.T) { onSizes(t, fieldB01CodecsAskedForAreStored) }

func fieldB01CodecsAskedForAreStored(t *testing.T, b *target.Broker) {
	need(t, "kcat")
	c := dial(t, b)
	av := kmsg.NewPtrApiVersionsRequest()
	av.Version = 0
	versions := do[*kmsg.ApiVersionsResponse](t, c, av)
	for _, k := range versions.ApiKeys {
		if k.ApiKey == 0 && k.MinVersion != 0 {
			t.Errorf("Produce is listed from version %d, want 0", k.MinVersion)
		}
	}
	for codec, bits := range map[string]int16{"gzip": raw.Gzip, "snappy": raw.Snappy, "lz4": raw.LZ4, "zstd": raw.Zstd} {
		topic := fresh(t, "b01-"+codec)
		makeTopic(t, b, topic, 1, nil)
		kcat(t, b, numbers(1, 5000), "-P", "-t", topic, "-p", "0", "-z", codec)
		compressed, records := 0, int32(0)
		for _, h := range fetchBatches(t, c, topic, 0, 0) {
			records += h.Count
			switch h.Codec() {
			case bits:
				compressed++
			case raw.None: // librdkafka sends plain what the codec does not make smaller
				if h.Count > 3 {
					t.Errorf("%s: a batch of %d records is stored plain", codec, h.Count)
				}
			default:
				t.Errorf("%s: a batch is stored with codec %d", codec, h.Codec())
			}
		}
		if records != 5000 || compressed == 0 {
			t.Errorf("%s: %d records, %d compressed batches", codec, records, compressed)
		}
	}
	for version := range int16(3) {
		c := dial(t, b)
		c.Timeout = 10 * time.Second
		// kmsg has the old versions of Produce; the records don't matter.
		req := produceRequest("b01", 0, raw.NewBatch(raw.Values("x")...).Bytes())
		req.Version = version
		if _, err := c.Send(req); err != nil {
			t.Fatal(err)
		}
		if closed, err := c.AtEOF(); !closed || err != nil {
			t.Errorf("Produce v%d: closed %v, %v; want the connection closed without an answer", version, closed, err)
		}
	}
}

// B11: a repeated batch must neither be stored twice nor be called out of order.
func TestFieldB11RepeatedBatches(t *testing.T) {
	b := ownBroker(t, nil)
	topic := "b11"
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	id, epoch := initProducer(t, c)
	batch := func(seq int32) []byte {
		return raw.NewBatch(raw.Numbered("v", int(seq), 5)...).Idempotent(id, epoch, seq).Bytes()
	}
	send := func(seq int32) kmsg.ProduceResponseTopicPartition { return produce(t, c, topic, 0, batch(seq)) }
	want := func(what string, p kmsg.ProduceResponseTopicPartition, code int16, base int64) {
		t.Helper()
		if p.ErrorCode != code || (code == 0 && p.BaseOffset != base) {
			t.Errorf("%s: code %d at %d, want code %d at %d", what, p.ErrorCode, p.BaseOffset, code, base)
		}
	}
	end := func(what string, offset int64) {
		t.Helper()
		if o := listOffset(t, c, topic, 0, -1); o.Offset != offset {
			t.Errorf("%s: end %d, want %d", what, o.Offset, offset)
		}
	}
	want("first", send(0), 0, 0)
	want("repeat", send(0), 0, 0)
	want("repeat again", send(0), 0, 0)
	end("after repeats", 5)
	for seq := int32(5); seq <= 25; seq += 5 {
		want(fmt.Sprint("sequence ", seq), send(seq), 0, int64(seq))
	}
	want("repeat of one of the last five", send(5), 0, 5)
	want("older than the last five", send(0), 45, 0)
	want("a gap", send(40), 45, 0)
	end("after refusals", 30)

	restart(t, b, true)
	awaitLeaders(t, b, topic, 1)
	c = dial(t, b)
	want("repeat of the last after a clean restart", send(25), 0, 25)
	if p := send(20); p.ErrorCode != 45 && (p.ErrorCode != 0 || p.BaseOffset != 20) {
		t.Errorf("repeat of the one before after a clean restart: code %d at %d, want 45, or 0 at 20", p.ErrorCode, p.BaseOffset)
	}
	want("next after a restart", send(30), 0, 30)
	end("at the end", 35)
}

// B19: the expected sequence is the last one's plus one, and after 2147483647 comes 0.
func TestFieldB19Sequences(t *testing.T) { onSizes(t, fieldB19Sequences) }

func fieldB19Sequences(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b19")
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	id, epoch := initProducer(t, c)
	send := func(id int64, seq int32, n int) int16 {
		return produce(t, c, topic, 0, raw.NewBatch(raw.Numbered("v", 0, n)...).Idempotent(id, epoch, seq).Bytes()).ErrorCode
	}
	wantCode(t, "three records from 0", send(id, 0, 3), 0)
	wantCode(t, "sequence 1", send(id, 1, 1), 45)
	wantCode(t, "sequence 3", send(id, 3, 1), 0)
	other, _ := initProducer(t, c)
	wantCode(t, "fresh producer at 2147483646", send(other, 2147483646, 3), 0)
	wantCode(t, "next after the wrap", send(other, 1, 1), 0)
	wantCode(t, "producer id without a sequence", send(id, -1, 1), 87)
	two := append(raw.NewBatch(raw.Values("a")...).Bytes(), raw.NewBatch(raw.Values("b")...).Bytes()...)
	wantCode(t, "two batches for one partition", produce(t, c, topic, 0, two).ErrorCode, 87)
}

// B32: what Kafka refuses is refused, and the other partitions of the request are stored.
func TestFieldB32BadBatches(t *testing.T) { onSizes(t, fieldB32BadBatches) }

func fieldB32BadBatches(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b32")
	makeTopic(t, b, topic, 2, nil)
	c := dial(t, b)
	good := func() raw.Batch { return raw.NewBatch(raw.Numbered("v", 0, 5)...) }
	with := func(change func(*raw.Batch)) []byte {
		batch := good()
		change(&batch)
		return batch.Bytes()
	}
	negative := int64(-5)
	gzipped, err := good().Compressed(raw.Gzip)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []struct {
		name    string
		records []byte
		codes   []int16
	}{
		{"wrong checksum", with(func(b *raw.Batch) { b.CRCDelta = 1 }), []int16{2}},
		{"base offset 7", with(func(b *raw.Batch) { b.BaseOffset = 7 }), []int16{87}},
		{"count 5 with 4 records", with(func(b *raw.Batch) { b.Records = b.Records[:4] }), []int16{87}},
		{"last offset delta 9", with(func(b *raw.Batch) { b.LastOffsetDelta = 9 }), []int16{87}},
		{"count 0", with(func(b *raw.Batch) { b.Count, b.Records, b.LastOffsetDelta = 0, nil, 0 }), []int16{87}},
		{"control bit", with(func(b *raw.Batch) { b.Attributes = 0x20 }), []int16{87}},
		{"codec 5", with(func(b *raw.Batch) { b.Attributes = 5 }), []int16{-1, 2, 87}},
		{"gzip bit over plain bytes", with(func(b *raw.Batch) { b.Attributes = raw.Gzip }), []int16{-1, 2, 87}},
		{"gzip, more records than counted", with(func(b *raw.Batch) { *b = gzipped; b.Count, b.LastOffsetDelta = 4, 3 }), []int16{87}},
		{"negative record length", with(func(b *raw.Batch) { b.Records[2].RawLength = &negative }), []int16{87}},
		{"varint of 11 bytes", with(func(b *raw.Batch) { b.Payload = bytes.Repeat([]byte{0xff}, 11) }), []int16{-1, 2, 87}},
		{"cut short", with(func(b *raw.Batch) { b.Cut = 3 }), []int16{87}},
		{"empty record set", []byte{}, []int16{87}},
	} {
		t.Run(bad.name, func(t *testing.T) {
			before := listOffset(t, c, topic, 1, -1).Offset
			req := produceRequest(topic, 0, bad.records)
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = 1, good().Bytes()
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
			resp := do[*kmsg.ProduceResponse](t, c, req)
			for _, p := range resp.Topics[0].Partitions {
				if p.Partition == 0 {
					wantCode(t, "the bad one", p.ErrorCode, bad.codes...)
				} else if p.ErrorCode != 0 || p.BaseOffset != before {
					t.Errorf("the good one: code %d at %d, want 0 at %d", p.ErrorCode, p.BaseOffset, before)
				}
			}
			if end := listOffset(t, c, topic, 0, -1).Offset; end != 0 {
				t.Fatalf("something of the bad batch was stored: end %d", end)
			}
		})
	}
	t.Run("other magic", func(t *testing.T) { // alone: Kafka refuses the whole request of a magic that it does not know
		wantCode(t, "magic 3", produce(t, c, topic, 0, with(func(b *raw.Batch) { b.Magic = 3 })).ErrorCode, 2)
		for magic := range int8(2) {
			wantCode(t, fmt.Sprint("magic ", magic), produce(t, c, topic, 0, with(func(b *raw.Batch) { b.Magic = magic })).ErrorCode, 87, 2)
		}
	})
	t.Run("zstd below version 7", func(t *testing.T) {
		zstd, err := good().Compressed(raw.Zstd)
		if err != nil {
			t.Fatal(err)
		}
		req := produceRequest(topic, 0, zstd.Bytes())
		req.Version = 6
		wantCode(t, "zstd in v6", onlyPartition(t, do[*kmsg.ProduceResponse](t, c, req)).ErrorCode, 76)
	})
	t.Run("keyless on a compacted topic", func(t *testing.T) {
		compacted := fresh(t, "b32c")
		makeTopic(t, b, compacted, 1, map[string]string{"cleanup.policy": "compact"})
		records := raw.Numbered("v", 0, 10)
		for i := range records {
			if i != 6 {
				records[i].Key = fmt.Appendf(nil, "k%d", i)
			}
		}
		p := produce(t, c, compacted, 0, raw.NewBatch(records...).Bytes())
		wantCode(t, "keyless record", p.ErrorCode, 87)
		if len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 6 {
			t.Errorf("record errors = %+v, want record 6 alone", p.ErrorRecords)
		}
		if end := listOffset(t, c, compacted, 0, -1).Offset; end != 0 {
			t.Errorf("end %d, want nothing stored", end)
		}
	})
}

// B40: snappy means two things, and each is read; with compression.type=producer the bytes are stored untouched.
func TestFieldB40SnappyBothWays(t *testing.T) { onSizesLong(t, fieldB40SnappyBothWays) }

func fieldB40SnappyBothWays(t *testing.T, b *target.Broker) {
	set := need(t, "kcat", "python")
	c := dial(t, b)
	want := make([]string, 1000)
	for i := range want {
		want[i] = fmt.Sprintf("%d:%s", i, strings.Repeat("x", 60)) // 1000 of these are more than one snappy frame of 32 KiB
	}
	want[500] = ""
	for _, compression := range []string{"producer", "snappy", "zstd", "lz4", "gzip", "uncompressed"} {
		t.Run(compression, func(t *testing.T) {
			topic := fresh(t, "b40")
			makeTopic(t, b, topic, 2, map[string]string{"compression.type": compression})
			kcat(t, b, strings.ReplaceAll(strings.Join(want, "\n"), "\n\n", "\n \n"), "-P", "-t", topic, "-p", "0", "-z", "snappy", "-X", "linger.ms=500")
			runScript(t, set.Python(), []string{"py/snappy_produce.py", b.Addr, topic, "1"}, strings.Join(want, "\n"))
			kcatWant := append([]string{}, want...)
			kcatWant[500] = " " // kcat sends no empty line
			for p, w := range [][]string{kcatWant, want} {
				partition := fmt.Sprint(p)
				wantLines(t, "kcat reads partition "+partition, lines(kcat(t, b, "", "-C", "-t", topic, "-p", partition, "-o", "beginning", "-e", "-q")), w)
				got := runScript(t, set.Python(), []string{"py/consume_all.py", b.Addr, topic, partition, "1000"}, "")
				wantLines(t, "kafka-python reads partition "+partition, lines(got), w)
				for _, h := range fetchBatches(t, c, topic, int32(p), 0) {
					codec := map[string]int16{"producer": raw.Snappy, "snappy": raw.Snappy, "zstd": raw.Zstd, "lz4": raw.LZ4, "gzip": raw.Gzip, "uncompressed": raw.None}[compression]
					if h.Count > 3 && h.Codec() != codec {
						t.Errorf("partition %d holds a batch of %d with codec %d, want %d", p, h.Count, h.Codec(), codec)
					}
				}
			}
		})
	}
	t.Run("stored untouched", func(t *testing.T) {
		topic := fresh(t, "b40raw")
		makeTopic(t, b, topic, 1, nil)
		for _, codec := range []int16{raw.Gzip, raw.Snappy, raw.LZ4, raw.Zstd} {
			batch, err := raw.NewBatch(raw.Numbered("value", 0, 200)...).Compressed(codec)
			if err != nil {
				t.Fatal(err)
			}
			sent := batch.Bytes()
			base := mustProduce(t, c, topic, 0, sent)
			got := fetchBatches(t, c, topic, 0, base)
			if len(got) != 1 || !bytes.Equal(got[0].Raw[16:], sent[16:]) {
				t.Errorf("codec %d: what is stored from the magic byte on differs from what was sent", codec)
			}
		}
	})
}

// B58: acks=0 gets no answer; an error closes the connection; other values of acks are refused.
func TestFieldB58Acks(t *testing.T) { onSizes(t, fieldB58Acks) }

func fieldB58Acks(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b58")
	makeTopic(t, b, topic, 1, map[string]string{"max.message.bytes": "1000"})
	small := raw.NewBatch(raw.Values("small")...).Bytes()
	send := func(c *raw.Conn, topic string, records []byte) {
		t.Helper()
		req := produceRequest(topic, 0, records)
		req.Acks = 0
		if _, err := c.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	c := dial(t, b)
	send(c, topic, small)
	if m := metadata(t, c, 8, false, topic); m.Topics[0].ErrorCode != 0 { // its correlation id is checked
		t.Errorf("metadata after acks=0: code %d", m.Topics[0].ErrorCode)
	}
	err := poll.Until(t.Context(), 10*time.Second, "the record of acks=0 is there", func() (bool, error) {
		return listOffset(t, c, topic, 0, -1).Offset == 1, nil
	})
	if err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]struct {
		topic   string
		records []byte
	}{
		"unknown topic": {"b58-absent-%", small},
		"too large":     {topic, raw.NewBatch(raw.Values(strings.Repeat("x", 2000))...).Bytes()},
	} {
		c := dial(t, b)
		c.Timeout = 10 * time.Second
		send(c, bad.topic, bad.records)
		if closed, err := c.AtEOF(); !closed || err != nil {
			t.Errorf("acks=0 to %s: closed %v, %v; want the connection closed", name, closed, err)
		}
	}
	for _, acks := range []int16{2, -2} {
		req := produceRequest(topic, 0, small)
		req.Acks = acks
		p := onlyPartition(t, do[*kmsg.ProduceResponse](t, dial(t, b), req))
		wantCode(t, fmt.Sprint("acks ", acks), p.ErrorCode, 21)
	}
	if diff := cmp.Diff(int64(1), listOffset(t, dial(t, b), topic, 0, -1).Offset); diff != "" {
		t.Errorf("end (-want +got)\n%s", diff)
	}
}
