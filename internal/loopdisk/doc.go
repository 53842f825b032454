// Package loopdisk is a file system of the kernel on a loop device, or in memory, for tests that need what no model has:
// power cuts, devices that fail, disks that are full. Linux and root only; elsewhere a test that asks for one is skipped,
// but where CI is set it fails. It starts no goroutine.
package loopdisk
