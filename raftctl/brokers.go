package raftctl

import (
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Registration is what a broker tells of itself when it starts.
type Registration struct {
	ID          wire.BrokerID
	Incarnation wire.UUID // drawn anew by every process
	Endpoints   []image.Endpoint
	Features    map[string]image.VersionRange
	Rack        *string
	LogDirs     []wire.UUID
	// PreviousEpoch is the broker epoch that a clean stop has written down; NoBrokerEpoch when the last stop was not
	// clean. It decides whether what the broker holds may still count as in sync.
	PreviousEpoch wire.BrokerEpoch
}

// registerBroker decides a registration. The broker is fenced until unfenceBroker.
func (d *decider) registerBroker(img *image.Image, reg Registration) ([]coordrec.MetadataRecord, wire.BrokerEpoch, error) {
	if err := checkRegistration(img, reg); err != nil {
		return nil, wire.NoBrokerEpoch, err
	}
	r := (&image.Broker{
		ID: reg.ID, Epoch: img.NextBrokerEpoch(), Incarnation: reg.Incarnation, Endpoints: reg.Endpoints,
		Features: reg.Features, Fenced: true, LogDirs: reg.LogDirs, CordonedLogDirs: []wire.UUID{},
	}).Record()
	r.Rack = reg.Rack
	old, exists := img.Broker(reg.ID)
	if exists && !old.Fenced && old.Incarnation != reg.Incarnation && !shareDir(old.LogDirs, reg.LogDirs) {
		// Not a new process on the same disks: another machine uses the id, and this one is alive.
		return nil, wire.NoBrokerEpoch, refuse(kerr.DuplicateBrokerRegistration, "Another broker is registered with that broker id.")
	}
	if exists && old.Incarnation == reg.Incarnation {
		r.BrokerEpoch, r.Fenced, r.InControlledShutdown = old.Epoch, old.Fenced, old.InShutdown
		return []coordrec.MetadataRecord{r}, r.BrokerEpoch, nil
	}
	if d.replaced[reg.Incarnation] {
		// What a process has sent before it died arrives after its successor's registration. Taken for a new one it would fence
		// the successor for good.
		return nil, wire.NoBrokerEpoch, refuse(kerr.DuplicateBrokerRegistration, "That process was replaced by a later one.")
	}
	if exists {
		if d.replaced == nil {
			d.replaced = map[wire.UUID]bool{}
		}
		d.replaced[old.Incarnation] = true
	}
	var records []coordrec.MetadataRecord
	if exists && !old.Fenced {
		// The process died without a word; its session would have ended by now.
		records = d.fenceBroker(img, old)
		next, _, err := img.With(img.Position(), records)
		if err != nil {
			return nil, wire.NoBrokerEpoch, err
		}
		img = next
	}
	if !exists || reg.PreviousEpoch != old.Epoch {
		records = append(records, d.partitionChanges(img, brokerChange{wire.NoBroker, wire.NoBroker, reg.ID},
			func(p *image.Partition) bool { return p.InISR(reg.ID) || image.Contains(p.ELR, reg.ID) })...)
	}
	return append(records, r), r.BrokerEpoch, nil
}

func checkRegistration(img *image.Image, reg Registration) error {
	if len(reg.LogDirs) == 0 {
		return refuse(kerr.InvalidRegistration, "No directories specified in request")
	}
	for i, dir := range reg.LogDirs {
		if reservedDirectory(dir) {
			return refuse(kerr.InvalidRegistration, "Reserved directory ID in request")
		}
		if slices.Contains(reg.LogDirs[:i], dir) {
			return refuse(kerr.InvalidRegistration, "Duplicate directory ID in request")
		}
		for b := range img.Brokers() {
			if b.ID != reg.ID && slices.Contains(b.LogDirs, dir) {
				return refuse(kerr.InvalidRegistration, "Broker %d is already registered with directory %s", b.ID, dir)
			}
		}
	}
	for name, level := range img.Features() {
		if v, ok := reg.Features[name]; !ok || level < v.Min || level > v.Max {
			return refuse(kerr.UnsupportedVersion, "Unable to register because the broker does not support finalized version %d of %s. "+
				"The broker wants a version between %d and %d, inclusive.", level, name, v.Min, v.Max)
		}
	}
	return nil
}

// reservedDirectory reports whether id is one of the first hundred, which name no directory (KIP-858).
func reservedDirectory(id wire.UUID) bool {
	return wire.UUID(append(make([]byte, 15), id[15])) == id && id[15] < 100
}

// current is the registration of this epoch, or why there is none.
func current(img *image.Image, id wire.BrokerID, epoch wire.BrokerEpoch) (*image.Broker, error) {
	b, ok := img.Broker(id)
	if !ok {
		return nil, refuse(kerr.BrokerIDNotRegistered, "Broker ID %d is not currently registered", id)
	}
	if b.Epoch != epoch {
		return nil, refuse(kerr.StaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", b.Epoch, epoch)
	}
	return b, nil
}

// unfenceBroker lets a broker lead: partitions without a leader get one if they can.
func (d *decider) unfenceBroker(img *image.Image, id wire.BrokerID, epoch wire.BrokerEpoch) ([]coordrec.MetadataRecord, error) {
	b, err := current(img, id, epoch)
	if err != nil || !b.Fenced {
		return nil, err
	}
	records := []coordrec.MetadataRecord{&coordrec.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: epoch, Fenced: -1}}
	return append(records, d.partitionChanges(img, brokerChange{wire.NoBroker, id, wire.NoBroker},
		func(p *image.Partition) bool { return p.Leader == wire.NoBroker })...), nil
}

// fenceBroker takes a broker out of every ISR.
func (d *decider) fenceBroker(img *image.Image, b *image.Broker) []coordrec.MetadataRecord {
	records := d.partitionChanges(img, brokerChange{b.ID, wire.NoBroker, wire.NoBroker},
		func(p *image.Partition) bool { return p.InISR(b.ID) })
	return append(records, &coordrec.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: 1})
}

// shutDown takes a broker out of service that wants to stop: first its leaderships, then the broker.
func (d *decider) shutDown(img *image.Image, id wire.BrokerID, epoch wire.BrokerEpoch) ([]coordrec.MetadataRecord, error) {
	b, err := current(img, id, epoch)
	if err != nil || b.Fenced {
		return nil, err
	}
	var records []coordrec.MetadataRecord
	leads := false
	for t := range img.Topics() {
		leads = leads || slices.ContainsFunc(t.Partitions, func(p *image.Partition) bool { return p.Leader == id })
	}
	if leads && !b.InShutdown {
		records = append(records, &coordrec.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: epoch, InControlledShutdown: 1})
	}
	return append(records, d.fenceBroker(img, b)...), nil
}

func shareDir(a, b []wire.UUID) bool {
	return slices.ContainsFunc(a, func(d wire.UUID) bool { return slices.Contains(b, d) })
}

// unregisterBroker forgets a broker; its replicas leave every ISR (Kafka: handleBrokerUnregistered).
func (d *decider) unregisterBroker(img *image.Image, id wire.BrokerID) ([]coordrec.MetadataRecord, error) {
	b, ok := img.Broker(id)
	if !ok {
		return nil, refuse(kerr.BrokerIDNotRegistered, "Broker ID %d is not currently registered", id)
	}
	records := d.partitionChanges(img, brokerChange{id, wire.NoBroker, wire.NoBroker}, func(p *image.Partition) bool { return p.InISR(id) })
	return append(records, &coordrec.UnregisterBrokerRecord{BrokerID: id, BrokerEpoch: b.Epoch}), nil
}

// producerIDBlock is how many producer ids a broker gets at once.
const producerIDBlock = 1000

// ProducerIDs is a block of producer ids: First and the Count-1 after it belong to the broker that asked, for ever.
type ProducerIDs struct {
	First wire.ProducerID
	Count int64
}

func (d *decider) allocateProducerIDs(img *image.Image, id wire.BrokerID, epoch wire.BrokerEpoch) ([]coordrec.MetadataRecord, ProducerIDs, error) {
	if _, err := current(img, id, epoch); err != nil {
		return nil, ProducerIDs{}, err
	}
	block := ProducerIDs{First: img.NextProducerID(), Count: producerIDBlock}
	if block.First > 1<<63-1-producerIDBlock {
		return nil, ProducerIDs{}, refuse(kerr.UnknownServerError, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit")
	}
	if planted.On(planted.ProducerIDsTwice) {
		return nil, block, nil
	}
	r := &coordrec.ProducerIDsRecord{BrokerID: id, BrokerEpoch: epoch, NextProducerID: block.First + producerIDBlock}
	return []coordrec.MetadataRecord{r}, block, nil
}
