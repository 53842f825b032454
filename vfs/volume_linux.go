package vfs

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// wholeAtOnce are the file systems of which it is known that syncfs waits until all data and names are written. Others may do
// less (FUSE asks its server for nothing), or were not looked at. (ext2, which has ext4's number, leaves them in the disk's
// cache; the sync of whatever file records that all is durable empties that.)
var wholeAtOnce = map[uint32]bool{
	unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.BTRFS_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.TMPFS_MAGIC: true,
}

// Volume implements FS with syncfs. Before Linux 5.8 it told of no errors, and is not used.
func (OS) Volume(dir string) (Volume, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if !wholeAtOnce[uint32(st.Type)] || !syncfsTells() {
		return nil, fmt.Errorf("syncfs of %s: %w", dir, errors.ErrUnsupported)
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return osVolume{d}, nil
}

// syncfsTells reports whether syncfs returns the errors of writing back: Linux 5.8 and later.
func syncfsTells() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	return releaseAtLeast(unix.ByteSliceToString(u.Release[:]), 5, 8)
}

func releaseAtLeast(release string, major, minor int) bool {
	var a, b int
	n, err := fmt.Sscanf(release, "%d.%d", &a, &b)
	return err == nil && n == 2 && (a > major || a == major && b >= minor)
}

// osVolume is an open directory of the file system: errors since it was opened are told to it.
type osVolume struct{ *os.File }

// Holds implements Volume.
func (v osVolume) Holds(dir string) (bool, error) {
	var mine, other unix.Stat_t
	conn, err := v.SyscallConn()
	if err != nil {
		return false, err
	}
	var statErr error
	if err := conn.Control(func(fd uintptr) { statErr = unix.Fstat(int(fd), &mine) }); err != nil {
		return false, err
	}
	if statErr == nil {
		statErr = unix.Stat(dir, &other)
	}
	if statErr != nil {
		return false, &os.PathError{Op: "stat", Path: dir, Err: statErr}
	}
	return mine.Dev == other.Dev, nil
}

// Sync implements Volume.
func (v osVolume) Sync() error {
	conn, err := v.SyscallConn()
	if err != nil {
		return err
	}
	var syncErr error
	err = conn.Control(func(fd uintptr) {
		for {
			syncErr = unix.Syncfs(int(fd))
			if !errors.Is(syncErr, syscall.EINTR) {
				return
			}
		}
	})
	if err == nil && syncErr != nil {
		err = &os.PathError{Op: "syncfs", Path: v.Name(), Err: syncErr}
	}
	return err
}
