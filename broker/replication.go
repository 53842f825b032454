package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// askLeader is how followers here ask the leaders of their partitions: on connections of their own, because a leader keeps
// fetches waiting. nil for a node that has no others.
func (b *Broker) askLeader() func(ctx context.Context, leader wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.brokers.Conn("fetch").Do
}

// alterPartitions brings what leaders here ask for to the active controller.
func (b *Broker) alterPartitions(ctx context.Context, changes []replica.ISRChange) ([]replica.ISRResult, error) {
	asked := make([]raftctl.ISRChange, len(changes))
	for i, ch := range changes {
		asked[i] = raftctl.ISRChange{TopicID: ch.TopicID, Partition: ch.Partition, LeaderEpoch: ch.LeaderEpoch, PartitionEpoch: ch.PartitionEpoch, LogEpoch: ch.LogEpoch}
		for _, m := range ch.ISR {
			asked[i].ISR = append(asked[i].ISR, raftctl.ISRMember{ID: m.ID, Epoch: m.Epoch})
		}
	}
	answers, err := b.active.AlterPartitions(ctx, b.nodeID(), b.brokerEpoch(), asked)
	if err != nil {
		return nil, err
	}
	results := make([]replica.ISRResult, len(answers))
	for i, a := range answers {
		switch {
		case a.Err != nil:
			results[i].Err = a.Err
		case a.Partition == nil:
			results[i].Err = errors.New("the controller does not say what has become of the partition")
		default:
			results[i].ISR, results[i].PartitionEpoch = a.Partition.ISR, a.Partition.PartitionEpoch
		}
	}
	return results, nil
}

// assignDirs tells the active controller where replicas lie. What it refuses, such as a topic that is gone, is not told again.
func (b *Broker) assignDirs(ctx context.Context, assignments []replica.DirAssignment) error {
	asked := make([]raftctl.DirAssignment, len(assignments))
	for i, a := range assignments {
		asked[i] = raftctl.DirAssignment(a)
	}
	refused, err := b.active.AssignDirs(ctx, b.nodeID(), b.brokerEpoch(), asked)
	if err != nil {
		return fmt.Errorf("assign replicas to directories: %w", err)
	}
	for i, r := range refused {
		if r != nil {
			b.logger.Info("controller refuses to note where a replica lies", "topic_id", asked[i].TopicID, "partition", asked[i].Partition,
				"directory", asked[i].Directory, "err", r)
		}
	}
	return nil
}

// dirFailed and damaged have the watch over what is offline look; they never wait.
func (b *Broker) dirFailed(replica.Dir, error) { b.lookOffline() }

func (b *Broker) damaged(*replica.Partition) { b.lookOffline() }

func (b *Broker) lookOffline() {
	select {
	case b.dirsFailed <- struct{}{}:
	default:
	}
}

// watchDirs ends the coordinators whose log directory has failed or whose records are damaged. One goroutine, joined by Close. The controller hears of the
// directory with a heartbeat at once.
func (b *Broker) watchDirs(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.dirsFailed:
		}
		m := b.replicas.Load()
		if m == nil {
			continue
		}
		b.applying.Lock()
		m.ResignOffline()
		b.applying.Unlock()
		if b.life != nil {
			b.life.Wake() // the heartbeat names the directory
		}
	}
}

// fetchConfig is what bounds the fetches of followers. A batch comes whole however low the limits are.
func (b *Broker) fetchConfig() replica.FetchConfig {
	return replica.FetchConfig{
		MinBytes: max(1, b.cfg.Int("replica.fetch.min.bytes")), MaxBytes: max(1, b.cfg.Int("replica.fetch.response.max.bytes")),
		MaxPartitionBytes: max(1, b.cfg.Int("replica.fetch.max.bytes")), Wait: max(time.Millisecond, b.cfg.Duration("replica.fetch.wait.max.ms")),
		Backoff: max(time.Millisecond, b.cfg.Duration("replica.fetch.backoff.ms")),
	}
}
