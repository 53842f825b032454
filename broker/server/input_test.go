package server

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// echoRoutes answer with the bytes that came.
func echoRoutes() testRoutes {
	return testRoutes{36: {Key: 36, Min: 0, Max: 2, Handle: func(_ context.Context, req *Request, w Responder) {
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.Version = req.Version
		resp.SASLAuthBytes = req.Msg.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes
		w.Reply(resp)
	}}}
}

// TestPipelinedFrames sends frames of all sizes without waiting for answers, cut into pieces anywhere, and gets each one's
// bytes back in order: with a budget in which reading ahead is allowed, and in one in which it is not.
func TestPipelinedFrames(t *testing.T) {
	for _, tt := range []struct {
		name   string
		limits Limits
		pipe   bool
	}{
		{name: "tcp"},
		{name: "tcp, small budget", limits: Limits{RequestBytes: 2 << 20, MaxFrameBytes: 1 << 20}},
		{name: "pipe", pipe: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(8) {
				var edit []func(*Options)
				l := newPipeListener()
				if tt.pipe {
					edit = append(edit, onPipe(l))
				}
				s, _ := start(t, echoRoutes(), tt.limits, edit...)
				var nc net.Conn
				if tt.pipe {
					nc = l.dial()
				} else {
					nc = dial(t, s)
				}
				exchange(t, nc, rand.New(rand.NewPCG(seed, 7)))
				_ = nc.Close()
			}
		})
	}
}

func exchange(t *testing.T, nc net.Conn, rng *rand.Rand) {
	t.Helper()
	var stream []byte
	var want [][]byte
	for i := range int32(150) {
		n := rng.IntN(2000)
		switch rng.IntN(12) {
		case 0:
			n = rng.IntN(70 << 10)
		case 1:
			n = rng.IntN(300 << 10)
		}
		r := kmsg.NewPtrSASLAuthenticateRequest()
		r.SASLAuthBytes = bytes.Repeat([]byte{byte(i)}, n)
		want = append(want, r.SASLAuthBytes)
		stream = append(stream, request(i, r)...)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for len(stream) > 0 {
			n := min(len(stream), 1+rng.IntN(1<<(1+rng.IntN(18))))
			if _, err := nc.Write(stream[:n]); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			stream = stream[n:]
		}
	})
	for i := range want {
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		if err := resp.ReadFrom(mustRead(t, nc, int32(i))); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(resp.SASLAuthBytes, want[i]) {
			t.Fatalf("frame %d of %d bytes was changed", i, len(want[i]))
		}
	}
	wg.Wait()
}

// TestReadyAnswerDoesNotWaitForTheNext sends requests at once of which each hangs in stage one until the client has the
// answer to the one before.
func TestReadyAnswerDoesNotWaitForTheNext(t *testing.T) {
	const n = 5
	read := make(chan struct{}, n)
	s, _ := start(t, heartbeatRoutes(func(ctx context.Context, req *Request, w Responder) {
		if req.CorrelationID > 0 {
			<-read
		}
		replyHeartbeat(ctx, req, w)
	}), Limits{})
	nc := dial(t, s)
	var out []byte
	for i := range int32(n) {
		out = append(out, heartbeat(i)...)
	}
	mustWrite(t, nc, out)
	for i := range int32(n) {
		mustRead(t, nc, i)
		read <- struct{}{}
	}
}

// TestKeptAnswersLeaveAtTheEnd ends the connection behind pipelined requests in three ways; all answers must have left.
func TestKeptAnswersLeaveAtTheEnd(t *testing.T) {
	for _, tail := range [][]byte{nil, {0, 0}, size(100), append(size(12), header(99, 0, 1)...)} {
		s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{})
		nc := dial(t, s)
		var out []byte
		for i := range int32(20) {
			out = append(out, heartbeat(i)...)
		}
		mustWrite(t, nc, append(out, tail...))
		closeWrite(nc)
		for i := range int32(20) {
			mustRead(t, nc, i)
		}
		mustBeClosed(t, nc)
	}
}

// TestSlotLimitWithKeptAnswers lets a client send many more requests than it may have in flight.
func TestSlotLimitWithKeptAnswers(t *testing.T) {
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{InFlight: 2})
	nc := dial(t, s)
	var out []byte
	for i := range int32(500) {
		out = append(out, heartbeat(i)...)
	}
	mustWrite(t, nc, out)
	for i := range int32(500) {
		mustRead(t, nc, i)
	}
}
