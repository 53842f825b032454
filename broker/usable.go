package broker

import (
	"errors"
	"io/fs"
	"path"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/vfs"
)

// usableDirs gives those of log.dirs that can be worked with, and notes the others as offline: once a node has its
// metadata, a log directory on a disk that fails takes nothing else out of service (Kafka:
// LogManager.createAndValidateLogDirs). At the first start, and of the metadata directory, any error is the operator's to
// see.
func (b *Broker) usableDirs() []string {
	dirs, metadata := b.cfg.LogDirs(), b.cfg.MetadataDir()
	if ok, err := vfs.Exists(b.env.FS, path.Join(metadata, RaftDirName)); err != nil || !ok {
		return dirs
	}
	var usable []string
	for _, dir := range dirs {
		err := tryDir(b.env.FS, dir)
		if dir == metadata || err == nil {
			usable = append(usable, dir)
			continue
		}
		b.logger.Error("log directory cannot be used and is offline until the next start", "dir", dir, "err", err)
		b.unusable = append(b.unusable, replica.Dir{Path: dir, Err: err})
	}
	if len(usable) == 0 {
		b.unusable = nil
		return dirs // the identity says what is wrong with them
	}
	return usable
}

// tryDir makes the calls that a start needs first. A lock that another process holds is not the disk's fault.
func tryDir(fsys vfs.FS, dir string) error {
	if err := makeDir(fsys, dir); err != nil {
		return err
	}
	if _, err := fsys.List(dir); err != nil {
		return err
	}
	if _, err := vfs.ReadFile(fsys, path.Join(dir, metaName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lock, err := fsys.Lock(path.Join(dir, lockName))
	if errors.Is(err, vfs.ErrLocked) {
		return nil
	}
	if err != nil {
		return err
	}
	return lock.Close()
}
