package wire

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// Identifier types. They exist so that things which are all "an int32" on the wire cannot be mixed up in the code; the
// conversion to and from a kmsg field is always written out.
type (
	// Offset is the position of a record in a partition's log. A field or variable named End, LEO, HW or LSO is
	// exclusive; every other Offset is inclusive.
	Offset int64
	// PartitionID is the index of a partition within its topic, from 0.
	PartitionID int32
	// BrokerID is a node id. NoBroker stands for none.
	BrokerID int32
	// BrokerEpoch is the registration of one incarnation of a broker; it only grows.
	BrokerEpoch int64
	// LeaderEpoch grows with every leader change of a partition. NoLeaderEpoch stands for none.
	LeaderEpoch int32
	// PartitionEpoch grows with every change of a partition's metadata.
	PartitionEpoch int32
	// ControllerEpoch grows with every claim of the controller role.
	ControllerEpoch int32
	// ProducerID identifies an idempotent or transactional producer. NoProducer stands for none.
	ProducerID int64
	// ProducerEpoch fences older instances of a producer.
	ProducerEpoch int16
	// UUID is a topic id, directory id or incarnation id: 16 raw bytes on the wire.
	UUID [16]byte
)

// The "none" values, as they stand on the wire.
const (
	NoOffset      Offset        = -1
	NoBroker      BrokerID      = -1
	NoBrokerEpoch BrokerEpoch   = -1
	NoLeaderEpoch LeaderEpoch   = -1
	NoProducer    ProducerID    = -1
	NoSequence    int32         = -1
	NoTimestamp   int64         = -1 // milliseconds since the Unix epoch
	NoEpoch       ProducerEpoch = -1
)

// ZeroUUID means "no id". UUIDs 0 and 1 are reserved and never given to a topic.
var ZeroUUID UUID

// IsZero reports whether u is the reserved all-zero id.
func (u UUID) IsZero() bool { return u == ZeroUUID }

// String is Kafka's text form: URL-safe base64 without padding, 22 characters.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// Hex is the 32-digit form used in directory names.
func (u UUID) Hex() string { return hex.EncodeToString(u[:]) }

// ParseUUID reads the 22-character form that String writes.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("%q is not a Kafka uuid: want 22 characters of URL-safe base64", s)
	}
	copy(u[:], b)
	return u, nil
}

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition PartitionID
}

// String is the form used in directory names and logs: topic-partition.
func (tp TopicPartition) String() string { return fmt.Sprintf("%s-%d", tp.Topic, tp.Partition) }
