package broker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// leaveTime bounds how long a stopping broker waits for its leaderships to move; without a controller they cannot.
	leaveTime = 5 * time.Second
	// leaderlessTime is how long it waits while nobody leads the metadata.
	leaderlessTime = 2 * time.Second
	// maxGoneTopics bounds the deleted topics that one heartbeat names.
	maxGoneTopics = 10000
	// metadataCheck is the time between two looks at the age of the metadata, oldMetadata the age that is worth a line.
	metadataCheck = 10 * time.Second
	oldMetadata   = 10 * time.Second
)

// register registers the broker, and returns when its own metadata know of that: at once by a node alone, else as soon as
// there is a controller.
func (b *Broker) register(ctx context.Context, reg raftctl.Registration) (wire.BrokerEpoch, error) {
	if b.active.Alone() {
		return b.active.RegisterBroker(ctx, reg)
	}
	session := b.cfg.Duration("broker.session.timeout.ms")
	b.life = control.NewLifecycle(control.LifecycleOptions{
		Access: b.active, NodeID: b.nodeID(),
		Interval: min(b.cfg.Duration("broker.heartbeat.interval.ms"), session/3), // Kafka's settings know longer sessions
		Timeout:  session / 2, Applied: func() wire.Offset { return b.Image().Offset() },
		Session: session, NewIncarnation: b.ids.uuid, Again: func(epoch wire.BrokerEpoch) { b.epoch.Store(int64(epoch)) },
		There: func() *image.Broker {
			r, _ := b.Image().Broker(b.nodeID()) // nil where there is none
			return r
		},
		Offline: b.offlineDirs, Gone: b.goneTopics, Unfit: b.unfit, Logger: b.logger,
	})
	b.disks.Tell(b.life.Wake)
	epoch, err := b.life.Register(ctx, reg)
	if err != nil {
		return epoch, err
	}
	if err := b.awaitOwn(ctx, func(r *image.Broker) bool { return r.Epoch >= epoch }); err != nil {
		return epoch, fmt.Errorf("wait for the metadata of the registration: %w", err)
	}
	return epoch, nil
}

// unsure reports whether the controller may have replaced this broker as a leader without its knowing.
func (b *Broker) unsure() bool { return b.life != nil && b.life.Unsure() }

// outdated reports whether the controller may have replaced this broker as a coordinator, and there is hope that it will hear of it.
func (b *Broker) outdated() bool { return b.life != nil && b.life.Outdated() }

// catchUpWait is how long at most an answer waits for metadata that are known to be decided.
const catchUpWait = 500 * time.Millisecond

// catchUp calls then once this node's image has reached the metadata that the controller answered from last, or catchUpWait has passed.
// It returns false, and never calls it, where the broker is outdated for another reason.
func (b *Broker) catchUp(then func()) bool {
	if b.life == nil {
		return false
	}
	known, behind := b.life.Behind()
	if !behind {
		return false
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), catchUpWait)
		defer cancel()
		_ = b.awaitImage(ctx, known) // who waited looks again in any case
		then()
	}()
	return true
}

// unfence says that this broker is ready, and returns when its own metadata know of it: from then on clients are served, and
// the first answer names it.
func (b *Broker) unfence(ctx context.Context) error {
	if err := b.life.Ready(ctx); err != nil {
		return err
	}
	if err := b.awaitOwn(ctx, func(r *image.Broker) bool { return !r.Fenced }); err != nil {
		return fmt.Errorf("wait for the metadata without a fence: %w", err)
	}
	return nil
}

// awaitOwn returns once this node's image holds its broker as is wants it.
func (b *Broker) awaitOwn(ctx context.Context, is func(*image.Broker) bool) error {
	for {
		img := b.Image()
		if r, ok := img.Broker(b.nodeID()); ok && is(r) {
			return nil
		}
		if err := b.awaitImage(ctx, img.Offset()+1); err != nil {
			return err
		}
	}
}

func (b *Broker) offlineDirs() []wire.UUID {
	if m := b.replicas.Load(); m != nil {
		return m.OfflineDirs()
	}
	return nil
}

// unfit says why this broker must not lead: every log directory has failed, for good, or a disk hangs.
func (b *Broker) unfit() error {
	if m := b.replicas.Load(); m != nil {
		if err := m.AllOffline(); err != nil {
			return err
		}
	}
	return b.disks.Err()
}

// goneTopics are the deleted topics of which this broker holds nothing any more.
func (b *Broker) goneTopics() []wire.UUID {
	m := b.replicas.Load()
	if m == nil {
		return nil
	}
	var gone []wire.UUID
	for id := range b.Image().Removed() {
		if len(gone) < maxGoneTopics && m.Gone(id) {
			gone = append(gone, id)
		}
	}
	return gone
}

// leave has the controller move the leaderships of a stopping broker to others, while it still serves.
func (b *Broker) leave(ctx context.Context) error {
	if b.controller == nil || b.epoch.Load() <= 0 || b.controller.Err() != nil {
		return nil
	}
	if b.life == nil {
		if err := b.controller.ShutDownBroker(ctx, b.nodeID(), b.brokerEpoch()); err != nil {
			return fmt.Errorf("controlled shutdown: %w", err)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { b.awaitLeaderless(ctx, cancel) })
	defer cancel()
	if err := b.life.ShutDown(ctx); err != nil {
		// The cluster goes on as after a crash of this node, and the files are marked clean all the same.
		b.logger.Warn("the controller did not take this broker's leaderships in time", slog.Any("err", err))
	}
	return nil
}

// awaitLeaderless calls give when nobody has led the metadata for leaderlessTime: when a whole cluster stops, the last nodes
// have nobody to tell.
func (b *Broker) awaitLeaderless(ctx context.Context, give func()) {
	tick := time.NewTicker(leaderlessTime / 20)
	defer tick.Stop()
	since := time.Now()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, ok := b.controller.Leader(); ok {
			since = time.Now()
		}
		if time.Since(since) >= leaderlessTime {
			give()
			return
		}
	}
}

// internalFactors are the internal topics whose replication factor is not set, and what it is to be in a cluster that is
// large enough.
func (b *Broker) internalFactors() map[string]int {
	factors := map[string]int{}
	for topic, name := range map[string]string{
		image.OffsetsTopic: "offsets.topic.replication.factor", image.TxnStateTopic: "transaction.state.log.replication.factor",
	} {
		if !b.cfg.IsSet(name) {
			factors[topic] = b.cfg.Int(name)
		}
	}
	return factors
}

// balance is how often leaderships go back to preferred leaders; 0: never.
func (b *Broker) balance() time.Duration {
	if !b.cfg.Bool("auto.leader.rebalance.enable") {
		return 0
	}
	return b.cfg.Duration("leader.imbalance.check.interval.seconds")
}

// asker sends requests to other brokers on connections of their own; nil without other nodes.
func (b *Broker) asker(purpose string) api.NodeCaller {
	if b.cluster == nil {
		return nil
	}
	return b.cluster.brokers.Conn(purpose).Do
}

// writeMarkers writes markers to partitions that other brokers lead. txn/marker bounds how many are under way to each.
func (b *Broker) writeMarkers(to wire.BrokerID, req *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse)) {
	ask := b.asker("markers")
	if ask == nil {
		done(nil) // a broker of another life of this cluster; the sender tries again
		return
	}
	b.markers.Go(func() {
		ctx, cancel := context.WithTimeout(b.cluster.ctx, b.cfg.Duration("request.timeout.ms"))
		defer cancel()
		resp, err := ask(ctx, to, req)
		if err != nil {
			done(nil)
			return
		}
		done(resp.(*kmsg.WriteTxnMarkersResponse))
	})
}

// metadataAge is the metric of how old the metadata may be that this node answers from.
func (b *Broker) metadataAge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kaja_broker_metadata_age_seconds",
		Help: "Time since this node has last heard of the node that leads the metadata; 0 on that node itself.",
	}, func() float64 { return b.controller.MetadataAge().Seconds() })
}

// watchMetadata says so while this node works with metadata that nobody confirms. One goroutine, joined by Close.
func (b *Broker) watchMetadata(ctx context.Context) {
	tick := time.NewTicker(metadataCheck)
	defer tick.Stop()
	old := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		age := b.controller.MetadataAge()
		if age > oldMetadata {
			b.logger.Warn("no controller is heard: this node works with the last metadata that it has", slog.Duration("age", age.Round(time.Second)))
		} else if old {
			b.logger.Info("a controller is heard again")
		}
		old = age > oldMetadata
	}
}
