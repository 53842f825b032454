package replica

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What a leader does for the replicas that fetch from it.

// ReadAsFollower reads for another replica, up to the log end, and takes the fetch as word of its progress: the high
// watermark may move, and the replica may be proposed for the ISR. A reader whose history differs is told so and moves
// nothing.
//
// Errors: kerr.NotLeaderForPartition, FencedLeaderEpoch, UnknownLeaderEpoch (also for a replica that is not assigned here,
// as far as this leader knows), OffsetOutOfRange, ErrOffline, the log's.
func (p *Partition) ReadAsFollower(f FollowerFetch, o ReadOptions) (ReadResult, error) {
	o.Offset, o.LeaderEpoch = f.Offset, f.LeaderEpoch
	r, b, err := p.readAs(o, purgatory.UpToLEO)
	if err != nil || r.Diverging != nil {
		return r, err
	}
	hw, err := p.noteFollower(f, b.epoch)
	if err != nil {
		wire.Release(r.Segments)
		return ReadResult{}, err
	}
	r.HW = max(r.HW, hw) // what this very fetch has committed
	return r, nil
}

// RereadAsFollower is ReadAsFollower for a fetch that was taken in when it came and has waited since.
func (p *Partition) RereadAsFollower(f FollowerFetch, o ReadOptions) (ReadResult, error) {
	o.Offset, o.LeaderEpoch = f.Offset, f.LeaderEpoch
	r, _, err := p.readAs(o, purgatory.UpToLEO)
	return r, err
}

// noteFollower takes a follower's progress; the fetch was read in the given epoch.
func (p *Partition) noteFollower(f FollowerFetch, read wire.LeaderEpoch) (wire.Offset, error) {
	if f.LeaderEpoch == wire.NoLeaderEpoch {
		f.LeaderEpoch = read
	}
	p.mu.Lock()
	c, err := p.state.OnFollowerFetch(f, p.world.now())
	if err != nil {
		p.mu.Unlock()
		return 0, err
	}
	proposes := p.proposeLocked(p.state.Expansion(f.Replica))
	low := p.lowWanted > 0
	p.moveLowLocked()
	n := p.noteLocked(c)
	p.mu.Unlock()
	p.tell(n)
	if low {
		p.lows.Drain()
	}
	if proposes {
		p.world.isr.propose(p)
	}
	return n.hw, nil
}

// proposeLocked notes that isr goes to the controller, if it may; the caller hands p to the ISR keeper once it holds no
// lock.
func (p *Partition) proposeLocked(isr []wire.BrokerID) bool {
	if isr == nil || !p.world.isr.works() || p.world.now().Before(p.proposeAt) {
		return false
	}
	joins := slices.ContainsFunc(isr, func(id wire.BrokerID) bool {
		return !slices.Contains(p.state.assignment.ISR, id) && !p.world.isr.mayJoin(id, p.state.brokerEpoch(id, wire.NoBrokerEpoch))
	})
	if joins {
		return false
	}
	p.state.Propose(isr)
	return true
}

// mayJoin reports whether the image knows the replica in the life in which it fetched, and in service (KIP-841, KIP-903):
// the controller would refuse any other.
func mayJoin(img *image.Image, id wire.BrokerID, epoch wire.BrokerEpoch) bool {
	if img == nil {
		return false
	}
	b, ok := img.Broker(id)
	return ok && b.Active() && (epoch == wire.NoBrokerEpoch || b.Epoch == epoch)
}

const (
	// arrivalWindow is for how long after this broker has begun to lead a partition its followers' fetches wait for less.
	arrivalWindow = time.Second
	// arrivalWait is for how long they wait then, and arrivalWaitEach what is added for each partition of the fetch, so that
	// large sessions are not walked all the time.
	arrivalWait     = 20 * time.Millisecond
	arrivalWaitEach = 20 * time.Microsecond
)

// arrivals shortens what followers wait for when they have to fetch something new from here. A follower with a fetch parked
// at this broker can only ask for a partition that it has begun to lead once that fetch was answered, and until it has
// asked nothing of the partition is committed. So its parked fetches are answered at once, and for a moment the next ones
// wait only briefly, because the follower may hear of the change later than the leader. Safe for concurrent use.
type arrivals struct {
	now func() time.Time

	mu   sync.Mutex
	byID map[wire.BrokerID]*arrival
}

type arrival struct {
	readers    purgatory.Readers
	partitions atomic.Int64 // of its last fetch

	// The rest is guarded by arrivals.mu.
	mark  purgatory.Mark
	until time.Time
	woken time.Time // when its parked fetch was answered last
}

func newArrivals(now func() time.Time) *arrivals {
	return &arrivals{now: now, byID: map[wire.BrokerID]*arrival{}}
}

func (a *arrivals) ofLocked(id wire.BrokerID) *arrival {
	x := a.byID[id]
	if x == nil {
		x = &arrival{}
		a.byID[id] = x
	}
	return x
}

// expect says that follower has something new to fetch from here. Where that is said again and again, as while many topics are made,
// a large session is not walked each time: its fetch waits only briefly by then.
func (a *arrivals) expect(follower wire.BrokerID) {
	a.mu.Lock()
	x, now := a.ofLocked(follower), a.now()
	x.until = now.Add(arrivalWindow)
	if now.Sub(x.woken) < min(time.Duration(x.partitions.Load())*arrivalWaitEach, arrivalWindow/2) {
		a.mu.Unlock()
		return
	}
	x.woken = now
	x.mark.Generation++
	m := x.mark
	a.mu.Unlock()
	x.readers.Interrupt(m)
}

// FollowerTurn is a look at what a follower may have to fetch anew, taken before its fetch is read.
type FollowerTurn struct {
	at    *arrival
	mark  purgatory.Mark
	hurry bool
}

// FollowerTurn begins a fetch of a follower.
func (m *Manager) FollowerTurn(id wire.BrokerID) FollowerTurn {
	a := m.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.ofLocked(id)
	return FollowerTurn{at: x, mark: x.mark, hurry: a.now().Before(x.until)}
}

// Wait is for how long a fetch of so many partitions that asks for want waits at most.
func (t FollowerTurn) Wait(want time.Duration, partitions int) time.Duration {
	t.at.partitions.Store(int64(partitions))
	if !t.hurry {
		return want
	}
	return min(want, arrivalWait+time.Duration(partitions)*arrivalWaitEach)
}

// Watch has f woken when there is something new to fetch for the follower. f needs room for one more partition.
func (t FollowerTurn) Watch(f *purgatory.Fetch) { t.at.readers.Watch(f, t.mark, purgatory.UpToLEO, 0) }

// CheckFollower answers the broker epoch that a follower names (KIP-903): one that the metadata knows to be of an earlier
// life is refused. A later one is news that this broker has not heard yet.
//
// Errors: kerr.StaleBrokerEpoch.
func (m *Manager) CheckFollower(id wire.BrokerID, epoch wire.BrokerEpoch) error {
	img := m.img.Load()
	if img == nil || epoch == wire.NoBrokerEpoch {
		return nil
	}
	if b, ok := img.Broker(id); ok && epoch < b.Epoch {
		return kerr.StaleBrokerEpoch
	}
	return nil
}
