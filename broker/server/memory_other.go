//go:build !linux

package server

import "runtime/debug"

// assumedMemory stands for the machine's memory where it is not asked for, in bytes.
const assumedMemory = 4 << 30

// machineMemory is the memory this process may use, in bytes: GOMEMLIMIT, or an assumption.
func machineMemory() int64 { return min(debug.SetMemoryLimit(-1), assumedMemory) }
