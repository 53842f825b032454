package load

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/sim/history"
)

// Probes send a small record to each partition of Probe all the time, and note when each was acknowledged. Safe for
// concurrent use.
type Probes struct {
	told *history.History
	mu   sync.Mutex
	acks [][]time.Time // by partition, in their order
}

func newProbes(n int) *Probes { return &Probes{told: history.New(), acks: make([][]time.Time, n)} }

// Acked is how many records were acknowledged so far.
func (p *Probes) Acked() int { return p.told.Acked() }

// run sends to one partition until ctx ends; every is the time between two records, or longer where one is acknowledged later. addrs are
// those of all nodes.
func (p *Probes) run(ctx context.Context, part int32, addrs []string, every time.Duration) error {
	from, err := newProber(part, addrs)
	if err != nil {
		return err
	}
	defer from.close()
	if err := from.begin(ctx); err != nil {
		return nil //nolint:nilerr // the load has ended before it began
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		value := "probe" + strconv.Itoa(int(part)) + ":" + strconv.Itoa(n)
		offset, err := from.send(ctx, value)
		if ctx.Err() != nil && err != nil {
			return nil // nobody was told what became of the last one
		}
		p.told.Told(value, &kgo.Record{Topic: Probe, Partition: part, Offset: int64(offset)}, err)
		if err != nil {
			return fmt.Errorf("probe of partition %d: %w", part, err)
		}
		p.mu.Lock()
		p.acks[part] = append(p.acks[part], time.Now())
		p.mu.Unlock()
	}
}

// Gap is the longest time between two acknowledgements of one of the partitions within [from, to], the one before from
// among them.
func (p *Probes) Gap(partitions []int32, from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var longest time.Duration
	for _, part := range partitions {
		acks := p.acks[part]
		i, same := slices.BinarySearchFunc(acks, from, time.Time.Compare)
		if same {
			i++
		}
		last := from
		if i > 0 {
			last = acks[i-1]
		}
		for ; i < len(acks) && !acks[i].After(to); i++ {
			longest = max(longest, acks[i].Sub(last))
			last = acks[i]
		}
		longest = max(longest, to.Sub(last))
	}
	return longest
}

// Back waits until each of the partitions has an acknowledgement after t; false when ctx ends first.
func (p *Probes) Back(ctx context.Context, t time.Time) bool {
	for {
		back := true
		p.mu.Lock()
		for _, acks := range p.acks {
			back = back && len(acks) > 0 && acks[len(acks)-1].After(t)
		}
		p.mu.Unlock()
		if back {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *Probes) check(log map[int32][]history.Read) error {
	if n := p.told.Failed(); n > 0 {
		return fmt.Errorf("%d records were given up, although nobody may: %v", n, p.told.Failures(3))
	}
	return p.told.Check(log)
}

// makeProbes creates the probe's topic: node i+1 is the first replica of partition i.
func (l *Load) makeProbes(ctx context.Context, ad *kadm.Client, rf int16) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 5000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = Probe, -1, -1
	for i := range l.cfg.Nodes {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition = int32(i)
		for r := range int(rf) {
			a.Replicas = append(a.Replicas, int32((i+r)%l.cfg.Nodes+1))
		}
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, t)
	cl, err := l.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	got, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("create %s: %w", Probe, err)
	}
	return kerr.ErrorForCode(got.Topics[0].ErrorCode)
}
