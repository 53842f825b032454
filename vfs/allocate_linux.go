package vfs

import (
	"errors"
	"os"
	"syscall"
)

// fallocKeepSize is FALLOC_FL_KEEP_SIZE of fallocate(2): the file's length stays as it is.
const fallocKeepSize = 1

func allocate(f *os.File, size int64) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			callErr = syscall.Fallocate(int(fd), fallocKeepSize, 0, size)
			if !errors.Is(callErr, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	if callErr == nil || errors.Is(callErr, syscall.EOPNOTSUPP) || errors.Is(callErr, syscall.ENOSYS) {
		return nil
	}
	return &os.PathError{Op: "fallocate", Path: f.Name(), Err: callErr}
}
