package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
)

// errMarkerUnreadable is a control batch of a coordinator's partition that is not an end-of-transaction marker.
var errMarkerUnreadable = errors.New("control batch is no transaction marker")

// Log is the partition as a coordinator's log. Only the partition's one coordinator shard may append to it.
func (p *Partition) Log() coord.Log { return coordLog{p} }

type coordLog struct{ p *Partition }

var _ coord.Log = coordLog{}

// Append implements coord.Log.
func (l coordLog) Append(epoch wire.LeaderEpoch, b coord.Batch, done func(end wire.Offset, err error)) (wire.Offset, error) {
	p := l.p
	records, err := buildBatch(b, p.world.codecs)
	if err != nil {
		return wire.NoOffset, err
	}
	v, err := log.Validate(records, log.ValidateOptions{Config: p.Config(), Now: p.world.wall(), Coordinator: true, Codecs: p.world.codecs})
	if err != nil {
		return wire.NoOffset, err
	}
	guard := uint64(0)
	if b.Producer != nil {
		v.Txn.MustBeOpen, guard = true, b.Producer.Guard
	}
	v.Txn.V2 = b.Marker != nil && b.Marker.V2
	a, err := p.appendAdmitted(v, epoch, -1, guard, done)
	return a.First, refusal(err)
}

// refusal makes a storage error the protocol error that coordinators know it by; it stays what it is besides.
func refusal(err error) error {
	if errors.Is(err, log.ErrStorage) || errors.Is(err, log.ErrClosed) || errors.Is(err, ErrOffline) {
		return fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
	}
	return err
}

// buildBatch makes the record batch of one append: records, or one marker.
func buildBatch(b coord.Batch, codecs *compress.Codecs) (batch.Batch, error) {
	ms := b.Timestamp.UnixMilli()
	if b.Marker != nil {
		m := batch.Marker{ProducerID: b.Marker.ID, ProducerEpoch: b.Marker.Epoch, Timestamp: ms,
			EndTxn: batch.EndTxn{Commit: b.Marker.Commit, CoordinatorEpoch: b.Marker.CoordinatorEpoch}}
		out, _ := m.Append(nil)
		return out, nil
	}
	spec := batch.Spec{LeaderEpoch: wire.NoLeaderEpoch}
	if b.Producer != nil {
		spec.Producer = &batch.Producer{ID: b.Producer.ID, Epoch: b.Producer.Epoch, Sequence: wire.NoSequence}
		spec.Transactional = true
	}
	builder := batch.NewBuilder(spec)
	for _, r := range b.Records {
		builder.Add(batch.NewRecord{Timestamp: ms, Key: r.Key, Value: r.Value})
	}
	out, _, err := builder.Build(nil, codecs)
	return out, err
}

// Load implements coord.Log. It reads what this replica holds now, committed or not.
func (l coordLog) Load(ctx context.Context, m coord.Machine) (wire.Offset, error) {
	b, err := l.p.look(wire.NoLeaderEpoch)
	if err != nil {
		return wire.NoOffset, err
	}
	plog := l.p.plog()
	if plog == nil {
		return b.leo, nil
	}
	r := replayer{ctx: ctx, machine: m, codecs: l.p.world.codecs, limit: l.p.Config().MaxDecompressedBytes}
	if err := plog.Scan(b.start, b.leo, r.batch); err != nil {
		return wire.NoOffset, fmt.Errorf("load %s: %w", l.p.TP, err)
	}
	return b.leo, nil
}

// replayer feeds the batches of a log to a machine.
type replayer struct {
	ctx     context.Context
	machine coord.Machine
	codecs  *compress.Codecs
	limit   int64
	buf     []byte
}

func (r *replayer) batch(b batch.Batch) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if b.Control() {
		end, ok, err := b.EndTxn(r.codecs)
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("offset %d: %w", b.BaseOffset(), errMarkerUnreadable)
		}
		return r.machine.ReplayMarker(b.ProducerID(), b.ProducerEpoch(), end.Commit)
	}
	raw, err := b.Records(r.codecs, r.buf, r.limit)
	if err != nil {
		return fmt.Errorf("offset %d: %w", b.BaseOffset(), err)
	}
	if b.Codec() != compress.None {
		r.buf = raw
	}
	pos := coord.Pos{ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), Transactional: b.Transactional()}
	it := batch.Iterate(raw, b.Count())
	for it.Next() {
		rec := &it.Record
		pos.Offset, pos.Timestamp = b.BaseOffset()+wire.Offset(rec.OffsetDelta), time.UnixMilli(rec.Timestamp(b))
		if err := r.machine.Replay(coord.Record{Key: clone(rec.Key), Value: clone(rec.Value)}, pos); err != nil {
			return fmt.Errorf("offset %d: %w", pos.Offset, err)
		}
	}
	return it.Err()
}

// clone copies, because the machine may keep what it is given; nil stays nil, which is a tombstone.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// WaitCommitted implements coord.Log.
func (l coordLog) WaitCommitted(end wire.Offset, done func(err error)) {
	p := l.p
	p.mu.Lock()
	generation, hw, err := p.generation, p.state.hw, p.usableLocked()
	if err == nil && !p.state.Leading() {
		err = kerr.NotLeaderForPartition
	}
	if err == nil && hw < end {
		if p.commits.Push(generation, end, done) {
			p.kick()
		}
		done = nil
	}
	p.mu.Unlock()
	if done != nil {
		done(err)
	}
}
