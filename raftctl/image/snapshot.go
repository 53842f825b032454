package image

import (
	"iter"
	"maps"
	"slices"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Position is where the last entry that the image holds stands.
func (i *Image) Position() Position { return Position{Offset: i.offset, Entry: i.entry} }

// Records yields, in one fixed order, the records that make this image of an empty one of the same cluster: what a
// snapshot holds. Position is not among them.
func (i *Image) Records() iter.Seq[coordrec.MetadataRecord] {
	return func(yield func(coordrec.MetadataRecord) bool) {
		_ = i.clusterRecords(yield) && i.brokerRecords(yield) && i.topicRecords(yield) && i.configRecords(yield)
	}
}

func (i *Image) clusterRecords(yield func(coordrec.MetadataRecord) bool) bool {
	for name, level := range i.Features() {
		if !yield(&coordrec.FeatureLevelRecord{Name: name, Level: level}) {
			return false
		}
	}
	if i.controllerEpoch > 0 {
		if !yield(&coordrec.ClaimControllerRecord{Epoch: i.controllerEpoch, NodeID: i.controllerID}) {
			return false
		}
	}
	if i.nextPID > 0 {
		r := &coordrec.ProducerIDsRecord{BrokerID: wire.NoBroker, BrokerEpoch: wire.NoBrokerEpoch, NextProducerID: i.nextPID}
		if !yield(r) {
			return false
		}
	}
	if i.nextEpoch > 0 {
		return yield(&coordrec.BrokerEpochsRecord{Next: i.nextEpoch})
	}
	return true
}

func (i *Image) brokerRecords(yield func(coordrec.MetadataRecord) bool) bool {
	for n := range i.Nodes() {
		if !yield(n.Record()) {
			return false
		}
	}
	for b := range i.Brokers() {
		if !yield(b.Record()) {
			return false
		}
	}
	return true
}

// Record is the registration as the record that makes it.
func (b *Broker) Record() *coordrec.RegisterBrokerRecord {
	r := &coordrec.RegisterBrokerRecord{
		BrokerID: b.ID, IncarnationID: b.Incarnation, BrokerEpoch: b.Epoch, Fenced: b.Fenced,
		InControlledShutdown: b.InShutdown, LogDirs: b.LogDirs, CordonedLogDirs: b.CordonedLogDirs,
	}
	if b.HasRack {
		r.Rack = &b.Rack
	}
	for _, ep := range b.Endpoints {
		r.EndPoints = append(r.EndPoints, coordrec.BrokerEndpoint{Name: ep.Listener, Host: ep.Host, Port: ep.Port, Protocol: ep.Protocol})
	}
	for _, name := range slices.Sorted(maps.Keys(b.Features)) {
		v := b.Features[name]
		r.Features = append(r.Features, coordrec.BrokerFeature{Name: name, Min: v.Min, Max: v.Max})
	}
	return r
}

func (i *Image) topicRecords(yield func(coordrec.MetadataRecord) bool) bool {
	for t := range i.Topics() {
		if !yield(&coordrec.TopicRecord{Name: t.Name, TopicID: t.ID}) {
			return false
		}
		for _, p := range t.Partitions {
			if !yield(p.Record(t.ID)) {
				return false
			}
		}
	}
	for id, name := range i.Removed() {
		if !yield(&coordrec.RemovedTopicRecord{TopicID: id, Name: name}) {
			return false
		}
	}
	return true
}

// Record is the partition as the record that makes it.
func (p *Partition) Record(topic wire.UUID) *coordrec.PartitionRecord {
	r := &coordrec.PartitionRecord{
		PartitionID: p.ID, TopicID: topic, Replicas: p.Replicas, ISR: p.ISR, RemovingReplicas: p.Removing,
		AddingReplicas: p.Adding, Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch,
		Directories: p.Directories, EligibleLeaderReplicas: p.ELR, LastKnownELR: p.LastKnownELR,
	}
	if p.Recovering {
		r.LeaderRecoveryState = 1
	}
	return r
}

func (i *Image) configRecords(yield func(coordrec.MetadataRecord) bool) bool {
	for res, set := range i.Configs() {
		for _, name := range slices.Sorted(maps.Keys(set)) {
			value := set[name]
			r := &coordrec.ConfigRecord{ResourceType: int8(res.Type), ResourceName: res.Name, Name: name, Value: &value}
			if !yield(r) {
				return false
			}
		}
	}
	return true
}

// Diff gives what changes when to takes the place of from, whichever way to came about (a snapshot). It walks both
// images; what is equal is not in the delta.
func Diff(from, to *Image) *Delta {
	d := &Delta{Offset: to.offset}
	for t := range from.Topics() {
		if _, ok := to.TopicByID(t.ID); !ok {
			d.Topics = append(d.Topics, diffTopic(t, nil))
		}
	}
	for t := range to.Topics() {
		old, _ := from.TopicByID(t.ID)
		if old == t {
			continue
		}
		if td := diffTopic(old, t); old == nil || len(td.Partitions) > 0 {
			d.Topics = append(d.Topics, td)
		}
	}
	sortTopics(d.Topics)
	d.Brokers = diffBrokers(from, to)
	d.Configs = diffConfigs(from, to)
	features := make(map[string]struct{})
	for name, level := range from.Features() {
		if now, _ := to.Feature(name); now != level {
			features[name] = struct{}{}
		}
	}
	for name, level := range to.Features() {
		if before, _ := from.Feature(name); before != level {
			features[name] = struct{}{}
		}
	}
	d.Features = slices.Sorted(maps.Keys(features))
	return d
}

func diffTopic(old, now *Topic) TopicDelta {
	td := TopicDelta{Old: old, New: now}
	var before, after []*Partition
	if old != nil {
		td.Name, td.ID, before = old.Name, old.ID, old.Partitions
	}
	if now != nil {
		td.Name, td.ID, after = now.Name, now.ID, now.Partitions
	}
	for n := range max(len(before), len(after)) {
		pd := PartitionDelta{ID: wire.PartitionID(n)}
		if n < len(before) {
			pd.Old = before[n]
		}
		if n < len(after) {
			pd.New = after[n]
		}
		if pd.Old == nil || pd.New == nil || !pd.Old.Equal(pd.New) {
			td.Partitions = append(td.Partitions, pd)
		}
	}
	return td
}

// Equal reports whether two partitions have the same metadata.
func (p *Partition) Equal(o *Partition) bool {
	return p == o || p.ID == o.ID && p.Leader == o.Leader && p.LeaderEpoch == o.LeaderEpoch &&
		p.PartitionEpoch == o.PartitionEpoch && p.Recovering == o.Recovering &&
		slices.Equal(p.Replicas, o.Replicas) && slices.Equal(p.ISR, o.ISR) && slices.Equal(p.ELR, o.ELR) &&
		slices.Equal(p.LastKnownELR, o.LastKnownELR) && slices.Equal(p.Directories, o.Directories) &&
		slices.Equal(p.Adding, o.Adding) && slices.Equal(p.Removing, o.Removing)
}

// Equal reports whether two registrations are the same.
func (b *Broker) Equal(o *Broker) bool {
	return b == o || b.ID == o.ID && b.Epoch == o.Epoch && b.Incarnation == o.Incarnation && b.Rack == o.Rack &&
		b.HasRack == o.HasRack && b.Fenced == o.Fenced && b.InShutdown == o.InShutdown &&
		slices.Equal(b.Endpoints, o.Endpoints) && maps.Equal(b.Features, o.Features) &&
		slices.Equal(b.LogDirs, o.LogDirs) && slices.Equal(b.CordonedLogDirs, o.CordonedLogDirs)
}

func diffBrokers(from, to *Image) []BrokerDelta {
	var out []BrokerDelta
	for b := range from.Brokers() {
		if _, ok := to.Broker(b.ID); !ok {
			out = append(out, BrokerDelta{ID: b.ID, Old: b})
		}
	}
	for b := range to.Brokers() {
		old, ok := from.Broker(b.ID)
		if !ok || !old.Equal(b) {
			out = append(out, BrokerDelta{ID: b.ID, Old: old, New: b})
		}
	}
	slices.SortFunc(out, func(a, b BrokerDelta) int { return int(a.ID) - int(b.ID) })
	return out
}

func diffConfigs(from, to *Image) []Resource {
	changed := make(map[Resource]struct{})
	for res, set := range from.Configs() {
		if !maps.Equal(set, to.Config(res.Type, res.Name)) {
			changed[res] = struct{}{}
		}
	}
	for res, set := range to.Configs() {
		if !maps.Equal(set, from.Config(res.Type, res.Name)) {
			changed[res] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(changed), compareResources)
}
