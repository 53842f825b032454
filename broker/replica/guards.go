package replica

import (
	"sync"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// guard stands for one question to a transaction's coordinator: it was given before the question, so it is gone if a
// marker, a change of the leader or a newer epoch of the producer came in between, and the answer counts for nothing.
// It is spent by the first batch that is appended.
type guard struct {
	id     uint64
	epoch  wire.ProducerEpoch
	leader wire.LeaderEpoch
	lowest int32 // sequence; NoSequence: none was named
	at     time.Time
}

// Guards are those of one partition, at most one for each producer. The zero value holds none. Safe for concurrent use; its
// lock is a leaf.
type Guards struct {
	mu   sync.Mutex
	byID map[wire.ProducerID]guard
	last uint64
}

// Give makes or finds the guard of a producer under the present leader epoch; sequence is the first of the batch that it is
// for. An older epoch than the guard's gets a number that admits nothing; its coordinator refuses it anyway.
func (gs *Guards) Give(id wire.ProducerID, epoch wire.ProducerEpoch, sequence int32, leader wire.LeaderEpoch, now time.Time) uint64 {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.last++
	old, ok := gs.byID[id]
	switch {
	case ok && old.leader == leader && old.epoch == epoch:
		if sequence != wire.NoSequence && (old.lowest == wire.NoSequence || sequence < old.lowest) {
			old.lowest = sequence
		}
		old.at = now
		gs.byID[id] = old
		return old.id
	case ok && old.leader == leader && old.epoch > epoch:
		return gs.last
	}
	if gs.byID == nil {
		gs.byID = make(map[wire.ProducerID]guard)
	}
	gs.byID[id] = guard{id: gs.last, epoch: epoch, leader: leader, lowest: sequence, at: now}
	return gs.last
}

// Admit lifts the rule that the transaction must be open, if the guard is that of the batch's producer and still stands.
func (gs *Guards) Admit(v *log.Validated, id uint64, leader wire.LeaderEpoch) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g, ok := gs.byID[v.Batch.ProducerID()]
	if !ok || g.id != id || g.leader != leader && !planted.On(planted.GuardOutlivesLeader) || g.epoch != v.Batch.ProducerEpoch() {
		return
	}
	v.Txn.MustBeOpen = false
	v.Txn.Tentative, v.Txn.Lowest = g.lowest != wire.NoSequence, g.lowest
}

// Spend takes away the guard of the producer of b, which was appended: its transaction is open now, or a marker has ended
// it.
func (gs *Guards) Spend(b batch.Batch) {
	if b.Control() && planted.On(planted.GuardOutlivesMarker) {
		return
	}
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.byID, b.ProducerID())
}

// expire forgets guards that were not asked for since before.
func (gs *Guards) expire(before time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for id, g := range gs.byID {
		if g.at.Before(before) {
			delete(gs.byID, id)
		}
	}
}
