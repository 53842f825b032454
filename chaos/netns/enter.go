//go:build linux

package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside marks a process that Enter has started.
const inside = "CHAOS_INSIDE"

// Enter starts this program again with a network, mounts and process numbers of its own and ends with its exit code; in
// that process it returns. Whatever that one has started ends with it.
func Enter() error {
	if os.Getenv(inside) != "" {
		return settle()
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL, // of the first process of its namespace, and so of all
	}
	runtime.LockOSThread() // the signal comes when this thread ends, not the process
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("enter a network namespace of its own (only root can): %w", err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(max(exit.ExitCode(), 1))
	}
	if err != nil {
		return fmt.Errorf("run in a network namespace: %w", err)
	}
	os.Exit(0)
	return nil
}

// settle makes the new mounts private and puts /proc and the directory of network namespaces right.
func settle() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := leaveTemporary(); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("mount on %s: %w", dir, err)
	}
	return nil
}

// leaveTemporary takes off what was mounted below the directory for temporary files when this process began: the copies of
// mounts here would keep the disks of other tests in use after these have unmounted them.
func leaveTemporary() error {
	table, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return fmt.Errorf("read the mounts: %w", err)
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 1 && strings.HasPrefix(fields[1], filepath.Clean(os.TempDir())+"/") {
			_ = unix.Unmount(fields[1], unix.MNT_DETACH) // gone already where one below it was
		}
	}
	return nil
}
