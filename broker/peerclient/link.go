package peerclient

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// maxAnswer bounds an answer, in bytes; maxTrust what is allocated for one before any of it has arrived.
	maxAnswer = 1 << 30
	maxTrust  = 16 << 20
)

// link is one connection.
type link struct {
	node    wire.BrokerID
	ready   chan struct{} // closed when the fields below are set, or the link has failed
	nc      net.Conn
	format  *kmsg.RequestFormatter
	served  map[int16]kmsg.ApiVersionsResponseApiKey
	writing chan struct{} // holds one: the right to write

	mu      sync.Mutex
	err     error // why it has ended
	begun   bool  // ready is closed
	waiting []*call
	lastID  int32
}

// call is a request under way.
type call struct {
	id     int32
	tagged bool // the answer's header has tagged fields
	done   chan outcome
}

type outcome struct {
	body []byte
	err  error
}

func newLink(node wire.BrokerID) *link {
	return &link{node: node, ready: make(chan struct{}), writing: make(chan struct{}, 1)}
}

// fail ends the link; only the first reason counts. The goroutine that reads ends with it.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	if l.nc != nil {
		_ = l.nc.Close()
	}
	for _, c := range l.waiting {
		c.done <- outcome{err: err}
	}
	l.waiting = nil
	if !l.begun {
		l.begun = true
		close(l.ready)
	}
}

// failed is why the link has ended; nil while it has not.
func (l *link) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// begin asks what the other node serves, and opens the link to requests.
func (l *link) begin(ctx context.Context, nc net.Conn, clientID string) error {
	l.mu.Lock()
	l.nc = nc
	failed := l.err
	l.mu.Unlock()
	if failed != nil {
		return failed
	}
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	l.format = kmsg.NewRequestFormatter(kmsg.FormatterClientID(clientID))
	if err := nc.SetDeadline(time.Now().Add(connectTimeout)); err != nil {
		return err
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 3
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kaja", "1"
	if _, err := nc.Write(l.format.AppendRequest(nil, req, 0)); err != nil {
		return fmt.Errorf("ask for the versions: %w", err)
	}
	id, body, err := readAnswer(nc)
	if err != nil {
		return fmt.Errorf("read the versions: %w", err)
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = req.Version
	if err := resp.ReadFrom(body); err != nil || id != 0 {
		return fmt.Errorf("read the versions: answer %d: %w", id, errors.Join(wire.ErrMalformed, err))
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("ask for the versions: %w", err)
	}
	l.served = make(map[int16]kmsg.ApiVersionsResponseApiKey, len(resp.ApiKeys))
	for _, k := range resp.ApiKeys {
		l.served[k.ApiKey] = k
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.begun = true
	close(l.ready)
	return nil
}

// version is the newest that both ends know.
func (l *link) version(req kmsg.Request) (int16, error) {
	if err := l.failed(); err != nil {
		return 0, err
	}
	theirs, ok := l.served[req.Key()]
	ours := req.MaxVersion()
	if v := min(ours, theirs.MaxVersion); ok && v >= theirs.MinVersion {
		return v, nil
	}
	return 0, fmt.Errorf("%w: node %d serves versions %d to %d, this one sends up to %d", kerr.UnsupportedVersion,
		l.node, theirs.MinVersion, theirs.MaxVersion, ours)
}

// roundTrip sends a request and waits for its answer; sent says whether all of it left.
func (l *link) roundTrip(ctx context.Context, req kmsg.Request) (body []byte, sent bool, err error) {
	c, err := l.send(ctx, req)
	if err != nil {
		return nil, false, err
	}
	select {
	case o := <-c.done:
		return o.body, true, o.err
	case <-ctx.Done():
	}
	if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
		l.fail(fmt.Errorf("node %d does not answer: %w", l.node, err))
	}
	return nil, true, ctx.Err() // an answer that comes later is dropped
}

// send writes a request. On an error nothing of it will be carried out: the other node has not got all of it.
func (l *link) send(ctx context.Context, req kmsg.Request) (*call, error) {
	select {
	case l.writing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.writing }()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call{tagged: wire.Flexible(req.Key(), req.GetVersion()) && req.Key() != wire.KeyApiVersions, done: make(chan outcome, 1)}
	l.mu.Lock()
	if err := l.err; err != nil {
		l.mu.Unlock()
		return nil, err
	}
	l.lastID++
	c.id = l.lastID
	l.waiting = append(l.waiting, c)
	l.mu.Unlock()
	deadline, _ := ctx.Deadline() // do has set one
	if err := l.nc.SetWriteDeadline(deadline); err != nil {
		return nil, l.broken(err)
	}
	if _, err := l.nc.Write(l.format.AppendRequest(nil, req, c.id)); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("node %d does not read: %w", l.node, context.DeadlineExceeded)
		}
		return nil, l.broken(err)
	}
	return c, nil
}

// broken ends the link after a request that was not written whole.
func (l *link) broken(err error) error {
	l.fail(err)
	return err
}

// read gives the answers to who waits for them, until the connection ends.
func (l *link) read() error {
	for {
		id, body, err := readAnswer(l.nc)
		if err != nil {
			return fmt.Errorf("the connection to node %d ended: %w", l.node, err)
		}
		l.mu.Lock()
		var c *call
		if len(l.waiting) > 0 {
			c = l.waiting[0]
			l.waiting = l.waiting[1:]
		}
		l.mu.Unlock()
		if c == nil || c.id != id {
			err := fmt.Errorf("node %d answers request %d, which was not next", l.node, id)
			if c != nil {
				c.done <- outcome{err: err}
			}
			return err
		}
		if c.tagged {
			body, err = skipTags(body)
		}
		c.done <- outcome{body, err}
		if err != nil {
			return err
		}
	}
}

// readAnswer reads one frame: the correlation id and what follows it.
func readAnswer(r io.Reader) (int32, []byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(head[:]))) - 4
	if size < 0 || size > maxAnswer {
		return 0, nil, fmt.Errorf("%w: an answer of %d bytes", wire.ErrMalformed, size+4)
	}
	body := make([]byte, min(size, maxTrust))
	for n := int64(0); ; {
		got, err := io.ReadFull(r, body[n:])
		if err != nil {
			return 0, nil, err
		}
		if n += int64(got); n == size {
			return int32(binary.BigEndian.Uint32(head[4:])), body, nil
		}
		body = append(body, make([]byte, min(size-n, n))...)
	}
}

// skipTags skips the tagged fields of an answer's header.
func skipTags(b []byte) ([]byte, error) {
	next := func() (uint64, error) {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return 0, fmt.Errorf("%w: the answer's header", wire.ErrMalformed)
		}
		b = b[n:]
		return v, nil
	}
	count, err := next()
	for ; err == nil && count > 0; count-- {
		if _, err = next(); err != nil {
			break
		}
		var size uint64
		if size, err = next(); err == nil && size > uint64(len(b)) {
			err = fmt.Errorf("%w: the answer's header", wire.ErrMalformed)
		}
		if err == nil {
			b = b[size:]
		}
	}
	return b, err
}
