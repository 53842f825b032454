package raftctl

import (
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// ISRChange is what the leader of a partition asks for: another ISR, or the end of its recovery.
type ISRChange struct {
	TopicID        wire.UUID
	Partition      wire.PartitionID
	LeaderEpoch    wire.LeaderEpoch
	PartitionEpoch wire.PartitionEpoch // of the state that the leader knows
	ISR            []ISRMember
	Recovering     bool
	// LogEpoch is the newest leader epoch in the leader's log where that is above LeaderEpoch, as it is after the files of
	// another cluster were put there; anything else means nothing.
	LogEpoch wire.LeaderEpoch
}

// ISRMember is a replica in a proposed ISR, with the broker epoch under which it fetched (KIP-903); NoBrokerEpoch where
// the leader does not know it.
type ISRMember struct {
	ID    wire.BrokerID
	Epoch wire.BrokerEpoch
}

// ISRResult is the answer to one ISRChange: the partition as it is afterwards, or why it was refused. Errors have no text.
type ISRResult struct {
	Err       *Error
	Partition *image.Partition
}

// alterPartitions decides what a leader asks for (Kafka: ReplicationControlManager.alterPartition). The results are
// parallel to changes; an error answers the whole request. What is accepted moves the partition epoch, also where the ISR
// stays as it is: with it a leader withdraws a proposal of which a copy may still be on its way.
func (d *decider) alterPartitions(img *image.Image, id wire.BrokerID, epoch wire.BrokerEpoch, changes []ISRChange) ([]coordrec.MetadataRecord, []ISRResult, error) {
	if _, err := current(img, id, epoch); err != nil {
		return nil, nil, err
	}
	var records []coordrec.MetadataRecord
	results := make([]ISRResult, len(changes))
	for i, ch := range changes {
		again := slices.ContainsFunc(changes[:i], func(o ISRChange) bool { return o.TopicID == ch.TopicID && o.Partition == ch.Partition })
		t, p, code := d.checkISRChange(img, id, ch)
		switch {
		case code == nil && again:
			code = kerr.InvalidRequest
			fallthrough
		case code != nil:
			results[i].Err = &Error{Code: code}
			continue
		}
		c := d.change(img, t, p, noChange)
		c.isr, c.recovered, c.restated = nil, !ch.Recovering, true
		for _, m := range ch.ISR {
			c.isr = append(c.isr, m.ID)
		}
		if r := c.record(); r != nil {
			records = append(records, r)
		}
	}
	after, _, err := img.With(img.Position(), records)
	if err != nil {
		return nil, nil, err
	}
	if raised := raiseEpochs(after, changes, results); len(raised) > 0 {
		records = append(records, raised...)
		if after, _, err = img.With(img.Position(), records); err != nil {
			return nil, nil, err
		}
	}
	for i, ch := range changes {
		if t, ok := after.TopicByID(ch.TopicID); ok && results[i].Err == nil {
			results[i].Partition, _ = t.Partition(ch.Partition)
		}
	}
	return records, results, nil
}

// raiseEpochs lets leaderships begin anew above the leader epochs that their logs hold: records are ordered by epochs, and who
// wrote under a lower one than is there already would have them cut off (Kafka leaves it at the lower one). Epochs that no
// elections count up to (wire.MaxLogEpoch) are no reason, or the next election would find none above. A PartitionChangeRecord knows only the next epoch, so the whole partition is written.
func raiseEpochs(img *image.Image, changes []ISRChange, results []ISRResult) []coordrec.MetadataRecord {
	var records []coordrec.MetadataRecord
	for i, ch := range changes {
		t, ok := img.TopicByID(ch.TopicID)
		if !ok || results[i].Err != nil || ch.LogEpoch > wire.MaxLogEpoch {
			continue
		}
		if p, ok := t.Partition(ch.Partition); ok && ch.LogEpoch > p.LeaderEpoch {
			r := p.Record(t.ID)
			r.LeaderEpoch, r.PartitionEpoch = ch.LogEpoch+1, p.PartitionEpoch+1
			records = append(records, r)
		}
	}
	return records
}

// checkISRChange gives the partition, or the code that refuses the change.
func (d *decider) checkISRChange(img *image.Image, id wire.BrokerID, ch ISRChange) (*image.Topic, *image.Partition, *kerr.Error) {
	t, ok := img.TopicByID(ch.TopicID)
	if !ok {
		return nil, nil, kerr.UnknownTopicID
	}
	p, ok := t.Partition(ch.Partition)
	switch {
	case !ok:
		return nil, nil, kerr.UnknownTopicOrPartition
	case ch.LeaderEpoch > p.LeaderEpoch, ch.PartitionEpoch > p.PartitionEpoch:
		// The leader knows more: another controller must be active by now.
		return nil, nil, kerr.NotController
	case ch.LeaderEpoch < p.LeaderEpoch:
		return nil, nil, kerr.FencedLeaderEpoch
	case id != p.Leader:
		return nil, nil, kerr.InvalidRequest
	case ch.PartitionEpoch < p.PartitionEpoch && !planted.On(planted.OldPartitionEpoch):
		return nil, nil, kerr.InvalidUpdateVersion
	case !validISR(p, ch.ISR), ch.Recovering && (len(ch.ISR) > 1 || !p.Recovering):
		return nil, nil, kerr.InvalidRequest
	}
	for _, m := range ch.ISR {
		if !eligible(img, p, m) {
			return nil, nil, kerr.IneligibleReplica
		}
	}
	return t, p, nil
}

// validISR wants some replicas, none twice, the leader among them.
func validISR(p *image.Partition, isr []ISRMember) bool {
	leader := false
	for i, m := range isr {
		if !p.HasReplica(m.ID) || slices.ContainsFunc(isr[:i], func(o ISRMember) bool { return o.ID == m.ID }) {
			return false
		}
		leader = leader || m.ID == p.Leader
	}
	return leader
}

// eligible wants a broker that is in service, in the life in which the leader saw it fetch: one that has lost its page
// cache since must fetch again first (KIP-841, KIP-903).
func eligible(img *image.Image, p *image.Partition, m ISRMember) bool {
	b, ok := img.Broker(m.ID)
	if !ok {
		return false
	}
	alive := b.Active() || planted.On(planted.FencedJoins)
	same := m.Epoch == wire.NoBrokerEpoch || m.Epoch == b.Epoch || planted.On(planted.BrokerEpochUnchecked)
	return alive && same && onlineDir(b, p.Directory(m.ID))
}
