package image

import (
	"strings"

	"github.com/kajamq/kaja/wire"
)

// Internal topics, as Kafka's Topic.INTERNAL_TOPICS.
const (
	OffsetsTopic    = "__consumer_offsets"
	TxnStateTopic   = "__transaction_state"
	ShareStateTopic = "__share_group_state"
)

// IsInternal reports whether name is one of the topics that only coordinators write to.
func IsInternal(name string) bool {
	return name == OffsetsTopic || name == TxnStateTopic || name == ShareStateTopic
}

// Topic is one topic with all its partitions. Immutable: holders must not change it or what it points to.
type Topic struct {
	Name       string
	ID         wire.UUID
	Partitions []*Partition // index = partition id; no gaps
}

// Internal reports whether only coordinators write to the topic.
func (t *Topic) Internal() bool { return IsInternal(t.Name) }

// Partition gives partition p, or false if the topic has none such.
func (t *Topic) Partition(p wire.PartitionID) (*Partition, bool) {
	if p < 0 || int(p) >= len(t.Partitions) {
		return nil, false
	}
	return t.Partitions[p], true
}

// Partition is the metadata of one partition. Immutable.
type Partition struct {
	ID             wire.PartitionID
	Replicas       []wire.BrokerID // preferred leader first
	ISR            []wire.BrokerID // may be empty with eligible leader replicas (KIP-966)
	ELR            []wire.BrokerID // eligible leader replicas: left the ISR below min.insync.replicas without losing data
	LastKnownELR   []wire.BrokerID // replicas that were eligible before an unclean shutdown
	Leader         wire.BrokerID   // NoBroker while nobody leads
	LeaderEpoch    wire.LeaderEpoch
	PartitionEpoch wire.PartitionEpoch
	Recovering     bool // LeaderRecoveryState RECOVERING: elected uncleanly, not yet whole
	// Directories says in which log directory each replica lies, parallel to Replicas; see the Directory… constants of
	// this package for the reserved values.
	Directories []wire.UUID
	Adding      []wire.BrokerID // reassignment under way: replicas on the way in
	Removing    []wire.BrokerID // reassignment under way: replicas on the way out
}

// Reserved directory ids (KIP-858).
var (
	DirectoryUnassigned = wire.UUID{}      // not known yet
	DirectoryLost       = wire.UUID{15: 1} // in a directory that is offline
	DirectoryMigrating  = wire.UUID{15: 2} // from before directories had ids
)

// HasReplica reports whether b is a replica of the partition.
func (p *Partition) HasReplica(b wire.BrokerID) bool { return Contains(p.Replicas, b) }

// InISR reports whether b is in the in-sync replica set.
func (p *Partition) InISR(b wire.BrokerID) bool { return Contains(p.ISR, b) }

// Directory is the log directory of b's replica; DirectoryUnassigned if b is no replica.
func (p *Partition) Directory(b wire.BrokerID) wire.UUID {
	for i, r := range p.Replicas {
		if r == b && i < len(p.Directories) {
			return p.Directories[i]
		}
	}
	return DirectoryUnassigned
}

// Contains reports whether ids holds b.
func Contains(ids []wire.BrokerID, b wire.BrokerID) bool {
	for _, id := range ids {
		if id == b {
			return true
		}
	}
	return false
}

// Endpoint is where one listener of a broker is reached.
type Endpoint struct {
	Listener string // name, as configured
	Host     string
	Port     uint16
	Protocol int16 // Kafka's SecurityProtocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// VersionRange is what one node supports of a feature; both ends are inclusive.
type VersionRange struct{ Min, Max int16 }

// Broker is the current registration of one broker. Immutable.
type Broker struct {
	ID              wire.BrokerID
	Epoch           wire.BrokerEpoch
	Incarnation     wire.UUID // drawn anew with every process
	Endpoints       []Endpoint
	Features        map[string]VersionRange
	Rack            string // "" when none
	HasRack         bool   // an empty rack is not the same as none on the wire
	Fenced          bool   // takes no leadership and is not told to clients
	InShutdown      bool   // controlled shutdown under way
	LogDirs         []wire.UUID
	CordonedLogDirs []wire.UUID // take no new partitions (KIP-1066)
}

// Active reports whether the broker may lead and be placed on.
func (b *Broker) Active() bool { return !b.Fenced && !b.InShutdown }

// Endpoint gives the endpoint of a listener by its name, compared without case.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if strings.EqualFold(e.Listener, listener) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// ResourceType numbers what configs belong to, as Kafka's ConfigResource.Type.
type ResourceType int8

// Kafka's config resource types.
const (
	ResourceTopic         ResourceType = 2
	ResourceBroker        ResourceType = 4
	ResourceBrokerLogger  ResourceType = 8
	ResourceClientMetrics ResourceType = 16
	ResourceGroup         ResourceType = 32
)

// Resource names one set of configs. ResourceBroker with an empty name is the cluster-wide default.
type Resource struct {
	Type ResourceType
	Name string
}

// Feature names that a cluster may have finalised.
const (
	FeatureMetadataVersion = "metadata.version"
	FeatureELR             = "eligible.leader.replicas.version"
	// FeatureTransactionVersion is the version of transactions that clients may use (KIP-890).
	FeatureTransactionVersion = "transaction.version"
)
