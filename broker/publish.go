package broker

import (
	"context"
	"log/slog"
	"slices"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// publish carries a committed change of the metadata to the parts, in the order of the log: first the replicas, which
// start and stop coordinators as leaderships come and go, then the image that requests are answered from. The controller
// answers the request behind the change after that, so whoever was answered sees what it asked for everywhere.
func (b *Broker) publish(ctx context.Context, delta *image.Delta, img *image.Image) {
	if b.cluster != nil {
		b.cluster.learn(img)
	}
	b.applying.Lock()
	defer b.applying.Unlock()
	if m := b.replicas.Load(); m != nil {
		if err := m.Apply(ctx, delta, img); err != nil {
			b.logger.Error("metadata could not be applied whole", slog.Any("err", err))
		}
	}
	if slices.ContainsFunc(delta.Configs, func(r image.Resource) bool { return r.Type == image.ResourceBroker }) {
		b.applySettings(img)
	}
	b.img.Store(img)
	b.arrivals.reached(img.Offset())
	b.runElections()
	if b.groups != nil {
		for _, t := range delta.Topics {
			if t.New == nil && t.Old != nil {
				b.groups.TopicDeleted(t.Old.Name, t.Old.ID)
			}
		}
	}
	b.wakeReaper()
}

// elected and resigned start and stop the coordinators of internal partitions. The replicas call them in order, under
// applying.
func (b *Broker) elected(p *replica.Partition, epoch wire.LeaderEpoch) {
	switch p.TP.Topic {
	case image.OffsetsTopic:
		b.groups.Elected(p.TP.Partition, epoch, p.Log())
	case image.TxnStateTopic:
		b.electTxns(p, epoch)
	}
}

func (b *Broker) resigned(p *replica.Partition, epoch wire.LeaderEpoch) {
	switch p.TP.Topic {
	case image.OffsetsTopic:
		b.groups.Resigned(p.TP.Partition, epoch)
	case image.TxnStateTopic:
		b.txns.Resigned(p.TP.Partition, epoch)
	}
}

// wakeReaper tells the reaper to look again; it never waits.
func (b *Broker) wakeReaper() {
	select {
	case b.reap <- struct{}{}:
	default:
	}
}

// reaper tells the controller of deleted topics whose replicas here are gone, so that it may forget their ids: until
// then the id in the metadata is what allows their directories to be removed. One goroutine, joined by Close.
func (b *Broker) reaper(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.reap:
		}
		gone := b.goneTopics()
		if len(gone) == 0 {
			continue
		}
		if b.life != nil {
			b.life.Wake() // the heartbeat names them; all brokers must
			continue
		}
		if err := b.controller.ReplicasRemoved(ctx, gone); err != nil && ctx.Err() == nil {
			// The ids stay, and are reported again with the next change or start.
			b.logger.Warn("removed topics could not be confirmed", slog.Int("topics", len(gone)), slog.Any("err", err))
		}
	}
}
