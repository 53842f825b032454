package server

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// machineMemory is the memory this process may use, in bytes: the machine's, or less if its control group or
// GOMEMLIMIT says so.
func machineMemory() int64 {
	limit := debug.SetMemoryLimit(-1)
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		limit = min(limit, int64(info.Totalram)*int64(info.Unit))
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && v > 0 {
			limit = min(limit, v)
		}
	}
	return limit
}
