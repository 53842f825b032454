package broker

import (
	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/txn/marker"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (b *Broker) newTxns() *txn.Service {
	writer := api.NewMarkerWriter(b, lateReplicas{b}, b.groups)
	return txn.NewService(txn.Options{
		State: state.Config{
			MaxTimeoutMs: int32(b.cfg.Int("transaction.max.timeout.ms")),
			Expiration:   b.cfg.Duration("transactional.id.expiration.ms"),
		},
		CommitTimeout:  b.cfg.Duration("request.timeout.ms"),
		AbortInterval:  b.cfg.Duration("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
		ExpireInterval: b.cfg.Duration("transaction.remove.expired.transaction.cleanup.interval.ms"),
		NewProducerID:  b.producerIDs.Next,
		NumPartitions: func() int {
			if t, ok := b.Image().Topic(image.TxnStateTopic); ok {
				return len(t.Partitions)
			}
			return 0
		},
		PartitionFor: groupcoord.PartitionFor,
		Version:      b.transactionVersion,
		Unsure:       b.unsure,
		Markers: marker.New(marker.Options{
			Leader: b.leaderOf,
			Write: func(to wire.BrokerID, req *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse)) {
				if to != b.nodeID() {
					b.writeMarkers(to, req, done)
					return
				}
				writer.Write(req, done)
			},
			BrokerEpoch: b.brokerEpoch,
			Logger:      b.logger,
		}),
		Logger: b.logger, Registerer: b.env.Registerer,
	})
}

// transactionVersion is the finalised level of transaction.version; a cluster without the feature is at 0.
func (b *Broker) transactionVersion() state.Version {
	level, _ := b.Image().Feature(image.FeatureTransactionVersion)
	return state.Version(level)
}

func (b *Broker) leaderOf(tp wire.TopicPartition) (wire.BrokerID, bool) {
	p, ok := b.Image().Partition(tp.Topic, tp.Partition)
	if !ok {
		return wire.NoBroker, false
	}
	return p.Leader, true
}

// electTxns starts a coordinator of transactions once the metadata that made it leader is what b.Image gives: with older
// metadata it would take a partition that was just created for one that was deleted, and owe it no marker.
func (b *Broker) electTxns(p *replica.Partition, epoch wire.LeaderEpoch) {
	b.electedTxns = append(b.electedTxns, func() { b.txns.Elected(p.TP.Partition, epoch, p.Log()) })
}

// runElections starts the coordinators that electTxns has noted. applying is held.
func (b *Broker) runElections() {
	for _, elect := range b.electedTxns {
		elect()
	}
	b.electedTxns = nil
}

// lateReplicas are the replicas of a broker that may not have opened them yet.
type lateReplicas struct{ b *Broker }

func (l lateReplicas) ByName(topic string, p wire.PartitionID) (*replica.Partition, bool) {
	m := l.b.replicas.Load()
	if m == nil {
		return nil, false
	}
	return m.ByName(topic, p)
}

func (l lateReplicas) Partition(topic wire.UUID, p wire.PartitionID) (*replica.Partition, bool) {
	m := l.b.replicas.Load()
	if m == nil {
		return nil, false
	}
	return m.Partition(topic, p)
}
