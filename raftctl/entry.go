package raftctl

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// An entry of the raft log: u8 format, i32 controller epoch, u64 number, then each record as uvarint length and
// coordrec's envelope. Big endian.
const (
	entryFormat = 1
	entryHead   = 1 + 4 + 8

	// maxEntryBytes is the largest entry that is proposed; what needs more is refused before it is.
	maxEntryBytes = 8 << 20
)

// entry is one decision in the log.
type entry struct {
	epoch   wire.ControllerEpoch
	number  uint64 // counted by the controller of the epoch from its claim, which is 0
	records []coordrec.MetadataRecord
}

func (e entry) encode() []byte {
	b := append(make([]byte, 0, 512), entryFormat)
	b = binary.BigEndian.AppendUint32(b, uint32(e.epoch))
	b = binary.BigEndian.AppendUint64(b, e.number)
	return appendRecords(b, e.records)
}

// appendRecords appends records as they stand in an entry and in a snapshot.
func appendRecords(b []byte, records []coordrec.MetadataRecord) []byte {
	var body []byte
	for _, r := range records {
		body = coordrec.AppendMetadata(body[:0], r)
		b = binary.AppendUvarint(b, uint64(len(body)))
		b = append(b, body...)
	}
	return b
}

var errEntry = errors.New("malformed metadata entry")

func decodeEntry(b []byte) (entry, error) {
	if len(b) < entryHead || b[0] != entryFormat {
		return entry{}, fmt.Errorf("%w: unknown format", errEntry)
	}
	e := entry{
		epoch:  wire.ControllerEpoch(binary.BigEndian.Uint32(b[1:])),
		number: binary.BigEndian.Uint64(b[5:]),
	}
	var err error
	e.records, err = decodeRecords(b[entryHead:])
	return e, err
}

func decodeRecords(b []byte) ([]coordrec.MetadataRecord, error) {
	var records []coordrec.MetadataRecord
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, fmt.Errorf("%w: record %d is cut short", errEntry, len(records))
		}
		r, err := coordrec.DecodeMetadata(b[n : n+int(size)])
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(records), err)
		}
		records = append(records, r)
		b = b[n+int(size):]
	}
	return records, nil
}

// claim reports whether the entry opens a controller epoch.
func (e entry) claim() bool {
	if e.number != 0 || len(e.records) == 0 {
		return false
	}
	c, ok := e.records[0].(*coordrec.ClaimControllerRecord)
	return ok && c.Epoch == e.epoch
}
