package log

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"path"
	"strings"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

const (
	epochFile    = "leader-epoch-checkpoint"
	metadataFile = "partition.metadata"
)

// writeUnsynced replaces name by a file with data without waiting for the disk: after a power loss the old content, the
// new one or garbage is there, so only files that prove their content (a checksum, a count) are written so.
func writeUnsynced(fs vfs.FS, name string, data []byte) error {
	f, err := fs.Create(name + vfs.TempSuffix)
	if err != nil {
		return storageErr("create", name, err)
	}
	_, err = f.WriteAt(data, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(storageErr("write", name, err), removeFile(fs, name+vfs.TempSuffix))
	}
	if err := fs.Rename(name+vfs.TempSuffix, name); err != nil {
		return errors.Join(storageErr("rename", name, err), removeFile(fs, name+vfs.TempSuffix))
	}
	return nil
}

// syncFile makes an existing file's content durable; a missing one is no error, it was removed meanwhile.
func syncFile(fs vfs.FS, name string) error {
	f, err := fs.OpenRW(name)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return storageErr("open", name, err)
	}
	err = storageErr("sync", name, f.Sync())
	return errors.Join(err, storageErr("close", name, f.Close()))
}

func isNotExist(err error) bool { return errors.Is(err, iofs.ErrNotExist) }

// removeFile removes a file that may be missing.
func removeFile(fs vfs.FS, name string) error {
	if err := fs.Remove(name); err != nil && !isNotExist(err) {
		return storageErr("remove", name, err)
	}
	return nil
}

// encodeMetadata gives the text of a partition.metadata file.
func encodeMetadata(id wire.UUID) []byte { return fmt.Appendf(nil, "version: 0\ntopic_id: %s", id) }

// decodeMetadata reads a partition.metadata file.
func decodeMetadata(file string, data []byte) (wire.UUID, error) {
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	corrupt := &CorruptError{File: file, Reason: "not a version 0 partition.metadata"}
	if len(lines) != 2 || strings.TrimSpace(lines[0]) != "version: 0" {
		return wire.UUID{}, corrupt
	}
	text, ok := strings.CutPrefix(strings.TrimSpace(lines[1]), "topic_id: ")
	id, err := wire.ParseUUID(text)
	if !ok || err != nil || id.IsZero() {
		return wire.UUID{}, corrupt
	}
	return id, nil
}

// ReadTopicID gives the topic id that the partition directory dir belongs to. Errors: fs.ErrNotExist if there is no
// partition.metadata, ErrCorrupt.
func ReadTopicID(fs vfs.FS, dir string) (wire.UUID, error) {
	name := path.Join(dir, metadataFile)
	data, err := vfs.ReadFile(fs, name)
	if err != nil {
		return wire.UUID{}, err
	}
	return decodeMetadata(name, data)
}

// prepareLocked makes directory and partition.metadata durable; it runs before the first record is written, so that no
// record is ever found in a directory whose topic nobody knows.
func (l *Log) prepareLocked() error {
	if l.prepared {
		return nil
	}
	dir := l.Dir()
	if err := syncFile(l.dir.fs, path.Join(dir, metadataFile)); err != nil {
		return err
	}
	for _, d := range []string{dir, path.Dir(dir)} {
		if err := l.dir.fs.SyncDir(d); err != nil {
			return storageErr("sync directory", d, err)
		}
	}
	l.namesDirty = false
	l.prepared = true
	return nil
}

// writeSnapshotLocked writes the producer state as of now beside the segments; Flush makes it durable.
func (l *Log) writeSnapshotLocked() error {
	end, data := l.producers.end, encodeSnapshot(l.producers)
	name := fileName(end, suffixSnapshot)
	if err := writeUnsynced(l.dir.fs, l.dir.join(name), data); err != nil {
		return err
	}
	if err := l.writeWindowLocked(data); err != nil {
		return err
	}
	l.snapshots = append(l.snapshots, name)
	l.snapshotEnd = end
	l.namesDirty = true
	return nil
}

// writeWindowLocked writes what belongs beside the snapshot with the given content.
func (l *Log) writeWindowLocked(snapshot []byte) error {
	name := fileName(l.producers.end, suffixWindow)
	window := encodeWindow(l.producers, snapshot)
	if window == nil {
		return removeFile(l.dir.fs, l.dir.join(name))
	}
	if err := writeUnsynced(l.dir.fs, l.dir.join(name), window); err != nil {
		return err
	}
	l.snapshots = append(l.snapshots, name)
	l.namesDirty = true
	return nil
}

// removeSnapshots removes those of names that are snapshot and window files for which drop holds, and gives the others.
func removeSnapshots(fs vfs.FS, dir string, names []string, drop func(o wire.Offset) bool) ([]string, error) {
	kept := make([]string, 0, len(names))
	for _, name := range names {
		o, suffix, ok := parseName(name)
		if !ok || suffix != suffixSnapshot && suffix != suffixWindow || !drop(o) {
			kept = append(kept, name)
		} else if err := removeFile(fs, path.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// removeSnapshotsLocked is removeSnapshots of what the directory holds, and gives the names that are left.
func (l *Log) removeSnapshotsLocked(drop func(o wire.Offset) bool) ([]string, error) {
	names, err := l.dir.fs.List(l.Dir())
	if err != nil {
		return nil, storageErr("list", l.Dir(), err)
	}
	return removeSnapshots(l.dir.fs, l.Dir(), names, drop)
}

// parseName splits a file name of 20 digits and a suffix.
func parseName(name string) (o wire.Offset, suffix string, ok bool) {
	if len(name) <= 20 {
		return 0, "", false
	}
	for _, c := range []byte(name[:20]) {
		if c < '0' || c > '9' || o > (1<<63-1-9)/10 {
			return 0, "", false
		}
		o = o*10 + wire.Offset(c-'0')
	}
	return o, name[20:], true
}
