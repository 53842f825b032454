package raftctl

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// plainStreams is a StreamLayer in which nobody proves anything.
type plainStreams struct{ net.Listener }

func (plainStreams) Dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

func plainTransport(t *testing.T) *raft.NetworkTransport {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	transport := raft.NewNetworkTransport(streams{plainStreams{l}}, 1, time.Minute, io.Discard)
	t.Cleanup(func() {
		if err := transport.Close(); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// A voter that refuses entries lives, but goes on missing its leader as if it had not heard it: it votes for another one no later for it.
func TestRefusedEntriesMakeNoLeaderSure(t *testing.T) {
	here, there := plainTransport(t), plainTransport(t)
	id := raft.ServerID(peer.ID{NodeID: 2, DirectoryID: wire.UUID{0: 2}}.String())
	i := newInjector("self", here, nil)
	tell := func(term uint64, success bool) {
		t.Helper()
		go func() {
			rpc := <-there.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Term: term, Success: success}, nil)
		}()
		if err := i.tell(id, there.LocalAddr(), &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3}, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	sure := func() time.Time { return i.heard.majority([]wire.BrokerID{2}, time.Now()) }
	tell(4, true)
	if !i.heard.of(2).IsZero() || !sure().IsZero() {
		t.Error("the answer of a voter that follows another leader counts")
	}
	tell(3, false)
	if i.heard.of(2).IsZero() {
		t.Error("a node that refuses does not count as alive")
	}
	if !sure().IsZero() {
		t.Error("a refusal makes the leader sure")
	}
	tell(3, true)
	first := sure()
	if first.IsZero() {
		t.Fatal("an answer does not make the leader sure")
	}
	tell(3, false)
	if !sure().Equal(first) {
		t.Error("a refusal changes how sure the leader is")
	}
}

// A leader that steps down votes for nobody else while its own word holds, that a majority follows it: raft forgets at once that it led.
func TestLeaderIsBoundByItsOwnWord(t *testing.T) {
	here, there := plainTransport(t), plainTransport(t)
	i := newInjector("self", here, nil)
	tell := func(success bool) {
		t.Helper()
		go func() {
			rpc := <-there.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Term: 3, Success: success}, nil)
		}()
		if err := i.tell("voter", there.LocalAddr(), &raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 7, PrevLogTerm: 3}, &raft.AppendEntriesResponse{}); err != nil {
			t.Fatal(err)
		}
	}
	if tell(false); i.pledge.binds([]byte("other")) {
		t.Error("a refusal binds the leader")
	}
	if tell(true); !i.pledge.binds([]byte("other")) {
		t.Error("a leader may vote for another node right after a voter's answer")
	}
	if i.pledge.binds([]byte("self")) {
		t.Error("a leader may not stand again")
	}
	<-time.After(electionTimeout)
	if i.pledge.binds([]byte("other")) {
		t.Error("it is bound for longer than its word holds")
	}
}

// A member that knows a later term does not keep a leader in its lease: its heartbeat has failed. One that merely lacks something does.
func TestLaterTermFailsAHeartbeat(t *testing.T) {
	here, there := plainTransport(t), plainTransport(t)
	id := raft.ServerID(peer.ID{NodeID: 2, DirectoryID: wire.UUID{0: 2}}.String())
	i := newInjector("self", here, nil)
	for _, c := range []struct {
		term    uint64
		success bool
		want    error
	}{{3, true, nil}, {3, false, nil}, {4, false, errDeposed}, {3, true, nil}} {
		go func() {
			rpc := <-there.Consumer()
			rpc.Respond(&raft.AppendEntriesResponse{Term: c.term, Success: c.success}, nil)
		}()
		if err := i.AppendEntries(id, there.LocalAddr(), &raft.AppendEntriesRequest{Term: 3}, &raft.AppendEntriesResponse{}); !errors.Is(err, c.want) {
			t.Errorf("an answer of term %d, success %v: %v", c.term, c.success, err)
		}
	}
}
