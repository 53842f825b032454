package wire

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// sameAsKmsg reads body with r and checks that it either declines or gives what DecodeCost and kmsg take it for.
func sameAsKmsg(t interface{ Fatalf(string, ...any) }, r *ProduceReader, version int16, body []byte) bool {
	got, ok := r.Read(version, body)
	if !ok {
		return false
	}
	if _, err := DecodeCost(keyProduce, version, body); err != nil {
		t.Fatalf("v%d % x is read, DecodeCost says %v", version, body, err)
	}
	want := kmsg.ProduceRequest{Version: version}
	if err := want.ReadFrom(body); err != nil {
		t.Fatalf("v%d % x is read, kmsg says %v", version, body, err)
	}
	if !reflect.DeepEqual(*got, want) {
		t.Fatalf("v%d % x:\n got %+v\nwant %+v", version, body, *got, want)
	}
	for i := range got.Topics {
		for j := range got.Topics[i].Partitions {
			if p := got.Topics[i].Partitions[j].Records; cap(p) != len(p) {
				t.Fatalf("appending to the records would overwrite the frame")
			}
		}
	}
	return true
}

// anyProduce draws a request; plain ones must be read.
func anyProduce(t *rapid.T, version int16) (m *kmsg.ProduceRequest, plain bool) {
	m, plain = kmsg.NewPtrProduceRequest(), true
	m.Version = version
	m.Acks, m.TimeoutMillis = rapid.Int16().Draw(t, "acks"), rapid.Int32().Draw(t, "timeout")
	if rapid.IntRange(0, 9).Draw(t, "txn") == 0 {
		m.TransactionID, plain = kmsg.StringPtr("x"), false
	}
	partitions := 0
	topics := rapid.IntRange(0, maxReadTopics+1).Draw(t, "topics")
	for range topics {
		topic := kmsg.NewProduceRequestTopic()
		if version >= firstProduceID {
			topic.TopicID[15] = rapid.Byte().Draw(t, "id")
		} else {
			topic.Topic = rapid.SampledFrom([]string{"", "a", "topic", string(make([]byte, 249)), string(make([]byte, 250))}).Draw(t, "name")
			plain = plain && len(topic.Topic) <= maxReadName
		}
		for range rapid.IntRange(0, 6).Draw(t, "partitions") {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition = rapid.Int32().Draw(t, "partition")
			p.Records = bytes.Repeat([]byte{1}, rapid.IntRange(0, 300).Draw(t, "size"))
			if rapid.IntRange(0, 19).Draw(t, "null") == 0 {
				p.Records, plain = nil, false
			}
			if version >= 9 && rapid.IntRange(0, 19).Draw(t, "tag") == 0 {
				p.UnknownTags.Set(7, []byte("t"))
				plain = false
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		plain = plain && len(topic.Partitions) > 0
		partitions += len(topic.Partitions)
		m.Topics = append(m.Topics, topic)
	}
	return m, plain && topics > 0 && topics <= maxReadTopics && partitions <= maxReadPartitions
}

// TestProduceReader reads request after request with one reader, whole ones, cut ones and damaged ones.
func TestProduceReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ProduceReader
		for range rapid.IntRange(1, 8).Draw(t, "requests") {
			version := int16(rapid.IntRange(firstProduce, 13).Draw(t, "version"))
			m, plain := anyProduce(t, version)
			body := m.AppendTo(nil)
			if got := sameAsKmsg(t, &r, version, body); got != plain {
				t.Fatalf("read: %v, want %v: %+v", got, plain, m)
			}
			sameAsKmsg(t, &r, version, append(body, 1, 2)) // bytes after the request are legal
			sameAsKmsg(t, &r, version, body[:rapid.IntRange(0, len(body)).Draw(t, "cut")])
			body[rapid.IntRange(0, len(body)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			sameAsKmsg(t, &r, version, body)
		}
	})
}

func FuzzProduceReader(f *testing.F) {
	m := kmsg.NewPtrProduceRequest()
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	topic.Partitions = []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: []byte("records")}}
	m.Topics = append(m.Topics, topic)
	for v := int16(firstProduce); v <= 13; v++ {
		m.Version = v
		f.Add(v, m.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		sameAsKmsg(t, &ProduceReader{}, version, body)
	})
}

func TestProduceReaderAllocatesNothing(t *testing.T) {
	m := kmsg.NewPtrProduceRequest()
	m.Version = 12
	for _, name := range []string{"one", "two"} {
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic = name
		topic.Partitions = []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: make([]byte, 1000)}, {Partition: 2, Records: make([]byte, 10)}}
		m.Topics = append(m.Topics, topic)
	}
	body := m.AppendTo(nil)
	var r ProduceReader
	if n := testing.AllocsPerRun(100, func() { r.Read(12, body) }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// BenchmarkProduceDecode compares the reader with pricing and decoding by kmsg.
func BenchmarkProduceDecode(b *testing.B) {
	m := kmsg.NewPtrProduceRequest()
	m.Version = 12
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "events"
	topic.Partitions = []kmsg.ProduceRequestTopicPartition{{Partition: 1, Records: make([]byte, 1000)}}
	m.Topics = append(m.Topics, topic)
	body := m.AppendTo(nil)
	b.Run("reader", func(b *testing.B) {
		var r ProduceReader
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := r.Read(12, body); !ok {
				b.Fatal("declined")
			}
		}
	})
	b.Run("kmsg", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeCost(keyProduce, 12, body); err != nil {
				b.Fatal(err)
			}
			got := kmsg.NewPtrProduceRequest()
			got.Version = 12
			if err := got.ReadFrom(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
