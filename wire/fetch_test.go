package wire

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// fakeFile is a Source in memory.
type fakeFile struct{ *bytes.Reader }

func (fakeFile) SysFile() (*os.File, bool) { return nil, false }

// genFetch draws a response, once as EncodeFetch takes it and once as kmsg does. done counts calls of Done.
func genFetch(t *rapid.T, done *int) (*FetchResponse, *kmsg.FetchResponse) {
	i32 := rapid.Int32Range(-1, 1<<30)
	off := rapid.Int64Range(-1, 1<<60)
	k := kmsg.NewPtrFetchResponse()
	k.ThrottleMillis, k.ErrorCode = i32.Draw(t, "throttle"), int16(rapid.IntRange(0, 130).Draw(t, "error"))
	k.SessionID = i32.Draw(t, "session")
	resp := &FetchResponse{ThrottleMillis: k.ThrottleMillis, ErrorCode: k.ErrorCode, SessionID: k.SessionID}
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic = rapid.StringN(0, 200, 300).Draw(t, "topic")
		copy(kt.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		topic := FetchTopic{Name: kt.Topic, ID: kt.TopicID}
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			p, kp := genFetchPartition(t, done, i32, off)
			topic.Partitions, kt.Partitions = append(topic.Partitions, p), append(kt.Partitions, kp)
		}
		resp.Topics, k.Topics = append(resp.Topics, topic), append(k.Topics, kt)
	}
	for range rapid.IntRange(0, 3).Draw(t, "brokers") {
		kb := kmsg.NewFetchResponseBroker()
		kb.NodeID, kb.Port = i32.Draw(t, "node"), i32.Draw(t, "port")
		kb.Host = rapid.StringN(0, 200, 300).Draw(t, "host")
		kb.Rack = rapid.Ptr(rapid.StringN(0, 200, 300), true).Draw(t, "rack")
		resp.NodeEndpoints = append(resp.NodeEndpoints,
			NodeEndpoint{ID: BrokerID(kb.NodeID), Host: kb.Host, Port: kb.Port, Rack: kb.Rack})
		k.Brokers = append(k.Brokers, kb)
	}
	return resp, k
}

func genFetchPartition(t *rapid.T, done *int, i32 *rapid.Generator[int32], off *rapid.Generator[int64]) (
	FetchPartition, kmsg.FetchResponseTopicPartition,
) {
	kp := kmsg.NewFetchResponseTopicPartition()
	kp.Partition, kp.ErrorCode = i32.Draw(t, "partition"), int16(rapid.IntRange(0, 130).Draw(t, "error"))
	kp.HighWatermark, kp.LastStableOffset = off.Draw(t, "hw"), off.Draw(t, "lso")
	kp.LogStartOffset, kp.PreferredReadReplica = off.Draw(t, "start"), i32.Draw(t, "replica")
	p := FetchPartition{
		Partition: PartitionID(kp.Partition), ErrorCode: kp.ErrorCode, HighWatermark: Offset(kp.HighWatermark),
		LastStableOffset: Offset(kp.LastStableOffset), LogStartOffset: Offset(kp.LogStartOffset),
		PreferredReadReplica: BrokerID(kp.PreferredReadReplica),
	}
	if rapid.Bool().Draw(t, "diverging") {
		kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset = i32.Draw(t, "epoch"), off.Draw(t, "end")
		p.DivergingEpoch = &EpochEndOffset{LeaderEpoch(kp.DivergingEpoch.Epoch), Offset(kp.DivergingEpoch.EndOffset)}
	}
	if rapid.Bool().Draw(t, "leader") {
		kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = i32.Draw(t, "leader"), i32.Draw(t, "epoch")
		p.CurrentLeader = &LeaderAndEpoch{BrokerID(kp.CurrentLeader.LeaderID), LeaderEpoch(kp.CurrentLeader.LeaderEpoch)}
	}
	if rapid.Bool().Draw(t, "snapshot") {
		kp.SnapshotID.Epoch, kp.SnapshotID.EndOffset = i32.Draw(t, "epoch"), off.Draw(t, "end")
		p.SnapshotID = &EpochEndOffset{LeaderEpoch(kp.SnapshotID.Epoch), Offset(kp.SnapshotID.EndOffset)}
	}
	if rapid.Bool().Draw(t, "read committed") {
		p.Aborted = []AbortedTransaction{}
		kp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
		for range rapid.IntRange(0, 3).Draw(t, "aborted") {
			a := AbortedTransaction{ProducerID(off.Draw(t, "producer")), Offset(off.Draw(t, "first"))}
			ka := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			ka.ProducerID, ka.FirstOffset = int64(a.ProducerID), int64(a.FirstOffset)
			p.Aborted, kp.AbortedTransactions = append(p.Aborted, a), append(kp.AbortedTransactions, ka)
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "null records") == 0 {
		p.NullRecords = true
		return p, kp
	}
	kp.RecordBatches = []byte{}
	for range rapid.IntRange(0, 3).Draw(t, "segments") {
		b := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "records")
		s := Segment{Bytes: b, Done: func() { *done++ }}
		if rapid.Bool().Draw(t, "file") {
			pad := rapid.IntRange(0, 10).Draw(t, "offset")
			file := append(make([]byte, pad), b...)
			s = Segment{File: fakeFile{bytes.NewReader(file)}, Off: int64(pad), Len: int64(len(b)), Done: s.Done}
		}
		p.Records = append(p.Records, s)
		kp.RecordBatches = append(kp.RecordBatches, b...)
	}
	return p, kp
}

// What the segments send is what kmsg writes, at every version, and every Done is called exactly once.
func TestEncodeFetch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		done, pieces := 0, 0
		resp, k := genFetch(t, &done)
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				pieces += len(resp.Topics[i].Partitions[j].Records)
			}
		}
		k.Version = int16(rapid.IntRange(int(FetchMinVersion), int(FetchMaxVersion)).Draw(t, "version"))
		if k.Version < 16 {
			k.Brokers = nil // kmsg writes them from v12 on, Kafka's schema has them from v16 on
		}
		segs := EncodeFetch(resp, k.Version)
		if got, want := flatten(t, segs), k.AppendTo(nil); !bytes.Equal(got, want) {
			t.Fatalf("v%d\n%x, want\n%x", k.Version, got, want)
		}
		Release(segs)
		if done != pieces {
			t.Fatalf("%d of %d segments released", done, pieces)
		}
	})
}

// flatten gives the bytes that the segments send.
func flatten(t *rapid.T, segs []Segment) []byte {
	var out []byte
	for i, s := range segs {
		if s.Size() == 0 {
			t.Fatalf("segment %d is empty", i)
		}
		b := s.Bytes
		if s.File != nil {
			b = make([]byte, s.Len)
			if _, err := s.File.ReadAt(b, s.Off); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, b...)
	}
	return out
}

// Not parallel: it counts allocations. One buffer and one slice of segments, however many partitions.
func TestEncodeFetchAllocations(t *testing.T) {
	for _, n := range []int{1, 100} {
		resp := benchFetch(n)
		if allocs := testing.AllocsPerRun(50, func() { EncodeFetch(resp, 13) }); allocs != 2 {
			t.Errorf("%d partitions: %v allocations", n, allocs)
		}
	}
}

func benchFetch(n int) *FetchResponse {
	r := rand.New(rand.NewPCG(1, 1))
	file := fakeFile{bytes.NewReader(make([]byte, 1<<16))}
	topic := FetchTopic{Name: "topic"}
	for i := range n {
		topic.Partitions = append(topic.Partitions, FetchPartition{
			Partition: PartitionID(i), HighWatermark: Offset(r.Int64()), PreferredReadReplica: NoBroker,
			Aborted: []AbortedTransaction{}, Records: []Segment{{File: file, Len: 1 << 16}},
		})
	}
	return &FetchResponse{Topics: []FetchTopic{topic}}
}

func BenchmarkEncodeFetch(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", n), func(b *testing.B) {
			resp := benchFetch(n)
			b.ReportAllocs()
			for b.Loop() {
				EncodeFetch(resp, 13)
			}
		})
	}
}
