package replica

import (
	"context"
	"sync"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// DirAssignment says in which of this broker's log directories a replica lies.
type DirAssignment struct {
	Directory wire.UUID
	TopicID   wire.UUID
	Partition wire.PartitionID
}

// maxDirAssignments bounds one request to the controller (Kafka: AssignmentsManager.MAX_ASSIGNMENTS_PER_REQUEST).
const maxDirAssignments = 2250

// assigner tells the controller where replicas lie when the metadata says otherwise (KIP-858), one request at a time, until
// it has been heard. One goroutine, joined by close. Its queue is bounded by the number of partitions.
type assigner struct {
	m      *Manager
	ask    func(ctx context.Context, assignments []DirAssignment) error // nil: nobody wants to know
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{}

	mu    sync.Mutex
	queue []DirAssignment
	known map[partitionID]wire.UUID // what is queued or was told last
}

func newAssigner(m *Manager) *assigner {
	a := &assigner{m: m, ask: m.o.AssignDirs, wake: make(chan struct{}, 1), known: map[partitionID]wire.UUID{}}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

func (a *assigner) start() {
	if a.ask != nil {
		a.wg.Go(a.run)
	}
}

func (a *assigner) close() {
	a.cancel()
	a.wg.Wait()
}

// tell is note with what the metadata says now.
func (a *assigner) tell(p *Partition) {
	if img := a.m.img.Load(); img != nil {
		if meta, ok := img.Partition(p.TP.Topic, p.TP.Partition); ok {
			a.note(p, meta)
		}
	}
}

// note compares where p lies, or will in a moment, with what the metadata says.
func (a *assigner) note(p *Partition, meta *image.Partition) {
	id := partitionID{p.TopicID, p.TP.Partition}
	said, lies := meta.Directory(a.m.o.NodeID), a.m.mover.declared(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ask == nil || said == lies || lies.IsZero() {
		delete(a.known, id)
		return
	}
	if a.known[id] == lies {
		return
	}
	a.known[id] = lies
	a.queue = append(a.queue, DirAssignment{lies, p.TopicID, p.TP.Partition})
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// forget drops what is known of a replica that is gone.
func (a *assigner) forget(p *Partition) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, partitionID{p.TopicID, p.TP.Partition})
}

func (a *assigner) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	backoff := time.Duration(0)
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-a.wake:
			if backoff > 0 {
				continue // the timer runs
			}
		case <-timer.C:
		}
		if a.send() {
			backoff = 0
			continue
		}
		backoff = min(max(2*backoff, alterBackoffMin), alterBackoffMax)
		timer.Reset(backoff)
	}
}

// send tells everything that is queued. It reports false when something has to be told again.
func (a *assigner) send() bool {
	for {
		a.mu.Lock()
		n := min(len(a.queue), maxDirAssignments)
		batch := a.queue[:n:n]
		a.mu.Unlock()
		if n == 0 {
			return true
		}
		ctx, cancel := context.WithTimeout(a.ctx, alterTimeout)
		err := a.ask(ctx, batch)
		cancel()
		if err != nil {
			if a.ctx.Err() == nil {
				a.m.world.logger.Warn("controller cannot be told yet where replicas lie", "replicas", n, "err", err)
			}
			return false
		}
		a.mu.Lock()
		a.queue = a.queue[n:]
		a.mu.Unlock()
	}
}
