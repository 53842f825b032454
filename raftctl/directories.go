package raftctl

import (
	"slices"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// DirAssignment says in which of its directories a broker holds a replica.
type DirAssignment struct {
	Directory wire.UUID
	TopicID   wire.UUID
	Partition wire.PartitionID
}

// assignDirs notes where a broker's replicas lie (KIP-858). The results are parallel to assignments, nil for success; an
// error answers the whole request. What lies in a directory that is not registered, or no longer, leaves the ISR; what has no
// leader and lies where it can be served gets one if it can: a request that is read late may have said otherwise.
func (d *decider) assignDirs(img *image.Image, id wire.BrokerID, epoch wire.BrokerEpoch, assignments []DirAssignment) ([]coordrec.MetadataRecord, []*Error, error) {
	b, err := current(img, id, epoch)
	if err != nil {
		return nil, nil, err
	}
	var records []coordrec.MetadataRecord
	results := make([]*Error, len(assignments))
	offline := map[*image.Partition]bool{}
	for i, a := range assignments {
		t, ok := img.TopicByID(a.TopicID)
		if !ok {
			results[i] = &Error{Code: kerr.UnknownTopicID}
			continue
		}
		p, ok := t.Partition(a.Partition)
		switch {
		case !ok:
			results[i] = &Error{Code: kerr.UnknownTopicOrPartition}
			continue
		case !p.HasReplica(id):
			results[i] = &Error{Code: kerr.NotLeaderForPartition}
			continue
		}
		if p.Directory(id) != a.Directory {
			dirs := slices.Clone(p.Directories)
			dirs[slices.Index(p.Replicas, id)] = a.Directory
			records = append(records, &coordrec.PartitionChangeRecord{
				PartitionID: p.ID, TopicID: t.ID, Leader: coordrec.NoLeaderChange,
				LeaderRecoveryState: coordrec.NoRecoveryChange, Directories: dirs,
			})
		}
		offline[p] = !onlineDir(b, a.Directory)
	}
	named := len(records)
	records = append(records, d.partitionChanges(img, brokerChange{id, wire.NoBroker, wire.NoBroker},
		func(p *image.Partition) bool { return offline[p] && p.InISR(id) })...)
	if named == 0 {
		return records, results, nil
	}
	next, _, err := img.With(img.Position(), records)
	if err != nil {
		return nil, nil, err
	}
	return append(records, d.partitionChanges(next, noChange, func(p *image.Partition) bool {
		return p.Leader == wire.NoBroker && p.HasReplica(id) && b.Active() && onlineDir(b, p.Directory(id))
	})...), results, nil
}

// dirsOffline takes out of service what lies in directories that a broker has lost.
func (d *decider) dirsOffline(img *image.Image, b *image.Broker, lost []wire.UUID) []coordrec.MetadataRecord {
	left := slices.DeleteFunc(slices.Clone(b.LogDirs), func(dir wire.UUID) bool { return slices.Contains(lost, dir) })
	if len(left) == len(b.LogDirs) || len(left) == 0 {
		// Nothing new; or none is left: such a broker sends no heartbeats, and all that it holds leaves service when its
		// session ends. With a registration that lists no directory, every directory would count as online.
		return nil
	}
	records := d.partitionChanges(img, brokerChange{b.ID, wire.NoBroker, wire.NoBroker}, func(p *image.Partition) bool {
		dir := p.Directory(b.ID)
		return p.InISR(b.ID) && slices.Contains(b.LogDirs, dir) && !slices.Contains(left, dir)
	})
	return append(records, &coordrec.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, LogDirs: left})
}
