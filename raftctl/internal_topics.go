package raftctl

import (
	"cmp"
	"slices"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// raised is an internal topic that got more replicas.
type raised struct {
	topic string
	rf    int
}

// raiseInternal gives internal topics the replicas that they would have been made with, had the cluster been as large
// then as it is now: factors names the topics whose replication factor was left to kaja, and what it is to be. A topic is
// raised once so many brokers are in service. The new replicas follow, and join the ISR by themselves; nothing is taken
// away from anybody.
func (d *decider) raiseInternal(img *image.Image, factors map[string]int) ([]coordrec.MetadataRecord, []raised) {
	usable := usableBrokers(img)
	var records []coordrec.MetadataRecord
	var out []raised
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range factors {
			if !yield(name) {
				return
			}
		}
	}) {
		t, ok := img.Topic(name)
		if !ok || len(usable) < factors[name] {
			continue
		}
		given := map[wire.BrokerID]int{}
		for _, p := range t.Partitions {
			for _, r := range p.Replicas {
				given[r]++
			}
		}
		before := len(records)
		for _, p := range t.Partitions {
			if r := grow(img, t, p, factors[name], usable, given); r != nil {
				records = append(records, r)
			}
		}
		if len(records) > before {
			out = append(out, raised{name, factors[name]})
		}
	}
	return records, out
}

// usableBrokers are the brokers that a replica can be placed on now.
func usableBrokers(img *image.Image) []*image.Broker {
	var out []*image.Broker
	for b := range img.Brokers() {
		if b.Active() && len(openDirs(b)) > 0 {
			out = append(out, b)
		}
	}
	return out
}

// grow adds replicas to a partition: brokers of racks that it is not in first, then those that were given the fewest of
// the topic.
func grow(img *image.Image, t *image.Topic, p *image.Partition, rf int, usable []*image.Broker, given map[wire.BrokerID]int) coordrec.MetadataRecord {
	if len(p.Replicas) >= rf || len(p.Adding) > 0 || len(p.Removing) > 0 {
		return nil
	}
	replicas, dirs := slices.Clone(p.Replicas), slices.Clone(p.Directories)
	racks := map[string]bool{}
	for _, r := range replicas {
		if b, ok := img.Broker(r); ok {
			racks[b.Rack] = true
		}
	}
	for len(replicas) < rf {
		var left []*image.Broker
		for _, b := range usable {
			if !image.Contains(replicas, b.ID) {
				left = append(left, b)
			}
		}
		if len(left) == 0 {
			return nil
		}
		b := slices.MinFunc(left, func(a, b *image.Broker) int {
			return cmp.Or(cmp.Compare(number(racks[a.Rack]), number(racks[b.Rack])), cmp.Compare(given[a.ID], given[b.ID]), cmp.Compare(a.ID, b.ID))
		})
		given[b.ID]++
		racks[b.Rack] = true
		replicas = append(replicas, b.ID)
		dirs = append(dirs, directories(img, []wire.BrokerID{b.ID})...)
	}
	return &coordrec.PartitionChangeRecord{
		PartitionID: p.ID, TopicID: t.ID, Leader: coordrec.NoLeaderChange, LeaderRecoveryState: coordrec.NoRecoveryChange,
		Replicas: replicas, Directories: dirs,
	}
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
