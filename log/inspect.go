package log

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// This file reads the files of a partition one by one, without a Log: for tools, and of a directory that nobody uses.

// FileBatch is a batch of a .log file and where it lies.
type FileBatch struct {
	batch.Batch

	Pos int64
}

// ReadLogFile calls fn for every batch of a .log file, its checksum verified. The batch is valid until fn returns; fn's error
// ends the reading and is returned as it is.
//
// Errors: *CorruptError for what is no whole valid batch (what follows cannot be told apart), *OldFormatError, those of the file
// system, ctx's.
func ReadLogFile(ctx context.Context, fs vfs.FS, name string, fn func(b FileBatch) error) (err error) {
	f, err := fs.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return storageErr("stat", name, err)
	}
	sc := &scanner{buf: make([]byte, min(max(size, headerSize), fullScanBytes)), file: name}
	sc.reset(nil, f, 0, size)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, b, pos, err := sc.batch()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := fn(FileBatch{b, pos}); err != nil {
			return err
		}
	}
}

// IndexEntry is an entry of a .index: the last offset of the batch at Pos.
type IndexEntry struct {
	Offset wire.Offset
	Pos    int64
}

// TimeIndexEntry is an entry of a .timeindex: the largest timestamp of the segment up to Offset.
type TimeIndexEntry struct {
	Timestamp int64
	Offset    wire.Offset
}

// ReadIndexFile gives the entries of a .index and the number of entries of zeros after them, which Kafka leaves while a segment
// is active. Errors: *CorruptError for a length that fits no number of entries.
func ReadIndexFile(fs vfs.FS, name string, base wire.Offset) (entries []IndexEntry, padding int, err error) {
	data, padding, err := readEntries(fs, name, offsetEntrySize)
	for ; len(data) > 0; data = data[offsetEntrySize:] {
		e := decodeOffsetEntry(data)
		entries = append(entries, IndexEntry{base + wire.Offset(e.rel), int64(e.pos)})
	}
	return entries, padding, err
}

// ReadTimeIndexFile is ReadIndexFile for a .timeindex.
func ReadTimeIndexFile(fs vfs.FS, name string, base wire.Offset) (entries []TimeIndexEntry, padding int, err error) {
	data, padding, err := readEntries(fs, name, timeEntrySize)
	for ; len(data) > 0; data = data[timeEntrySize:] {
		e := decodeTimeEntry(data)
		entries = append(entries, TimeIndexEntry{e.time, base + wire.Offset(e.rel)})
	}
	return entries, padding, err
}

// readEntries gives the bytes of an index without the zeros at its end, and how many entries of zeros those are.
func readEntries(fs vfs.FS, name string, width int) (data []byte, padding int, err error) {
	if data, err = vfs.ReadFile(fs, name); err != nil {
		return nil, 0, err
	}
	if len(data)%width != 0 {
		return nil, 0, &CorruptError{File: name, Pos: int64(len(data)), Reason: "length is not a multiple of the entry size"}
	}
	used := len(bytes.TrimRight(data, "\x00"))
	used = (used + width - 1) / width * width
	return data[:used], (len(data) - used) / width, nil
}

// TxnIndexEntry is an entry of a .txnindex: an aborted transaction.
type TxnIndexEntry struct {
	ProducerID  wire.ProducerID
	First, Last wire.Offset // Last is the marker's
	LastStable  wire.Offset // as of completing it
}

// ReadTxnIndexFile gives the entries of a .txnindex. Errors: *CorruptError.
func ReadTxnIndexFile(fs vfs.FS, name string, base wire.Offset) ([]TxnIndexEntry, error) {
	data, err := vfs.ReadFile(fs, name)
	if err != nil {
		return nil, err
	}
	aborted, err := decodeTxnIndex(name, data, base)
	out := make([]TxnIndexEntry, len(aborted))
	for i, a := range aborted {
		out[i] = TxnIndexEntry{a.producerID, a.first, a.last, a.stable}
	}
	return out, err
}

// SnapshotEntry is one producer of a .snapshot.
type SnapshotEntry struct {
	ProducerID       wire.ProducerID
	Epoch            wire.ProducerEpoch
	CoordinatorEpoch int32
	LastTimestamp    int64
	TxnFirst         wire.Offset // of the open transaction, NoOffset if none is open
	// Batches are those that are remembered, oldest first: at most one of a .snapshot, up to five with its .kaja-window.
	Batches []ProducerBatch
}

// ProducerBatch is what a partition remembers of a producer's batch.
type ProducerBatch struct {
	FirstSequence, LastSequence int32
	FirstOffset, LastOffset     wire.Offset
	Timestamp                   int64
}

// ReadSnapshotFile gives the producers of a .snapshot, by ascending id, with what a .kaja-window beside it adds. windowUsed
// says whether there is a usable one, windowThere whether there is one. Errors: *CorruptError.
func ReadSnapshotFile(fs vfs.FS, name string, end wire.Offset) (_ []SnapshotEntry, windowUsed, windowThere bool, err error) {
	data, err := vfs.ReadFile(fs, name)
	if err != nil {
		return nil, false, false, err
	}
	ps, err := decodeSnapshot(name, data, end)
	if err != nil {
		return nil, false, false, err
	}
	if window, err := vfs.ReadFile(fs, name[:len(name)-len(suffixSnapshot)]+suffixWindow); err == nil {
		windowThere, windowUsed = true, applyWindow(ps, window, data)
	}
	var out []SnapshotEntry
	for _, id := range ps.sortedIDs() {
		p := ps.byID[id]
		e := SnapshotEntry{ProducerID: id, Epoch: p.epoch, CoordinatorEpoch: p.coordinatorEpoch, LastTimestamp: p.lastTimestamp, TxnFirst: p.txnFirst}
		for _, b := range p.batches[:p.n] {
			e.Batches = append(e.Batches, ProducerBatch{b.firstSequence(), b.lastSequence, b.firstOffset(), b.lastOffset, b.timestamp})
		}
		out = append(out, e)
	}
	return out, windowUsed, windowThere, nil
}

// EpochEntry is an entry of a leader-epoch-checkpoint.
type EpochEntry struct {
	Epoch wire.LeaderEpoch
	Start wire.Offset
}

// ReadEpochsFile gives the entries of a leader-epoch-checkpoint. Errors: *CorruptError.
func ReadEpochsFile(fs vfs.FS, name string) ([]EpochEntry, error) {
	data, err := vfs.ReadFile(fs, name)
	if err != nil {
		return nil, err
	}
	c, err := decodeEpochs(name, data)
	out := make([]EpochEntry, len(c.entries))
	for i, e := range c.entries {
		out[i] = EpochEntry{e.epoch, e.start}
	}
	return out, err
}

// ParseFileName splits the name of a file of a partition, without its directory: the offset in 20 digits and the suffix. ok
// is false for names without an offset.
func ParseFileName(name string) (o wire.Offset, suffix string, ok bool) { return parseName(name) }
