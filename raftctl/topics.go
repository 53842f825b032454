package raftctl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// maxPartitionsPerRequest bounds what one request may create or add.
const maxPartitionsPerRequest = 10000

// NewTopic asks for a topic. Count and ReplicationFactor −1 ask for the defaults, and are −1 with Assignments.
type NewTopic struct {
	Name              string
	Partitions        int32
	ReplicationFactor int16
	Assignments       []Assignment
	Configs           []TopicConfig
	// AtMost lets the replication factor shrink to what the usable brokers allow (internal topics without an explicit
	// setting).
	AtMost bool
}

// Assignment names the replicas of one partition, preferred leader first.
type Assignment struct {
	Partition wire.PartitionID
	Replicas  []wire.BrokerID
}

// TopicConfig is one config as the client sent it; nil for null.
type TopicConfig struct {
	Name  string
	Value *string
}

// CreatedTopic is the result for one topic: what was made, or would be, or why not.
type CreatedTopic struct {
	Name              string
	ID                wire.UUID
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string // the topic's own
	Err               *Error
}

// createTopics decides each topic by itself, in order; results are in the order of the request.
func (d *decider) createTopics(img *image.Image, topics []NewTopic) ([]coordrec.MetadataRecord, []CreatedTopic, error) {
	var total int64
	for _, t := range topics {
		if n := int64(len(t.Assignments)); n > 0 {
			total += n
		} else {
			total += max(int64(t.Partitions), 1)
		}
	}
	if total > maxPartitionsPerRequest {
		return nil, nil, refuse(kerr.PolicyViolation, "Excessively large number of partitions per request.")
	}
	batch := &topicBatch{d: d, img: img, unified: unifiedNames(img, topics), taken: make(map[string]struct{})}
	results := make([]CreatedTopic, 0, len(topics))
	for _, t := range topics {
		res := CreatedTopic{Name: t.Name}
		if err := batch.create(t, &res); err != nil {
			if !errors.As(err, &res.Err) {
				return nil, nil, err
			}
		}
		results = append(results, res)
	}
	return batch.records, results, nil
}

type topicBatch struct {
	d       *decider
	img     *image.Image
	unified map[string]string   // names with '.' turned to '_' → an existing name like it
	taken   map[string]struct{} // unified names made by this batch
	placer  *placer
	records []coordrec.MetadataRecord
}

// unifiedNames collects the existing topics that a new name could be mistaken for in metrics; only names with '.' or '_'
// can.
func unifiedNames(img *image.Image, topics []NewTopic) map[string]string {
	if !slices.ContainsFunc(topics, func(t NewTopic) bool { return strings.ContainsAny(t.Name, "._") }) {
		return nil
	}
	names := make(map[string]string)
	for t := range img.Topics() {
		if strings.ContainsAny(t.Name, "._") {
			u := unify(t.Name)
			if _, ok := names[u]; !ok {
				names[u] = t.Name
			}
		}
	}
	return names
}

func unify(name string) string { return strings.ReplaceAll(name, ".", "_") }

func (b *topicBatch) create(t NewTopic, res *CreatedTopic) error {
	if err := b.checkName(t.Name); err != nil {
		return err
	}
	configs, err := b.checkConfigs(t)
	if err != nil {
		return err
	}
	parts, err := b.partitions(t)
	if err != nil {
		return err
	}
	res.ID = b.d.newUUID()
	res.Partitions, res.ReplicationFactor = int32(len(parts)), int16(len(parts[0]))
	res.Configs = configs
	b.records = append(b.records, &coordrec.TopicRecord{Name: t.Name, TopicID: res.ID})
	for _, name := range sortedNames(configs) {
		value := configs[name]
		b.records = append(b.records, &coordrec.ConfigRecord{
			ResourceType: int8(image.ResourceTopic), ResourceName: t.Name, Name: name, Value: &value,
		})
	}
	for p, replicas := range parts {
		b.records = append(b.records, newPartition(b.img, res.ID, wire.PartitionID(p), replicas))
	}
	if strings.ContainsAny(t.Name, "._") {
		b.unified[unify(t.Name)] = t.Name
	}
	b.taken[t.Name] = struct{}{}
	return nil
}

func (b *topicBatch) checkName(name string) error {
	// The later of two complaints is the one that Kafka sends.
	if _, ok := b.img.Topic(name); ok {
		return refuse(kerr.TopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	if _, ok := b.taken[name]; ok {
		return refuse(kerr.InvalidRequest, "Duplicate topic name.")
	}
	if strings.ContainsAny(name, "._") {
		if other, ok := b.unified[unify(name)]; ok {
			return refuse(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", name, other)
		}
	}
	if reason := InvalidTopicName(name); reason != "" {
		return refuse(kerr.InvalidTopicException, "%s", reason)
	}
	return nil
}

func (b *topicBatch) checkConfigs(t NewTopic) (map[string]string, error) {
	var nulls []string
	configs := make(map[string]string, len(t.Configs))
	for _, c := range t.Configs {
		if c.Value == nil {
			nulls = append(nulls, c.Name)
		} else {
			configs[c.Name] = *c.Value
		}
	}
	if len(nulls) > 0 {
		return nil, refuse(kerr.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(nulls, ","))
	}
	if err := checkValueSizes(configs); err != nil {
		return nil, err
	}
	broker, cluster := b.d.layers(b.img)
	if err := b.d.configs.ValidateTopic(broker, cluster, configs); err != nil {
		return nil, refuse(kerr.InvalidConfig, "%s", err)
	}
	return configs, nil
}

// partitions gives the replicas of each partition.
func (b *topicBatch) partitions(t NewTopic) ([][]wire.BrokerID, error) {
	if len(t.Assignments) > 0 {
		return b.manual(t)
	}
	if t.ReplicationFactor < -1 || t.ReplicationFactor == 0 {
		return nil, refuse(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if t.Partitions < -1 || t.Partitions == 0 {
		return nil, refuse(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	count, rf := int(t.Partitions), int(t.ReplicationFactor)
	if count == -1 {
		count = int(b.d.defaults.NumPartitions)
	}
	if rf == -1 {
		rf = int(b.d.defaults.ReplicationFactor)
	}
	if b.placer == nil {
		b.placer = newPlacer(b.img, b.d.rng.IntN)
	}
	if usable := len(b.placer.leaders); t.AtMost && usable > 0 {
		rf = min(rf, usable)
	}
	if reason := b.placer.check(rf); reason != "" {
		return nil, refuse(kerr.InvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", rf, reason)
	}
	parts := make([][]wire.BrokerID, count)
	for p := range parts {
		parts[p] = b.placer.place(rf)
	}
	return parts, nil
}

func (b *topicBatch) manual(t NewTopic) ([][]wire.BrokerID, error) {
	if t.ReplicationFactor != -1 {
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.Partitions != -1 {
		return nil, refuse(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	byID := make(map[wire.PartitionID][]wire.BrokerID, len(t.Assignments))
	rf := -1
	for _, a := range t.Assignments {
		if _, ok := byID[a.Partition]; ok {
			return nil, refuse(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if err := checkManual(b.img, a.Replicas, rf); err != nil {
			return nil, err
		}
		rf = len(a.Replicas)
		if len(activeOf(b.img, a.Replicas)) == 0 {
			return nil, refuse(kerr.InvalidReplicaAssignment, "All brokers specified in the manual partition assignment for "+
				"partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		byID[a.Partition] = a.Replicas
	}
	parts := make([][]wire.BrokerID, len(byID))
	for p := range parts {
		replicas, ok := byID[wire.PartitionID(p)]
		if !ok {
			return nil, refuse(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		parts[p] = replicas
	}
	return parts, nil
}

// checkManual checks replicas that a client chose; rf −1 while none is known.
func checkManual(img *image.Image, replicas []wire.BrokerID, rf int) error {
	if len(replicas) == 0 {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		if _, ok := img.Broker(id); !ok {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if i > 0 && sorted[i-1] == id {
			return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if rf >= 0 && len(replicas) != rf {
		return refuse(kerr.InvalidReplicaAssignment, "The manual partition assignment includes a partition with %d replica(s), "+
			"but this is not consistent with previous partitions, which have %d replica(s).", len(replicas), rf)
	}
	return nil
}

func activeOf(img *image.Image, ids []wire.BrokerID) []wire.BrokerID {
	var active []wire.BrokerID
	for _, id := range ids {
		if b, ok := img.Broker(id); ok && b.Active() {
			active = append(active, id)
		}
	}
	return active
}

func newPartition(img *image.Image, topic wire.UUID, p wire.PartitionID, replicas []wire.BrokerID) *coordrec.PartitionRecord {
	isr := activeOf(img, replicas)
	return &coordrec.PartitionRecord{
		PartitionID: p, TopicID: topic, Replicas: replicas, ISR: isr, Leader: isr[0], Directories: directories(img, replicas),
	}
}

// InvalidTopicName says in Kafka's words what is wrong with a topic's name; "" when it is legal.
func InvalidTopicName(name string) string {
	switch {
	case name == "":
		return "Topic name is invalid: the empty string is not allowed"
	case name == "." || name == "..":
		return fmt.Sprintf("Topic name is invalid: '%s' is not allowed", name)
	case len(name) > 249:
		return fmt.Sprintf("Topic name is invalid: the length of '%s' is longer than the max allowed length 249", name)
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-') {
			return fmt.Sprintf("Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return ""
}

// DeletedTopic is a topic to delete, by Name or by ID, and then the result: both, as far as they are known.
type DeletedTopic struct {
	Name string
	ID   wire.UUID
	Err  *Error
}

// deleteTopics removes topics; results are parallel to the request.
func (d *decider) deleteTopics(img *image.Image, topics []DeletedTopic) ([]coordrec.MetadataRecord, []DeletedTopic, error) {
	results := slices.Clone(topics)
	gone := make(map[wire.UUID]struct{}, len(topics))
	for _, t := range topics {
		if t.Name == "" {
			gone[t.ID] = struct{}{}
		}
	}
	var records []coordrec.MetadataRecord
	for i := range results {
		r := &results[i]
		byName := r.Name != ""
		var topic *image.Topic
		var ok bool
		if byName {
			topic, ok = img.Topic(r.Name)
		} else {
			topic, ok = img.TopicByID(r.ID)
		}
		switch {
		case !ok && byName:
			r.Err = &Error{Code: kerr.UnknownTopicOrPartition, Message: "This server does not host this topic-partition."}
			continue
		case !ok:
			r.Err = &Error{Code: kerr.UnknownTopicID, Message: "This server does not host this topic ID."}
			continue
		}
		r.Name, r.ID = topic.Name, topic.ID
		if _, dup := gone[topic.ID]; dup && byName {
			r.Err = refuse(kerr.InvalidRequest, "The provided topic name maps to an ID that was already supplied.")
			continue
		}
		gone[topic.ID] = struct{}{}
		records = append(records, &coordrec.RemoveTopicRecord{TopicID: topic.ID})
	}
	return records, results, nil
}

// replicasRemoved forgets a deleted topic of which no replica is left.
func (d *decider) replicasRemoved(img *image.Image, ids []wire.UUID) []coordrec.MetadataRecord {
	var records []coordrec.MetadataRecord
	for _, id := range ids {
		if img.WasRemoved(id) {
			records = append(records, &coordrec.ReplicasRemovedRecord{TopicID: id})
		}
	}
	return records
}

// MorePartitions asks for a topic to have Count partitions. Assignments is nil when the controller places the new ones.
type MorePartitions struct {
	Topic       string
	Count       int32
	Assignments [][]wire.BrokerID
}

// createPartitions decides each topic by itself; results are parallel to the request, nil for success.
func (d *decider) createPartitions(img *image.Image, topics []MorePartitions) ([]coordrec.MetadataRecord, []*Error, error) {
	var records []coordrec.MetadataRecord
	results := make([]*Error, len(topics))
	added := 0
	for i, t := range topics {
		more, err := d.morePartitions(img, t)
		if err != nil {
			if !errors.As(err, &results[i]) {
				return nil, nil, err
			}
			continue
		}
		if added += len(more); added > maxPartitionsPerRequest {
			return nil, nil, refuse(kerr.PolicyViolation, "Excessively large number of additional partitions per request.")
		}
		records = append(records, more...)
	}
	return records, results, nil
}

func (d *decider) morePartitions(img *image.Image, t MorePartitions) ([]coordrec.MetadataRecord, error) {
	topic, ok := img.Topic(t.Topic)
	if !ok {
		return nil, &Error{Code: kerr.UnknownTopicOrPartition}
	}
	have := len(topic.Partitions)
	switch {
	case int(t.Count) == have:
		return nil, refuse(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	case int(t.Count) < have:
		return nil, refuse(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", t.Topic, have, t.Count)
	case int(t.Count)-have > maxPartitionsPerRequest:
		return nil, refuse(kerr.PolicyViolation, "Excessively large number of additional partitions per request.")
	}
	additional := int(t.Count) - have
	if t.Assignments != nil && len(t.Assignments) != additional {
		return nil, refuse(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.",
			additional, len(t.Assignments))
	}
	rf := len(topic.Partitions[0].Replicas)
	placer := newPlacer(img, d.rng.IntN)
	if reason := placer.check(rf); t.Assignments == nil && reason != "" {
		return nil, &Error{Code: kerr.InvalidReplicationFactor, Message: reason}
	}
	records := make([]coordrec.MetadataRecord, 0, additional)
	for n := range additional {
		var replicas []wire.BrokerID
		if t.Assignments == nil {
			replicas = placer.place(rf)
		} else {
			replicas = t.Assignments[n]
			if err := checkManual(img, replicas, rf); err != nil {
				return nil, err
			}
			if len(activeOf(img, replicas)) == 0 {
				return nil, refuse(kerr.InvalidReplicaAssignment, "All brokers specified in the manual partition assignment for "+
					"partition %d are fenced or in controlled shutdown.", have+n)
			}
		}
		records = append(records, newPartition(img, topic.ID, wire.PartitionID(have+n), replicas))
	}
	return records, nil
}
