package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	// maxISRChanges bounds one request to the controller.
	maxISRChanges = 5000
	// alterTimeout is for how long an answer of the controller is waited for.
	alterTimeout = 10 * time.Second
	// alterBackoffMin and alterBackoffMax bound the wait before the controller is asked again.
	alterBackoffMin = 20 * time.Millisecond
	alterBackoffMax = time.Second
	// refusedHold is for how long nothing is proposed for a partition after the controller has refused.
	refusedHold = 200 * time.Millisecond
)

// ISRResult is the controller's answer to one ISRChange: why it was refused, or the partition as it is afterwards.
type ISRResult struct {
	Err            error // a *kerr.Error
	ISR            []wire.BrokerID
	PartitionEpoch wire.PartitionEpoch
}

// isrKeeper brings what leaders propose to the controller, one request at a time for the whole broker, and looks now and
// then whether a follower has fallen behind. One goroutine, joined by close.
type isrKeeper struct {
	m      *Manager
	ask    func(ctx context.Context, changes []ISRChange) ([]ISRResult, error) // nil: there is no controller to ask
	every  time.Duration                                                       // between two looks for who lags
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}

	mu     sync.Mutex
	queue  []*Partition
	queued map[*Partition]bool
}

func newISRKeeper(m *Manager) *isrKeeper {
	k := &isrKeeper{m: m, ask: m.o.AlterPartitions, every: m.o.ReplicaLagTime / 2, wake: make(chan struct{}, 1), queued: map[*Partition]bool{}}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

func (k *isrKeeper) works() bool { return k.ask != nil }

func (k *isrKeeper) mayJoin(id wire.BrokerID, epoch wire.BrokerEpoch) bool {
	return mayJoin(k.m.img.Load(), id, epoch)
}

// alive reports whether the image knows the broker in service.
func (k *isrKeeper) alive(id wire.BrokerID) bool {
	img := k.m.img.Load()
	if img == nil {
		return false
	}
	b, ok := img.Broker(id)
	return ok && !b.Fenced
}

func (k *isrKeeper) start() {
	if k.works() {
		k.wg.Go(k.run)
	}
}

func (k *isrKeeper) close() {
	k.cancel()
	k.wg.Wait()
}

// propose has p's proposal sent. It never blocks.
func (k *isrKeeper) propose(p *Partition) {
	k.mu.Lock()
	if !k.queued[p] {
		k.queued[p] = true
		k.queue = append(k.queue, p)
	}
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *isrKeeper) run() {
	look := time.NewTicker(k.every)
	defer look.Stop()
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	backoff := time.Duration(0) // > 0: again runs
	for {
		retry := false
		select {
		case <-k.ctx.Done():
			return
		case <-look.C:
			k.shrink()
		case <-k.wake:
		case <-again.C:
			retry = true
		}
		switch {
		case backoff > 0 && !retry:
		case k.send():
			backoff = 0
		default:
			backoff = min(max(2*backoff, alterBackoffMin), alterBackoffMax)
			again.Reset(backoff)
		}
	}
}

// shrink proposes to take out whoever has lagged for too long, and asks again for leaderships above a log's epochs.
func (k *isrKeeper) shrink() {
	for _, p := range k.m.all() {
		if p.proposeShrunk() {
			k.propose(p)
		}
	}
}

func (p *Partition) proposeShrunk() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	isr := p.state.Renewal()
	if isr == nil {
		isr = p.state.Shrunk(p.world.now())
	}
	if isr == nil || !p.world.isr.works() || p.world.now().Before(p.proposeAt) {
		return false
	}
	p.state.Propose(isr)
	return true
}

// send asks the controller for everything that is proposed. It reports false when something has to be asked again.
func (k *isrKeeper) send() bool {
	for {
		parts, changes := k.take()
		if len(changes) == 0 {
			return true
		}
		ctx, cancel := context.WithTimeout(k.ctx, alterTimeout)
		results, err := k.ask(ctx, changes)
		cancel()
		if err == nil && len(results) != len(changes) {
			err = errors.New("not one result for each change")
		}
		if err != nil {
			if k.ctx.Err() == nil {
				k.m.world.logger.Warn("in-sync replicas cannot be changed yet: the controller does not answer", "partitions", len(parts), "err", err)
			}
			for i, p := range parts {
				p.unanswered(changes[i])
				k.propose(p)
			}
			return false
		}
		whole := true
		for i, p := range parts {
			if !p.settle(changes[i], results[i]) {
				k.propose(p)
				whole = false
			}
		}
		if !whole {
			return false
		}
	}
}

// take gives what is proposed now, of at most maxISRChanges partitions.
func (k *isrKeeper) take() (parts []*Partition, changes []ISRChange) {
	k.mu.Lock()
	n := min(len(k.queue), maxISRChanges)
	taken := k.queue[:n:n]
	k.queue = k.queue[n:]
	for _, p := range taken {
		delete(k.queued, p)
	}
	k.mu.Unlock()
	epoch := wire.NoBrokerEpoch
	if k.m.o.BrokerEpoch != nil {
		epoch = k.m.o.BrokerEpoch()
	}
	for _, p := range taken {
		p.mu.Lock()
		c, ok := p.state.Proposal(epoch)
		p.mu.Unlock()
		if !ok {
			continue // a newer image has settled it
		}
		c.TopicID, c.Partition = p.TopicID, p.TP.Partition
		parts, changes = append(parts, p), append(changes, c)
	}
	return parts, changes
}

// unanswered notes that nobody knows what became of a proposal.
func (p *Partition) unanswered(asked ISRChange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Unanswered(asked.PartitionEpoch)
}

// proposing reports whether the controller has left the partition epoch as it was when it was asked, and something is proposed.
func (p *Partition) proposing(asked ISRChange) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.Proposing(asked.PartitionEpoch)
}

// settle takes the controller's answer (Kafka: Partition.handleAlterPartitionError). It reports false when the controller
// has to be asked again, perhaps for something else. Where the controller knows more than this leader, the proposal stays
// open until the image tells.
func (p *Partition) settle(asked ISRChange, r ISRResult) bool {
	if r.Err == nil {
		p.accepted(r)
		return !p.proposing(asked)
	}
	code, ok := errors.AsType[*kerr.Error](r.Err)
	if !ok {
		p.unanswered(asked)
		return false
	}
	attrs := []any{"topic", p.TP.Topic, "partition", p.TP.Partition, "leader_epoch", asked.LeaderEpoch, "err", r.Err}
	switch code.Code {
	case kerr.IneligibleReplica.Code, kerr.OperationNotAttempted.Code:
		p.world.logger.Info("controller refuses the in-sync replicas", attrs...)
		p.mu.Lock()
		p.proposeAt = p.world.now().Add(refusedHold)
		n := p.noteLocked(p.state.Rejected(asked.PartitionEpoch, p.world.now()))
		p.mu.Unlock()
		p.tell(n)
		return !p.proposing(asked)
	case kerr.UnknownTopicID.Code, kerr.UnknownTopicOrPartition.Code, kerr.FencedLeaderEpoch.Code, kerr.InvalidUpdateVersion.Code,
		kerr.NewLeaderElected.Code:
		p.world.logger.Info("controller knows a newer state of the partition", attrs...)
	case kerr.InvalidRequest.Code:
		p.world.logger.Error("controller finds the in-sync replicas impossible", attrs...)
	default:
		p.unanswered(asked)
		return false
	}
	return true
}

// accepted takes the ISR that the controller has committed.
func (p *Partition) accepted(r ISRResult) {
	p.mu.Lock()
	under, before := p.state.UnderMinISR(), p.state.standing()
	c := p.state.Accepted(r.ISR, r.PartitionEpoch, p.world.now())
	if !under {
		p.refuseLocked()
	}
	after := p.state.standing()
	n := p.noteLocked(c)
	p.mu.Unlock()
	p.commits.Drain()
	p.tell(n)
	p.countISR(before, after)
}

// countISR counts and logs what this leader had proposed once it is in force, whether the controller's answer told first or
// the image did. The caller holds no lock.
func (p *Partition) countISR(before, after standing) {
	if !after.settles(before) {
		return
	}
	attrs := []any{"topic", p.TP.Topic, "partition", p.TP.Partition, "leader_epoch", after.leaderEpoch, "partition_epoch", after.partitionEpoch, "isr", after.isr}
	switch {
	case len(after.isr) > len(before.isr):
		p.world.metrics.isrExpands.Inc()
	case len(after.isr) < len(before.isr):
		p.world.metrics.isrShrinks.Inc()
	default:
		p.world.logger.Info("in-sync replicas stay: what was proposed before is void", attrs...)
		return
	}
	p.world.logger.Info("in-sync replicas changed", attrs...)
}
