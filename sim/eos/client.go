package eos

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// answerWait is how long a client waits for an answer before it gives up the connection: it does not know then what
	// became of its request.
	answerWait = 5 * time.Second
	// dialWait is how long it waits for a connection.
	dialWait = 2 * time.Second
	// maxAnswer bounds what an answer may claim to be long, in bytes.
	maxAnswer = 64 << 20
)

// Dial is net.Dialer.DialContext.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// client sends requests one after the other, each to the broker that it is for. It never repeats one by itself. Not safe
// for concurrent use.
type client struct {
	dial      Dial
	seeds     []string
	formatter *kmsg.RequestFormatter
	corr      int32
	conns     map[string]net.Conn
	brokers   map[int32]string
	leaders   map[wire.TopicPartition]int32
	coords    map[coordKey]string
	next      int      // of the seeds
	trace     []string // the last requests and answers
}

// traceSize bounds the trace.
const traceSize = 400

// note adds a line to the trace.
func (c *client) note(format string, args ...any) {
	if len(c.trace) == traceSize {
		c.trace = append(c.trace[:0], c.trace[traceSize/2:]...)
	}
	c.trace = append(c.trace, time.Now().UTC().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

type coordKey struct {
	kind int8 // of FindCoordinator: 0 group, 1 transaction
	key  string
}

func newClient(d Dial, seeds []string, id string) *client {
	c := &client{dial: d, seeds: seeds, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID(id)), conns: map[string]net.Conn{}}
	c.forget()
	return c
}

// forget makes the client ask again who leads what.
func (c *client) forget() {
	c.brokers, c.leaders, c.coords = map[int32]string{}, map[wire.TopicPartition]int32{}, map[coordKey]string{}
}

func (c *client) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	clear(c.conns)
}

// errNoBroker says that nobody is known to be asked, for now.
var errNoBroker = errors.New("no broker is known for it now")

// at sends a request to a broker and waits for the answer. An error means that nobody knows what became of it.
func (c *client) at(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	conn := c.conns[addr]
	if conn == nil {
		dctx, cancel := context.WithTimeout(ctx, dialWait)
		defer cancel()
		var err error
		if conn, err = c.dial(dctx, "tcp", addr); err != nil {
			c.forget()
			return nil, err
		}
		c.conns[addr] = conn
	}
	c.note("%s to %s", kmsg.NameForKey(req.Key()), addr)
	resp, err := c.exchange(conn, req)
	if err != nil {
		c.note("%v", err)
		if _, ok := req.(*kmsg.InitProducerIDRequest); ok {
			abandon(conn)
		}
		_ = conn.Close()
		delete(c.conns, addr)
		c.forget()
		return nil, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return resp, nil
}

// abandon keeps what was not delivered on conn from being delivered after its end, as TCP would once it can. A copy of any request may come
// late, which is to be survived, but one that takes the next incarnation would fence that of a later try, by right.
func abandon(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		_ = c.SetLinger(0) // it is closed next, in any case
	}
}

func (c *client) exchange(conn net.Conn, req kmsg.Request) (kmsg.Response, error) {
	c.corr++
	if err := conn.SetDeadline(time.Now().Add(answerWait)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(c.formatter.AppendRequest(nil, req, c.corr)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxAnswer {
		return nil, fmt.Errorf("answer of %d bytes", n)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(conn, frame); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != c.corr {
		return nil, fmt.Errorf("correlation id %d, want %d", got, c.corr)
	}
	body, resp := frame[4:], req.ResponseKind()
	if resp.IsFlexible() && req.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return nil, errors.New("answer's header has tags")
		}
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	return resp, nil
}

// any sends a request to a seed.
func (c *client) any(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	addr := c.seeds[c.next%len(c.seeds)]
	resp, err := c.at(ctx, addr, req)
	if err != nil {
		c.next++
	}
	return resp, err
}

// leader gives the address of a partition's leader.
func (c *client) leader(ctx context.Context, tp wire.TopicPartition) (string, error) {
	if id, ok := c.leaders[tp]; ok && c.brokers[id] != "" {
		return c.brokers[id], nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &tp.Topic
	req.Topics = []kmsg.MetadataRequestTopic{topic}
	got, err := c.any(ctx, req)
	if err != nil {
		return "", err
	}
	resp := got.(*kmsg.MetadataResponse)
	for _, b := range resp.Brokers {
		c.brokers[b.NodeID] = net.JoinHostPort(b.Host, fmt.Sprint(b.Port))
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 && t.Topic != nil {
				c.leaders[wire.TopicPartition{Topic: *t.Topic, Partition: wire.PartitionID(p.Partition)}] = p.Leader
			}
		}
	}
	if id, ok := c.leaders[tp]; ok && c.brokers[id] != "" {
		return c.brokers[id], nil
	}
	c.next++
	return "", errNoBroker
}

// toLeader sends a request to a partition's leader.
func (c *client) toLeader(ctx context.Context, tp wire.TopicPartition, req kmsg.Request) (kmsg.Response, error) {
	addr, err := c.leader(ctx, tp)
	if err != nil {
		return nil, err
	}
	return c.at(ctx, addr, req)
}

// toCoordinator sends a request to the coordinator of a group (0) or a transactional id (1).
func (c *client) toCoordinator(ctx context.Context, kind int8, key string, req kmsg.Request) (kmsg.Response, error) {
	k := coordKey{kind, key}
	if c.coords[k] == "" {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorType, find.CoordinatorKey = 3, kind, key
		got, err := c.any(ctx, find)
		if err != nil {
			return nil, err
		}
		resp := got.(*kmsg.FindCoordinatorResponse)
		if resp.ErrorCode != 0 {
			c.next++
			return nil, errNoBroker
		}
		c.coords[k] = net.JoinHostPort(resp.Host, fmt.Sprint(resp.Port))
	}
	return c.at(ctx, c.coords[k], req)
}
