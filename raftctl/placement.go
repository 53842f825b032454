package raftctl

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// placer spreads replicas over brokers: leaders go round all unfenced brokers, taking the racks in turn, and the other
// replicas go round the racks from the leader's on, to the broker of each that has been given the fewest. A partition's
// replicas are in as many racks as there are, and all unfenced brokers get the same number of leaders.
type placer struct {
	racks   [][]*placed
	leaders []*placed // unfenced, the racks in turn
	next    int       // in leaders
	total   int
}

// placed is a broker that can be placed on.
type placed struct {
	id     wire.BrokerID
	rack   int
	fenced bool
	given  int // replicas
}

// newPlacer takes every registered broker that is not shutting down and has a log directory that takes new partitions.
// intN draws a number below its argument.
func newPlacer(img *image.Image, intN func(int) int) *placer {
	byRack := make(map[string][]*placed)
	p := &placer{}
	for b := range img.Brokers() {
		if b.InShutdown || len(openDirs(b)) == 0 {
			continue
		}
		byRack[b.Rack] = append(byRack[b.Rack], &placed{id: b.ID, fenced: b.Fenced})
		p.total++
	}
	longest := 0
	for _, name := range slices.Sorted(maps.Keys(byRack)) {
		rack := byRack[name]
		at := intN(len(rack))
		rack = slices.Concat(rack[at:], rack[:at])
		for _, b := range rack {
			b.rack = len(p.racks)
		}
		p.racks = append(p.racks, rack)
		longest = max(longest, len(rack))
	}
	for i := range longest {
		for _, rack := range p.racks {
			if i < len(rack) && !rack[i].fenced {
				p.leaders = append(p.leaders, rack[i])
			}
		}
	}
	if len(p.leaders) > 0 {
		p.next = intN(len(p.leaders))
	}
	return p
}

// check gives the reason why rf replicas cannot be placed, in Kafka's words, or "".
func (p *placer) check(rf int) string {
	switch {
	case rf <= 0:
		return fmt.Sprintf("Invalid replication factor %d: the replication factor must be positive.", rf)
	case len(p.leaders) == 0:
		return "All brokers are currently fenced."
	case rf > p.total:
		return fmt.Sprintf("The target replication factor of %d cannot be reached because only %d broker(s) are registered "+
			"or some brokers have all their log directories cordoned.", rf, p.total)
	}
	return ""
}

// place gives the replicas of one partition; check(rf) must be "".
func (p *placer) place(rf int) []wire.BrokerID {
	leader := p.leaders[p.next]
	p.next = (p.next + 1) % len(p.leaders)
	leader.given++
	replicas := append(make([]wire.BrokerID, 0, rf), leader.id)
	for at := leader.rack; len(replicas) < rf; {
		at = (at + 1) % len(p.racks)
		if b := fewest(p.racks[at], replicas); b != nil {
			b.given++
			replicas = append(replicas, b.id)
		}
	}
	return replicas
}

// fewest is the broker of a rack that is not among taken and was given the fewest replicas, unfenced ones first; nil if
// all are taken.
func fewest(rack []*placed, taken []wire.BrokerID) *placed {
	var best *placed
	for _, b := range rack {
		if image.Contains(taken, b.id) {
			continue
		}
		if best == nil || best.fenced && !b.fenced || best.fenced == b.fenced && b.given < best.given {
			best = b
		}
	}
	return best
}

// openDirs are the broker's log directories that take new partitions.
func openDirs(b *image.Broker) []wire.UUID {
	return slices.DeleteFunc(slices.Clone(b.LogDirs), func(d wire.UUID) bool { return slices.Contains(b.CordonedLogDirs, d) })
}

// directories chooses a log directory for each replica: the only one where there is one, else the broker chooses.
func directories(img *image.Image, replicas []wire.BrokerID) []wire.UUID {
	dirs := make([]wire.UUID, len(replicas))
	for i, id := range replicas {
		if b, ok := img.Broker(id); ok && len(b.LogDirs) == 1 {
			dirs[i] = b.LogDirs[0]
		} else {
			dirs[i] = image.DirectoryUnassigned
		}
	}
	return dirs
}
