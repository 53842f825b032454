package replica

import (
	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Deletion is the result of DeleteRecords, and the ticket to wait with.
type Deletion struct {
	To         wire.Offset // records below it are gone here
	Low        wire.Offset // the low watermark: they are gone below it on every live replica; NoOffset: one has not told yet
	generation uint64
}

// noDeletion comes with an error.
var noDeletion = Deletion{To: wire.NoOffset, Low: wire.NoOffset}

// Waits reports whether some live replica may still have what was deleted (WatchDeletion).
func (d Deletion) Waits() bool { return d.Low < d.To }

// DeleteRecords moves the log start up to offset, NoOffset standing for the high watermark. The new start is durable when it
// returns: deleted records do not come back. Followers take it over with their next fetch.
//
// Errors: kerr.OffsetOutOfRange, kerr.PolicyViolation, those of CheckLeader, ErrOffline, the log's.
func (p *Partition) DeleteRecords(offset wire.Offset) (Deletion, error) {
	if err := p.dir().failed(); err != nil {
		return noDeletion, err
	}
	if cfg := p.Config(); cfg.Compact && !cfg.Delete {
		if _, err := p.look(wire.NoLeaderEpoch); err != nil {
			return noDeletion, err
		}
		return noDeletion, kerr.PolicyViolation
	}
	to, err := p.moveStart(offset)
	if err != nil {
		return noDeletion, p.storageFailed(err)
	}
	if err := p.dir().keepLogStart(p.TP, to); err != nil {
		return noDeletion, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := Deletion{To: to, Low: p.state.LowWatermark(p.world.isr.alive), generation: p.generation}
	if d.Waits() {
		p.lowWanted = max(p.lowWanted, to)
	}
	return d, nil
}

// WatchDeletion makes c wait, as its index-th partition, until the records are gone everywhere.
func (p *Partition) WatchDeletion(c *purgatory.Commit, index int, d Deletion) {
	p.lows.Watch(c, index, d.generation, d.To)
}

// LowWatermark is up to where records are gone on every live replica; NoOffset while one has not told.
func (p *Partition) LowWatermark() wire.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.LowWatermark(p.world.isr.alive)
}

// moveLowLocked tells those who wait for the low watermark how far it is; the caller has lows drained. It costs nothing
// while nobody waits.
func (p *Partition) moveLowLocked() {
	if p.lowWanted == 0 {
		return
	}
	low := p.state.LowWatermark(p.world.isr.alive)
	p.lows.Move(p.generation, low, nil)
	if low >= p.lowWanted {
		p.lowWanted = 0
	}
}

// moveStart moves the log start up to the offset that was asked for, which it gives.
func (p *Partition) moveStart(offset wire.Offset) (to wire.Offset, err error) {
	p.appendMu.Lock()
	defer p.appendMu.Unlock()
	b, err := p.look(wire.NoLeaderEpoch)
	if err != nil {
		return wire.NoOffset, err
	}
	if offset == wire.NoOffset {
		offset = b.hw
	}
	if offset < 0 || offset > b.hw {
		return wire.NoOffset, kerr.OffsetOutOfRange
	}
	plog := p.plog()
	if offset <= b.start || plog == nil {
		return offset, nil
	}
	if err := plog.IncrementStart(offset); err != nil {
		return wire.NoOffset, err
	}
	p.mu.Lock()
	p.onLogStartLocked(plog.StartOffset())
	p.mu.Unlock()
	return offset, nil
}
