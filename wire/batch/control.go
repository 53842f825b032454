package batch

import (
	"encoding/binary"
	"fmt"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// ControlType is the kind of a control record.
type ControlType int16

// The control record types; readers ignore others. Only the first two occur outside `__cluster_metadata`.
const (
	ControlAbort          ControlType = 0
	ControlCommit         ControlType = 1
	ControlLeaderChange   ControlType = 2
	ControlSnapshotHeader ControlType = 3
	ControlSnapshotFooter ControlType = 4
	ControlKRaftVersion   ControlType = 5
	ControlKRaftVoters    ControlType = 6
)

// EndsTxn reports whether the type is ControlAbort or ControlCommit.
func (t ControlType) EndsTxn() bool { return t == ControlAbort || t == ControlCommit }

// ParseControlKey reads the key of a control record: its schema version and type. A newer version keeps the two fields.
func ParseControlKey(key []byte) (version int16, t ControlType, err error) {
	if len(key) < 4 {
		return 0, 0, fmt.Errorf("%w: control record key of %d bytes", ErrCorrupt, len(key))
	}
	version = int16(binary.BigEndian.Uint16(key))
	if version < 0 {
		return 0, 0, fmt.Errorf("%w: control record key version %d", ErrCorrupt, version)
	}
	return version, ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// EndTxn is the end of a transaction as its marker says it.
type EndTxn struct {
	Commit           bool
	CoordinatorEpoch int32
}

// ParseEndTxn reads the value of a record whose type EndsTxn. A newer version keeps the fields.
func ParseEndTxn(t ControlType, value []byte) (EndTxn, error) {
	if !t.EndsTxn() || len(value) < 6 {
		return EndTxn{}, fmt.Errorf("%w: end of transaction, type %d, value of %d bytes", ErrCorrupt, t, len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 {
		return EndTxn{}, fmt.Errorf("%w: end of transaction, version %d", ErrCorrupt, v)
	}
	return EndTxn{Commit: t == ControlCommit, CoordinatorEpoch: int32(binary.BigEndian.Uint32(value[2:]))}, nil
}

// EndTxn reads a marker. ok is false if b is not a control batch or holds another control record, or none.
func (b Batch) EndTxn(c *compress.Codecs) (end EndTxn, ok bool, err error) {
	if !b.Control() || b.Count() == 0 {
		return EndTxn{}, false, nil
	}
	const limit = 1 << 20 // control records are a few bytes
	payload, err := b.Records(c, nil, limit)
	if err != nil {
		return EndTxn{}, false, err
	}
	it := Iterate(payload, b.Count())
	if !it.Next() {
		return EndTxn{}, false, it.Err()
	}
	_, t, err := ParseControlKey(it.Record.Key)
	if err != nil || !t.EndsTxn() {
		return EndTxn{}, false, err
	}
	end, err = ParseEndTxn(t, it.Record.Value)
	return end, err == nil, err
}

// Marker is a transaction marker to be written.
type Marker struct {
	ProducerID    wire.ProducerID
	ProducerEpoch wire.ProducerEpoch
	EndTxn
	Timestamp   int64 // milliseconds
	BaseOffset  wire.Offset
	LeaderEpoch wire.LeaderEpoch
}

// Append appends the control batch of m to dst.
func (m Marker) Append(dst []byte) (Batch, []byte) {
	var key [4]byte
	var value [6]byte
	if m.Commit {
		binary.BigEndian.PutUint16(key[2:], uint16(ControlCommit))
	}
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	b := NewBuilder(Spec{
		BaseOffset: m.BaseOffset, LeaderEpoch: m.LeaderEpoch, Transactional: true, Control: true,
		Producer: &Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch, Sequence: wire.NoSequence},
	})
	b.Add(NewRecord{Timestamp: m.Timestamp, Key: key[:], Value: value[:]})
	out, dst, err := b.Build(dst, nil)
	if err != nil {
		panic("BUG: marker: " + err.Error()) // one small record without a codec
	}
	return out, dst
}
