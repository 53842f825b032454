package raftctl

import (
	"math/rand/v2"
	"strconv"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Configs knows what configs mean. The maps hold what is set dynamically: for this broker, for the whole cluster, and for
// the topic; any may be nil.
type Configs interface {
	// ValidateTopic checks the whole set of a topic's own configs. Its error text is shown to the client.
	ValidateTopic(broker, cluster, topic map[string]string) error
	// TopicValue is the value in force of a topic config.
	TopicValue(broker, cluster, topic map[string]string, name string) string
	// ListDefault reports whether a config is a list, and what APPEND and SUBTRACT start from where it is not set.
	ListDefault(t image.ResourceType, name string) (def string, isList bool)
	// ValidateBroker checks what a request sets on one broker (perBroker) or on all. elsewhere says that
	// the one broker is not this node, which knows its file only. now is the configs in force, next as they would be after
	// it, changed the names that it sets. Its error text is shown to the client.
	ValidateBroker(now, next Layers, perBroker, elsewhere bool, changed []string) error
}

// Layers is what is set dynamically for a broker and for the whole cluster; either may be nil.
type Layers struct{ Broker, Cluster map[string]string }

// Defaults are the broker settings that decisions need.
type Defaults struct {
	NumPartitions     int32 // num.partitions
	ReplicationFactor int16 // default.replication.factor
}

// decider makes records of requests. Its methods read an image and nothing else that changes, but for the ids and
// placements that it draws: those are written down in the records.
type decider struct {
	nodeID   wire.BrokerID
	defaults Defaults
	configs  Configs
	features map[string]image.VersionRange // what this node can work at
	newUUID  func() wire.UUID              // never a reserved one
	rng      *rand.Rand                    // of the decide loop
	// replaced is the processes that gave way to another under their node id, as far as this node has decided that.
	replaced map[wire.UUID]bool
}

// ids as the dynamic layers that lie under a topic's own configs.
func (d *decider) layers(img *image.Image) (broker, cluster map[string]string) {
	return img.Config(image.ResourceBroker, strconv.Itoa(int(d.nodeID))), img.Config(image.ResourceBroker, "")
}

func (d *decider) topicValue(img *image.Image, topic, name string) string {
	broker, cluster := d.layers(img)
	return d.configs.TopicValue(broker, cluster, img.Config(image.ResourceTopic, topic), name)
}

// minISR is min.insync.replicas of a topic as it is in force.
func (d *decider) minISR(img *image.Image, topic string) int {
	n, err := strconv.Atoi(d.topicValue(img, topic, "min.insync.replicas"))
	if err != nil {
		return 1
	}
	return n
}

func (d *decider) uncleanElection(img *image.Image, topic string) bool {
	return d.topicValue(img, topic, "unclean.leader.election.enable") == "true"
}

// bootstrap is what a new cluster's metadata begins with, as a freshly formatted Kafka 4.4 has it, without the features
// that are not served yet. levels are those of Options.Levels.
func bootstrap(levels map[string]int16) []coordrec.MetadataRecord {
	one := "1"
	if levels == nil {
		levels = map[string]int16{image.FeatureELR: 1, image.FeatureTransactionVersion: transactionVersion().Level}
	}
	records := []coordrec.MetadataRecord{&coordrec.FeatureLevelRecord{Name: image.FeatureMetadataVersion, Level: MetadataVersion}}
	if levels[image.FeatureELR] > 0 {
		records = append(records, &coordrec.FeatureLevelRecord{Name: image.FeatureELR, Level: levels[image.FeatureELR]})
	}
	records = append(records, &coordrec.FeatureLevelRecord{Name: image.FeatureTransactionVersion, Level: levels[image.FeatureTransactionVersion]})
	if levels[image.FeatureELR] > 0 {
		records = append(records, &coordrec.ConfigRecord{ResourceType: int8(image.ResourceBroker), Name: "min.insync.replicas", Value: &one})
	}
	return records
}

// transactionVersion finalises transactions as a new Kafka 4.4 cluster has them.
func transactionVersion() *coordrec.FeatureLevelRecord {
	return &coordrec.FeatureLevelRecord{Name: image.FeatureTransactionVersion, Level: 2}
}

// MetadataVersion is the level of metadata.version that this release writes records for (4.4-IV2).
const MetadataVersion = 33
