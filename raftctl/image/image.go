package image

import (
	"iter"

	"github.com/benbjohnson/immutable"
	"github.com/kajamq/kaja/wire"
)

// Image is the metadata of the cluster at one offset of the metadata log. Immutable and safe for concurrent use; two
// images share what they have in common.
type Image struct {
	clusterID       string
	offset          wire.Offset
	controllerEpoch wire.ControllerEpoch
	controllerID    wire.BrokerID
	entry           uint64 // number of the last entry that the current controller epoch has written

	topics     *immutable.SortedMap[string, *Topic]    // by name
	topicIDs   *immutable.Map[string, *Topic]          // by the 16 bytes of the id
	nodes      *immutable.SortedMap[string, *Node]     // by nodeKey
	removed    *immutable.SortedMap[string, string]    // id bytes of deleted topics → their name, until every replica is gone
	brokers    *immutable.SortedMap[int32, *Broker]    // by id
	configs    *immutable.SortedMap[string, configSet] // by configKey
	features   *immutable.SortedMap[string, int16]
	nextPID    wire.ProducerID  // first producer id that no block holds yet
	nextEpoch  wire.BrokerEpoch // next broker epoch to give
	partitions int              // of all topics together
}

type configSet map[string]string // never changed once in an image

// Empty is the image of a cluster that has no metadata yet.
func Empty(clusterID string) *Image {
	return &Image{
		clusterID:    clusterID,
		offset:       wire.NoOffset,
		controllerID: wire.NoBroker,
		topics:       immutable.NewSortedMap[string, *Topic](nil),
		topicIDs:     immutable.NewMap[string, *Topic](nil),
		nodes:        immutable.NewSortedMap[string, *Node](nil),
		removed:      immutable.NewSortedMap[string, string](nil),
		brokers:      immutable.NewSortedMap[int32, *Broker](nil),
		configs:      immutable.NewSortedMap[string, configSet](nil),
		features:     immutable.NewSortedMap[string, int16](nil),
	}
}

// ClusterID is the id of the cluster, fixed for its life.
func (i *Image) ClusterID() string { return i.clusterID }

// Offset is the position in the metadata log of the last entry that the image holds; NoOffset for the empty image.
func (i *Image) Offset() wire.Offset { return i.offset }

// ControllerEpoch is the epoch of the last controller that claimed the role; 0 before the first.
func (i *Image) ControllerEpoch() wire.ControllerEpoch { return i.controllerEpoch }

// ControllerID is the node that claimed the role last; NoBroker before the first.
func (i *Image) ControllerID() wire.BrokerID { return i.controllerID }

// Entry is the number of the last entry that the controller of the current epoch has written; 0 right after its claim.
func (i *Image) Entry() uint64 { return i.entry }

// Topic finds a topic by name.
func (i *Image) Topic(name string) (*Topic, bool) { return i.topics.Get(name) }

// TopicByID finds a topic by id. A deleted topic is not found.
func (i *Image) TopicByID(id wire.UUID) (*Topic, bool) { return i.topicIDs.Get(string(id[:])) }

// Topics yields every topic in the order of their names.
func (i *Image) Topics() iter.Seq[*Topic] { return i.TopicsFrom("") }

// TopicsFrom yields the topics whose name is first or comes after it, in order.
func (i *Image) TopicsFrom(first string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		it := i.topics.Iterator()
		if first != "" {
			it.Seek(first)
		}
		for !it.Done() {
			_, t, _ := it.Next()
			if !yield(t) {
				return
			}
		}
	}
}

// NumTopics is the number of topics.
func (i *Image) NumTopics() int { return i.topics.Len() }

// NumPartitions is the number of partitions of all topics together.
func (i *Image) NumPartitions() int { return i.partitions }

// Partition finds a partition by its topic's name.
func (i *Image) Partition(topic string, p wire.PartitionID) (*Partition, bool) {
	t, ok := i.topics.Get(topic)
	if !ok {
		return nil, false
	}
	return t.Partition(p)
}

// Removed yields the ids and names of deleted topics whose replicas are not all known to be gone.
func (i *Image) Removed() iter.Seq2[wire.UUID, string] {
	return func(yield func(wire.UUID, string) bool) {
		for it := i.removed.Iterator(); !it.Done(); {
			k, name, _ := it.Next()
			if !yield(wire.UUID([]byte(k)), name) {
				return
			}
		}
	}
}

// WasRemoved reports whether id is one of Removed.
func (i *Image) WasRemoved(id wire.UUID) bool {
	_, ok := i.removed.Get(string(id[:]))
	return ok
}

// Broker finds a registration by node id.
func (i *Image) Broker(id wire.BrokerID) (*Broker, bool) { return i.brokers.Get(int32(id)) }

// Brokers yields every registered broker, fenced ones included, in the order of their ids.
func (i *Image) Brokers() iter.Seq[*Broker] {
	return func(yield func(*Broker) bool) {
		for it := i.brokers.Iterator(); !it.Done(); {
			_, b, _ := it.Next()
			if !yield(b) {
				return
			}
		}
	}
}

// Config gives the configs that are set on a resource: name → value. nil when none is set. The caller must not change
// the map.
func (i *Image) Config(t ResourceType, name string) map[string]string {
	c, _ := i.configs.Get(configKey(t, name))
	return c
}

// Configs yields every resource that has a config set, ordered by type and name. The maps must not be changed.
func (i *Image) Configs() iter.Seq2[Resource, map[string]string] {
	return func(yield func(Resource, map[string]string) bool) {
		for it := i.configs.Iterator(); !it.Done(); {
			k, c, _ := it.Next()
			if !yield(Resource{Type: ResourceType(k[0]), Name: k[1:]}, c) {
				return
			}
		}
	}
}

// Feature is the finalised level of a feature; false when the cluster has not finalised it.
func (i *Image) Feature(name string) (int16, bool) { return i.features.Get(name) }

// Features yields every finalised feature with its level, in the order of their names.
func (i *Image) Features() iter.Seq2[string, int16] {
	return func(yield func(string, int16) bool) {
		for it := i.features.Iterator(); !it.Done(); {
			name, level, _ := it.Next()
			if !yield(name, level) {
				return
			}
		}
	}
}

// ELREnabled reports whether eligible leader replicas are in force (KIP-966).
func (i *Image) ELREnabled() bool {
	level, _ := i.features.Get(FeatureELR)
	return level >= 1
}

// NextProducerID is the first producer id that no allocated block holds.
func (i *Image) NextProducerID() wire.ProducerID { return i.nextPID }

// NextBrokerEpoch is greater than every broker epoch ever given; the first is 1.
func (i *Image) NextBrokerEpoch() wire.BrokerEpoch { return max(i.nextEpoch, 1) }

// configKey orders by type, then name. Types are small positive numbers, so one byte holds one.
func configKey(t ResourceType, name string) string { return string([]byte{byte(t)}) + name }
