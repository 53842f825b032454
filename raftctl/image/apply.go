package image

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Position is where an entry of the metadata log stands.
type Position struct {
	Offset wire.Offset // in the metadata log
	Entry  uint64      // number within the controller epoch; 0 for the claim that opens it
}

// With gives the image that records, which stand at pos, make of this one, and what differs. The receiver stays as it
// is. An error means that the records do not fit the image, which no log that a controller wrote leads to: the caller
// must not go on.
func (i *Image) With(pos Position, records []coordrec.MetadataRecord) (*Image, *Delta, error) {
	e := newEditor(i)
	for n, r := range records {
		if err := e.apply(r); err != nil {
			return nil, nil, fmt.Errorf("metadata record %d of %d at offset %d (%T): %w", n+1, len(records), pos.Offset, r, err)
		}
	}
	e.img.offset, e.img.entry = pos.Offset, pos.Entry
	return e.img, e.delta(), nil
}

// editor turns one image into the next. Topics are copied when they are first touched and then changed in place, so
// that a topic of many partitions costs one copy an entry.
type editor struct {
	old, img *Image
	topics   map[wire.UUID]*topicEdit
	brokers  map[wire.BrokerID]struct{}
	configs  map[Resource]configSet
	features map[string]struct{}
}

type topicEdit struct {
	old, new *Topic
	changed  map[wire.PartitionID]struct{}
}

func newEditor(old *Image) *editor {
	img := *old
	return &editor{old: old, img: &img}
}

func (e *editor) apply(r coordrec.MetadataRecord) error {
	switch r := r.(type) {
	case *coordrec.TopicRecord:
		return e.createTopic(r)
	case *coordrec.PartitionRecord:
		return e.putPartition(r)
	case *coordrec.PartitionChangeRecord:
		return e.changePartition(r)
	case *coordrec.RemoveTopicRecord:
		return e.removeTopic(r.TopicID)
	case *coordrec.ReplicasRemovedRecord:
		e.img.removed = e.img.removed.Delete(string(r.TopicID[:]))
	case *coordrec.RemovedTopicRecord:
		e.img.removed = e.img.removed.Set(string(r.TopicID[:]), r.Name)
	case *coordrec.ConfigRecord:
		e.setConfig(r)
	case *coordrec.FeatureLevelRecord:
		e.setFeature(r.Name, r.Level)
	case *coordrec.ClaimControllerRecord:
		if r.Epoch <= e.img.controllerEpoch {
			return fmt.Errorf("controller epoch %d claimed after %d", r.Epoch, e.img.controllerEpoch)
		}
		e.img.controllerEpoch, e.img.controllerID = r.Epoch, r.NodeID
	case *coordrec.ProducerIDsRecord:
		if r.NextProducerID < e.img.nextPID {
			return fmt.Errorf("next producer id %d after %d", r.NextProducerID, e.img.nextPID)
		}
		e.img.nextPID = r.NextProducerID
	case *coordrec.BrokerEpochsRecord:
		e.img.nextEpoch = max(e.img.nextEpoch, r.Next)
	case *coordrec.ClearELRRecord:
		return e.clearELR(r.Topic)
	case *coordrec.NoOpRecord:
	default:
		return e.applyBroker(r)
	}
	return nil
}

// touch gives the topic in a form that the editor may change in place.
func (e *editor) touch(id wire.UUID) (*topicEdit, error) {
	if t, ok := e.topics[id]; ok && t.new != nil {
		return t, nil
	}
	old, ok := e.img.topicIDs.Get(string(id[:]))
	if !ok {
		return nil, fmt.Errorf("topic id %s does not exist", id)
	}
	t := &Topic{Name: old.Name, ID: id, Partitions: slices.Clone(old.Partitions)}
	return e.put(old, t), nil
}

func (e *editor) put(old, t *Topic) *topicEdit {
	if e.topics == nil {
		e.topics = make(map[wire.UUID]*topicEdit)
	}
	edit := &topicEdit{old: old, new: t, changed: make(map[wire.PartitionID]struct{})}
	e.topics[t.ID] = edit
	e.img.topics = e.img.topics.Set(t.Name, t)
	e.img.topicIDs = e.img.topicIDs.Set(string(t.ID[:]), t)
	return edit
}

func (e *editor) createTopic(r *coordrec.TopicRecord) error {
	if _, ok := e.img.topics.Get(r.Name); ok {
		return fmt.Errorf("topic %q exists", r.Name)
	}
	if _, ok := e.img.topicIDs.Get(string(r.TopicID[:])); ok {
		return fmt.Errorf("topic id %s exists", r.TopicID)
	}
	e.put(nil, &Topic{Name: r.Name, ID: r.TopicID})
	return nil
}

func (e *editor) putPartition(r *coordrec.PartitionRecord) error {
	t, err := e.touch(r.TopicID)
	if err != nil {
		return err
	}
	if len(r.Directories) != 0 && len(r.Directories) != len(r.Replicas) {
		return fmt.Errorf("partition %d has %d replicas in %d directories", r.PartitionID, len(r.Replicas), len(r.Directories))
	}
	p := &Partition{
		ID: r.PartitionID, Replicas: copied(r.Replicas), ISR: copied(r.ISR),
		ELR: copied(r.EligibleLeaderReplicas), LastKnownELR: copied(r.LastKnownELR),
		Leader: r.Leader, LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch,
		Recovering: r.LeaderRecoveryState == 1, Directories: slices.Clone(r.Directories),
		Adding: copied(r.AddingReplicas), Removing: copied(r.RemovingReplicas),
	}
	if len(p.Directories) == 0 {
		p.Directories = make([]wire.UUID, len(p.Replicas))
	}
	switch n := wire.PartitionID(len(t.new.Partitions)); {
	case p.ID == n:
		t.new.Partitions = append(t.new.Partitions, p)
		e.img.partitions++
	case p.ID >= 0 && p.ID < n:
		t.new.Partitions[p.ID] = p
	default:
		return fmt.Errorf("partition %d of topic %q which has %d", p.ID, t.new.Name, n)
	}
	t.changed[p.ID] = struct{}{}
	return nil
}

func (e *editor) changePartition(r *coordrec.PartitionChangeRecord) error {
	t, err := e.touch(r.TopicID)
	if err != nil {
		return err
	}
	old, ok := t.new.Partition(r.PartitionID)
	if !ok {
		return fmt.Errorf("partition %d of topic %q does not exist", r.PartitionID, t.new.Name)
	}
	p := *old
	replace(&p.ISR, r.ISR)
	replace(&p.Replicas, r.Replicas)
	replace(&p.Removing, r.RemovingReplicas)
	replace(&p.Adding, r.AddingReplicas)
	replace(&p.ELR, r.EligibleLeaderReplicas)
	replace(&p.LastKnownELR, r.LastKnownELR)
	if r.Directories != nil {
		p.Directories = slices.Clone(r.Directories)
	}
	if len(p.Directories) != len(p.Replicas) {
		return fmt.Errorf("partition %d has %d replicas in %d directories", r.PartitionID, len(p.Replicas), len(p.Directories))
	}
	if r.Leader != coordrec.NoLeaderChange {
		p.Leader = r.Leader
		if !planted.On(planted.EpochKept) {
			p.LeaderEpoch++
		}
	}
	if r.LeaderRecoveryState != coordrec.NoRecoveryChange {
		p.Recovering = r.LeaderRecoveryState == 1
	}
	p.PartitionEpoch++
	t.new.Partitions[p.ID] = &p
	t.changed[p.ID] = struct{}{}
	return nil
}

// clearELR forgets eligible leader replicas, of every topic if name is empty.
func (e *editor) clearELR(name string) error {
	var topics []*Topic
	if name == "" {
		for t := range e.img.Topics() {
			topics = append(topics, t)
		}
	} else if t, ok := e.img.Topic(name); ok {
		topics = []*Topic{t}
	} else {
		return fmt.Errorf("topic %q does not exist", name)
	}
	for _, old := range topics {
		for _, p := range old.Partitions {
			if len(p.ELR) == 0 && len(p.LastKnownELR) == 0 {
				continue
			}
			t, err := e.touch(old.ID)
			if err != nil {
				return err
			}
			next := *t.new.Partitions[p.ID]
			next.ELR, next.LastKnownELR = nil, nil
			t.new.Partitions[p.ID] = &next
			t.changed[p.ID] = struct{}{}
		}
	}
	return nil
}

func (e *editor) removeTopic(id wire.UUID) error {
	t, err := e.touch(id)
	if err != nil {
		return err
	}
	name := t.new.Name
	e.img.topics = e.img.topics.Delete(name)
	e.img.topicIDs = e.img.topicIDs.Delete(string(id[:]))
	e.img.removed = e.img.removed.Set(string(id[:]), name)
	e.img.partitions -= len(t.new.Partitions)
	t.new = nil
	if key := configKey(ResourceTopic, name); len(e.img.Config(ResourceTopic, name)) > 0 {
		e.noteConfig(Resource{ResourceTopic, name}, nil)
		e.img.configs = e.img.configs.Delete(key)
	}
	return nil
}

func (e *editor) noteConfig(res Resource, set configSet) {
	if e.configs == nil {
		e.configs = make(map[Resource]configSet)
	}
	e.configs[res] = set
}

func (e *editor) setConfig(r *coordrec.ConfigRecord) {
	res := Resource{ResourceType(r.ResourceType), r.ResourceName}
	key := configKey(res.Type, res.Name)
	set, ok := e.configs[res]
	if !ok || set == nil {
		current, _ := e.img.configs.Get(key)
		if set = maps.Clone(current); set == nil {
			set = make(configSet)
		}
		e.noteConfig(res, set)
	}
	if r.Value == nil {
		delete(set, r.Name)
	} else {
		set[r.Name] = *r.Value
	}
	if len(set) == 0 {
		e.img.configs = e.img.configs.Delete(key)
	} else {
		e.img.configs = e.img.configs.Set(key, set)
	}
}

func (e *editor) setFeature(name string, level int16) {
	if e.features == nil {
		e.features = make(map[string]struct{})
	}
	e.features[name] = struct{}{}
	if level == 0 {
		e.img.features = e.img.features.Delete(name)
	} else {
		e.img.features = e.img.features.Set(name, level)
	}
}

// copied gives the ids in memory of their own, nil for none, so that images built from different records are equal.
func copied(ids []wire.BrokerID) []wire.BrokerID {
	if len(ids) == 0 {
		return nil
	}
	return slices.Clone(ids)
}

func replace(dst *[]wire.BrokerID, v []wire.BrokerID) {
	if v != nil {
		*dst = copied(v)
	}
}

func (e *editor) delta() *Delta {
	d := &Delta{Offset: e.img.offset}
	for id, t := range e.topics {
		if t.old == nil && t.new == nil {
			continue // made and removed by the same entry
		}
		td := TopicDelta{ID: id, Old: t.old, New: t.new}
		if t.new == nil {
			td.Name = t.old.Name
			for _, p := range t.old.Partitions {
				td.Partitions = append(td.Partitions, PartitionDelta{ID: p.ID, Old: p})
			}
		} else {
			td.Name = t.new.Name
			for _, p := range slices.Sorted(maps.Keys(t.changed)) {
				pd := PartitionDelta{ID: p, New: t.new.Partitions[p]}
				if t.old != nil {
					pd.Old, _ = t.old.Partition(p)
				}
				td.Partitions = append(td.Partitions, pd)
			}
		}
		d.Topics = append(d.Topics, td)
	}
	sortTopics(d.Topics)
	for _, id := range slices.Sorted(maps.Keys(e.brokers)) {
		bd := BrokerDelta{ID: id}
		bd.Old, _ = e.old.Broker(id)
		bd.New, _ = e.img.Broker(id)
		d.Brokers = append(d.Brokers, bd)
	}
	d.Configs = slices.SortedFunc(maps.Keys(e.configs), compareResources)
	d.Features = slices.Sorted(maps.Keys(e.features))
	return d
}

func sortTopics(topics []TopicDelta) {
	slices.SortFunc(topics, func(a, b TopicDelta) int {
		if a.Removed() != b.Removed() {
			if a.Removed() {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Name, b.Name), slices.Compare(a.ID[:], b.ID[:]))
	})
}

func compareResources(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}
