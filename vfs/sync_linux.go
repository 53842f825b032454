package vfs

import (
	"errors"
	"os"
	"syscall"
)

// syncData is fdatasync: bytes and size, not the modification time. An interrupted call is not a failed one.
func syncData(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var syncErr error
	err = conn.Control(func(fd uintptr) {
		for {
			syncErr = syscall.Fdatasync(int(fd))
			if !errors.Is(syncErr, syscall.EINTR) {
				return
			}
		}
	})
	if err == nil && syncErr != nil {
		err = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: syncErr}
	}
	return err
}
