package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// field is one field of a message.
type field struct {
	name  string
	value any // int64, []byte, []field, [][]field
}

// wireRequest is how hashicorp/raft frames a message: its type, then the message in msgpack.
func wireRequest(kind byte, fields []field) []byte { return appendMap([]byte{kind}, fields) }

func appendMap(b []byte, fields []field) []byte {
	b = append(b, 0x80|byte(len(fields)))
	for _, f := range fields {
		b = append(append(b, 0xa0|byte(len(f.name))), f.name...)
		switch v := f.value.(type) {
		case int64:
			b = binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
		case []byte:
			b = append(append(b, 0xc4, byte(len(v))), v...)
		case []field:
			b = appendMap(b, v)
		case [][]field:
			b = append(b, 0x90|byte(len(v)))
			for _, m := range v {
				b = appendMap(b, m)
			}
		}
	}
	return b
}

// A stranger at the raft port sends what takes a bare hashicorp/raft over, or kills it: a RequestVote of a high term, an
// AppendEntries with a command and its commit index, a malformed configuration; and, with them, a TimeoutNow and an
// InstallSnapshot of 2^62 bytes. Bare, behind the preamble, and behind a handshake without the secret. Nothing reaches raft (X20).
func TestStrangerReachesNoRaft(t *testing.T) {
	messages := hostileMessages()
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		members := found(t, q, 3)
		stranger := q.Net.Host("stranger").Boot()
		before := Digest(converged(t, q))
		leader := q.Leader(time.Minute)
		for _, m := range members {
			for _, message := range messages {
				for _, opening := range [][]byte{nil, preamble(), halfHandshake()} {
					got := say(t, stranger, m.host.name+quorumPort, append(bytes.Clone(opening), message...))
					if len(got) > 256 {
						t.Errorf("a stranger was sent %d bytes", len(got))
					}
				}
			}
		}
		guess, err := peer.NewIdentity(members[0].ID, []byte("another secret of the right size"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range members {
			conn, err := stranger.Dial(t.Context(), "tcp", m.host.name+quorumPort)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := guess.Dial(conn, peer.Raft, func(peer.ID) error { return nil }); err == nil {
				t.Error("a node with another secret was let in")
			}
			_ = conn.Close()
		}
		time.Sleep(5 * time.Second)
		if q.Leader(time.Nanosecond) != leader {
			t.Error("the leader is another one")
		}
		if got := Digest(converged(t, q)); got != before {
			t.Error("the metadata have changed")
		}
	})
}

// hostileMessages are what takes a bare hashicorp/raft over, or kills it.
func hostileMessages() [][]byte {
	const high = int64(1) << 40
	version := field{"ProtocolVersion", int64(3)}
	header := field{"RPCHeader", []field{version, {"ID", []byte("evil")}, {"Addr", []byte("evil")}}}
	entries := func(kind int64, data []byte) []field {
		return []field{header, {"Term", high}, {"Leader", []byte("evil")}, {"LeaderCommitIndex", high},
			{"Entries", [][]field{{{"Index", high}, {"Term", high}, {"Type", kind}, {"Data", data}}}}}
	}
	return [][]byte{
		wireRequest(1, []field{{"RPCHeader", []field{version}}, {"Term", high}, {"LastLogIndex", high}, {"LastLogTerm", high}}),
		wireRequest(0, entries(0, []byte("command"))),
		wireRequest(0, entries(5, []byte{0xc1})),
		wireRequest(2, []field{header, {"Term", high}, {"Size", int64(1) << 62}}),
		wireRequest(3, []field{header}),
	}
}

func preamble() []byte { return []byte{0xff, 'K', 'J', 'A', 1, byte(peer.Raft), 0, 0} }

// halfHandshake is a hello of member 1 and a proof of zeros.
func halfHandshake() []byte {
	hello := make([]byte, 4+16+32)
	binary.BigEndian.PutUint32(hello, 1)
	hello[4], hello[19] = 1, 1
	hello = append(hello, quorumCluster...)
	b := append(preamble(), 0, byte(len(hello)))
	b = append(append(b, hello...), 0, 32)
	return append(b, make([]byte, 32)...)
}

// say sends bytes and gives everything that comes back until the connection ends.
func say(t *testing.T, p *Process, addr string, b []byte) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := p.Dial(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // nothing was written that matters
	_, _ = conn.Write(b)
	start := time.Now()
	got, _ := io.ReadAll(conn)
	if d := time.Since(start); d > server.DefaultFirstRequest+time.Second {
		t.Errorf("a stranger was listened to for %v", d)
	}
	return got
}

// The same at the controller listener of whole nodes, and with Kafka's requests: a stranger is answered ApiVersions and what
// admins ask for, nothing that nodes say to each other, and no byte of his reaches raft (X20).
func TestStrangerAtTheControllerListener(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3, controllersOnly...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.StartAll(ctx, nodes...); err != nil {
			t.Fatal(err)
		}
		awaitNodes(t, c, 3)
		leader := c.Controller(time.Minute)
		before := Digest(leader.controller().Image())
		stranger := c.Net.Host("stranger").Boot()
		for _, n := range nodes {
			addr := n.Name() + ":9093"
			for _, message := range hostileMessages() {
				for _, opening := range [][]byte{nil, preamble(), halfHandshake()} {
					if got := say(t, stranger, addr, append(bytes.Clone(opening), message...)); len(got) > 256 {
						t.Errorf("a stranger was sent %d bytes", len(got))
					}
				}
			}
			askAsStranger(t, stranger, addr)
		}
		time.Sleep(5 * time.Second)
		if c.Controller(time.Nanosecond) != leader {
			t.Error("the leader is another one")
		}
		if got := Digest(leader.controller().Image()); got != before {
			t.Error("the metadata have changed")
		}
	})
}

// askAsStranger sends Kafka's requests without a proof.
func askAsStranger(t *testing.T, p *Process, addr string) {
	t.Helper()
	for _, req := range []kmsg.Request{kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrDescribeClusterRequest(), kmsg.NewPtrDescribeConfigsRequest()} {
		if got := request(t, p, addr, req); len(got) < 8 {
			t.Errorf("%s was not answered", kmsg.NameForKey(req.Key()))
		}
	}
	for _, req := range []kmsg.Request{
		kmsg.NewPtrAlterPartitionRequest(), kmsg.NewPtrEnvelopeRequest(), kmsg.NewPtrBrokerRegistrationRequest(),
		kmsg.NewPtrBrokerHeartbeatRequest(), kmsg.NewPtrAllocateProducerIDsRequest(), kmsg.NewPtrAssignReplicasToDirsRequest(),
		kmsg.NewPtrFetchRequest(), kmsg.NewPtrProduceRequest(),
	} {
		if got := request(t, p, addr, req); len(got) > 0 {
			t.Errorf("%s was answered with %d bytes", kmsg.NameForKey(req.Key()), len(got))
		}
	}
}

// request sends one request and gives the first answer; nil if the connection was closed instead.
func request(t *testing.T, p *Process, addr string, req kmsg.Request) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := p.Dial(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // the answer has been read
	if req.Key() == int16(kmsg.ApiVersions) {
		req.SetVersion(0)
	} else {
		req.SetVersion(min(req.MaxVersion(), 1))
	}
	if _, err := conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)); err != nil {
		return nil
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, _ = io.ReadFull(conn, b)
	return b
}
