package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// TempSuffix is appended to a name while WriteAtomic fills the file. A file with this suffix that is found at start is
// the rest of an interrupted write and may be removed.
const TempSuffix = ".tmp"

// SyncError marks the failure of a sync among those of other calls: nobody knows what it has written.
type SyncError struct{ Err error }

// Error implements error.
func (e *SyncError) Error() string { return "sync: " + e.Err.Error() }

// Unwrap gives the file system's error.
func (e *SyncError) Unwrap() error { return e.Err }

// Synced is err as the error of a sync, nil if it is nil.
func Synced(err error) error {
	if err == nil {
		return nil
	}
	return &SyncError{err}
}

// WriteAtomic replaces name by a file that holds data, so that after a crash either the old or the new content is
// there, whole: write a temporary file, sync it, rename it, sync the directory. When it returns nil the new content is
// durable. On an error the old content stays, unless the error is that of the last sync of the directory: then either
// may be found after a crash.
func WriteAtomic(fs FS, name string, data []byte) error {
	tmp := name + TempSuffix
	if err := writeSynced(fs, tmp, data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", tmp, err), removeIfExists(fs, tmp))
	}
	if err := fs.Rename(tmp, name); err != nil {
		return errors.Join(fmt.Errorf("replace %s: %w", name, err), removeIfExists(fs, tmp))
	}
	if err := fs.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("replace %s: directory: %w", name, Synced(err))
	}
	return nil
}

func writeSynced(fs FS, name string, data []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = Synced(f.Sync())
	}
	return errors.Join(err, f.Close())
}

func removeIfExists(fs FS, name string) error {
	if err := fs.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ReadFile gives the whole content of name.
func ReadFile(fs FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if n == len(data) || errors.Is(err, io.EOF) {
		err = nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return data[:n], nil
}

// Exists reports whether name is there. Any error but "does not exist" is returned.
func Exists(fs FS, name string) (bool, error) {
	_, err := fs.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// RemoveAll removes name and, if it is a directory, everything in it; a missing name is no error. It does not follow
// symbolic links and syncs nothing.
func RemoveAll(fs FS, name string) error {
	err := removeIfExists(fs, name)
	if err == nil {
		return nil
	}
	info, statErr := fs.Stat(name)
	if statErr != nil || !info.Dir {
		return err
	}
	names, err := fs.List(name)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := RemoveAll(fs, path.Join(name, n)); err != nil {
			return err
		}
	}
	return removeIfExists(fs, name)
}
