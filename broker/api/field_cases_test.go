package api

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// baseOffsets gives the base offsets of the batches of a record set, whole ones only.
func baseOffsets(t *testing.T, records []byte) (out []int64) {
	t.Helper()
	for len(records) > 0 {
		b, rest, err := batch.Next(records)
		if errors.Is(err, batch.ErrShort) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := b.CheckCRC(); err != nil {
			t.Fatal(err)
		}
		out = append(out, int64(b.BaseOffset()))
		records = rest
	}
	return out
}

// B02: however small the limits, the first batch of the first partition that has data comes whole, so every consumer
// gets on.
func TestB02FirstBatchComesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		c := log.DefaultConfig()
		c.MaxMessageBytes = 5_000_000
		k.config["b02"] = c
		k.topic("b02", 3)
		k.mustProduce("b02", 1, values(2_000_000, 1))
		for range 10 {
			k.mustProduce("b02", 1, values(10, 1))
		}
		k.mustProduce("b02", 2, values(100, 1))
		at, read := int64(0), 0
		for at < 11 {
			resp := ask[*kmsg.FetchResponse](k, k.fetch.handle, fetchOf(0, 1, 1, fetchTopic("b02", fetchPart(0, 0, 1), fetchPart(1, at, 1), fetchPart(2, 0, 1))), 11)
			parts := resp.Topics[0].Partitions
			got := baseOffsets(t, parts[1].RecordBatches)
			if len(got) != 1 || got[0] != at {
				t.Fatalf("at %d: batches %v", at, got)
			}
			if len(parts[0].RecordBatches) != 0 || len(parts[2].RecordBatches) != 0 {
				t.Fatalf("at %d: other partitions hold %d and %d bytes", at, len(parts[0].RecordBatches), len(parts[2].RecordBatches))
			}
			at++
			read++
		}
		if read != 11 {
			t.Fatalf("%d batches read", read)
		}
		// The limits hold over all partitions otherwise.
		resp := ask[*kmsg.FetchResponse](k, k.fetch.handle, fetchOf(0, 1, 2_000_100, fetchTopic("b02", fetchPart(1, 0, 1<<30), fetchPart(2, 0, 1<<30))), 11)
		if n := len(resp.Topics[0].Partitions[1].RecordBatches); n != 0 {
			t.Fatalf("second partition holds %d bytes beyond the limit of the response", n)
		}
	})
}

// B11: repeats of the last five batches are answered with their first offsets and written once; older ones and gaps are
// refused.
func TestB11Duplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("b11", 1)
		step := func(seq int32, code int16, base int64) {
			t.Helper()
			p := k.produce(11, "b11", 0, values(1, 5, byProducer(7, 0, seq)))
			if p.ErrorCode != code || p.BaseOffset != base {
				t.Fatalf("sequence %d: error %d at %d, want %d at %d", seq, p.ErrorCode, p.BaseOffset, code, base)
			}
		}
		step(0, 0, 0)
		step(0, 0, 0)
		step(0, 0, 0)
		for i := int32(1); i <= 5; i++ {
			step(5*i, 0, int64(5*i))
		}
		step(5, 0, 5)
		step(0, 45, -1)
		step(40, 45, -1)
		p, _ := k.m.ByName("b11", 0)
		if o := p.Offsets(); o.LEO != 30 {
			t.Fatalf("end offset %d", o.LEO)
		}
	})
}

// B19: the next sequence is the last of the batch before plus one, and 0 follows 2147483647.
func TestB19Sequences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("b19", 1)
		step := func(id wire.ProducerID, seq int32, n int, code int16) {
			t.Helper()
			if p := k.produce(11, "b19", 0, values(1, n, byProducer(id, 0, seq))); p.ErrorCode != code {
				t.Fatalf("producer %d, sequence %d: error %d, want %d", id, seq, p.ErrorCode, code)
			}
		}
		step(1, 0, 3, 0)
		step(1, 1, 1, 45)
		step(1, 3, 1, 0)
		step(2, 2147483646, 3, 0) // 2147483646, 2147483647, 0
		step(2, 1, 1, 0)
		step(3, -1, 1, 87)
		two := append(values(1, 1, byProducer(4, 0, 0)), values(1, 1, byProducer(4, 0, 1))...)
		if p := k.produce(11, "b19", 0, two); p.ErrorCode != 87 {
			t.Fatalf("two batches: error %d", p.ErrorCode)
		}
	})
}

// B20: outside of the log is an error at once, with no other offset filled in; the end waits and is then empty.
func TestB20OutOfRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("b20", 1)
		for range 10 {
			k.mustProduce("b20", 0, values(5, 1))
		}
		del := kmsg.NewPtrDeleteRecordsRequest()
		dt := kmsg.NewDeleteRecordsRequestTopic()
		dp := kmsg.NewDeleteRecordsRequestTopicPartition()
		dt.Topic, dp.Offset = "b20", 3
		dt.Partitions = append(dt.Partitions, dp)
		del.Topics = append(del.Topics, dt)
		dr := ask[*kmsg.DeleteRecordsResponse](k, (&deleteRecords{k, k}).handle, del, 2)
		if p := dr.Topics[0].Partitions[0]; p.ErrorCode != 0 || p.LowWatermark != 3 {
			t.Fatalf("delete: error %d, low watermark %d", p.ErrorCode, p.LowWatermark)
		}
		for _, tt := range []struct {
			at     int64
			code   int16
			hw     int64
			start  int64
			data   bool
			waited time.Duration
		}{
			{2, 1, -1, -1, false, 0}, {11, 1, -1, -1, false, 0}, {1000, 1, -1, -1, false, 0}, {-1, 1, -1, -1, false, 0},
			{3, 0, 10, 3, true, 0}, {9, 0, 10, 3, true, 0}, {10, 0, 10, 3, false, 2 * time.Second},
		} {
			for _, version := range []int16{4, 11, 12, 13, 18} {
				began := time.Now()
				p := ask[*kmsg.FetchResponse](k, k.fetch.handle, fetchOf(2000, 1, 1<<20, fetchTopic("b20", fetchPart(0, tt.at, 1<<20))), version).Topics[0].Partitions[0]
				start := tt.start
				if version < 5 {
					start = -1
				}
				if p.ErrorCode != tt.code || p.HighWatermark != tt.hw || p.LastStableOffset != tt.hw || p.LogStartOffset != start || (len(p.RecordBatches) > 0) != tt.data {
					t.Errorf("v%d at %d: error %d hw %d lso %d start %d with %d bytes", version, tt.at, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset, len(p.RecordBatches))
				}
				if got := time.Since(began); got != tt.waited {
					t.Errorf("v%d at %d: waited %v", version, tt.at, got)
				}
			}
		}
	})
}

// B25: what a fetch waits for, and what ends the wait.
func TestB25Waiting(t *testing.T) {
	timed := func(t *testing.T, k *dataKit, msg *kmsg.FetchRequest, version int16) (*kmsg.FetchResponse, time.Duration) {
		t.Helper()
		began := time.Now()
		resp := ask[*kmsg.FetchResponse](k, k.fetch.handle, msg, version)
		return resp, time.Since(began)
	}
	run := func(name string, f func(t *testing.T, k *dataKit)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newDataKit(t)
				defer k.close()
				k.topic("b25", 3)
				k.topic("else", 1, 2)
				f(t, k)
				synctest.Wait() // whoever still produces
			})
		})
	}
	run("max wait at the end", func(t *testing.T, k *dataKit) {
		if _, d := timed(t, k, fetchOf(2000, 1, 1<<20, fetchTopic("b25", fetchPart(0, 0, 1<<20))), 11); d != 2*time.Second {
			t.Fatalf("waited %v", d)
		}
	})
	run("min bytes 0", func(t *testing.T, k *dataKit) {
		if _, d := timed(t, k, fetchOf(2000, 0, 1<<20, fetchTopic("b25", fetchPart(0, 0, 1<<20))), 11); d != 0 {
			t.Fatalf("waited %v", d)
		}
	})
	run("no partition", func(t *testing.T, k *dataKit) {
		if _, d := timed(t, k, fetchOf(2000, 1, 1<<20), 11); d != 0 {
			t.Fatalf("waited %v", d)
		}
	})
	run("large min bytes", func(t *testing.T, k *dataKit) {
		k.mustProduce("b25", 0, values(10_000, 1))
		resp, d := timed(t, k, fetchOf(2000, 1<<20, 1<<21, fetchTopic("b25", fetchPart(0, 0, 1<<20))), 11)
		if n := len(resp.Topics[0].Partitions[0].RecordBatches); d != 2*time.Second || n < 10_000 {
			t.Fatalf("waited %v for %d bytes", d, n)
		}
	})
	run("min bytes from several appends", func(t *testing.T, k *dataKit) {
		go func() {
			for i := range 4 {
				time.Sleep(100 * time.Millisecond)
				k.mustProduce("b25", int32(i%3), values(1000, 1))
			}
		}()
		_, d := timed(t, k, fetchOf(2000, 3000, 1<<21, fetchTopic("b25", fetchPart(0, 0, 1<<20), fetchPart(1, 0, 1<<20), fetchPart(2, 0, 1<<20))), 11)
		if d != 300*time.Millisecond {
			t.Fatalf("waited %v", d)
		}
		time.Sleep(time.Second)
	})
	run("session without partitions in the request", func(t *testing.T, k *dataKit) {
		first := fetchOf(0, 1, 1<<20, fetchTopic("b25", fetchPart(0, 0, 1<<20), fetchPart(1, 0, 1<<20)))
		first.SessionEpoch = 0
		resp, _ := timed(t, k, first, 11)
		if resp.SessionID == 0 {
			t.Fatal("no session")
		}
		next := func(epoch int32) *kmsg.FetchRequest {
			m := fetchOf(2000, 1, 1<<20)
			m.SessionID, m.SessionEpoch = resp.SessionID, epoch
			return m
		}
		if r, d := timed(t, k, next(1), 11); d != 2*time.Second || len(r.Topics) != 0 || r.SessionID != resp.SessionID {
			t.Fatalf("idle session: waited %v, %d topics, session %d", d, len(r.Topics), r.SessionID)
		}
		go func() {
			time.Sleep(700 * time.Millisecond)
			k.mustProduce("b25", 1, values(10, 1))
		}()
		r, d := timed(t, k, next(2), 11)
		if d != 700*time.Millisecond || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 1 {
			t.Fatalf("session with new data: waited %v, %+v", d, r.Topics)
		}
	})
	for _, tt := range []struct {
		name   string
		part   kmsg.FetchRequestTopic
		code   int16
		waited time.Duration
	}{
		{"out of range", fetchTopic("b25", fetchPart(1, 99, 1)), 1, 0},
		{"wrong leader", fetchTopic("else", fetchPart(0, 0, 1)), 6, 0},
		{"old epoch", fetchTopic("b25", func() kmsg.FetchRequestTopicPartition { p := fetchPart(1, 0, 1); p.CurrentLeaderEpoch = 7; return p }()), 75, 0},
		{"unknown partition", fetchTopic("b25", fetchPart(9, 0, 1)), 3, 2 * time.Second},
		{"unknown topic", fetchTopic("nope", fetchPart(0, 0, 1)), 3, 2 * time.Second},
	} {
		run(tt.name, func(t *testing.T, k *dataKit) {
			resp, d := timed(t, k, fetchOf(2000, 1, 1<<20, fetchTopic("b25", fetchPart(0, 0, 1<<20)), tt.part), 12)
			last := resp.Topics[len(resp.Topics)-1]
			if p := last.Partitions[len(last.Partitions)-1]; p.ErrorCode != tt.code || d != tt.waited {
				t.Fatalf("error %d after %v", p.ErrorCode, d)
			}
		})
	}
	run("leadership lost while waiting", func(t *testing.T, k *dataKit) {
		k.topic("moves", 1, 1, 2)
		go func() {
			time.Sleep(500 * time.Millisecond)
			k.apply(electLeader("moves", 2))
		}()
		resp, d := timed(t, k, fetchOf(2000, 1, 1<<20, fetchTopic("moves", fetchPart(0, 0, 1<<20))), 16)
		p := resp.Topics[0].Partitions[0]
		if d != 500*time.Millisecond || p.ErrorCode != 6 || p.CurrentLeader.LeaderID != 2 || p.CurrentLeader.LeaderEpoch != 1 {
			t.Fatalf("error %d after %v, leader %+v", p.ErrorCode, d, p.CurrentLeader)
		}
		if len(resp.Brokers) != 1 || resp.Brokers[0].NodeID != 2 || resp.Brokers[0].Port != 9002 {
			t.Fatalf("endpoints %+v", resp.Brokers)
		}
	})
}

// B32: the checks of a batch, each alone; the other partitions of the request are stored.
func TestB32BatchChecks(t *testing.T) {
	good := func() []byte { return values(10, 5) }
	edit := func(f func(b batch.Batch)) []byte {
		b := batch.Batch(good())
		f(b)
		b.SetCRC()
		return b
	}
	short := good()
	for _, tt := range []struct {
		name    string
		topic   string
		version int16
		records []byte
		codes   []int16
	}{
		{"wrong crc", "b32", 11, func() []byte { b := good(); b[len(b)-1] ^= 1; return b }(), []int16{2}},
		{"base offset 7", "b32", 11, edit(func(b batch.Batch) { b.SetBaseOffset(7) }), []int16{87}},
		{"count too high", "b32", 11, edit(func(b batch.Batch) { binary.BigEndian.PutUint32(b[57:], 6) }), []int16{87}},
		{"last offset delta 9", "b32", 11, edit(func(b batch.Batch) { binary.BigEndian.PutUint32(b[23:], 9) }), []int16{87}},
		{"count 0", "b32", 11, edit(func(b batch.Batch) { binary.BigEndian.PutUint32(b[57:], 0) }), []int16{87}},
		{"control bit", "b32", 11, edit(func(b batch.Batch) { b[22] |= 0x20 }), []int16{87}},
		{"magic 0", "b32", 11, edit(func(b batch.Batch) { b[16] = 0 }), []int16{87}},
		{"magic 1", "b32", 11, edit(func(b batch.Batch) { b[16] = 1 }), []int16{87}},
		{"magic 3", "b32", 11, edit(func(b batch.Batch) { b[16] = 3 }), []int16{2}},
		{"unknown codec", "b32", 11, edit(func(b batch.Batch) { b[22] |= 5 }), []int16{-1, 2, 87}},
		{"gzip over plain bytes", "b32", 11, edit(func(b batch.Batch) { b[22] |= 1 }), []int16{-1, 2, 87}},
		{"zstd in v6", "b32", 6, values(10, 5, func(s *batch.Spec) { s.Codec, s.Level = compress.Zstd, 3 }), []int16{76}},
		{"zstd in v7", "b32", 7, values(10, 5, func(s *batch.Spec) { s.Codec, s.Level = compress.Zstd, 3 }), []int16{0}},
		{"negative record length", "b32", 11, edit(func(b batch.Batch) { b[61] = 1 }), []int16{87}},
		{"varint of 11 bytes", "b32", 11, edit(func(b batch.Batch) {
			for i := 61; i < 72; i++ {
				b[i] = 0xff
			}
		}), []int16{-1, 2, 87}},
		{"empty record set", "b32", 11, []byte{}, []int16{87}},
		{"cut short", "b32", 11, short[:len(short)-3], []int16{87}},
		{"a piece after the batch", "b32", 11, append(good(), short[:30]...), []int16{0}},
		{"too large", "small", 11, values(2000, 1), []int16{10}},
		{"log append time from a client", "b32", 11, edit(func(b batch.Batch) { b[22] |= 8 }), []int16{0}}, // asked of Kafka 4.4
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newDataKit(t)
				defer k.close()
				small := log.DefaultConfig()
				small.MaxMessageBytes = 1000
				k.config["small"] = small
				k.topic("b32", 2)
				k.topic("small", 2)
				resp := ask[*kmsg.ProduceResponse](k, k.produceHandler(), produceRequest(-1, produced{tt.topic, 0, tt.records}, produced{tt.topic, 1, values(1, 1)}), tt.version)
				bad, other := resp.Topics[0].Partitions[0], resp.Topics[0].Partitions[1]
				if !slices.Contains(tt.codes, bad.ErrorCode) {
					t.Errorf("error %d, want %v", bad.ErrorCode, tt.codes)
				}
				if other.ErrorCode != 0 || other.BaseOffset != 0 {
					t.Errorf("the other partition: error %d at %d", other.ErrorCode, other.BaseOffset)
				}
				p, _ := k.m.ByName(tt.topic, 0)
				if o := p.Offsets(); (o.LEO > 0) != (bad.ErrorCode == 0) {
					t.Errorf("error %d and end offset %d", bad.ErrorCode, o.LEO)
				}
			})
		})
	}
}

// B32: one keyless record in a batch for a compacted topic refuses the batch and is named.
func TestB32KeylessRecordIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		compact := log.DefaultConfig()
		compact.Compact, compact.Delete = true, false
		k.config["compacted"] = compact
		k.topic("compacted", 1)
		b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
		for i := range 10 {
			r := batch.NewRecord{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte("v")}
			if i == 6 {
				r.Key = nil
			}
			b.Add(r)
		}
		out, _, err := b.Build(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []int16{7, 8, 11} {
			p := k.produce(version, "compacted", 0, slices.Clone(out))
			if p.ErrorCode != 87 {
				t.Fatalf("v%d: error %d", version, p.ErrorCode)
			}
			if version < 8 {
				continue
			}
			if len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 6 || p.ErrorRecords[0].ErrorMessage == nil {
				t.Fatalf("v%d: record errors %+v", version, p.ErrorRecords)
			}
		}
		part, _ := k.m.ByName("compacted", 0)
		if o := part.Offsets(); o.LEO != 0 {
			t.Fatalf("end offset %d", o.LEO)
		}
	})
}

// B58: acks=0 is never answered, and an error closes the connection; other values of acks are refused.
func TestB58Acks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("b58", 1)
		k.topic("else", 1, 2)
		for _, tt := range []struct {
			name  string
			in    produced
			close bool
		}{
			{"stored", produced{"b58", 0, values(1, 1)}, false},
			{"wrong leader", produced{"else", 0, values(1, 1)}, true},
			{"unknown topic", produced{"nope", 0, values(1, 1)}, true},
			{"too large", produced{"b58", 0, values(2<<20, 1)}, true},
		} {
			msg := produceRequest(0, tt.in)
			msg.Version = 9
			r := k.send(k.produceHandler(), msg, "client")
			if !r.answered() || !r.drops || (r.drop != nil) != tt.close {
				t.Fatalf("%s: dropped %v with %v", tt.name, r.drops, r.drop)
			}
		}
		p, _ := k.m.ByName("b58", 0)
		synctest.Wait()
		if o := p.Offsets(); o.LEO != 1 || o.HW != 1 {
			t.Fatalf("after acks=0: %+v", o)
		}
		for _, acks := range []int16{2, -2} {
			resp := ask[*kmsg.ProduceResponse](k, k.produceHandler(), produceRequest(acks, produced{"b58", 0, values(1, 1)}, produced{"nope", 0, values(1, 1)}), 9)
			if a, b := resp.Topics[0].Partitions[0].ErrorCode, resp.Topics[1].Partitions[0].ErrorCode; a != 21 || b != 3 {
				t.Fatalf("acks %d: errors %d and %d", acks, a, b)
			}
		}
	})
}

// B23: null is everything with sizes and lag, an empty list nothing, unknown partitions are absent, bytes of the file
// system from v4.
func TestB23DescribeLogDirs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("b23", 2)
		k.topic("other", 1)
		k.mustProduce("b23", 1, values(100, 1))
		h := &describeLogDirs{images: k, dirs: k, nodeID: 1}
		named := kmsg.NewDescribeLogDirsRequestTopic()
		named.Topic, named.Partitions = "b23", []int32{1, 9}
		unknown := kmsg.NewDescribeLogDirsRequestTopic()
		unknown.Topic, unknown.Partitions = "nope", []int32{0}
		for _, tt := range []struct {
			name   string
			topics []kmsg.DescribeLogDirsRequestTopic
			want   string
		}{
			{"null", nil, "b23/0:0 b23/1:+ other/0:0 "},
			{"empty", []kmsg.DescribeLogDirsRequestTopic{}, ""},
			{"named", []kmsg.DescribeLogDirsRequestTopic{named, unknown}, "b23/1:+ "},
		} {
			for version := int16(1); version <= 5; version++ {
				msg := kmsg.NewPtrDescribeLogDirsRequest()
				msg.Topics = tt.topics
				resp := ask[*kmsg.DescribeLogDirsResponse](k, h.handle, msg, version)
				if len(resp.Dirs) != 1 || resp.Dirs[0].Dir != "/data" || resp.Dirs[0].ErrorCode != 0 {
					t.Fatalf("%s v%d: %+v", tt.name, version, resp.Dirs)
				}
				got := ""
				for _, topic := range resp.Dirs[0].Topics {
					for _, p := range topic.Partitions {
						size := "0"
						if p.Size > 100 {
							size = "+"
						}
						got += fmt.Sprintf("%s/%d:%s ", topic.Topic, p.Partition, size)
						if p.OffsetLag != 0 || p.IsFuture {
							t.Fatalf("%s v%d: %+v", tt.name, version, p)
						}
					}
				}
				if got != tt.want {
					t.Fatalf("%s v%d: %q, want %q", tt.name, version, got, tt.want)
				}
				if total := resp.Dirs[0].TotalBytes; (total > 0) != (version >= 4) {
					t.Fatalf("%s v%d: %d bytes in all", tt.name, version, total)
				}
			}
		}
	})
}

// LogDirs makes the kit a dataDirs.
func (k *dataKit) LogDirs() []replica.DirInfo { return k.m.LogDirs() }
