package server

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
)

// maxSendfile bounds one sendfile call, in bytes.
const maxSendfile = 4 << 20

// rawSender sends on a TCP socket in the two ways that package net does not offer: a range of a file from an explicit
// offset (net's sendfile moves the offset that all users of the file share), and bytes that shall leave together with
// what follows. Both wait as net does, under the connection's write deadline. Not safe for concurrent use.
type rawSender struct {
	rc    syscall.RawConn
	doFn  func(fd uintptr) bool // made once: a closure a call would be an allocation a call
	src   int                   // file descriptor, or -1: b is sent
	off   int64
	left  int64
	b     []byte
	sent  int64
	opErr error
}

// rawConn is the socket below a TCP connection, nil if nc is none.
func rawConn(nc net.Conn) syscall.RawConn {
	tc, ok := nc.(*net.TCPConn)
	if !ok {
		return nil
	}
	rc, err := tc.SyscallConn()
	if err != nil {
		return nil
	}
	return rc
}

// newRawSender is nil if nc is not a TCP connection.
func newRawSender(nc net.Conn) *rawSender {
	rc := rawConn(nc)
	if rc == nil {
		return nil
	}
	s := &rawSender{rc: rc}
	s.doFn = s.do
	return s
}

// sendfile sends n bytes of f from off. The error may come with a part already sent.
func (s *rawSender) sendfile(f *os.File, off, n int64) (int64, error) {
	s.src, s.off, s.left = int(f.Fd()), off, n
	sent, err := s.run()
	runtime.KeepAlive(f)
	return sent, err
}

// sendMore sends b and tells the kernel that more follows at once.
func (s *rawSender) sendMore(b []byte) (int, error) {
	s.src, s.b, s.left = -1, b, int64(len(b))
	sent, err := s.run()
	s.b = nil
	return int(sent), err
}

func (s *rawSender) run() (int64, error) {
	s.sent, s.opErr = 0, nil
	err := s.rc.Write(s.doFn)
	if s.opErr != nil {
		err = s.opErr
	}
	return s.sent, err
}

// do runs when the socket may be writable; false waits until it is.
func (s *rawSender) do(fd uintptr) bool {
	for s.left > 0 {
		n, err := s.once(int(fd))
		switch {
		case n > 0:
			s.sent += int64(n)
			s.left -= int64(n)
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			s.opErr = os.NewSyscallError("send", err)
			return true
		default:
			s.opErr = &sourceError{io.ErrUnexpectedEOF} // the file ends before the range does
			return true
		}
	}
	return true
}

func (s *rawSender) once(fd int) (int, error) {
	if s.src >= 0 {
		return syscall.Sendfile(fd, s.src, &s.off, int(min(s.left, maxSendfile)))
	}
	return syscall.SendmsgN(fd, s.b[len(s.b)-int(s.left):], nil, nil, syscall.MSG_MORE|syscall.MSG_NOSIGNAL)
}

// rawReader reads from a TCP socket what is there, without waiting. Not safe for concurrent use.
type rawReader struct {
	rc   syscall.RawConn
	doFn func(fd uintptr) bool
	b    []byte
	n    int
}

// newRawReader is nil if nc is not a TCP connection.
func newRawReader(nc net.Conn) *rawReader {
	rc := rawConn(nc)
	if rc == nil {
		return nil
	}
	r := &rawReader{rc: rc}
	r.doFn = r.do
	return r
}

// try reads into b; 0 when nothing has arrived, or when a read would report an end or an error.
func (r *rawReader) try(b []byte) int {
	r.b, r.n = b, 0
	_ = r.rc.Read(r.doFn) // a read that waits reports it
	r.b = nil
	return max(r.n, 0)
}

func (r *rawReader) do(fd uintptr) bool {
	for {
		n, err := syscall.Read(int(fd), r.b)
		if !errors.Is(err, syscall.EINTR) {
			r.n = n
			return true
		}
	}
}

// isPeerGone says whether err is what a client that has left causes.
func isPeerGone(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.ErrClosedPipe) ||
		errors.Is(err, net.ErrClosed)
}

// setBacklog changes how many connections may wait to be accepted.
func setBacklog(l net.Listener, n int) error {
	sc, ok := l.(syscall.Conn)
	if !ok {
		return nil
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	if err := rc.Control(func(fd uintptr) { opErr = syscall.Listen(int(fd), n) }); err != nil {
		return err
	}
	return os.NewSyscallError("listen", opErr)
}
