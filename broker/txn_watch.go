package broker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// hangingCheck is the time between two looks for hanging transactions.
	hangingCheck = time.Minute
	// maxOpenTxnTopics bounds the series of the metric of open transactions: the topics with the oldest ones.
	maxOpenTxnTopics = 100
)

// openTxns is the collector of open transactions: how long the oldest of each topic has been open. Only topics that have
// one are in it. It also tells how many decided transactions still owe markers.
type openTxns struct {
	replicas *replica.Manager
	wall     func() time.Time
	txns     *txn.Service
	oldest   *prometheus.Desc
	pending  *prometheus.Desc
}

func newOpenTxns(m *replica.Manager, wall func() time.Time, txns *txn.Service) openTxns {
	return openTxns{
		replicas: m, wall: wall, txns: txns,
		oldest: prometheus.NewDesc("kaja_txn_oldest_open_seconds",
			"Time for which the oldest open transaction of a topic has been open, of partitions led here.", []string{"topic"}, nil),
		pending: prometheus.NewDesc("kaja_txn_markers_pending",
			"Transactions that are decided by a coordinator here and whose markers are not all written.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (o openTxns) Describe(out chan<- *prometheus.Desc) {
	out <- o.oldest
	out <- o.pending
}

// Collect implements prometheus.Collector.
func (o openTxns) Collect(out chan<- prometheus.Metric) {
	began := map[string]int64{}
	o.replicas.OpenTransactions(func(p *replica.Partition, oldest log.OpenTransaction) {
		if at, ok := began[p.TP.Topic]; !ok || oldest.Began < at {
			began[p.TP.Topic] = oldest.Began
		}
	})
	topics := make([]string, 0, len(began))
	for topic := range began {
		topics = append(topics, topic)
	}
	slices.SortFunc(topics, func(a, b string) int { return cmp.Or(cmp.Compare(began[a], began[b]), cmp.Compare(a, b)) })
	now := o.wall()
	for _, topic := range topics[:min(len(topics), maxOpenTxnTopics)] {
		age := max(now.Sub(time.UnixMilli(began[topic])), 0)
		out <- prometheus.MustNewConstMetric(o.oldest, prometheus.GaugeValue, age.Seconds(), topic)
	}
	out <- prometheus.MustNewConstMetric(o.pending, prometheus.GaugeValue, float64(o.txns.MarkersPending()))
}

// watchTxns looks for hanging transactions: open for longer than any may be, and not known to a coordinator. One
// goroutine, joined by Close.
func (b *Broker) watchTxns(ctx context.Context) {
	tick := time.NewTicker(hangingCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.findHanging(ctx)
		}
	}
}

// findHanging reports the hanging transactions and gives their number.
func (b *Broker) findHanging(ctx context.Context) int {
	longest := b.cfg.Duration("transaction.max.timeout.ms") + 2*b.cfg.Duration("transaction.abort.timed.out.transaction.cleanup.interval.ms")
	type open struct {
		tp  wire.TopicPartition
		txn log.OpenTransaction
	}
	var suspects []open
	before := b.env.Wall().Add(-longest).UnixMilli()
	b.replicas.Load().OpenTransactions(func(p *replica.Partition, oldest log.OpenTransaction) {
		if oldest.Began < before {
			suspects = append(suspects, open{p.TP, oldest})
		}
	})
	hanging := 0
	for _, s := range suspects {
		known, sure := b.knownToCoordinator(ctx, s.tp, s.txn.ProducerID)
		if known || !sure {
			continue
		}
		hanging++
		b.logger.Warn("hanging transaction: open, and no coordinator knows of it; see: kaja txn why-blocked", "topic", s.tp.Topic,
			"partition", s.tp.Partition, "producer_id", s.txn.ProducerID, "offset", s.txn.First)
	}
	return hanging
}

// knownToCoordinator reports whether a coordinator will end the producer's transaction in a partition; sure is false when
// that can't be told now.
func (b *Broker) knownToCoordinator(ctx context.Context, tp wire.TopicPartition, id wire.ProducerID) (known, sure bool) {
	type answer struct {
		listed []txn.Listed
		err    *kerr.Error
	}
	listed := make(chan answer, 1)
	b.txns.List(state.Filter{Producers: []wire.ProducerID{id}, LongerMs: -1}, func(l []txn.Listed, err *kerr.Error) { listed <- answer{l, err} })
	select {
	case a := <-listed:
		if a.err != nil {
			return false, false
		}
		for _, l := range a.listed {
			described := make(chan bool, 1)
			b.txns.Describe(l.ID, func(d txn.Description, err *kerr.Error) {
				described <- err != nil || slices.Contains(d.Partitions, tp)
			})
			if <-described {
				return true, true
			}
		}
		return b.knownElsewhere(ctx, tp, id)
	case <-ctx.Done():
		return false, false
	}
}
