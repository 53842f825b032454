package peerclient

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func identity(t testing.TB, node int32) *peer.Identity {
	t.Helper()
	i, err := peer.NewIdentity(peer.ID{ClusterID: "c", NodeID: wire.BrokerID(node), DirectoryID: wire.UUID{15: byte(node)}}, []byte("correct horse battery staple"))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// node is the other end of every connection that a client makes.
type node struct {
	t      *testing.T
	dials  atomic.Int32
	served []kmsg.ApiVersionsResponseApiKey
	// answer answers a request other than ApiVersions; nil closes the connection.
	answer func(h wire.Header, body []byte) []byte
	silent atomic.Bool // reads, and answers nothing
	id     int32
}

func (n *node) dial(context.Context, string, string) (net.Conn, error) {
	n.dials.Add(1)
	a, b := net.Pipe()
	go n.serve(b)
	return a, nil
}

func (n *node) serve(nc net.Conn) {
	defer nc.Close() // the other end sees it
	if _, _, err := identity(n.t, n.id).Accept(nc, func(peer.Kind, peer.ID) error { return nil }); err != nil {
		return
	}
	for {
		var size [4]byte
		if _, err := io.ReadFull(nc, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(nc, frame); err != nil {
			return
		}
		if n.silent.Load() {
			continue
		}
		h, body, err := wire.ParseHeader(frame)
		if err != nil {
			n.t.Error(err)
			return
		}
		var out []byte
		if h.Key == wire.KeyApiVersions {
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.Version, resp.ApiKeys = h.Version, n.served
			out = resp.AppendTo(wire.AppendResponseHeader(nil, h.Key, h.Version, h.CorrelationID))
		} else if out = n.answer(h, body); out == nil {
			return
		}
		if _, err := nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(out))), out...)); err != nil {
			return
		}
	}
}

// blocks answers AllocateProducerIds.
func blocks(h wire.Header, _ []byte) []byte {
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	resp.Version, resp.ProducerIDStart = h.Version, int64(h.CorrelationID)
	return resp.AppendTo(wire.AppendResponseHeader(nil, h.Key, h.Version, h.CorrelationID))
}

func client(t *testing.T, n *node) *Client {
	if n.id == 0 {
		n.id = 2
	}
	n.t = t
	c := New(Options{Identity: identity(t, 1), Dial: n.dial, Logger: slog.New(slog.DiscardHandler),
		Resolve: func(wire.BrokerID) (string, peer.ID, error) {
			return "n2:9092", peer.ID{DirectoryID: wire.UUID{15: 2}}, nil
		}})
	t.Cleanup(c.Close)
	return c
}

var blockKey = []kmsg.ApiVersionsResponseApiKey{{ApiKey: int16(kmsg.AllocateProducerIDs), MaxVersion: 0}}

func TestRequestsShareAConnectionOfTheirPurpose(t *testing.T) {
	n := &node{served: blockKey, answer: blocks}
	c := client(t, n)
	for range 3 {
		for _, do := range []func(context.Context, wire.BrokerID, kmsg.Request) (kmsg.Response, error){c.Do, c.Conn("fetch").Do} {
			if _, err := do(t.Context(), 2, kmsg.NewPtrAllocateProducerIDsRequest()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := n.dials.Load(); got != 2 {
		t.Errorf("%d connections, want 2", got)
	}
}

func TestErrorsSayWhetherARequestMayHaveBeenCarriedOut(t *testing.T) {
	refused := errors.New("refused")
	for _, tt := range []struct {
		name string
		node *node
		edit func(*Client)
		req  kmsg.Request
		sent bool
		is   error
	}{
		{name: "no connection", edit: func(c *Client) {
			c.o.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, refused }
		}, is: refused},
		{name: "nobody knows where it is", edit: func(c *Client) {
			c.o.Resolve = func(wire.BrokerID) (string, peer.ID, error) { return "", peer.ID{}, refused }
		}, is: refused},
		{name: "another node is there", node: &node{id: 3}, is: peer.ErrHandshake},
		{name: "another directory is there", edit: func(c *Client) {
			c.o.Resolve = func(wire.BrokerID) (string, peer.ID, error) {
				return "n2:9092", peer.ID{DirectoryID: wire.UUID{15: 9}}, nil
			}
		}, is: peer.ErrHandshake},
		{name: "not served", node: &node{served: blockKey}, req: kmsg.NewPtrBrokerHeartbeatRequest(), is: kerr.UnsupportedVersion},
		{name: "the connection ends", node: &node{served: blockKey, answer: func(wire.Header, []byte) []byte { return nil }}, sent: true, is: io.EOF},
		{name: "a damaged answer", node: &node{served: blockKey, answer: func(h wire.Header, _ []byte) []byte {
			return append(wire.AppendResponseHeader(nil, h.Key, h.Version, h.CorrelationID), 1)
		}}, sent: true},
		{name: "the answer to something else", node: &node{served: blockKey, answer: func(h wire.Header, _ []byte) []byte {
			return wire.AppendResponseHeader(nil, h.Key, h.Version, h.CorrelationID+1)
		}}, sent: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.node == nil {
				tt.node = &node{}
			}
			c := client(t, tt.node)
			if tt.edit != nil {
				tt.edit(c)
			}
			if tt.req == nil {
				tt.req = kmsg.NewPtrAllocateProducerIDsRequest()
			}
			_, err := c.Do(t.Context(), 2, tt.req)
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Sent != tt.sent || e.Node != 2 || e.Key != tt.req.Key() {
				t.Fatalf("the error is %#v", err)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("the error is %v, want one of %v", err, tt.is)
			}
		})
	}
}

// A node that does not answer costs its callers their own deadlines, and the next request finds a new connection.
func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{served: blockKey, answer: blocks}
		c := client(t, n)
		defer c.Close()
		do := func(timeout time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := c.Do(ctx, 2, kmsg.NewPtrAllocateProducerIDsRequest())
			return err
		}
		if err := do(time.Second); err != nil {
			t.Fatal(err)
		}
		n.silent.Store(true)
		began := time.Now()
		err := do(3 * time.Second)
		if e, ok := errors.AsType[*Error](err); !ok || !e.Sent || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		n.silent.Store(false)
		if err := do(time.Second); err != nil {
			t.Fatal(err)
		}
		if got := n.dials.Load(); got != 2 {
			t.Errorf("%d connections, want 2", got)
		}
	})
}

// Who gives up a request does not take those of others with it.
func TestCancelLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{served: blockKey, answer: func(h wire.Header, b []byte) []byte {
			time.Sleep(time.Second)
			return blocks(h, b)
		}}
		c := client(t, n)
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := c.Do(ctx, 2, kmsg.NewPtrAllocateProducerIDsRequest())
			first <- err
		}()
		synctest.Wait()
		time.AfterFunc(100*time.Millisecond, cancel)
		resp, err := c.Do(t.Context(), 2, kmsg.NewPtrAllocateProducerIDsRequest())
		if err != nil || resp.(*kmsg.AllocateProducerIDsResponse).ProducerIDStart != 2 {
			t.Errorf("the second request got %+v, %v", resp, err)
		}
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		if got := n.dials.Load(); got != 1 {
			t.Errorf("%d connections, want 1", got)
		}
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{served: blockKey, answer: blocks}
		c := client(t, n)
		if _, err := c.Do(t.Context(), 2, kmsg.NewPtrAllocateProducerIDsRequest()); err != nil {
			t.Fatal(err)
		}
		n.silent.Store(true)
		waits := make(chan error, 1)
		go func() {
			_, err := c.Do(t.Context(), 2, kmsg.NewPtrAllocateProducerIDsRequest())
			waits <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-waits; !errors.Is(err, ErrClosed) {
			t.Errorf("what waited: %v", err)
		}
		if _, err := c.Do(t.Context(), 2, kmsg.NewPtrAllocateProducerIDsRequest()); !errors.Is(err, ErrClosed) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 5, 0, 0, 0, 1, 0})
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1})
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, body, err := readAnswer(bytes.NewReader(data))
		if err == nil {
			_, _ = skipTags(body)
		}
	})
}
