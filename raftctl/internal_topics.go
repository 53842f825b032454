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
// raised once so many brokers are in service. The new replicas follow, and join the ISR by themselves. The leader stays; but
// the brokers are preferred in turn, so that the next balancing spreads the leaderships over all of them.
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
		g := growth{img: img, usable: usable, rf: factors[name], given: map[wire.BrokerID]int{}, preferred: map[wire.BrokerID]int{}}
		for _, p := range t.Partitions {
			for _, r := range p.Replicas {
				g.given[r]++
			}
			if len(p.Replicas) >= g.rf {
				g.preferred[p.Replicas[0]]++
			}
		}
		before := len(records)
		for _, p := range t.Partitions {
			if r := g.grow(t, p); r != nil {
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

// growth is the growing of one topic's partitions to rf replicas.
type growth struct {
	img       *image.Image
	usable    []*image.Broker
	rf        int
	given     map[wire.BrokerID]int // replicas of the topic
	preferred map[wire.BrokerID]int // partitions of which the broker is to be the leader, of those that have rf replicas
}

// grow adds replicas to a partition: brokers of racks that it is not in first, then those that were given the fewest of
// the topic. The one that is preferred the least is put first.
func (g *growth) grow(t *image.Topic, p *image.Partition) coordrec.MetadataRecord {
	if len(p.Replicas) >= g.rf || len(p.Adding) > 0 || len(p.Removing) > 0 {
		return nil
	}
	replicas, dirs := slices.Clone(p.Replicas), slices.Clone(p.Directories)
	racks := map[string]bool{}
	for _, r := range replicas {
		if b, ok := g.img.Broker(r); ok {
			racks[b.Rack] = true
		}
	}
	for len(replicas) < g.rf {
		var left []*image.Broker
		for _, b := range g.usable {
			if !image.Contains(replicas, b.ID) {
				left = append(left, b)
			}
		}
		if len(left) == 0 {
			return nil
		}
		b := slices.MinFunc(left, func(a, b *image.Broker) int {
			return cmp.Or(cmp.Compare(number(racks[a.Rack]), number(racks[b.Rack])), cmp.Compare(g.given[a.ID], g.given[b.ID]), cmp.Compare(a.ID, b.ID))
		})
		g.given[b.ID]++
		racks[b.Rack] = true
		replicas = append(replicas, b.ID)
		dirs = append(dirs, directories(g.img, []wire.BrokerID{b.ID})...)
	}
	first := 0
	for i, r := range replicas {
		if g.preferred[r] < g.preferred[replicas[first]] {
			first = i
		}
	}
	g.preferred[replicas[first]]++
	toFront(replicas, first)
	toFront(dirs, first)
	return &coordrec.PartitionChangeRecord{
		PartitionID: p.ID, TopicID: t.ID, Leader: coordrec.NoLeaderChange, LeaderRecoveryState: coordrec.NoRecoveryChange,
		Replicas: replicas, Directories: dirs,
	}
}

// toFront moves element i to the front.
func toFront[T any](s []T, i int) {
	x := s[i]
	copy(s[1:], s[:i])
	s[0] = x
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
