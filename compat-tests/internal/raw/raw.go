// Package raw sends single Kafka requests over a plain TCP connection and shows what comes back, also when nothing does.
// No client logic lies between a test and the broker: no retry, no version negotiation, no metadata.
package raw

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DefaultTimeout bounds a Do whose connection has no other deadline.
const DefaultTimeout = 30 * time.Second

// maxResponse bounds what a response may claim to be long, in bytes.
const maxResponse = 256 << 20

// ErrClosed reports that the broker closed the connection instead of answering.
var ErrClosed = errors.New("connection closed by the broker")

// Conn is one connection to a broker. It is not safe for concurrent use.
type Conn struct {
	Timeout   time.Duration // of each Read and Write of a frame
	conn      net.Conn
	formatter *kmsg.RequestFormatter
	corr      int32 // correlation id of the request sent last
}

// Dial connects to a broker.
func Dial(addr string) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, fmt.Errorf("dial broker: %w", err)
	}
	return &Conn{Timeout: DefaultTimeout, conn: conn, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))}, nil
}

// Close closes the connection.
func (c *Conn) Close() error { return c.conn.Close() }

// Net gives the connection itself, for bytes that are no Kafka request.
func (c *Conn) Net() net.Conn { return c.conn }

// Send writes a request at the version it is set to, and returns its correlation id.
func (c *Conn) Send(req kmsg.Request) (int32, error) {
	c.corr++
	return c.corr, c.SendFrame(c.formatter.AppendRequest(nil, req, c.corr))
}

// SendFrame writes bytes that are a whole frame, length included.
func (c *Conn) SendFrame(frame []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(c.Timeout)); err != nil {
		return fmt.Errorf("set write deadline: %w", err)
	}
	if _, err := c.conn.Write(frame); err != nil {
		return fmt.Errorf("write request: %w", err)
	}
	return nil
}

// ReadFrame reads the next frame and returns it without its length. A connection that the broker closed or reset is
// ErrClosed; a deadline that passes is the net package's time-out.
func (c *Conn) ReadFrame() ([]byte, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.Timeout)); err != nil {
		return nil, fmt.Errorf("set read deadline: %w", err)
	}
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return nil, closedOr("read response length", err)
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxResponse {
		return nil, fmt.Errorf("response length %d is out of bounds", n)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(c.conn, frame); err != nil {
		return nil, closedOr("read response", err)
	}
	return frame, nil
}

func closedOr(what string, err error) error {
	if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrClosed, err)
}

// Receive reads the response to a request. It checks the correlation id.
func (c *Conn) Receive(req kmsg.Request, corr int32) (kmsg.Response, error) {
	frame, err := c.ReadFrame()
	if err != nil {
		return nil, fmt.Errorf("%s v%d: %w", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != corr {
		return nil, fmt.Errorf("%s v%d: correlation id %d, want %d", kmsg.NameForKey(req.Key()), req.GetVersion(), got, corr)
	}
	body := frame[4:]
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, fmt.Errorf("%s v%d: response header has tags or is cut: % x", kmsg.NameForKey(req.Key()), req.GetVersion(), body[:min(len(body), 8)])
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("decode %s v%d response (%d bytes): %w", kmsg.NameForKey(req.Key()), req.GetVersion(), len(body), err)
	}
	return resp, nil
}

// Do sends a request at the version it is set to and reads its response.
func (c *Conn) Do(req kmsg.Request) (kmsg.Response, error) {
	corr, err := c.Send(req)
	if err != nil {
		return nil, err
	}
	return c.Receive(req, corr)
}

// AtEOF reports whether the broker closes the connection within the connection's time-out without sending a byte more.
func (c *Conn) AtEOF() (bool, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(c.Timeout)); err != nil {
		return false, fmt.Errorf("set read deadline: %w", err)
	}
	var one [1]byte
	n, err := c.conn.Read(one[:])
	switch {
	case n > 0:
		return false, fmt.Errorf("the broker sent a byte (%#x)", one[0])
	case errors.Is(closedOr("", err), ErrClosed):
		return true, nil
	default:
		return false, nil
	}
}
