package raftctl

import (
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// partitionChange works out the record that follows from a new ISR or from brokers coming and going (Kafka:
// PartitionChangeBuilder; KIP-966 for the eligible leader replicas).
type partitionChange struct {
	topic     wire.UUID
	partition *image.Partition
	isr       []wire.BrokerID // wanted
	minISR    int
	elr       bool // eligible leader replicas are in force
	unclean   bool // unclean.leader.election.enable
	// lost is a broker whose last stop was unclean: what it acknowledged may be gone. NoBroker for none.
	lost wire.BrokerID
	// alive says whether a broker can lead.
	alive     func(wire.BrokerID) bool
	election  Election
	asked     bool // somebody asked for the election
	recovered bool // the leader says that it has recovered from its unclean election
	// restated: the ISR is written down even if it is the present one, so that the partition epoch moves.
	restated bool
}

// record gives nil if nothing changes.
func (c *partitionChange) record() *coordrec.PartitionChangeRecord {
	p := c.partition
	r := &coordrec.PartitionChangeRecord{
		PartitionID: p.ID, TopicID: c.topic,
		Leader: coordrec.NoLeaderChange, LeaderRecoveryState: coordrec.NoRecoveryChange,
	}
	elr := c.targetELR()
	leader, unclean := c.elect(elr)
	if leader != p.Leader {
		if image.Contains(elr, leader) {
			c.isr = []wire.BrokerID{leader}
			elr = slices.DeleteFunc(slices.Clone(elr), func(b wire.BrokerID) bool { return b == leader })
		}
		r.Leader = leader
		if unclean {
			r.ISR = []wire.BrokerID{leader}
			if !p.Recovering {
				r.LeaderRecoveryState = 1
			}
		}
	}
	if unclean && leader != p.Leader || !c.elr {
		elr = nil
	}
	if !slices.Equal(elr, p.ELR) {
		r.EligibleLeaderReplicas = notNil(elr)
	}
	if r.ISR == nil && (len(c.isr) > 0 || c.elr) && (c.restated || !slices.Equal(c.isr, p.ISR)) {
		r.ISR = notNil(c.isr)
	}
	if c.recovered && p.Recovering && r.Leader == coordrec.NoLeaderChange {
		r.LeaderRecoveryState = 0
	}
	c.lastKnownLeader(r)
	if r.LeaderRecoveryState == coordrec.NoRecoveryChange && r.ISR == nil && r.Leader == coordrec.NoLeaderChange && r.EligibleLeaderReplicas == nil && r.LastKnownELR == nil {
		return nil
	}
	return r
}

func notNil(ids []wire.BrokerID) []wire.BrokerID {
	if ids == nil {
		return []wire.BrokerID{}
	}
	return ids
}

// targetELR is who left the ISR while it was smaller than min.insync.replicas and still has everything.
func (c *partitionChange) targetELR() []wire.BrokerID {
	if !c.elr || len(c.isr) >= c.minISR {
		return nil
	}
	var elr []wire.BrokerID
	for _, from := range [][]wire.BrokerID{c.partition.ELR, c.partition.ISR} {
		for _, b := range from {
			if (b != c.lost || planted.On(planted.LostStaysEligible)) && !image.Contains(c.isr, b) && !image.Contains(elr, b) {
				elr = append(elr, b)
			}
		}
	}
	slices.Sort(elr)
	return elr
}

// elect gives the leader, the present one where it can stay, and whether the election may lose records.
func (c *partitionChange) elect(elr []wire.BrokerID) (leader wire.BrokerID, unclean bool) {
	p := c.partition
	valid := func(b wire.BrokerID) bool {
		return (image.Contains(c.isr, b) || len(c.isr) == 0 && image.Contains(elr, b)) && c.alive(b)
	}
	if c.asked && c.election == PreferredElection && valid(p.Replicas[0]) {
		return p.Replicas[0], false
	}
	if valid(p.Leader) {
		return p.Leader, false
	}
	if i := slices.IndexFunc(p.Replicas, valid); i >= 0 {
		return p.Replicas[i], false
	}
	if c.elr && len(elr) == 0 && len(c.isr) == 0 && len(p.LastKnownELR) == 1 && c.alive(p.LastKnownELR[0]) {
		return p.LastKnownELR[0], true
	}
	if c.unclean || c.asked && c.election == UncleanElection || planted.On(planted.UncleanUnasked) {
		if i := slices.IndexFunc(p.Replicas, c.alive); i >= 0 {
			return p.Replicas[i], true
		}
	}
	return wire.NoBroker, false
}

// lastKnownLeader remembers the leader when the ISR becomes empty, and forgets it once there is a leader again.
func (c *partitionChange) lastKnownLeader(r *coordrec.PartitionChangeRecord) {
	p := c.partition
	switch {
	case !c.elr:
	case r.ISR != nil && len(r.ISR) == 0 && (len(p.LastKnownELR) != 1 || p.LastKnownELR[0] != p.Leader):
		r.LastKnownELR = []wire.BrokerID{p.Leader}
	case (r.Leader >= 0 || p.Leader != wire.NoBroker && r.Leader != wire.NoBroker) && len(p.LastKnownELR) > 0:
		r.LastKnownELR = []wire.BrokerID{}
	}
}

// brokerChange says which broker goes, comes or was lost; NoBroker for none.
type brokerChange struct{ remove, add, lost wire.BrokerID }

// change begins a partitionChange under the image's rules, with the ISR as it is.
func (d *decider) change(img *image.Image, t *image.Topic, p *image.Partition, ch brokerChange) *partitionChange {
	return &partitionChange{
		topic: t.ID, partition: p, isr: p.ISR, minISR: d.minISR(img, t.Name), elr: img.ELREnabled(),
		unclean: d.uncleanElection(img, t.Name), lost: ch.lost,
		alive: func(b wire.BrokerID) bool {
			if b == ch.remove || b == ch.lost {
				return false
			}
			reg, ok := img.Broker(b)
			return ok && (b == ch.add || reg.Active() || planted.On(planted.FencedLeads)) && onlineDir(reg, p.Directory(b)) || !ok && b == ch.add
		},
	}
}

// noChange is no broker going, coming or lost.
var noChange = brokerChange{wire.NoBroker, wire.NoBroker, wire.NoBroker}

// onlineDir reports whether a replica in dir can be served: a directory that is not known yet counts as one (Kafka:
// DirectoryId.isOnline).
func onlineDir(b *image.Broker, dir wire.UUID) bool {
	switch dir {
	case image.DirectoryUnassigned, image.DirectoryMigrating:
		return true
	case image.DirectoryLost:
		return false
	}
	return len(b.LogDirs) == 0 || slices.Contains(b.LogDirs, dir)
}

// partitionChanges gives the records for every partition that touched picks.
func (d *decider) partitionChanges(img *image.Image, ch brokerChange, touched func(*image.Partition) bool) []coordrec.MetadataRecord {
	var records []coordrec.MetadataRecord
	for t := range img.Topics() {
		for _, p := range t.Partitions {
			if !touched(p) {
				continue
			}
			c := d.change(img, t, p, ch)
			c.isr = slices.DeleteFunc(slices.Clone(p.ISR), func(b wire.BrokerID) bool { return b == ch.remove || b == ch.lost })
			if r := c.record(); r != nil {
				records = append(records, r)
			}
		}
	}
	return records
}
