package wire

import (
	"encoding/binary"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyProduce = 0
	// firstProduce is the first version whose layout ProduceReader knows: it has the transactional id.
	firstProduce = 3
	// firstProduceID is the first version with topic ids instead of names (KIP-516).
	firstProduceID = 13

	// Bounds of what a ProduceReader keeps.
	maxReadTopics     = 8
	maxReadPartitions = 32
	maxReadName       = 249 // bytes; Kafka's longest topic name
)

// ProduceReader decodes the Produce requests of one connection into memory that it keeps, which is a few KiB at most: the
// usual request allocates nothing. What it does not know it leaves to kmsg. The zero value is ready.
type ProduceReader struct {
	msg        kmsg.ProduceRequest
	topics     []kmsg.ProduceRequestTopic
	partitions []kmsg.ProduceRequestTopicPartition
}

// Read decodes body to what kmsg makes of it. It is false for everything but the usual request: it declines what
// DecodeCost refuses, what belongs to a transaction, unknown tags, nulls, no topic or partition at all, and more than it
// keeps room for. The message is valid until the next call of Read or Forget; records alias body, topic names do not.
func (r *ProduceReader) Read(version int16, body []byte) (*kmsg.ProduceRequest, bool) {
	l := layoutOf(keyProduce)
	if version < firstProduce || version > l.max {
		return nil, false
	}
	w := walker{src: body, version: version, flex: version >= l.flex}
	r.partitions = r.partitions[:0]
	r.msg = kmsg.ProduceRequest{Version: version}
	if !w.absent() {
		return nil, false
	}
	if len(w.src) < 6 {
		return nil, false
	}
	r.msg.Acks = int16(binary.BigEndian.Uint16(w.src))
	r.msg.TimeoutMillis = int32(binary.BigEndian.Uint32(w.src[2:]))
	w.src = w.src[6:]
	n, err := w.length()
	if err != nil || n < 1 || n > maxReadTopics {
		return nil, false
	}
	for len(r.topics) < int(n) {
		r.topics = append(r.topics, kmsg.ProduceRequestTopic{})
	}
	for i := range n {
		if !r.topic(&w, &r.topics[i]) {
			return nil, false
		}
	}
	if !w.noTags() {
		return nil, false
	}
	// The partitions may have moved while they were appended: only now their places are final.
	at := 0
	for i := range r.topics[:n] {
		t := &r.topics[i]
		count := len(t.Partitions)
		t.Partitions = r.partitions[at : at+count : at+count]
		at += count
	}
	r.msg.Topics = r.topics[:n:n]
	return &r.msg, true
}

// Forget lets go of the body of the last Read, and ends its message.
func (r *ProduceReader) Forget() {
	clear(r.partitions)
	r.partitions = r.partitions[:0]
	for i := range r.topics {
		r.topics[i].Partitions = nil
	}
}

// topic reads one topic; of its partitions only the number is right yet.
func (r *ProduceReader) topic(w *walker, t *kmsg.ProduceRequestTopic) bool {
	if w.version >= firstProduceID {
		if len(w.src) < len(t.TopicID) {
			return false
		}
		t.Topic = ""
		w.src = w.src[copy(t.TopicID[:], w.src):]
	} else if !r.name(w, t) {
		return false
	}
	n, err := w.length()
	if err != nil || n < 1 || n > int64(maxReadPartitions-len(r.partitions)) {
		return false
	}
	first := len(r.partitions)
	for range n {
		if len(w.src) < 4 {
			return false
		}
		p := kmsg.ProduceRequestTopicPartition{Partition: int32(binary.BigEndian.Uint32(w.src))}
		w.src = w.src[4:]
		size, err := w.length()
		if err != nil || size < 0 || size > int64(len(w.src)) {
			return false
		}
		p.Records = w.src[:size:size]
		w.src = w.src[size:]
		if !w.noTags() {
			return false
		}
		r.partitions = append(r.partitions, p)
	}
	t.Partitions = r.partitions[first:]
	return w.noTags()
}

// name reads a topic's name. One that was there the last time is not made again.
func (r *ProduceReader) name(w *walker, t *kmsg.ProduceRequestTopic) bool {
	n, ok := w.stringLength()
	if !ok || n < 0 || n > maxReadName || n > len(w.src) {
		return false
	}
	t.TopicID = [16]byte{}
	if string(w.src[:n]) != t.Topic {
		t.Topic = string(w.src[:n])
	}
	w.src = w.src[n:]
	return true
}

// absent reads a nullable string and says whether it is null.
func (w *walker) absent() bool {
	n, ok := w.stringLength()
	return ok && n < 0
}

// stringLength reads the length of a string, negative for null.
func (w *walker) stringLength() (int, bool) {
	if w.flex {
		u, err := w.uvarint()
		return int(int32(u - 1)), err == nil
	}
	v, ok := w.int16()
	return int(v), ok
}

// noTags reads a tag section, where there is one, and says whether it is empty.
func (w *walker) noTags() bool {
	if !w.flex {
		return true
	}
	n, err := w.uvarint()
	return err == nil && n == 0
}
