//go:build !sim

package sim

// locksMayWait says that a lock over file I/O may be waited for in a bubble (internal/xsync).
const locksMayWait = false
