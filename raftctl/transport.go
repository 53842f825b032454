package raftctl

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// StreamLayer carries raft between controllers. Streams that Accept gives out belong to peers that have proven who they
// are; Dial proves it to the other side. An address is a peer.ID as text. A lone voter needs none.
type StreamLayer interface {
	net.Listener
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// streams is a StreamLayer as raft calls it.
type streams struct{ StreamLayer }

func (s streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return s.StreamLayer.Dial(ctx, string(address))
}

// loneStreams is the StreamLayer of a node that is the only one: nobody dials it and it has nobody to dial.
type loneStreams struct {
	once   sync.Once
	closed chan struct{}
}

type loneAddr struct{}

func (loneAddr) Network() string { return "lone" }
func (loneAddr) String() string  { return "lone" }

var errLone = errors.New("this controller has no peers")

func newLoneStreams() *loneStreams { return &loneStreams{closed: make(chan struct{})} }

func (l *loneStreams) Accept() (net.Conn, error) {
	<-l.closed
	return nil, net.ErrClosed
}

func (l *loneStreams) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (*loneStreams) Addr() net.Addr { return loneAddr{} }

func (*loneStreams) Dial(context.Context, string) (net.Conn, error) { return nil, errLone }
