package wire

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tagged fields that kaja's nodes add to Kafka's messages between themselves. Kafka's own are numbered from 0.
const (
	// TagGoneTopics in BrokerHeartbeat: the ids of deleted topics of which the broker holds nothing any more, 16 bytes each.
	TagGoneTopics uint32 = 1000
	// tagLogEpoch in a partition of AlterPartition: the newest leader epoch in its leader's log, 4 bytes.
	tagLogEpoch uint32 = 1000
	// tagOffset in the response to an Envelope or a BrokerHeartbeat: up to where the metadata has got with the answer, 8 bytes.
	tagOffset uint32 = 1000
	// tagSince in the response to a BrokerHeartbeat: how many nanoseconds ago the controller asked what made sure that it leads, 8 bytes.
	tagSince uint32 = 1001
)

// AppendUUIDs appends ids one after the other.
func AppendUUIDs(dst []byte, ids []UUID) []byte {
	for _, id := range ids {
		dst = append(dst, id[:]...)
	}
	return dst
}

// ParseUUIDs reads what AppendUUIDs wrote; nil if it is no such thing.
func ParseUUIDs(b []byte) []UUID {
	if len(b)%len(UUID{}) != 0 {
		return nil
	}
	var ids []UUID
	for ; len(b) > 0; b = b[len(UUID{}):] {
		ids = append(ids, UUID(b[:len(UUID{})]))
	}
	return ids
}

// Tag finds a tagged field. The bytes are the message's.
func Tag(tags *kmsg.Tags, tag uint32) (value []byte, ok bool) {
	tags.Each(func(t uint32, v []byte) {
		if t == tag {
			value, ok = v, true
		}
	})
	return value, ok
}

// SetOffsetTag notes a metadata offset in the response to an Envelope or a BrokerHeartbeat.
func SetOffsetTag(tags *kmsg.Tags, offset Offset) {
	tags.Set(tagOffset, binary.BigEndian.AppendUint64(nil, uint64(offset)))
}

// OffsetTag reads what SetOffsetTag noted; false without it.
func OffsetTag(tags *kmsg.Tags) (Offset, bool) {
	b, ok := Tag(tags, tagOffset)
	if !ok || len(b) != 8 {
		return NoOffset, false
	}
	return Offset(binary.BigEndian.Uint64(b)), true
}

// SetSinceTag notes in the response to a BrokerHeartbeat how long ago the controller made sure that it leads.
func SetSinceTag(tags *kmsg.Tags, d time.Duration) {
	tags.Set(tagSince, binary.BigEndian.AppendUint64(nil, uint64(d)))
}

// SinceTag reads what SetSinceTag noted; 0 without it.
func SinceTag(tags *kmsg.Tags) time.Duration {
	b, ok := Tag(tags, tagSince)
	if !ok || len(b) != 8 {
		return 0
	}
	return max(0, time.Duration(binary.BigEndian.Uint64(b)))
}

// MaxLogEpoch is the largest leader epoch in a log above which a leadership is begun. A later one comes of damage, against which
// neither the checkpoint nor a batch's epoch has a checksum, and elections would soon count beyond the last epoch there is.
const MaxLogEpoch LeaderEpoch = 1 << 30

// SetLogEpochTag notes in a partition of AlterPartition that its leader's log holds a leader epoch.
func SetLogEpochTag(tags *kmsg.Tags, epoch LeaderEpoch) {
	tags.Set(tagLogEpoch, binary.BigEndian.AppendUint32(nil, uint32(epoch)))
}

// LogEpochTag reads what SetLogEpochTag noted; NoLeaderEpoch without it.
func LogEpochTag(tags *kmsg.Tags) LeaderEpoch {
	b, ok := Tag(tags, tagLogEpoch)
	if !ok || len(b) != 4 {
		return NoLeaderEpoch
	}
	return LeaderEpoch(binary.BigEndian.Uint32(b))
}

// AppendPrincipal appends a principal as an Envelope carries it: Kafka's DefaultPrincipalData version 0, without a token.
func AppendPrincipal(dst []byte, kind, name string) []byte {
	dst = append(dst, 0, 0) // version
	for _, s := range []string{kind, name} {
		dst = binary.AppendUvarint(dst, uint64(len(s)+1))
		dst = append(dst, s...)
	}
	return append(dst, 0, 0) // no token; no tagged fields
}

// ParsePrincipal reads what AppendPrincipal wrote.
func ParsePrincipal(b []byte) (kind, name string, err error) {
	if len(b) < 2 || b[0] != 0 || b[1] != 0 {
		return "", "", fmt.Errorf("%w: principal", ErrMalformed)
	}
	b = b[2:]
	for _, s := range []*string{&kind, &name} {
		n, size := binary.Uvarint(b)
		if size <= 0 || n == 0 || n-1 > uint64(len(b)-size) {
			return "", "", fmt.Errorf("%w: principal", ErrMalformed)
		}
		*s = string(b[size : size+int(n-1)])
		b = b[size+int(n-1):]
	}
	return kind, name, nil
}

// CutResponseHeader gives the body of a response: what stands behind the header that AppendResponseHeader writes.
func CutResponseHeader(b []byte, key, version int16) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: response header", ErrMalformed)
	}
	w := walker{src: b[4:]}
	if key != KeyApiVersions && Flexible(key, version) {
		if err := w.tags(nil); err != nil {
			return nil, err
		}
	}
	return w.src, nil
}
