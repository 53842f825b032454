package image

import "github.com/kajamq/kaja/wire"

// Delta says what differs between two images. Slices are ordered as noted, so that whoever applies it does so in one
// order everywhere. Immutable.
type Delta struct {
	Offset   wire.Offset  // of the newer image
	Topics   []TopicDelta // removed ones first, then by name
	Brokers  []BrokerDelta
	Configs  []Resource // whose configs changed, by type and name
	Features []string   // whose level changed, by name
}

// TopicDelta is one topic that was created (Old nil), removed (New nil) or changed. A topic that was deleted and
// created again under its name gives two of them, with different ids.
type TopicDelta struct {
	Name       string
	ID         wire.UUID
	Old, New   *Topic
	Partitions []PartitionDelta // by id
}

// Created reports whether the topic is new.
func (t TopicDelta) Created() bool { return t.Old == nil }

// Removed reports whether the topic is gone.
func (t TopicDelta) Removed() bool { return t.New == nil }

// PartitionDelta is one partition that was created (Old nil), removed with its topic (New nil) or changed.
type PartitionDelta struct {
	ID       wire.PartitionID
	Old, New *Partition
}

// BrokerDelta is one registration that appeared (Old nil), went (New nil) or changed.
type BrokerDelta struct {
	ID       wire.BrokerID
	Old, New *Broker
}

// Empty reports whether nothing but the offset differs.
func (d *Delta) Empty() bool {
	return len(d.Topics) == 0 && len(d.Brokers) == 0 && len(d.Configs) == 0 && len(d.Features) == 0
}
