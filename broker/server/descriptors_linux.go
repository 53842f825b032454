package server

import (
	"net"
	"syscall"
)

// descriptorLimit is how many descriptors this process may have, 0 if that is not known.
func descriptorLimit() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(r.Cur, 1<<31-1))
}

// descriptor is the number of nc's descriptor, -1 if it has none. The kernel gives the lowest free number: all below are
// in use.
func descriptor(nc net.Conn) int {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return -1
	}
	raw, err := tc.SyscallConn()
	if err != nil {
		return -1
	}
	n := -1
	if raw.Control(func(fd uintptr) { n = int(fd) }) != nil {
		return -1
	}
	return n
}
