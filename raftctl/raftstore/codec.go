package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// codec is how an entry stands in raft-wal: u32 CRC32C of all that follows, u64 index, u64 term, u8 type, i64 time of the
// append in nanoseconds since the Unix epoch (minimum: none), u32 length of the data, data, extensions. Big endian.
type codec struct{ table *crc32.Table }

const (
	codecID     = wal.FirstExternalCodecID + 0x6b61 // "ka"
	entryHeader = 4 + 8 + 8 + 1 + 8 + 4
	noTime      = -1 << 63
)

func newCodec() *codec { return &codec{table: castagnoli()} }

// ID is stored with every segment, so that one written by another codec is refused.
func (*codec) ID() uint64 { return codecID }

func (c *codec) Encode(l *raft.Log, w io.Writer) error {
	b := make([]byte, entryHeader, entryHeader+len(l.Data)+len(l.Extensions))
	binary.BigEndian.PutUint64(b[4:], l.Index)
	binary.BigEndian.PutUint64(b[12:], l.Term)
	b[20] = byte(l.Type)
	at := int64(noTime)
	if !l.AppendedAt.IsZero() {
		at = l.AppendedAt.UnixNano()
	}
	binary.BigEndian.PutUint64(b[21:], uint64(at))
	binary.BigEndian.PutUint32(b[29:], uint32(len(l.Data)))
	b = append(b, l.Data...)
	b = append(b, l.Extensions...)
	binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:], c.table))
	_, err := w.Write(b)
	return err
}

var errEntry = errors.New("entry does not verify")

// Decode fills l with memory of its own: raft-wal reuses b.
func (c *codec) Decode(b []byte, l *raft.Log) error {
	if len(b) < entryHeader {
		return fmt.Errorf("%w: %d bytes, fewer than its header", errEntry, len(b))
	}
	if binary.BigEndian.Uint32(b) != crc32.Checksum(b[4:], c.table) {
		return fmt.Errorf("%w: checksum does not match", errEntry)
	}
	data := int64(binary.BigEndian.Uint32(b[29:]))
	if data > int64(len(b)-entryHeader) {
		return fmt.Errorf("%w: data longer than the entry", errEntry)
	}
	*l = raft.Log{
		Index: binary.BigEndian.Uint64(b[4:]),
		Term:  binary.BigEndian.Uint64(b[12:]),
		Type:  raft.LogType(b[20]),
		Data:  append([]byte(nil), b[entryHeader:entryHeader+data]...),
	}
	if ext := b[entryHeader+data:]; len(ext) > 0 {
		l.Extensions = append([]byte(nil), ext...)
	}
	if at := int64(binary.BigEndian.Uint64(b[21:])); at != noTime {
		l.AppendedAt = time.Unix(0, at)
	}
	return nil
}
