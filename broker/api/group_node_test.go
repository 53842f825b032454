package api

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// groupNode is the group handlers over a service, with partition logs in memory and metadata that the test makes.
type groupNode struct {
	t       testing.TB
	service *groupcoord.Service
	handle  map[int16]server.HandlerFunc
	logs    map[wire.PartitionID]*memoryLog
	created int           // calls of EnsureOffsetsTopic
	create  time.Duration // how long it takes
	load    time.Duration // and how long each partition's load
	ids     int

	mu  sync.Mutex
	img *image.Image
}

func newGroupNode(t testing.TB) *groupNode {
	n := &groupNode{t: t, logs: make(map[wire.PartitionID]*memoryLog), img: image.Empty("c")}
	n.service = groupcoord.NewService(groupcoord.Options{
		Groups: classic.Config{
			MinSession: 6 * time.Second, MaxSession: 30 * time.Minute, InitialDelay: 3 * time.Second,
			NewMember: classic.NewMemberTimeout, MaxSize: 1 << 30,
		},
		Offsets:       offsets.Config{MaxMetadata: 4096, Retention: 7 * 24 * time.Hour},
		CommitTimeout: 5 * time.Second, CheckInterval: 10 * time.Minute,
		NewMemberUUID: func() string {
			n.ids++
			return fmt.Sprintf("00000000-0000-0000-0000-%012x", n.ids)
		},
		NumPartitions: func() int {
			if topic, ok := n.image().Topic(image.OffsetsTopic); ok {
				return len(topic.Partitions)
			}
			return 0
		},
		Topics: groupcoord.TopicIDs(func(name string) (wire.UUID, bool) {
			topic, ok := n.image().Topic(name)
			if !ok {
				return wire.UUID{}, false
			}
			return topic.ID, true
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	s := n.service
	n.handle = map[int16]server.HandlerFunc{
		8: offsetCommit{n.image, s}.handle, 9: offsetFetch{n.image, s}.handle, 47: offsetDelete{n.image, s}.handle,
		10: findCoordinator{image: n.image, endpoints: n, topic: n, groups: s, node: 1}.handle,
		11: joinGroup{s}.handle, 12: heartbeat{s}.handle, 13: leaveGroup{s}.handle, 14: syncGroup{s}.handle,
		15: describeGroups{s}.handle, 16: listGroups{s}.handle, 42: deleteGroups{s}.handle,
	}
	return n
}

func (n *groupNode) image() *image.Image {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.img
}

// addTopic publishes a topic whose partitions are led here.
func (n *groupNode) addTopic(name string, id wire.UUID, partitions int) {
	n.t.Helper()
	records := []coordrec.MetadataRecord{&coordrec.TopicRecord{Name: name, TopicID: id}}
	for p := range partitions {
		records = append(records, &coordrec.PartitionRecord{
			PartitionID: wire.PartitionID(p), TopicID: id, Replicas: []wire.BrokerID{1}, ISR: []wire.BrokerID{1}, Leader: 1,
			Directories: []wire.UUID{{15: 7}},
		})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	img, _, err := n.img.With(image.Position{Offset: n.img.Offset() + 1, Entry: n.img.Entry() + 1}, records)
	if err != nil {
		n.t.Fatalf("add topic: %v", err)
	}
	n.img = img
}

// EnsureOffsetsTopic implements offsetsTopic.
func (n *groupNode) EnsureOffsetsTopic(ctx context.Context) error {
	n.created++
	select {
	case <-time.After(n.create):
	case <-ctx.Done():
		return ctx.Err()
	}
	n.addTopic(image.OffsetsTopic, wire.UUID{1, 1}, 50)
	for p := range wire.PartitionID(50) {
		n.logs[p] = &memoryLog{load: n.load}
		n.service.Elected(p, 0, n.logs[p])
	}
	return nil
}

// Endpoint implements endpointFinder.
func (n *groupNode) Endpoint(_ *server.Conn, b wire.BrokerID) (string, int32, bool) {
	return "127.0.0.1", 19092, b == 1
}

// nowhere knows no address of any broker.
type nowhere struct{}

func (nowhere) Endpoint(*server.Conn, wire.BrokerID) (string, int32, bool) { return "", 0, false }

// reply is a Responder that hands the response over.
type reply chan kmsg.Response

func (r reply) Reply(resp kmsg.Response)        { r <- resp }
func (r reply) ReplyFunc(func() []wire.Segment) { panic("not used by group handlers") }
func (r reply) Drop(err error)                  { panic(err) }

// ask sends a request through its encoding and returns the response through its own.
func (n *groupNode) ask(req kmsg.Request) (kmsg.Response, error) {
	decoded := kmsg.RequestForKey(req.Key())
	decoded.SetVersion(req.GetVersion())
	frame := req.AppendTo(nil)
	if err := decoded.ReadFrom(frame); err != nil {
		return nil, err
	}
	w := make(reply, 1)
	conn := server.NewConn(1, "PLAINTEXT", &net.TCPAddr{}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000})
	n.handle[req.Key()](n.t.Context(), &server.Request{
		Key: req.Key(), Version: req.GetVersion(), ClientID: "grp", Msg: decoded, Conn: conn,
	}, w)
	clear(frame) // as the server does: nothing may be kept of it
	select {
	case resp := <-w:
		if resp.GetVersion() != req.GetVersion() {
			return nil, fmt.Errorf("response of version %d to a request of version %d", resp.GetVersion(), req.GetVersion())
		}
		out := req.ResponseKind()
		out.SetVersion(req.GetVersion())
		return out, out.ReadFrom(resp.AppendTo(nil))
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("no answer")
	}
}

// memoryLog is a partition log whose appends are committed at once, unless it is told otherwise.
type memoryLog struct {
	mu      sync.Mutex
	records []coord.Record
	refuse  error
	load    time.Duration
	silent  bool // commits are not reported
}

func (l *memoryLog) Append(_ wire.LeaderEpoch, b coord.Batch, done func(wire.Offset, error)) (wire.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return 0, l.refuse
	}
	base := wire.Offset(len(l.records))
	l.records = append(l.records, b.Records...)
	end := wire.Offset(len(l.records))
	if !l.silent {
		time.AfterFunc(0, func() { done(end, nil) })
	}
	return base, nil
}

func (l *memoryLog) Load(ctx context.Context, m coord.Machine) (wire.Offset, error) {
	select {
	case <-time.After(l.load):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for i, r := range l.records {
		if err := m.Replay(r, coord.Pos{Offset: wire.Offset(i)}); err != nil {
			return 0, err
		}
	}
	return wire.Offset(len(l.records)), nil
}

func (l *memoryLog) WaitCommitted(_ wire.Offset, done func(error)) { done(nil) }

// kafka is a running Kafka that is asked the same.
type kafka struct{ addr string }

func (k kafka) ask(req kmsg.Request) (kmsg.Response, error) {
	c, err := net.Dial("tcp", k.addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("grp"))
	if _, err := c.Write(f.AppendRequest(nil, req, 1)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, err
	}
	body = body[4:]
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if resp.IsFlexible() {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}
