package raftctl

import (
	"math/rand/v2"
	"time"

	"github.com/kajamq/kaja/internal/invariant"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Core is the controller's part that decides, without raft, clock, goroutine or network: what Controller runs on its
// decide loop, for a simulation that brings a log of its own. Its methods read the speculative image of the present
// stint, and give the entry that is to be proposed, nil where nothing changes. Not safe for concurrent use.
type Core struct {
	d       *decider
	timeout time.Duration
	live    *liveness
	stint   stint
}

// CoreOptions is what a Core is made with; the fields are those of Options.
type CoreOptions struct {
	NodeID         wire.BrokerID
	Seed           uint64
	NewUUID        func() wire.UUID
	Configs        Configs
	Defaults       Defaults
	SessionTimeout time.Duration
}

// NewCore makes a core that leads nothing yet.
func NewCore(o CoreOptions) *Core {
	return &Core{
		d: &decider{nodeID: o.NodeID, defaults: o.Defaults, configs: o.Configs, newUUID: o.NewUUID,
			rng: rand.New(rand.NewPCG(o.Seed, 0x72616674))},
		timeout: o.SessionTimeout,
	}
}

// Claim begins a stint on an image that holds everything that predecessors have committed (raft's Barrier), and gives its
// first entry. The stint is open once that is committed: Claimed.
func (c *Core) Claim(committed *image.Image) []byte {
	e := claimEntry(committed, c.d.nodeID, nil)
	c.stint = stint{epoch: e.epoch, spec: committed}
	return e.encode()
}

// Claimed says that the claim was committed and led to img. Every session begins anew (C16).
func (c *Core) Claimed(img *image.Image, now time.Time) {
	c.stint.spec = img
	c.live = newLiveness(img, c.timeout, now)
}

// Settled says that nothing is under way any more and img is what is committed.
func (c *Core) Settled(img *image.Image) { c.stint.spec = img }

// Epoch is the controller epoch of the present stint.
func (c *Core) Epoch() wire.ControllerEpoch { return c.stint.epoch }

// entry takes records into the speculative image and gives the entry that holds them.
func (c *Core) entry(records []coordrec.MetadataRecord) []byte {
	if len(records) == 0 {
		return nil
	}
	err := c.stint.take(records)
	invariant.Must(err == nil, "a decision does not fit the metadata it was made of: %v", err)
	c.stint.number++
	return entry{epoch: c.stint.epoch, number: c.stint.number, records: records}.encode()
}

// RegisterBroker is Controller.RegisterBroker.
func (c *Core) RegisterBroker(reg Registration) ([]byte, wire.BrokerEpoch, error) {
	records, epoch, err := c.d.registerBroker(c.stint.spec, reg)
	return c.entry(records), epoch, err
}

// Heartbeat is Controller.Heartbeat; committed is the offset of the committed image.
func (c *Core) Heartbeat(hb Heartbeat, committed wire.Offset, now time.Time) ([]byte, HeartbeatReply, error) {
	records, reply, err := c.d.heartbeat(c.live, c.stint.spec, committed, hb, now)
	return c.entry(records), reply, err
}

// Expire fences one broker whose session has ended; NoBroker if there is none.
func (c *Core) Expire(now time.Time) ([]byte, wire.BrokerID) {
	records, id := c.d.expire(c.live, c.stint.spec, now)
	return c.entry(records), id
}

// AlterPartitions is Controller.AlterPartitions.
func (c *Core) AlterPartitions(id wire.BrokerID, epoch wire.BrokerEpoch, changes []ISRChange) ([]byte, []ISRResult, error) {
	records, results, err := c.d.alterPartitions(c.stint.spec, id, epoch, changes)
	return c.entry(records), results, err
}

// CreateTopics is Controller.CreateTopics.
func (c *Core) CreateTopics(topics []NewTopic) ([]byte, []CreatedTopic, error) {
	records, results, err := c.d.createTopics(c.stint.spec, topics)
	return c.entry(records), results, err
}

// ElectLeaders is Controller.ElectLeaders.
func (c *Core) ElectLeaders(kind Election, partitions []PartitionName) ([]byte, []ElectionResult, error) {
	records, results, err := c.d.electLeaders(c.stint.spec, kind, partitions)
	return c.entry(records), results, err
}

// Balance is what the controller does by itself at its balance interval.
func (c *Core) Balance() []byte { return c.entry(c.d.balance(c.stint.spec)) }

// AllocateProducerIDs is Controller.AllocateProducerIDs.
func (c *Core) AllocateProducerIDs(id wire.BrokerID, epoch wire.BrokerEpoch) ([]byte, ProducerIDs, error) {
	records, block, err := c.d.allocateProducerIDs(c.stint.spec, id, epoch)
	return c.entry(records), block, err
}

// ApplyEntry is what every node makes of a committed entry: the next image, or the same one when the entry is not the
// next of the controller epoch in force and so has no effect.
func ApplyEntry(img *image.Image, offset wire.Offset, data []byte) (next *image.Image, delta *image.Delta, dropped bool, err error) {
	e, err := decodeEntry(data)
	if err != nil {
		return nil, nil, false, err
	}
	if !fits(img, e) {
		return img, nil, true, nil
	}
	next, delta, err = img.With(image.Position{Offset: offset, Entry: e.number}, e.records)
	return next, delta, false, err
}
