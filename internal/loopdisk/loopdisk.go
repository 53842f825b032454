//go:build linux

package loopdisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ioctlShutdown = 0x8004587d // EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN
	ioctlFreeze   = 0xc0045877 // FIFREEZE
	ioctlThaw     = 0xc0045878 // FITHAW
	shutdownNoLog = 2          // what the journal holds in memory is lost: a power cut
)

// T is what this package wants of testing.TB. Fatal, Fatalf and Skip do not return.
type T interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Skip(args ...any)
	TempDir() string
	Cleanup(func())
}

// MinSize is the least that XFS takes, in bytes.
const MinSize = 320 << 20

// Disk is a mounted file system, unmounted and gone when the test is over.
type Disk struct {
	// Mount is the directory where it is mounted.
	Mount string

	t         T
	kind, dev string
	under     *Disk // holds the image of the loop device
}

// need ends the test unless it may mount file systems.
func need(t T, tools ...string) {
	t.Helper()
	missing := func(what string) {
		t.Helper()
		if os.Getenv("CI") != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	if os.Geteuid() != 0 {
		missing("only root can mount a file system")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing(err.Error())
		}
	}
}

// New makes an empty file system of a kind, ext4 or xfs, and a size in bytes on a loop device. What is written takes memory.
func New(t T, kind string, size int64) *Disk {
	t.Helper()
	need(t, "losetup", "mkfs."+kind)
	d := &Disk{t: t, kind: kind, Mount: t.TempDir(), under: InMemory(t, size+1<<20)}
	image := filepath.Join(d.under.Mount, "disk")
	f, err := os.Create(image)
	d.must(err)
	d.must(errors.Join(f.Truncate(size), f.Close()))
	d.run("mkfs."+kind, "-q", image)
	d.dev = d.run("losetup", "-f", "--show", image)
	dev, err := os.Open(d.dev)
	d.must(err)
	t.Cleanup(func() { d.must(dev.Close()) })
	d.run("losetup", "-d", d.dev) // once nobody has it open any more: this process, however it ends
	d.up()
	t.Cleanup(d.down)
	return d
}

// InMemory makes an empty file system of so many bytes in memory.
func InMemory(t T, size int64) *Disk {
	t.Helper()
	need(t)
	d := &Disk{t: t, kind: "tmpfs", Mount: t.TempDir()}
	d.must(syscall.Mount("none", d.Mount, d.kind, 0, fmt.Sprintf("size=%d", size)))
	t.Cleanup(d.down)
	return d
}

func (d *Disk) must(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatalf("%s: %v", d.kind, err)
	}
}

func (d *Disk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		d.t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (d *Disk) up()   { d.t.Helper(); d.must(syscall.Mount(d.dev, d.Mount, d.kind, 0, "")) }
func (d *Disk) down() { d.t.Helper(); d.must(syscall.Unmount(d.Mount, syscall.MNT_DETACH)) }

// Sync makes everything durable.
func (d *Disk) Sync() {
	d.t.Helper()
	dir, err := os.Open(d.Mount)
	d.must(err)
	d.must(errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()))
}

// Shutdown lets every later call on the file system fail and forgets what was not durable, the journal's included: what a
// power cut leaves on the disk.
func (d *Disk) Shutdown() {
	d.t.Helper()
	d.ioctl(ioctlShutdown, shutdownNoLog)
}

func (d *Disk) ioctl(number uintptr, arg uint32) {
	d.t.Helper()
	dir, err := os.Open(d.Mount)
	d.must(err)
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, dir.Fd(), number, uintptr(unsafe.Pointer(&arg)))
	d.must(dir.Close())
	if errno != 0 {
		d.must(errno)
	}
}

// Freeze lets every call that writes wait until Thaw, without an error: a disk that hangs. What was read before is read on.
func (d *Disk) Freeze() { d.t.Helper(); d.ioctl(ioctlFreeze, 0) }

// Thaw ends Freeze.
func (d *Disk) Thaw() { d.t.Helper(); d.ioctl(ioctlThaw, 0) }

// Remount mounts it again. Nothing on it may be open.
func (d *Disk) Remount() {
	d.t.Helper()
	d.must(syscall.Unmount(d.Mount, 0))
	d.up()
}

// Remake makes the file system anew, empty. Nothing on it may be open.
func (d *Disk) Remake() {
	d.t.Helper()
	d.must(syscall.Unmount(d.Mount, 0))
	force := "-F"
	if d.kind == "xfs" {
		force = "-f"
	}
	d.run("mkfs."+d.kind, "-q", force, d.dev)
	d.up()
}

// FailWrites lets the device refuse to write where nothing was written before, because there is no memory left for it: a
// thin disk. An fsync of new bytes then fails with EIO, and later writes perhaps with EROFS. What is in the page cache is
// read on.
func (d *Disk) FailWrites() {
	d.t.Helper()
	f, err := os.Create(d.ballast())
	d.must(err)
	block := make([]byte, 1<<16)
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.must(err)
	}
	d.must(f.Close())
}

func (d *Disk) ballast() string { return filepath.Join(d.under.Mount, "ballast") }

// Fill takes all the space that is left, until Unfill gives it back.
func (d *Disk) Fill() {
	d.t.Helper()
	f, err := os.Create(d.filler())
	d.must(err)
	for size, at := int64(64<<20), int64(0); size >= 4096; {
		if err = syscall.Fallocate(int(f.Fd()), 0, at, size); errors.Is(err, syscall.ENOSPC) {
			size /= 2
			continue
		}
		d.must(err)
		at += size
	}
	d.must(f.Close())
}

// Unfill ends Fill.
func (d *Disk) Unfill() { d.t.Helper(); d.must(os.Remove(d.filler())) }

func (d *Disk) filler() string { return filepath.Join(d.Mount, "filler") }

// Repair ends FailWrites and mounts the file system again, with its journal replayed. Nothing on it may be open.
func (d *Disk) Repair() {
	d.t.Helper()
	d.must(syscall.Unmount(d.Mount, 0))
	d.must(os.Remove(d.ballast()))
	d.up()
}
