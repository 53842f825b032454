package log

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

const txnEntrySize = 34 // i16 version 0, i64 producer id, first offset, last offset, last stable offset

// abortedTxn is one entry of a .txnindex.
type abortedTxn struct {
	producerID  wire.ProducerID
	first, last wire.Offset // last is the marker's
	stable      wire.Offset // the last stable offset as of completing it
}

func (a abortedTxn) append(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint64(be.AppendUint16(b, 0), uint64(a.producerID))
	return be.AppendUint64(be.AppendUint64(be.AppendUint64(b, uint64(a.first)), uint64(a.last)), uint64(a.stable))
}

// decodeTxnIndex reads a whole .txnindex file.
func decodeTxnIndex(file string, data []byte, base wire.Offset) ([]abortedTxn, error) {
	be := binary.BigEndian
	if len(data)%txnEntrySize != 0 {
		return nil, &CorruptError{File: file, Pos: int64(len(data)), Reason: "length is not a multiple of the entry size"}
	}
	var out []abortedTxn
	last := base - 1
	for pos := 0; pos < len(data); pos += txnEntrySize {
		b := data[pos:]
		a := abortedTxn{
			producerID: wire.ProducerID(be.Uint64(b[2:])), first: wire.Offset(be.Uint64(b[10:])),
			last: wire.Offset(be.Uint64(b[18:])), stable: wire.Offset(be.Uint64(b[26:])),
		}
		if be.Uint16(b) != 0 || a.first > a.last || a.last <= last {
			return nil, &CorruptError{File: file, Pos: int64(pos), Reason: "entry makes no sense"}
		}
		last = a.last
		out = append(out, a)
	}
	return out, nil
}

// loadAborted reads the transaction index, if there is one.
func (s *segment) loadAborted() error {
	name := s.path(suffixTxnIndex)
	data, err := vfs.ReadFile(s.dir.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return storageErr("read", name, err)
	}
	aborted, err := decodeTxnIndex(name, data, s.base)
	if err != nil {
		return err
	}
	s.txnWritten = len(aborted)
	s.mu.Lock()
	s.aborted = aborted
	s.mu.Unlock()
	return nil
}

// addAborted appends an entry to the transaction index, whose file comes into being with the first one. While there is no
// space or no descriptor the entry waits in memory, and sealing tells if that lasts.
func (s *segment) addAborted(a abortedTxn) error {
	s.mu.Lock()
	s.aborted = append(s.aborted, a)
	s.mu.Unlock()
	if err := s.writeAborted(); !Passing(err) {
		return err
	}
	return nil
}

// writeAborted puts the entries into the transaction index that are not there yet.
func (s *segment) writeAborted() error {
	s.mu.Lock()
	wait := s.aborted[s.txnWritten:]
	s.mu.Unlock()
	if len(wait) == 0 {
		return nil
	}
	var data []byte
	for _, a := range wait {
		data = a.append(data)
	}
	err := s.writeTxnIndex(func(f vfs.File) error {
		_, err := f.WriteAt(data, int64(s.txnWritten)*txnEntrySize)
		return err
	})
	if err != nil {
		return err
	}
	s.txnWritten += len(wait)
	s.txnDirty = true
	return nil
}

// cutAborted drops the entries of transactions that end at or beyond o.
func (s *segment) cutAborted(o wire.Offset) error {
	s.mu.Lock()
	n := slices.IndexFunc(s.aborted, func(a abortedTxn) bool { return a.last >= o })
	s.mu.Unlock()
	if n < 0 || planted.On(planted.TxnIndexNotCut) {
		return nil
	}
	if s.txnWritten == 0 { // there may be no file
		s.forgetAborted(n)
		return nil
	}
	// Durable at once: an entry that came back after a crash would hide records of whoever writes there next.
	cut := func(f vfs.File) error {
		if err := f.Truncate(int64(min(n, s.txnWritten)) * txnEntrySize); err != nil {
			return err
		}
		return vfs.Synced(f.Sync())
	}
	if err := s.writeTxnIndex(cut); err != nil {
		return err
	}
	s.forgetAborted(n)
	return nil
}

// forgetAborted keeps the first n entries.
func (s *segment) forgetAborted(n int) {
	s.txnWritten = min(s.txnWritten, n)
	s.mu.Lock()
	s.aborted = slices.Clone(s.aborted[:n])
	s.mu.Unlock()
}

func (s *segment) writeTxnIndex(change func(vfs.File) error) error {
	name := s.path(suffixTxnIndex)
	f, err := s.dir.fs.OpenAppend(name)
	if err != nil {
		return storageErr("open", name, err)
	}
	return storageErr("write", name, errors.Join(change(f), f.Close()))
}

func (s *segment) syncTxnIndex() error {
	if !s.txnDirty {
		return nil
	}
	err := s.writeTxnIndex(func(f vfs.File) error { return vfs.Synced(f.Sync()) })
	s.txnDirty = err != nil
	return err
}

// abortedIn gives the aborted transactions that touch [from, end); done says that no later segment can add one.
func (s *segment) abortedIn(from, end wire.Offset) (out []abortedTxn, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.aborted {
		if a.last >= from && a.first < end {
			if planted.On(planted.AbortedOffByOne) {
				a.first++
			}
			out = append(out, a)
		}
		if a.stable >= end {
			return out, true
		}
	}
	return out, false
}

// AbortedTransaction is one that a read_committed consumer skips.
type AbortedTransaction struct {
	ProducerID  wire.ProducerID
	FirstOffset wire.Offset
}

// AbortedTransactions gives every aborted transaction that touches the bytes from from up to end (ReadResult.UpperBound),
// in the order of their markers.
func (l *Log) AbortedTransactions(from, end wire.Offset) []AbortedTransaction {
	if l.Wake() != nil { // whoever reads the bytes is told why
		return nil
	}
	v := l.view.Load()
	var out []AbortedTransaction
	for i := v.find(from); i < len(v.segments); i++ {
		found, done := v.segments[i].abortedIn(from, end)
		for _, a := range found {
			out = append(out, AbortedTransaction{a.producerID, a.first})
		}
		if done || planted.On(planted.AbortedOfOneSegment) {
			break
		}
	}
	return out
}
