package log

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/kajamq/kaja/wire"
)

// A producer snapshot is Kafka's .snapshot file: i16 version 1, u32 CRC-32C of what follows the CRC, i32 count, then 46
// bytes for each producer with its newest batch only.
//
// A window file is kaja's own, <offset>.kaja-window beside <offset>.snapshot: i16 version 1, u32 CRC-32C of what follows,
// u32 the CRC of the snapshot it belongs to, i64 the offset, i32 count, then for each producer with more than one
// remembered batch i64 id, i16 epoch, i8 n, and n times {i32 last sequence, i64 last offset, i32 offset delta, i64
// timestamp}, oldest first. Kafka ignores it. Missing or bound to another snapshot, it is ignored here too, and what
// Kafka knows is what is known.

const (
	snapshotVersion   = 1
	snapshotHead      = 10
	snapshotEntrySize = 46
	windowVersion     = 1
	windowHead        = 22
	windowBatchSize   = 24
)

// encodeSnapshot gives the bytes of the .snapshot file; producers are in ascending order of their ids.
func encodeSnapshot(ps *producers) []byte {
	be := binary.BigEndian
	out := make([]byte, snapshotHead, snapshotHead+snapshotEntrySize*len(ps.byID))
	be.PutUint16(out, snapshotVersion)
	be.PutUint32(out[6:], uint32(len(ps.byID)))
	for _, id := range ps.sortedIDs() {
		p := ps.byID[id]
		b, ok := p.newest()
		if !ok {
			b = batchMeta{lastSequence: wire.NoSequence, lastOffset: wire.NoOffset, timestamp: p.lastTimestamp}
		}
		out = be.AppendUint64(out, uint64(id))
		out = be.AppendUint16(out, uint16(p.epoch))
		out = be.AppendUint32(out, uint32(b.lastSequence))
		out = be.AppendUint64(out, uint64(b.lastOffset))
		out = be.AppendUint32(out, uint32(b.offsetDelta))
		out = be.AppendUint64(out, uint64(p.lastTimestamp))
		out = be.AppendUint32(out, uint32(p.coordinatorEpoch))
		out = be.AppendUint64(out, uint64(p.txnFirst))
	}
	be.PutUint32(out[2:], crc32.Checksum(out[6:], castagnoli))
	return out
}

// decodeSnapshot reads a .snapshot file; end is the offset of its name.
func decodeSnapshot(file string, data []byte, end wire.Offset) (*producers, error) {
	be := binary.BigEndian
	corrupt := func(pos int64, reason string) error { return &CorruptError{File: file, Pos: pos, Reason: reason} }
	if len(data) < snapshotHead {
		return nil, corrupt(0, "too short")
	}
	if v := be.Uint16(data); v != snapshotVersion {
		return nil, corrupt(0, "unknown version")
	}
	if be.Uint32(data[2:]) != crc32.Checksum(data[6:], castagnoli) {
		return nil, corrupt(2, "checksum mismatch")
	}
	n := int64(int32(be.Uint32(data[6:])))
	if n < 0 || int64(len(data)-snapshotHead) != n*snapshotEntrySize {
		return nil, corrupt(6, "count does not fit the length")
	}
	ps := newProducers(end)
	for b := data[snapshotHead:]; len(b) > 0; b = b[snapshotEntrySize:] {
		id := wire.ProducerID(be.Uint64(b))
		meta := batchMeta{
			lastSequence: int32(be.Uint32(b[10:])), lastOffset: wire.Offset(be.Uint64(b[14:])),
			offsetDelta: int32(be.Uint32(b[22:])), timestamp: int64(be.Uint64(b[26:])),
		}
		p := &producer{
			epoch: wire.ProducerEpoch(be.Uint16(b[8:])), lastTimestamp: meta.timestamp,
			coordinatorEpoch: int32(be.Uint32(b[34:])), txnFirst: wire.Offset(be.Uint64(b[38:])),
		}
		if meta.lastOffset >= end || p.txnFirst >= end || meta.offsetDelta < 0 {
			return nil, corrupt(0, "an entry lies beyond the offset of the file")
		}
		if meta.lastOffset >= 0 {
			p.push(meta)
		}
		ps.byID[id] = p
		if p.txnFirst >= 0 {
			ps.open = append(ps.open, openTxn{first: p.txnFirst, producerID: id, began: p.lastTimestamp})
		}
	}
	ps.sortOpen()
	return ps, nil
}

// encodeWindow gives the bytes of the .kaja-window file that belongs to the given snapshot, or nil if it would hold
// nothing that the snapshot does not.
func encodeWindow(ps *producers, snapshot []byte) []byte {
	be := binary.BigEndian
	out := make([]byte, windowHead)
	count := uint32(0)
	for _, id := range ps.sortedIDs() {
		p := ps.byID[id]
		if p.n < 2 {
			continue
		}
		count++
		out = be.AppendUint64(out, uint64(id))
		out = be.AppendUint16(out, uint16(p.epoch))
		out = append(out, byte(p.n))
		for _, b := range p.batches[:p.n] {
			out = be.AppendUint32(out, uint32(b.lastSequence))
			out = be.AppendUint64(out, uint64(b.lastOffset))
			out = be.AppendUint32(out, uint32(b.offsetDelta))
			out = be.AppendUint64(out, uint64(b.timestamp))
		}
	}
	if count == 0 {
		return nil
	}
	be.PutUint16(out, windowVersion)
	copy(out[6:10], snapshot[2:6])
	be.PutUint64(out[10:], uint64(ps.end))
	be.PutUint32(out[18:], count)
	be.PutUint32(out[2:], crc32.Checksum(out[6:], castagnoli))
	return out
}

// applyWindow puts the batches of a window file into ps, which was read from snapshot. Anything that does not fit in
// every detail leaves ps as it is and gives false.
func applyWindow(ps *producers, data, snapshot []byte) bool {
	be := binary.BigEndian
	if len(data) < windowHead || be.Uint16(data) != windowVersion ||
		be.Uint32(data[2:]) != crc32.Checksum(data[6:], castagnoli) ||
		[4]byte(data[6:10]) != [4]byte(snapshot[2:6]) || wire.Offset(be.Uint64(data[10:])) != ps.end {
		return false
	}
	count, b := be.Uint32(data[18:]), data[windowHead:]
	windows := map[wire.ProducerID]producer{}
	for range count {
		if len(b) < 11 {
			return false
		}
		id, epoch, n := wire.ProducerID(be.Uint64(b)), wire.ProducerEpoch(be.Uint16(b[8:])), int(b[10])
		b = b[11:]
		p := ps.byID[id]
		if p == nil || p.epoch != epoch || n < 2 || n > windowSize || len(b) < n*windowBatchSize {
			return false
		}
		w := *p
		w.n = 0
		for range n {
			w.push(batchMeta{
				lastSequence: int32(be.Uint32(b)), lastOffset: wire.Offset(be.Uint64(b[4:])),
				offsetDelta: int32(be.Uint32(b[12:])), timestamp: int64(be.Uint64(b[16:])),
			})
			b = b[windowBatchSize:]
		}
		newest, _ := p.newest()
		if got, _ := w.newest(); got.lastSequence != newest.lastSequence || got.lastOffset != newest.lastOffset {
			return false
		}
		windows[id] = w
	}
	if len(b) != 0 {
		return false
	}
	for id, w := range windows {
		*ps.byID[id] = w
	}
	return true
}
