package replica

import (
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
	return p.guards.Give(id, epoch, sequence, leader, p.world.now()), nil
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
	if err := plog.Wake(); err != nil {
		return nil, p.storageFailed(err)
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
