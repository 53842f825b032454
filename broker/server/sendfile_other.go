//go:build !linux

package server

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// rawSender exists on Linux only; elsewhere answers are copied.
type rawSender struct{}

func newRawSender(net.Conn) *rawSender { return nil }

func (*rawSender) sendfile(*os.File, int64, int64) (int64, error) { return 0, errors.ErrUnsupported }

func (*rawSender) sendMore([]byte) (int, error) { return 0, errors.ErrUnsupported }

// isPeerGone says whether err is what a client that has left causes.
func isPeerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed)
}

// setBacklog leaves the operating system's value.
func setBacklog(net.Listener, int) error { return nil }

// rawReader exists on Linux only; elsewhere a read always waits.
type rawReader struct{}

func newRawReader(net.Conn) *rawReader { return nil }

func (*rawReader) try([]byte) int { return 0 }
