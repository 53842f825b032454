package log

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// Problem is something in a partition's directory that is not as it must be.
type Problem struct {
	File string // within the directory
	Pos  int64  // bytes; -1: not at one place
	What string
}

// Report is what Verify found in one partition's directory.
type Report struct {
	Segments, Batches int
	Records, Bytes    int64
	First, End        wire.Offset // of the batches; End is exclusive
	IndexEntries      int         // of all indexes
	Notes             []string    // what the next start finishes, removes or makes again; no damage
	Problems          []Problem
}

// VerifyOptions say what Verify reads.
type VerifyOptions struct {
	FS     vfs.FS
	Dir    string // of one partition; nobody may write to it meanwhile
	Codecs *compress.Codecs
	// MaxDecompressedBytes bounds what one batch may inflate to.
	MaxDecompressedBytes int64
	Progress             func(bytes int64) // bytes that were read since the last call; may be nil
}

// Verify reads every file of a partition's directory, Kafka's or kaja's, and checks it: checksums, offsets, every record,
// that the indexes name batches that are there, snapshots and checkpoints. It changes nothing. An error means that the
// directory could not be read; what is wrong with its content is in the report.
func Verify(ctx context.Context, o VerifyOptions) (Report, error) {
	v := &verifier{o: &o, ctx: ctx}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return v.report, err
	}
	for _, name := range names {
		if err := v.file(name, names); err != nil {
			return v.report, err
		}
	}
	return v.report, nil
}

type verifier struct {
	o      *VerifyOptions
	ctx    context.Context //nolint:containedctx // lives as long as the call that it came with
	report Report
	next   wire.Offset
}

// place is a batch as the indexes see it.
type place struct {
	pos        int64
	base, last wire.Offset
	maxTime    int64 // of this batch and all before it
}

func (v *verifier) path(name string) string { return path.Join(v.o.Dir, name) }

// bad notes an error about a file's content; any other error is returned.
func (v *verifier) bad(name string, err error) error {
	if corrupt, ok := errors.AsType[*CorruptError](err); ok {
		v.problem(name, corrupt.Pos, "%s", corrupt.Reason)
		return nil
	}
	if old, ok := errors.AsType[*OldFormatError](err); ok {
		v.problem(name, old.Pos, "batch of message format %d, which is not supported", old.Magic)
		return nil
	}
	return err
}

func (v *verifier) problem(name string, pos int64, format string, args ...any) {
	v.report.Problems = append(v.report.Problems, Problem{name, pos, fmt.Sprintf(format, args...)})
}

func (v *verifier) note(format string, args ...any) {
	v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
}

// file checks one file; a segment's indexes are checked with its .log.
func (v *verifier) file(name string, names []string) error {
	base, suffix, ok := parseName(name)
	switch {
	case strings.HasSuffix(name, suffixDeleted) || strings.HasSuffix(name, suffixCleaned) || strings.HasSuffix(name, suffixSwap) ||
		strings.HasSuffix(name, vfs.TempSuffix):
		v.note("%s is left over; the next start finishes or removes it", name)
		return nil
	case name == epochFile:
		_, err := ReadEpochsFile(v.o.FS, v.path(name))
		return v.bad(name, err)
	case name == metadataFile:
		_, err := ReadTopicID(v.o.FS, v.o.Dir)
		return v.bad(name, err)
	case !ok:
		return nil
	}
	switch suffix {
	case suffixLog:
		return v.segment(name, base, names)
	case suffixSnapshot:
		_, used, there, err := ReadSnapshotFile(v.o.FS, v.path(name), base)
		if err == nil && there && !used {
			v.problem(fileName(base, suffixWindow), -1, "does not belong to its snapshot")
		}
		return v.bad(name, err)
	case suffixIndex, suffixTimeIndex, suffixTxnIndex:
		if !slices.Contains(names, fileName(base, suffixLog)) {
			v.note("%s has no .log; the next start removes it", name)
		}
	}
	return nil
}

func (v *verifier) segment(name string, base wire.Offset, names []string) error {
	if base < v.next {
		v.problem(name, -1, "segment begins at %d, before the end %d of the one before it", base, v.next)
	}
	v.report.Segments++
	var places []place
	next, seen := base, int64(0)
	err := ReadLogFile(v.ctx, v.o.FS, v.path(name), func(b FileBatch) error {
		h := parseHeader(b.Batch)
		if h.base < next || h.last-base > maxRelativeOffset {
			v.problem(name, b.Pos, "offsets %d to %d do not follow %d", h.base, h.last, next-1)
		}
		next = h.last + 1
		seen = max(seen, h.maxTime)
		places = append(places, place{b.Pos, h.base, h.last, seen})
		if v.report.Batches == 0 {
			v.report.First = h.base
		}
		v.report.Batches++
		v.report.Records += int64(h.count)
		v.report.Bytes += int64(h.size)
		if v.o.Progress != nil {
			v.o.Progress(int64(h.size))
		}
		v.records(name, b)
		return nil
	})
	if err := v.bad(name, err); err != nil {
		return err
	}
	v.next = max(next, v.next)
	v.report.End = v.next
	return v.indexes(base, places, names)
}

// records walks the records of a batch.
func (v *verifier) records(name string, b FileBatch) {
	s, err := b.Scan(v.o.Codecs, v.o.MaxDecompressedBytes)
	if err == nil {
		last := int32(-1)
		for s.Next() {
			if d := s.Record.OffsetDelta; d <= last || d > b.LastOffsetDelta() {
				err = fmt.Errorf("record offset delta %d after %d in a batch of %d", d, last, b.LastOffsetDelta()+1)
				break
			}
			last = s.Record.OffsetDelta
		}
		if err == nil {
			err = s.Err()
		}
		s.Close()
	}
	if err != nil {
		v.problem(name, b.Pos, "records: %v", err)
	}
}

// indexes checks the three indexes of a segment against its batches.
func (v *verifier) indexes(base wire.Offset, places []place, names []string) error {
	index, times, txns := fileName(base, suffixIndex), fileName(base, suffixTimeIndex), fileName(base, suffixTxnIndex)
	for _, name := range []string{index, times} {
		if !slices.Contains(names, name) {
			v.note("%s is missing; the next start makes it again", name)
		}
	}
	if slices.Contains(names, index) {
		entries, _, err := ReadIndexFile(v.o.FS, v.path(index), base)
		if err := v.bad(index, err); err != nil {
			return err
		}
		v.offsetIndex(index, entries, places)
	}
	if slices.Contains(names, times) {
		entries, _, err := ReadTimeIndexFile(v.o.FS, v.path(times), base)
		if err := v.bad(times, err); err != nil {
			return err
		}
		v.timeIndex(times, entries, places)
	}
	if slices.Contains(names, txns) {
		entries, err := ReadTxnIndexFile(v.o.FS, v.path(txns), base)
		v.report.IndexEntries += len(entries)
		return v.bad(txns, err)
	}
	return nil
}

// offsetIndex checks that each entry leads to a batch from which its offset is found.
func (v *verifier) offsetIndex(name string, entries []IndexEntry, places []place) {
	v.report.IndexEntries += len(entries)
	last := wire.NoOffset
	for i, e := range entries {
		at := int64(i) * offsetEntrySize
		j := sort.Search(len(places), func(j int) bool { return places[j].pos >= e.Pos })
		switch {
		case e.Offset <= last:
			v.problem(name, at, "offset %d after %d", e.Offset, last)
		case j == len(places) || places[j].pos != e.Pos:
			v.problem(name, at, "offset %d: no batch begins at byte %d", e.Offset, e.Pos)
		case places[j].base > e.Offset || i == 0 && j > 0 && places[j-1].last >= e.Offset:
			v.problem(name, at, "offset %d: the batch at byte %d holds %d to %d", e.Offset, e.Pos, places[j].base, places[j].last)
		}
		last = e.Offset
	}
}

// timeIndex checks that no record before the offset of an entry is younger than it says.
func (v *verifier) timeIndex(name string, entries []TimeIndexEntry, places []place) {
	v.report.IndexEntries += len(entries)
	lastTime, lastOffset := int64(-1), wire.NoOffset
	for i, e := range entries {
		at := int64(i) * timeEntrySize
		j := sort.Search(len(places), func(j int) bool { return places[j].last >= e.Offset })
		switch {
		case e.Timestamp <= lastTime || e.Offset < lastOffset:
			v.problem(name, at, "timestamp %d at %d after %d at %d", e.Timestamp, e.Offset, lastTime, lastOffset)
		case j == len(places):
			v.problem(name, at, "offset %d is not in the segment", e.Offset)
		case places[j].maxTime > e.Timestamp:
			v.problem(name, at, "timestamp %d, but %d comes at or before offset %d", e.Timestamp, places[j].maxTime, e.Offset)
		}
		lastTime, lastOffset = e.Timestamp, e.Offset
	}
}
