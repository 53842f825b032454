package log

import (
	"hash/crc32"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

const headerSize = batch.HeaderSize

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is what the log needs to know of one batch, decoded once.
type header struct {
	base, last   wire.Offset // both inclusive
	size         int         // of the whole batch in bytes
	leaderEpoch  wire.LeaderEpoch
	maxTime      int64
	producerID   wire.ProducerID
	epoch        wire.ProducerEpoch
	baseSequence int32
	count        int32
	txn, control bool
}

// parseHeader decodes the first headerSize bytes of b, which must be there; b need not hold the records.
func parseHeader(raw []byte) header {
	b := batch.Batch(raw)
	return header{
		base: b.BaseOffset(), last: b.LastOffset(), size: int(b.Length()) + batch.PrefixSize,
		leaderEpoch: b.LeaderEpoch(), maxTime: b.MaxTimestamp(),
		producerID: b.ProducerID(), epoch: b.ProducerEpoch(), baseSequence: b.BaseSequence(), count: b.Count(),
		txn: b.Transactional(), control: b.Control(),
	}
}

// lastSequence wraps within the batch; NoSequence when the batch has none.
func (h *header) lastSequence() int32 {
	if h.baseSequence < 0 {
		return wire.NoSequence
	}
	return batch.AddSequence(h.baseSequence, int32(h.last-h.base))
}
