package raftstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"path"

	"github.com/kajamq/kaja/vfs"
)

const (
	endName = "END"
	endSlot = 4096 // distance of the two slots: no torn write reaches both
	endSize = 8 + 8 + 4
)

// endMark is a lower bound of the log's last index. raft-wal takes a damaged tail for an append that a crash interrupted
// and cuts it off, whatever follows; the mark tells the two apart. It is written after every append without a sync (a
// mark that a power loss takes back, be it with the whole file, is still a lower bound) and with one before anything is
// deleted from the end. Two slots take turns; one that does not verify is ignored.
type endMark struct {
	file vfs.File
	seq  uint64
	last uint64
}

func openEnd(fs vfs.FS, dir string) (*endMark, error) {
	f, err := fs.OpenAppend(path.Join(dir, endName))
	if err != nil {
		return nil, fmt.Errorf("open the mark of the log's end: %w", err)
	}
	e := &endMark{file: f}
	for slot := range int64(2) {
		var b [endSize]byte
		if n, _ := f.ReadAt(b[:], slot*endSlot); n < endSize {
			continue
		}
		if binary.BigEndian.Uint32(b[16:]) != crc32.Checksum(b[:16], castagnoli()) {
			continue
		}
		if seq := binary.BigEndian.Uint64(b[:]); seq >= e.seq {
			e.seq, e.last = seq, binary.BigEndian.Uint64(b[8:])
		}
	}
	return e, nil
}

func (e *endMark) set(last uint64, sync bool) error {
	var b [endSize]byte
	e.seq++
	binary.BigEndian.PutUint64(b[:], e.seq)
	binary.BigEndian.PutUint64(b[8:], last)
	binary.BigEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli()))
	if _, err := e.file.WriteAt(b[:], int64(e.seq%2)*endSlot); err != nil {
		return fmt.Errorf("write the mark of the log's end: %w", err)
	}
	e.last = last
	if !sync {
		return nil
	}
	if err := e.file.Sync(); err != nil {
		return fmt.Errorf("sync the mark of the log's end: %w", err)
	}
	return nil
}
