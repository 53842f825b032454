package raftctl

import (
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Election is the kind of an election that somebody asks for, as on the wire.
type Election int8

// Kinds of elections.
const (
	PreferredElection Election = 0 // the first replica, if it is in sync
	UncleanElection   Election = 1 // any replica, should none that is in sync be there: records may be lost
)

// maxBalanced is how many partitions one balancing moves (Kafka: MAX_ELECTIONS_PER_IMBALANCE).
const maxBalanced = 1000

// PartitionName names a partition by its topic's name.
type PartitionName struct {
	Topic     string
	Partition wire.PartitionID
}

// ElectionResult is the answer for one partition; a nil Err is success.
type ElectionResult struct {
	PartitionName
	Err *Error
}

// electLeaders holds elections (Kafka: ReplicationControlManager.electLeaders). partitions nil is all; then those that
// need none are not among the results.
func (d *decider) electLeaders(img *image.Image, kind Election, partitions []PartitionName) ([]coordrec.MetadataRecord, []ElectionResult, error) {
	all := partitions == nil
	if all {
		for t := range img.Topics() {
			for _, p := range t.Partitions {
				partitions = append(partitions, PartitionName{t.Name, p.ID})
			}
		}
	}
	var records []coordrec.MetadataRecord
	var results []ElectionResult
	seen := map[PartitionName]bool{}
	for _, name := range partitions {
		if seen[name] {
			continue
		}
		seen[name] = true
		r, err := d.electLeader(img, kind, name)
		if all && err != nil && err.Code == kerr.ElectionNotNeeded {
			continue
		}
		if r != nil {
			records = append(records, r)
		}
		results = append(results, ElectionResult{name, err})
	}
	return records, results, nil
}

func (d *decider) electLeader(img *image.Image, kind Election, name PartitionName) (coordrec.MetadataRecord, *Error) {
	t, ok := img.Topic(name.Topic)
	if !ok {
		return nil, refuse(kerr.UnknownTopicOrPartition, "No such topic as %s", name.Topic)
	}
	p, ok := t.Partition(name.Partition)
	if !ok {
		return nil, refuse(kerr.UnknownTopicOrPartition, "No such partition as %s-%d", name.Topic, name.Partition)
	}
	if kind == PreferredElection && p.Leader == p.Replicas[0] || kind == UncleanElection && p.Leader != wire.NoBroker {
		return nil, &Error{Code: kerr.ElectionNotNeeded}
	}
	c := d.change(img, t, p, noChange)
	c.election, c.asked = kind, true
	r := c.record()
	switch {
	case r != nil:
		return r, nil
	case kind == PreferredElection:
		return nil, &Error{Code: kerr.PreferredLeaderNotAvailable}
	}
	return nil, &Error{Code: kerr.EligibleLeadersNotAvailable}
}

// balance moves leaderships back to the preferred leaders that can take them, at most maxBalanced.
func (d *decider) balance(img *image.Image) []coordrec.MetadataRecord {
	var records []coordrec.MetadataRecord
	for t := range img.Topics() {
		for _, p := range t.Partitions {
			if p.Leader == p.Replicas[0] || len(records) == maxBalanced {
				continue
			}
			c := d.change(img, t, p, noChange)
			c.election, c.asked = PreferredElection, true
			if r := c.record(); r != nil {
				records = append(records, r)
			}
		}
	}
	return records
}
