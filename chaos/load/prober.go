package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

const (
	// proberPatience is how long a prober waits for an acknowledgement; then it asks every node who leads, and sends the batch again.
	proberPatience = 50 * time.Millisecond
	// askPatience is how long it waits for what they say.
	askPatience = 50 * time.Millisecond
	// proberPause is the time between two tries.
	proberPause = 2 * time.Millisecond
)

// prober is the idempotent producer of one partition of Probe, with one record under way. It measures the nodes and not a client: it
// knows every node, keeps connections of its own to each, waits for none of them for long and asks all of them at once.
type prober struct {
	part   int32
	nodes  []*kgo.Client // one a node, which talks to that node alone
	leader int           // of nodes

	leaderEpoch int32 // of the newest leader that a node has named; -1 before

	id       int64
	epoch    int16
	sequence int32
}

// newProber makes one; it has the addresses of all nodes. The clients are its own.
func newProber(part int32, addrs []string) (*prober, error) {
	p := &prober{part: part, id: -1, leader: int(part) % len(addrs), leaderEpoch: -1}
	for _, addr := range addrs {
		cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ClientID(fmt.Sprintf("prober-%d", part)), kgo.MaxVersions(kversion.V3_0_0()),
			kgo.DialTimeout(askPatience), kgo.RequestTimeoutOverhead(100*time.Millisecond), kgo.RequestRetries(0), kgo.RetryTimeout(proberPatience))
		if err != nil {
			p.close()
			return nil, fmt.Errorf("make a client: %w", err)
		}
		p.nodes = append(p.nodes, cl)
	}
	return p, nil
}

func (p *prober) close() {
	for _, cl := range p.nodes {
		cl.Close()
	}
}

// ask sends a request to one node.
func (p *prober) ask(ctx context.Context, node int, patience time.Duration, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.nodes[node].SeedBrokers()[0].Request(ctx, req)
}

// find asks every node who leads the partition, and believes the one that knows the newest leader. Who knows a newer one than p need not
// be waited for with the others.
func (p *prober) find(ctx context.Context) {
	type told struct{ leader, epoch int32 }
	answers := make(chan told, len(p.nodes))
	for node := range p.nodes {
		go func() {
			req := kmsg.NewPtrMetadataRequest()
			topic := kmsg.NewMetadataRequestTopic()
			topic.Topic = kmsg.StringPtr(Probe)
			req.Topics = append(req.Topics, topic)
			none := told{-1, -1}
			resp, err := p.ask(ctx, node, askPatience, req)
			if err == nil {
				for _, t := range resp.(*kmsg.MetadataResponse).Topics {
					for _, q := range t.Partitions {
						if q.Partition == p.part && q.ErrorCode == 0 {
							none = told{q.Leader, q.LeaderEpoch}
						}
					}
				}
			}
			answers <- none
		}()
	}
	newest := told{-1, -1}
	for range p.nodes {
		if t := <-answers; t.epoch > newest.epoch && t.leader > 0 {
			newest = t
		}
		if newest.epoch > p.leaderEpoch {
			break
		}
	}
	if newest.leader > 0 {
		p.leader, p.leaderEpoch = int(newest.leader)-1, newest.epoch
	}
}

// begin takes a producer id of any node.
func (p *prober) begin(ctx context.Context) error {
	for ctx.Err() == nil {
		for node := range p.nodes {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.ProducerID, req.ProducerEpoch = -1, -1
			resp, err := p.ask(ctx, node, time.Second, req)
			if err != nil {
				continue
			}
			if got := resp.(*kmsg.InitProducerIDResponse); got.ErrorCode == 0 {
				p.id, p.epoch = got.ProducerID, got.ProducerEpoch
				return nil
			}
		}
		wait(ctx, proberPause)
	}
	return ctx.Err()
}

// send has a record acknowledged, however long that takes; an error other than ctx's is a refusal that nobody may give.
func (p *prober) send(ctx context.Context, value string) (wire.Offset, error) {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch,
		Producer: &batch.Producer{ID: wire.ProducerID(p.id), Epoch: wire.ProducerEpoch(p.epoch), Sequence: p.sequence}})
	b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte(value)})
	records, _, err := b.Build(nil, nil)
	if err != nil {
		return wire.NoOffset, err
	}
	for {
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, int32(time.Second.Milliseconds())
		req.Topics = []kmsg.ProduceRequestTopic{{Topic: Probe, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: p.part, Records: records}}}}
		resp, err := p.ask(ctx, p.leader, proberPatience, req)
		if err == nil {
			got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if got.ErrorCode == 0 {
				p.sequence++
				return wire.Offset(got.BaseOffset), nil
			}
			if err := kerr.ErrorForCode(got.ErrorCode); !kerr.IsRetriable(err) && !errors.Is(err, kerr.KafkaStorageError) {
				return wire.NoOffset, err
			}
		}
		if ctx.Err() != nil {
			return wire.NoOffset, ctx.Err()
		}
		p.find(ctx)
		wait(ctx, proberPause)
	}
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
