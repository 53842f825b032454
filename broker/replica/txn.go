package replica

import (
	"sync"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
)

// Admission is what lets a client's transactional batch into a log.
type Admission struct {
	// Guard is what BeginTxn gave before the coordinator was asked; 0 for a transaction that was open already.
	Guard uint64
	// V2 says that the client works at transaction version 2.
	V2 bool
	// Unchecked takes the batch whatever the coordinator knows (transaction.partition.verification.enable=false).
	Unchecked bool
}

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

// guards holds at most one guard for each producer. Its lock is a leaf.
type guards struct {
	mu   sync.Mutex
	byID map[wire.ProducerID]guard
	last uint64
}

// BeginTxn prepares for a transactional batch of a client (Kafka: UnifiedLog.maybeStartTransactionVerification). It gives
// 0 when the transaction is open here, else a guard: with it the batch is taken if the coordinator, asked from now on,
// says that the partition belongs to the transaction. sequence is the batch's first, NoSequence if it has none.
//
// Errors: kerr.NotLeaderForPartition, ErrOffline.
func (p *Partition) BeginTxn(id wire.ProducerID, epoch wire.ProducerEpoch, sequence int32) (uint64, error) {
	p.mu.Lock()
	err := p.writableLocked(wire.NoLeaderEpoch, 1)
	leader := p.state.assignment.LeaderEpoch
	p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if plog := p.plog(); plog != nil && plog.InTransaction(id, epoch) {
		return 0, nil
	}
	return p.guards.give(id, guard{epoch: epoch, leader: leader, lowest: sequence, at: p.world.now()}), nil
}

// give makes or finds the guard of a producer. An older epoch than the guard's gets a number that admits nothing; its
// coordinator refuses it anyway.
func (gs *guards) give(id wire.ProducerID, g guard) uint64 {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	gs.last++
	old, ok := gs.byID[id]
	switch {
	case ok && old.leader == g.leader && old.epoch == g.epoch:
		if g.lowest != wire.NoSequence && (old.lowest == wire.NoSequence || g.lowest < old.lowest) {
			old.lowest = g.lowest
		}
		old.at = g.at
		gs.byID[id] = old
		return old.id
	case ok && old.leader == g.leader && old.epoch > g.epoch:
		return gs.last
	}
	g.id = gs.last
	if gs.byID == nil {
		gs.byID = make(map[wire.ProducerID]guard)
	}
	gs.byID[id] = g
	return g.id
}

// admit lifts the rule that the transaction must be open, if the guard is that of the batch's producer and still stands.
func (gs *guards) admit(v *log.Validated, id uint64, leader wire.LeaderEpoch) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g, ok := gs.byID[v.Batch.ProducerID()]
	if !ok || g.id != id || g.leader != leader || g.epoch != v.Batch.ProducerEpoch() {
		return
	}
	v.Txn.MustBeOpen = false
	v.Txn.Tentative, v.Txn.Lowest = g.lowest != wire.NoSequence, g.lowest
}

// spend takes the producer's guard away: its transaction is open now, or a marker has ended it.
func (gs *guards) spend(id wire.ProducerID) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	delete(gs.byID, id)
}

// expire forgets guards that were not asked for since before.
func (gs *guards) expire(before time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for id, g := range gs.byID {
		if g.at.Before(before) {
			delete(gs.byID, id)
		}
	}
}

// AppendTxn is AppendAsLeader for records that clients sent: those of a transaction are taken if adm admits them, or if
// the transaction is open here already. Further errors: kerr.InvalidTxnState.
func (p *Partition) AppendTxn(v *log.Validated, adm Admission, acks int16) (Appended, error) {
	if v.Batch.Transactional() {
		v.Txn.V2, v.Txn.MustBeOpen = adm.V2, !adm.Unchecked
		return p.appendAdmitted(v, wire.NoLeaderEpoch, acks, adm.Guard, nil)
	}
	return p.append(v, wire.NoLeaderEpoch, acks, nil)
}

// AppendMarker appends the end of a transaction. done is called once it is below the high watermark, or lost.
func (p *Partition) AppendMarker(m coord.Marker, done func(err error)) error {
	tooSoon := planted.On(planted.MarkerToldTooSoon)
	_, err := coordLog{p}.Append(wire.NoLeaderEpoch, coord.Batch{Marker: &m, Timestamp: p.world.wall()}, func(_ wire.Offset, err error) {
		if !tooSoon {
			done(err)
		}
	})
	if tooSoon && err == nil {
		done(nil)
	}
	return err
}

// firstUnstable asks the log; it must not be called under mu, since the log's lock is held over file I/O.
func (p *Partition) firstUnstable(plog *log.Log) wire.Offset {
	if !p.hasTxns.Load() {
		return wire.NoOffset
	}
	if o, open := plog.FirstUnstableOffset(); open {
		return o
	}
	return wire.NoOffset
}

// settleTxns tells the log that its high watermark has moved, which may end transactions for good and move the LSO.
func (p *Partition) settleTxns(hw wire.Offset) {
	if !p.ending.Load() {
		return
	}
	p.appendMu.Lock()
	plog := p.plog()
	p.ending.Store(plog.EndsPending(hw))
	plog.Replicated(hw)
	unstable := p.firstUnstable(plog)
	p.mu.Lock()
	n := p.noteLocked(p.state.OnAppend(p.state.leo, unstable, p.world.now()))
	p.mu.Unlock()
	p.appendMu.Unlock()
	p.readers.Advance(n.mark)
}

// Producers gives what this leader knows of every producer, by ascending id (KIP-664).
func (p *Partition) Producers() ([]log.ProducerState, error) {
	if _, err := p.look(wire.NoLeaderEpoch); err != nil {
		return nil, err
	}
	plog := p.plog()
	if plog == nil {
		return nil, nil
	}
	return plog.Producers(), nil
}

// OpenTransactions calls each for every partition that this broker leads and that has a transaction open, with the one
// that has been open for the most offsets.
func (m *Manager) OpenTransactions(each func(p *Partition, oldest log.OpenTransaction)) {
	for _, p := range m.all() {
		if oldest, open := p.OldestTransaction(); open {
			each(p, oldest)
		}
	}
}

// OldestTransaction gives the transaction that has been open for the most offsets; false if none is, or if this replica
// does not lead.
func (p *Partition) OldestTransaction() (log.OpenTransaction, bool) {
	plog := p.plog()
	if plog == nil || !p.hasTxns.Load() {
		return log.OpenTransaction{}, false
	}
	if led, _ := p.leading(); !led {
		return log.OpenTransaction{}, false
	}
	return plog.OldestTransaction()
}
