package replica

import (
	"context"
	"sync"

	"github.com/kajamq/kaja/wire"
)

// fetchers are this broker's fetchers, one for each broker that it follows. Safe for concurrent use.
type fetchers struct {
	m      *Manager
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	bySource map[wire.BrokerID]*fetcher
	of       map[*Partition]following
	closed   bool
}

// following is whom a partition follows.
type following struct {
	source *fetcher
	epoch  wire.LeaderEpoch
}

func newFetchers(m *Manager) *fetchers {
	f := &fetchers{m: m, bySource: map[wire.BrokerID]*fetcher{}, of: map[*Partition]following{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// follow has p fetched from leader under epoch, and from nobody else.
func (f *fetchers) follow(p *Partition, leader wire.BrokerID, epoch wire.LeaderEpoch) {
	if f.m.o.AskLeader == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old, ok := f.of[p]
	if f.closed || ok && old.source.leader == leader && old.epoch == epoch {
		return
	}
	source := f.bySource[leader]
	if source == nil {
		source = newFetcher(f.m, leader)
		f.bySource[leader] = source
		f.wg.Go(func() { source.run(f.ctx) })
	}
	if ok && old.source != source {
		old.source.tell(p, wire.NoLeaderEpoch)
	}
	f.of[p] = following{source, epoch}
	source.tell(p, epoch)
}

// forget has p fetched no more. A fetch that is under way has no effect on p once it leads or has stopped.
func (f *fetchers) forget(p *Partition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old, ok := f.of[p]; ok {
		delete(f.of, p)
		old.source.tell(p, wire.NoLeaderEpoch)
	}
}

// close ends all fetchers and waits for them.
func (f *fetchers) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// maxLag is how far the partition that lags most is behind its leader's high watermark, in records.
func (f *fetchers) maxLag() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	lag := int64(0)
	for p := range f.of {
		lag = max(lag, p.lag.Load())
	}
	return lag
}

// failing is the number of followed partitions that wait after an error.
func (f *fetchers) failing() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := int64(0)
	for _, s := range f.bySource {
		n += s.failing.Load()
	}
	return n
}
