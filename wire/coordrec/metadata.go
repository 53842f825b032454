package coordrec

import (
	"errors"
	"fmt"

	"github.com/kajamq/kaja/wire"
)

// MetadataRecord is one record of the metadata log: Kafka's, or one of kaja's own from number 1000 up. The types that
// implement it are the pointers to the …Record structs of this package.
type MetadataRecord interface {
	// metadataType is Kafka's record type and the version that is written, which is also the highest that is read.
	metadataType() (typ, version int16)
	fields(c *coder)
}

// Record types that kaja adds to Kafka's.
const (
	typeClaimController  = 1000
	typeReplicasRemoved  = 1001
	typeBrokerEpochs     = 1002
	typeRemovedTopic     = 1003
	typeNode             = 1004
	typeNodeRemoved      = 1005
	metadataFrameVersion = 1
)

// UnknownRecordError says that a metadata record is of a type or version that this release does not know. A node that
// meets one must not go on.
type UnknownRecordError struct {
	Type, Version int
}

func (e *UnknownRecordError) Error() string {
	return fmt.Sprintf("metadata record of type %d version %d is not known to this release", e.Type, e.Version)
}

// ErrMalformedRecord is wrapped by every error about a record whose bytes do not fit its schema.
var ErrMalformedRecord = errors.New("malformed metadata record")

// AppendMetadata appends r in the envelope that Kafka uses (frame version, type and version as uvarints, then the body
// in flexible encoding), as it stands in a record's value.
func AppendMetadata(dst []byte, r MetadataRecord) []byte {
	typ, version := r.metadataType()
	c := coder{encoding: true, version: version, dst: dst}
	c.uvarint(metadataFrameVersion)
	c.uvarint(uint32(typ))
	c.uvarint(uint32(version))
	r.fields(&c)
	return c.dst
}

// DecodeMetadata reads what AppendMetadata writes, and every older version of it. The record shares nothing with b.
// It returns *UnknownRecordError for types and versions of later releases, else errors that wrap ErrMalformedRecord.
func DecodeMetadata(b []byte) (MetadataRecord, error) {
	c := coder{}
	c.r.Src = b
	frame, typ, version := c.r.Uvarint(), c.r.Uvarint(), c.r.Uvarint()
	if !c.r.Ok() {
		return nil, fmt.Errorf("%w: envelope is cut short", ErrMalformedRecord)
	}
	if frame != metadataFrameVersion {
		return nil, fmt.Errorf("%w: frame version %d, want %d", ErrMalformedRecord, frame, metadataFrameVersion)
	}
	r := newMetadataRecord(typ)
	if r == nil {
		return nil, &UnknownRecordError{Type: int(typ), Version: int(version)}
	}
	if _, highest := r.metadataType(); version > uint32(highest) {
		return nil, &UnknownRecordError{Type: int(typ), Version: int(version)}
	}
	c.version = int16(version)
	r.fields(&c)
	if c.err == nil && !c.r.Ok() {
		c.err = errors.New("cut short")
	}
	if c.err == nil && len(c.r.Src) != 0 {
		c.err = fmt.Errorf("%d bytes left over", len(c.r.Src))
	}
	if c.err != nil {
		return nil, fmt.Errorf("%w: type %d version %d: %w", ErrMalformedRecord, typ, version, c.err)
	}
	return r, nil
}

func newMetadataRecord(typ uint32) MetadataRecord {
	switch typ {
	case 0:
		return &RegisterBrokerRecord{}
	case 1:
		return &UnregisterBrokerRecord{}
	case 2:
		return &TopicRecord{}
	case 3:
		return &PartitionRecord{}
	case 4:
		return &ConfigRecord{}
	case 5:
		return &PartitionChangeRecord{}
	case 7:
		return &FenceBrokerRecord{}
	case 8:
		return &UnfenceBrokerRecord{}
	case 9:
		return &RemoveTopicRecord{}
	case 12:
		return &FeatureLevelRecord{}
	case 15:
		return &ProducerIDsRecord{}
	case 17:
		return &BrokerRegistrationChangeRecord{}
	case 20:
		return &NoOpRecord{}
	case 27:
		return &RegisterControllerRecord{}
	case 28:
		return &ClearELRRecord{}
	case typeClaimController:
		return &ClaimControllerRecord{}
	case typeReplicasRemoved:
		return &ReplicasRemovedRecord{}
	case typeBrokerEpochs:
		return &BrokerEpochsRecord{}
	case typeRemovedTopic:
		return &RemovedTopicRecord{}
	case typeNode:
		return &NodeRecord{}
	case typeNodeRemoved:
		return &NodeRemovedRecord{}
	}
	return nil
}

// BrokerEndpoint is one listener of a registration.
type BrokerEndpoint struct {
	Name     string
	Host     string
	Port     uint16
	Protocol int16
}

// BrokerFeature is the range of one feature that a broker supports.
type BrokerFeature struct {
	Name     string
	Min, Max int16
}

// RegisterBrokerRecord (type 0) replaces whatever was registered under the id.
type RegisterBrokerRecord struct {
	BrokerID             wire.BrokerID
	IsMigratingZkBroker  bool
	IncarnationID        wire.UUID
	BrokerEpoch          wire.BrokerEpoch
	EndPoints            []BrokerEndpoint
	Features             []BrokerFeature
	Rack                 *string
	Fenced               bool
	InControlledShutdown bool
	LogDirs              []wire.UUID
	CordonedLogDirs      []wire.UUID // nil: none told
}

func (*RegisterBrokerRecord) metadataType() (int16, int16) { return 0, 4 }

func (r *RegisterBrokerRecord) fields(c *coder) {
	i32(c, &r.BrokerID)
	if c.version >= 2 {
		c.bool(&r.IsMigratingZkBroker)
	}
	c.uuid(&r.IncarnationID)
	i64(c, &r.BrokerEpoch)
	endpoints(c, &r.EndPoints)
	features(c, &r.Features)
	c.nullableString(&r.Rack)
	c.bool(&r.Fenced)
	if c.version >= 1 {
		c.bool(&r.InControlledShutdown)
	}
	c.tags(
		tag{0, 3, len(r.LogDirs) > 0, func() { uuids(c, &r.LogDirs) }},
		tag{1, 4, r.CordonedLogDirs != nil, func() { nullableUUIDs(c, &r.CordonedLogDirs) }},
	)
}

// UnregisterBrokerRecord (type 1) forgets a broker.
type UnregisterBrokerRecord struct {
	BrokerID    wire.BrokerID
	BrokerEpoch wire.BrokerEpoch
}

func (*UnregisterBrokerRecord) metadataType() (int16, int16) { return 1, 0 }

func (r *UnregisterBrokerRecord) fields(c *coder) {
	i32(c, &r.BrokerID)
	i64(c, &r.BrokerEpoch)
	c.tags()
}

// TopicRecord (type 2) makes a topic; its partitions follow as records of their own.
type TopicRecord struct {
	Name    string
	TopicID wire.UUID
}

func (*TopicRecord) metadataType() (int16, int16) { return 2, 0 }

func (r *TopicRecord) fields(c *coder) {
	c.string(&r.Name)
	c.uuid(&r.TopicID)
	c.tags()
}

// PartitionRecord (type 3) makes a partition, or replaces it whole.
type PartitionRecord struct {
	PartitionID            wire.PartitionID
	TopicID                wire.UUID
	Replicas               []wire.BrokerID
	ISR                    []wire.BrokerID
	RemovingReplicas       []wire.BrokerID
	AddingReplicas         []wire.BrokerID
	Leader                 wire.BrokerID
	LeaderRecoveryState    int8 // 0 recovered, 1 recovering
	LeaderEpoch            wire.LeaderEpoch
	PartitionEpoch         wire.PartitionEpoch
	Directories            []wire.UUID
	EligibleLeaderReplicas []wire.BrokerID // nil and empty mean the same
	LastKnownELR           []wire.BrokerID // nil and empty mean the same
}

func (*PartitionRecord) metadataType() (int16, int16) { return 3, 2 }

func (r *PartitionRecord) fields(c *coder) {
	i32(c, &r.PartitionID)
	c.uuid(&r.TopicID)
	i32s(c, &r.Replicas)
	i32s(c, &r.ISR)
	i32s(c, &r.RemovingReplicas)
	i32s(c, &r.AddingReplicas)
	i32(c, &r.Leader)
	i32(c, &r.LeaderEpoch)
	i32(c, &r.PartitionEpoch)
	if c.version >= 1 {
		uuids(c, &r.Directories)
	}
	c.tags(
		tag{0, 0, r.LeaderRecoveryState != 0, func() { c.int8(&r.LeaderRecoveryState) }},
		tag{1, 2, len(r.EligibleLeaderReplicas) > 0, func() { nullableI32s(c, &r.EligibleLeaderReplicas) }},
		tag{2, 2, len(r.LastKnownELR) > 0, func() { nullableI32s(c, &r.LastKnownELR) }},
	)
}

// NoLeaderChange is the Leader of a PartitionChangeRecord that leaves the leader, and with it the leader epoch, as it is.
const NoLeaderChange wire.BrokerID = -2

// NoRecoveryChange is the LeaderRecoveryState of a PartitionChangeRecord that leaves it as it is.
const NoRecoveryChange int8 = -1

// PartitionChangeRecord (type 5) changes what is not nil (or not one of the "no change" values). Every change raises
// the partition epoch by one; one that names a leader raises the leader epoch by one, too.
type PartitionChangeRecord struct {
	PartitionID            wire.PartitionID
	TopicID                wire.UUID
	ISR                    []wire.BrokerID
	Leader                 wire.BrokerID
	Replicas               []wire.BrokerID
	RemovingReplicas       []wire.BrokerID
	AddingReplicas         []wire.BrokerID
	LeaderRecoveryState    int8
	Directories            []wire.UUID
	EligibleLeaderReplicas []wire.BrokerID
	LastKnownELR           []wire.BrokerID
}

func (*PartitionChangeRecord) metadataType() (int16, int16) { return 5, 2 }

func (r *PartitionChangeRecord) fields(c *coder) {
	if !c.encoding {
		r.Leader, r.LeaderRecoveryState = NoLeaderChange, NoRecoveryChange
	}
	i32(c, &r.PartitionID)
	c.uuid(&r.TopicID)
	c.tags(
		tag{0, 0, r.ISR != nil, func() { nullableI32s(c, &r.ISR) }},
		tag{1, 0, r.Leader != NoLeaderChange, func() { i32(c, &r.Leader) }},
		tag{2, 0, r.Replicas != nil, func() { nullableI32s(c, &r.Replicas) }},
		tag{3, 0, r.RemovingReplicas != nil, func() { nullableI32s(c, &r.RemovingReplicas) }},
		tag{4, 0, r.AddingReplicas != nil, func() { nullableI32s(c, &r.AddingReplicas) }},
		tag{5, 0, r.LeaderRecoveryState != NoRecoveryChange, func() { c.int8(&r.LeaderRecoveryState) }},
		tag{6, 2, r.EligibleLeaderReplicas != nil, func() { nullableI32s(c, &r.EligibleLeaderReplicas) }},
		tag{7, 2, r.LastKnownELR != nil, func() { nullableI32s(c, &r.LastKnownELR) }},
		tag{8, 1, r.Directories != nil, func() { nullableUUIDs(c, &r.Directories) }},
	)
}

// ConfigRecord (type 4) sets one config of a resource, or removes it when Value is nil.
type ConfigRecord struct {
	ResourceType int8
	ResourceName string
	Name         string
	Value        *string
}

func (*ConfigRecord) metadataType() (int16, int16) { return 4, 0 }

func (r *ConfigRecord) fields(c *coder) {
	c.int8(&r.ResourceType)
	c.string(&r.ResourceName)
	c.string(&r.Name)
	c.nullableString(&r.Value)
	c.tags()
}

// FenceBrokerRecord (type 7) is read for old logs; a BrokerRegistrationChangeRecord is written instead.
type FenceBrokerRecord struct {
	ID    wire.BrokerID
	Epoch wire.BrokerEpoch
}

func (*FenceBrokerRecord) metadataType() (int16, int16) { return 7, 0 }

func (r *FenceBrokerRecord) fields(c *coder) {
	i32(c, &r.ID)
	i64(c, &r.Epoch)
	c.tags()
}

// UnfenceBrokerRecord (type 8) is read for old logs; a BrokerRegistrationChangeRecord is written instead.
type UnfenceBrokerRecord struct {
	ID    wire.BrokerID
	Epoch wire.BrokerEpoch
}

func (*UnfenceBrokerRecord) metadataType() (int16, int16) { return 8, 0 }

func (r *UnfenceBrokerRecord) fields(c *coder) {
	i32(c, &r.ID)
	i64(c, &r.Epoch)
	c.tags()
}

// RemoveTopicRecord (type 9) removes a topic with its partitions and configs.
type RemoveTopicRecord struct {
	TopicID wire.UUID
}

func (*RemoveTopicRecord) metadataType() (int16, int16) { return 9, 0 }

func (r *RemoveTopicRecord) fields(c *coder) {
	c.uuid(&r.TopicID)
	c.tags()
}

// FeatureLevelRecord (type 12) finalises a feature; level 0 removes it.
type FeatureLevelRecord struct {
	Name  string
	Level int16
}

func (*FeatureLevelRecord) metadataType() (int16, int16) { return 12, 0 }

func (r *FeatureLevelRecord) fields(c *coder) {
	c.string(&r.Name)
	c.int16(&r.Level)
	c.tags()
}

// ProducerIDsRecord (type 15) says that every producer id below NextProducerID is in some broker's block.
type ProducerIDsRecord struct {
	BrokerID       wire.BrokerID
	BrokerEpoch    wire.BrokerEpoch
	NextProducerID wire.ProducerID
}

func (*ProducerIDsRecord) metadataType() (int16, int16) { return 15, 0 }

func (r *ProducerIDsRecord) fields(c *coder) {
	i32(c, &r.BrokerID)
	i64(c, &r.BrokerEpoch)
	i64(c, &r.NextProducerID)
	c.tags()
}

// BrokerRegistrationChangeRecord (type 17) changes what is not zero (or nil) of a registration.
type BrokerRegistrationChangeRecord struct {
	BrokerID             wire.BrokerID
	BrokerEpoch          wire.BrokerEpoch
	Fenced               int8 // -1 unfenced, 1 fenced
	InControlledShutdown int8 // 1 begun
	LogDirs              []wire.UUID
	CordonedLogDirs      []wire.UUID
}

func (*BrokerRegistrationChangeRecord) metadataType() (int16, int16) { return 17, 3 }

func (r *BrokerRegistrationChangeRecord) fields(c *coder) {
	i32(c, &r.BrokerID)
	i64(c, &r.BrokerEpoch)
	c.tags(
		tag{0, 0, r.Fenced != 0, func() { c.int8(&r.Fenced) }},
		tag{1, 1, r.InControlledShutdown != 0, func() { c.int8(&r.InControlledShutdown) }},
		tag{2, 2, len(r.LogDirs) > 0, func() { uuids(c, &r.LogDirs) }},
		tag{3, 3, r.CordonedLogDirs != nil, func() { nullableUUIDs(c, &r.CordonedLogDirs) }},
	)
}

// NoOpRecord (type 20) changes nothing.
type NoOpRecord struct{}

func (*NoOpRecord) metadataType() (int16, int16) { return 20, 0 }

func (*NoOpRecord) fields(c *coder) { c.tags() }

// ClaimControllerRecord (kaja, type 1000) is the first entry of a controller: from here on only entries of this epoch
// count.
type ClaimControllerRecord struct {
	Epoch  wire.ControllerEpoch
	NodeID wire.BrokerID
}

func (*ClaimControllerRecord) metadataType() (int16, int16) { return typeClaimController, 0 }

func (r *ClaimControllerRecord) fields(c *coder) {
	i32(c, &r.Epoch)
	i32(c, &r.NodeID)
	c.tags()
}

// ReplicasRemovedRecord (kaja, type 1001) says that no broker holds a replica of the deleted topic any more.
type ReplicasRemovedRecord struct {
	TopicID wire.UUID
}

func (*ReplicasRemovedRecord) metadataType() (int16, int16) { return typeReplicasRemoved, 0 }

func (r *ReplicasRemovedRecord) fields(c *coder) {
	c.uuid(&r.TopicID)
	c.tags()
}

// RemovedTopicRecord (kaja, type 1003) names a deleted topic whose replicas are not all known to be gone. It stands in
// snapshots only, where RemoveTopicRecord has no topic left to remove.
type RemovedTopicRecord struct {
	TopicID wire.UUID
	Name    string
}

func (*RemovedTopicRecord) metadataType() (int16, int16) { return typeRemovedTopic, 0 }

func (r *RemovedTopicRecord) fields(c *coder) {
	c.uuid(&r.TopicID)
	c.string(&r.Name)
	c.tags()
}

// BrokerEpochsRecord (kaja, type 1002) says that every broker epoch below Next was given. Snapshots hold it, so that an
// epoch is not given twice after its broker was unregistered.
type BrokerEpochsRecord struct {
	Next wire.BrokerEpoch
}

func (*BrokerEpochsRecord) metadataType() (int16, int16) { return typeBrokerEpochs, 0 }

func (r *BrokerEpochsRecord) fields(c *coder) {
	i64(c, &r.Next)
	c.tags()
}
