package log

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// cleanUp deals with what an interrupted operation left (removals, temporary files, cleaner output, swaps) and gives the
// names that are left, sorted.
func (op *opening) cleanUp() ([]string, error) {
	names, err := op.o.FS.List(op.o.Dir)
	if err != nil {
		return nil, storageErr("list", op.o.Dir, err)
	}
	if tidy(names) {
		return names, nil
	}
	if op.rested != nil && !op.rested.names(names) {
		return nil, op.rested.changed(op.o.Dir)
	}
	oldestCleaned := wire.Offset(1<<63 - 1)
	for _, name := range names {
		if base, suffix, ok := parseName(name); ok && strings.HasSuffix(suffix, suffixCleaned) {
			oldestCleaned = min(oldestCleaned, base)
		}
	}
	dropped := false
	for _, name := range names {
		base, suffix, _ := parseName(name)
		// A swap at or beyond an unfinished cleaner output belongs to the same unfinished round (Kafka: LogLoader).
		if strings.HasSuffix(name, suffixDeleted) || strings.HasSuffix(name, vfs.TempSuffix) ||
			strings.HasSuffix(suffix, suffixCleaned) || strings.HasSuffix(suffix, suffixSwap) && base >= oldestCleaned {
			dropped = true
			if err := removeFile(op.o.FS, op.dir.join(name)); err != nil {
				return nil, err
			}
		}
	}
	swapped, err := op.finishSwaps()
	if err != nil {
		return nil, err
	}
	orphans, err := op.removeOrphans()
	if err != nil {
		return nil, err
	}
	op.namesDirty = op.namesDirty || dropped || swapped || orphans
	names, err = op.o.FS.List(op.o.Dir)
	return names, storageErr("list", op.o.Dir, err)
}

// finishSwaps puts complete replacements in the place of the segments that they replace.
func (op *opening) finishSwaps() (bool, error) {
	names, err := op.o.FS.List(op.o.Dir)
	if err != nil {
		return false, storageErr("list", op.o.Dir, err)
	}
	swapped := false
	for _, name := range names {
		base, suffix, ok := parseName(name)
		if !ok || suffix != suffixLog+suffixSwap {
			continue
		}
		end, err := op.endOfFile(name, base)
		if err != nil {
			return false, err
		}
		if err := op.replaceBySwap(names, base, end); err != nil {
			return false, err
		}
		swapped = true
	}
	for _, name := range names { // an index whose .log was renamed before the crash
		base, suffix, ok := parseName(name)
		if plain, isSwap := strings.CutSuffix(suffix, suffixSwap); ok && isSwap && !slices.Contains(names, fileName(base, suffixLog+suffixSwap)) {
			swapped = true
			if err := op.o.FS.Rename(op.dir.join(name), op.dir.join(fileName(base, plain))); err != nil {
				return false, storageErr("rename", name, err)
			}
		}
	}
	return swapped, nil
}

// replaceBySwap removes what the swap files of base replace, the segments that begin in [base, end), and gives the swap
// files their names, .log first. Each step is durable before the next: a .log.swap says that no index was renamed yet, so
// an index under its name is an old one.
func (op *opening) replaceBySwap(names []string, base, end wire.Offset) error {
	for _, name := range names {
		o, suffix, ok := parseName(name)
		replaced := ok && slices.Contains(segmentSuffixes[:], suffix) && o >= base && (o < end || o == base)
		if replaced && !(o == base && suffix == suffixLog) {
			if err := removeFile(op.o.FS, op.dir.join(name)); err != nil {
				return err
			}
		}
	}
	if err := storageErr("sync directory", op.o.Dir, op.o.FS.SyncDir(op.o.Dir)); err != nil {
		return err
	}
	for i, suffix := range segmentSuffixes {
		from, to := op.dir.join(fileName(base, suffix+suffixSwap)), op.dir.join(fileName(base, suffix))
		if err := op.o.FS.Rename(from, to); err != nil && !(isNotExist(err) && i > 0) {
			return storageErr("rename", from, err)
		}
		if i == 0 {
			if err := storageErr("sync directory", op.o.Dir, op.o.FS.SyncDir(op.o.Dir)); err != nil {
				return err
			}
		}
	}
	return nil
}

// endOfFile gives the offset after the last batch of a .log file.
func (op *opening) endOfFile(name string, base wire.Offset) (wire.Offset, error) {
	file := op.dir.join(name)
	f, err := op.o.FS.Open(file)
	if err != nil {
		return 0, storageErr("open", file, err)
	}
	size, err := f.Size()
	if err != nil {
		return 0, storageErr("stat", file, errors.Join(err, f.Close()))
	}
	sc := &scanner{buf: make([]byte, headScanBytes), file: file}
	sc.reset(nil, f, 0, size)
	end := base
	for err == nil {
		var h header
		if h, _, err = sc.head(); err == nil {
			end = h.last + 1
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return end, errors.Join(err, f.Close())
}

// ownerOf is the suffix of the file without which one with this suffix has no meaning.
var ownerOf = map[string]string{
	suffixIndex: suffixLog, suffixTimeIndex: suffixLog, suffixTxnIndex: suffixLog, suffixWindow: suffixSnapshot,
}

// orphans gives those of names that have no owner among them: index files without their .log, windows without their
// snapshot.
func orphans(names []string) []string {
	var out []string
	for _, name := range names {
		base, suffix, ok := parseName(name)
		if need := ownerOf[suffix]; ok && need != "" && !slices.Contains(names, fileName(base, need)) {
			out = append(out, name)
		}
	}
	return out
}

// removeOrphans removes the orphans of the directory. That their owners are gone is made durable first: a crash that
// brought an owner back alone would leave a segment without its aborted transactions, or a producer without all but its
// newest batch.
func (op *opening) removeOrphans() (bool, error) {
	names, err := op.o.FS.List(op.o.Dir)
	if err != nil {
		return false, storageErr("list", op.o.Dir, err)
	}
	alone := orphans(names)
	if len(alone) == 0 {
		return false, nil
	}
	if err := op.o.FS.SyncDir(op.o.Dir); err != nil {
		return false, storageErr("sync directory", op.o.Dir, err)
	}
	for _, name := range alone {
		if err := removeFile(op.o.FS, op.dir.join(name)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// tidy reports whether an interrupted operation has left nothing in the directory.
func tidy(names []string) bool {
	for _, name := range names {
		for _, leftover := range []string{suffixDeleted, suffixCleaned, suffixSwap, vfs.TempSuffix} {
			if strings.HasSuffix(name, leftover) {
				return false
			}
		}
	}
	return len(orphans(names)) == 0
}
