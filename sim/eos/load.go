package eos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Load is a workload. Every field is required but Until and Configs.
type Load struct {
	Dial      Dial
	Seeds     []string // addresses
	Seed      uint64
	Records   int             // to be sent by all producers
	Until     <-chan struct{} // closed: they end before that; nil: they do not
	Producers int
	Readers   int // that follow the log
	Batch     int // records of a batch, at most
	// Patience is how long a request may fail with errors that shall be retried, before that is a violation.
	Patience time.Duration
	// Topics are what the producers write to: name and number of partitions. The first partition of the first one is also
	// what the groups' offsets are for.
	Topics      map[string]int32
	Replication int16
	Configs     map[string]*string // of the topics
	// Client makes a client for what comes before and after the load: creating topics, reading everything.
	Client func(opts ...kgo.Opt) (*kgo.Client, error)
}

// ended reports whether Until is closed.
func (l *Load) ended() bool {
	select {
	case <-l.Until:
		return true
	default:
		return false
	}
}

func (l *Load) name(i int) string { return fmt.Sprintf("p%d", i) }

func (l *Load) partitions() []wire.TopicPartition {
	byTP := map[wire.TopicPartition]bool{}
	for topic, n := range l.Topics {
		for p := range n {
			byTP[wire.TopicPartition{Topic: topic, Partition: wire.PartitionID(p)}] = true
		}
	}
	return sortedTPs(byTP)
}

func (l *Load) input() wire.TopicPartition { return l.partitions()[0] }

// Create makes the topics.
func (l *Load) Create(ctx context.Context) error {
	cl, err := l.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	for topic, n := range l.Topics {
		_, err := kadm.NewClient(cl).CreateTopic(ctx, n, l.Replication, l.Configs, topic)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create %s: %w", topic, err)
		}
	}
	return nil
}

// Run runs the producers to the end of their records, or to the first violation, and gives what they did.
func (l *Load) Run(ctx context.Context) *History {
	h := NewHistory()
	rctx, stop := context.WithCancel(ctx)
	defer stop()
	var readers, producers sync.WaitGroup
	for i := range l.Readers {
		r := newReader(l, h, i)
		readers.Go(func() { r.run(rctx) })
	}
	for i := range l.Producers {
		p := newProducer(l, h, l.name(i), i)
		producers.Go(func() { p.run(ctx) })
	}
	producers.Wait()
	if !h.Failed() {
		l.settle(ctx, h)
	}
	stop()
	readers.Wait()
	return h
}

// Check reads everything and compares it with the history. After a violation nothing is read: transactions may be open.
func (l *Load) Check(ctx context.Context, h *History) error {
	if h.Failed() {
		return h.Err()
	}
	var f Final
	var err error
	if f.All, err = l.read(ctx, kgo.ReadUncommitted()); err != nil {
		return err
	}
	if f.Committed, err = l.read(ctx, kgo.ReadCommitted()); err != nil {
		return err
	}
	f.Offsets = map[string]int64{}
	c := newClient(l.Dial, l.Seeds, "offsets")
	defer c.close()
	for i := range l.Producers {
		began := time.Now()
		for {
			code, offset := groupOffset(ctx, c, "g-"+l.name(i), l.input(), true)
			if code == 0 {
				f.Offsets[l.name(i)] = offset
				break
			}
			if time.Since(began) > l.Patience {
				h.Fail("hanging: the offset of %s's group is answered %d, and every transaction is over", l.name(i), code)
				break
			}
			if !pause(ctx, retryPause) {
				return ctx.Err()
			}
		}
	}
	return h.Check(f)
}

// read reads every partition from its start to its present end.
func (l *Load) read(ctx context.Context, level kgo.IsolationLevel) (map[wire.TopicPartition][]Read, error) {
	var topics []string
	for topic := range l.Topics {
		topics = append(topics, topic)
	}
	cl, err := l.Client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(level),
		kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ends: %w", err)
	}
	left := map[wire.TopicPartition]wire.Offset{}
	ends.Each(func(e kadm.ListedOffset) {
		if e.Offset > 0 {
			left[wire.TopicPartition{Topic: e.Topic, Partition: wire.PartitionID(e.Partition)}] = wire.Offset(e.Offset)
		}
	})
	log := map[wire.TopicPartition][]Read{}
	rctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for len(left) > 0 {
		fetches := cl.PollFetches(rctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read, %d partitions are not at their end: %w", len(left), err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tp := wire.TopicPartition{Topic: r.Topic, Partition: wire.PartitionID(r.Partition)}
			if !r.Attrs.IsControl() {
				log[tp] = append(log[tp], Read{wire.Offset(r.Offset), string(r.Value)})
			}
			if wire.Offset(r.Offset)+1 >= left[tp] {
				delete(left, tp)
			}
		})
	}
	return log, nil
}
