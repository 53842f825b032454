package log

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Errors of a Log; test with errors.Is.
var (
	// ErrStorage matches every *StorageError: the disk failed or is full.
	ErrStorage = errors.New("log storage error")
	// ErrDiskFull matches a *StorageError for lack of space; whether the log stays usable says Passing.
	ErrDiskFull = errors.New("disk full")
	// ErrExhausted matches a *StorageError for lack of descriptors; whether the log stays usable says Passing.
	ErrExhausted = errors.New("out of descriptors")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("log is closed")
	// ErrOffsetOutOfRange matches every *OffsetOutOfRangeError.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrCorrupt matches every *CorruptError.
	ErrCorrupt = errors.New("log data is corrupt")
	// ErrCleanAborted: the segments that were being compacted went away meanwhile; nothing has changed.
	ErrCleanAborted = errors.New("compaction was overtaken by a change of the log")
	// ErrTopicID: the directory belongs to another topic of the same name.
	ErrTopicID = errors.New("directory belongs to another topic id")
	// ErrNotAsLeft: the log was served as the last clean stop had left it (Rest), and its files are others. It takes no use.
	ErrNotAsLeft = errors.New("log is not as the last clean stop has left it")
)

// StorageError is a failed file operation. Unless it is Passing it is final: the log refuses every later write until it is opened again,
// because nobody knows what the disk holds.
type StorageError struct {
	Op   string
	File string
	Err  error
}

// Error implements error.
func (e *StorageError) Error() string {
	return fmt.Sprintf("log storage: %s %s: %v", e.Op, e.File, e.Err)
}

// Unwrap gives the file system's error.
func (e *StorageError) Unwrap() error { return e.Err }

// Is matches ErrStorage, ErrDiskFull for lack of space or quota, ErrExhausted for lack of descriptors.
func (e *StorageError) Is(target error) bool {
	switch target {
	case ErrStorage:
		return true
	case ErrDiskFull:
		return isDiskFull(e.Err)
	case ErrExhausted:
		return isExhausted(e.Err)
	}
	return false
}

func isExhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Passing reports whether err is nothing but lack of space or of descriptors, so that what failed may succeed later: the log
// stays usable. A sync that failed for lack of space is not: nobody knows what it has written. One that had no descriptor
// (vfs/filepool) was not begun.
func Passing(err error) bool { return passes(err, false) }

func passes(err error, inSync bool) bool {
	switch x := err.(type) { //nolint:errorlint // it walks the tree itself: every innermost error counts
	case nil:
		return false
	case *vfs.SyncError:
		return passes(x.Err, true)
	case *StorageError:
		return passes(x.Err, inSync || strings.HasPrefix(x.Op, "sync"))
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(x.Unwrap(), func(err error) bool { return !passes(err, inSync) })
	case interface{ Unwrap() error }:
		return passes(x.Unwrap(), inSync)
	}
	return isExhausted(err) || !inSync && isDiskFull(err)
}

func storageErr(op, file string, err error) error {
	if err == nil {
		return nil
	}
	return &StorageError{Op: op, File: file, Err: err}
}

// OffsetOutOfRangeError is a read outside [Start, End].
type OffsetOutOfRangeError struct {
	Offset, Start, End wire.Offset
}

// Error implements error.
func (e *OffsetOutOfRangeError) Error() string {
	return fmt.Sprintf("offset %d is out of range: the log holds %d to %d", e.Offset, e.Start, e.End)
}

// Is matches ErrOffsetOutOfRange.
func (e *OffsetOutOfRangeError) Is(target error) bool { return target == ErrOffsetOutOfRange }

// CorruptError is a file that does not hold what it must.
type CorruptError struct {
	File   string
	Pos    int64
	Reason string
}

// Error implements error.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is corrupt at byte %d: %s", e.File, e.Pos, e.Reason)
}

// Is matches ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// RecordError names one refused record of a batch.
type RecordError struct {
	Index   int32 // within the batch, from 0
	Message string
}

// ValidationError is why Validate refuses records. Code is the protocol error of the partition.
type ValidationError struct {
	Code    *kerr.Error
	Message string        // for the response's ErrorMessage; empty: none
	Records []RecordError // for the response's RecordErrors
}

// Error implements error.
func (e *ValidationError) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Message + ": " + e.Message
}

// Unwrap gives the protocol error.
func (e *ValidationError) Unwrap() error { return e.Code }

// OldFormatError is a batch of message format 0 or 1, which kaja neither serves nor removes.
type OldFormatError struct {
	File  string
	Pos   int64
	Magic int8
}

// Error implements error.
func (e *OldFormatError) Error() string {
	return fmt.Sprintf("%s holds a batch of message format %d at byte %d; formats below 2 are not supported", e.File, e.Magic, e.Pos)
}
