package raftctl

import (
	"context"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// ask submits a decision with a result. The result is given on success only.
func ask[T any](ctx context.Context, c *Controller, validateOnly bool,
	decide func(img *image.Image) ([]coordrec.MetadataRecord, T, error)) (T, error) {
	var result, none T
	err := c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		records, r, err := decide(img)
		result = r
		if validateOnly {
			records = nil
		}
		return records, err
	})
	if err != nil {
		return none, err
	}
	return result, nil
}

// RegisterBroker registers a broker, fenced, and gives its epoch. Errors are *Error.
func (c *Controller) RegisterBroker(ctx context.Context, reg Registration) (wire.BrokerEpoch, error) {
	epoch, err := ask(ctx, c, false, func(img *image.Image) ([]coordrec.MetadataRecord, wire.BrokerEpoch, error) {
		return c.decider.registerBroker(img, reg)
	})
	if err != nil {
		return wire.NoBrokerEpoch, err
	}
	return epoch, nil
}

// UnfenceBroker lets a registered broker lead; it has applied the metadata up to its registration. Errors are *Error.
func (c *Controller) UnfenceBroker(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch) error {
	return c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		return c.decider.unfenceBroker(img, id, epoch)
	})
}

// ShutDownBroker is a controlled shutdown: leaderships move where they can, and the broker is fenced. What it then
// writes down as its epoch makes its next registration a clean one. Errors are *Error.
func (c *Controller) ShutDownBroker(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch) error {
	return c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		return c.decider.shutDown(img, id, epoch)
	})
}

// CreateTopics creates topics, or only says what would be with validateOnly. The results are in the order of topics; an
// error, always *Error, is the answer for all of them.
func (c *Controller) CreateTopics(ctx context.Context, topics []NewTopic, validateOnly bool) ([]CreatedTopic, error) {
	return ask(ctx, c, validateOnly, func(img *image.Image) ([]coordrec.MetadataRecord, []CreatedTopic, error) {
		return c.decider.createTopics(img, topics)
	})
}

// DeleteTopics deletes topics by name or id; results are parallel to topics.
func (c *Controller) DeleteTopics(ctx context.Context, topics []DeletedTopic) ([]DeletedTopic, error) {
	return ask(ctx, c, false, func(img *image.Image) ([]coordrec.MetadataRecord, []DeletedTopic, error) {
		return c.decider.deleteTopics(img, topics)
	})
}

// ReplicasRemoved says that no broker holds replicas of these deleted topics any more.
func (c *Controller) ReplicasRemoved(ctx context.Context, ids []wire.UUID) error {
	return c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		return c.decider.replicasRemoved(img, ids), nil
	})
}

// CreatePartitions adds partitions; results are parallel to topics, nil for success.
func (c *Controller) CreatePartitions(ctx context.Context, topics []MorePartitions, validateOnly bool) ([]*Error, error) {
	return ask(ctx, c, validateOnly, func(img *image.Image) ([]coordrec.MetadataRecord, []*Error, error) {
		return c.decider.createPartitions(img, topics)
	})
}

// AlterConfigs changes configs; results are parallel to requests, nil for success.
func (c *Controller) AlterConfigs(ctx context.Context, requests []AlterConfigs, validateOnly bool) ([]*Error, error) {
	return ask(ctx, c, validateOnly, func(img *image.Image) ([]coordrec.MetadataRecord, []*Error, error) {
		return c.decider.alterConfigs(img, requests)
	})
}

// AllocateProducerIDs gives a block that no other broker gets, in this life of the cluster or a later one.
func (c *Controller) AllocateProducerIDs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch) (ProducerIDs, error) {
	return ask(ctx, c, false, func(img *image.Image) ([]coordrec.MetadataRecord, ProducerIDs, error) {
		return c.decider.allocateProducerIDs(img, id, epoch)
	})
}

// Heartbeat takes a broker's heartbeat. Errors are *Error.
func (c *Controller) Heartbeat(ctx context.Context, hb Heartbeat) (HeartbeatReply, error) {
	of := life{hb.ID, hb.Epoch}
	c.beats.begin(of)
	defer c.beats.end(of)
	came := time.Now()
	reply, err := ask(ctx, c, false, func(img *image.Image) ([]coordrec.MetadataRecord, HeartbeatReply, error) {
		if s := c.sessions.sessions[hb.ID]; s != nil && s.epoch == hb.Epoch {
			c.metrics.heartbeatGap.Observe(came.Sub(s.heard).Seconds())
		}
		return c.decider.heartbeat(c.sessions, img, c.committed().Offset(), hb, time.Now())
	})
	reply.Metadata, reply.Since = c.committed().Offset(), wordAge(c.sinceMajority(), c.opts.sessionTimeout(), hb.ID == c.opts.NodeID)
	return reply, err
}

// AlterPartitions takes what a leader asks for of its partitions; results are parallel to changes.
func (c *Controller) AlterPartitions(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, changes []ISRChange) ([]ISRResult, error) {
	return ask(ctx, c, false, func(img *image.Image) ([]coordrec.MetadataRecord, []ISRResult, error) {
		return c.decider.alterPartitions(img, id, epoch, changes)
	})
}

// ElectLeaders holds elections; partitions nil is all that need one.
func (c *Controller) ElectLeaders(ctx context.Context, kind Election, partitions []PartitionName) ([]ElectionResult, error) {
	return ask(ctx, c, false, func(img *image.Image) ([]coordrec.MetadataRecord, []ElectionResult, error) {
		return c.decider.electLeaders(img, kind, partitions)
	})
}

// AssignDirs notes where a broker's replicas lie; results are parallel to assignments, nil for success.
func (c *Controller) AssignDirs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, assignments []DirAssignment) ([]*Error, error) {
	return ask(ctx, c, false, func(img *image.Image) ([]coordrec.MetadataRecord, []*Error, error) {
		return c.decider.assignDirs(img, id, epoch, assignments)
	})
}

// UnregisterBroker forgets a broker, and takes its node out of the quorum. Errors are *Error.
func (c *Controller) UnregisterBroker(ctx context.Context, id wire.BrokerID) error {
	err := c.submit(ctx, func(img *image.Image) ([]coordrec.MetadataRecord, error) {
		return c.decider.unregisterBroker(img, id)
	})
	if err != nil || c.opts.Streams == nil || id == c.opts.NodeID {
		return err
	}
	return c.removeMembers(ctx, id)
}

// UpdateFeatures changes finalised levels: all of them or, with an error, none. It only says what would be with
// validateOnly. Errors are *Error.
func (c *Controller) UpdateFeatures(ctx context.Context, updates []FeatureUpdate, validateOnly bool) error {
	_, err := ask(ctx, c, validateOnly, func(img *image.Image) ([]coordrec.MetadataRecord, struct{}, error) {
		records, err := c.decider.updateFeatures(img, updates)
		return records, struct{}{}, err
	})
	return err
}
