package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestAnswersOne(t *testing.T) {
	s, _ := start(t, heartbeatRoutes(replyHeartbeat), Limits{})
	nc := dial(t, s)
	for i := range int32(3) {
		mustWrite(t, nc, heartbeat(i))
		if got := mustRead(t, nc, i); string(got) != "\x00\x00" {
			t.Fatalf("body % x", got)
		}
	}
}

// TestOrder completes pipelined requests in random order and in every way: the answers must leave in request order,
// acks=0 ones leave nothing.
func TestOrder(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		const n = 200
		responders := make(chan Responder, n)
		var dones sync.WaitGroup
		handle := func(ctx context.Context, req *Request, w Responder) {
			if req.CorrelationID%7 == 0 { // some in stage one
				replyHeartbeat(ctx, req, w)
				responders <- nil
				return
			}
			responders <- w
		}
		s, _ := start(t, heartbeatRoutes(handle), Limits{InFlight: n})
		nc := dial(t, s)
		var out []byte
		for i := range int32(n) {
			out = append(out, heartbeat(i)...)
		}
		mustWrite(t, nc, out)
		waiting := make([]Responder, n)
		order := rng.Perm(n)
		for i := range waiting {
			waiting[i] = <-responders
		}
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for _, i := range order[part*n/4 : (part+1)*n/4] {
					switch w := waiting[i]; {
					case w == nil:
					case i%5 == 0:
						w.Drop(nil)
					case i%5 == 1:
						dones.Add(1)
						w.ReplyFunc(func() []wire.Segment {
							return []wire.Segment{{Bytes: []byte{0}}, {Bytes: []byte{9}, Done: dones.Done}}
						})
					default:
						r := kmsg.NewPtrHeartbeatResponse()
						w.Reply(r)
					}
				}
			})
		}
		for i := range int32(n) {
			if i%5 == 0 && i%7 != 0 {
				continue
			}
			want := "\x00\x00"
			if i%5 == 1 && i%7 != 0 {
				want = "\x00\x09"
			}
			if got := mustRead(t, nc, i); string(got) != want {
				t.Fatalf("seed %d: body of %d is % x", seed, i, got)
			}
		}
		wg.Wait()
		dones.Wait()
	}
}

func TestDropClosesAfterEarlierAnswers(t *testing.T) {
	responders := make(chan Responder, 3)
	s, logs := start(t, heartbeatRoutes(func(_ context.Context, _ *Request, w Responder) { responders <- w }), Limits{})
	nc := dial(t, s)
	mustWrite(t, nc, append(append(heartbeat(1), heartbeat(2)...), heartbeat(3)...))
	first, second, third := <-responders, <-responders, <-responders
	second.Drop(errors.New("wrong leader\nfor acks=0"))
	third.Reply(kmsg.NewPtrHeartbeatResponse())
	first.Reply(kmsg.NewPtrHeartbeatResponse())
	mustRead(t, nc, 1)
	mustBeClosed(t, nc)
	_ = nc.Close()
	waitFor(t, func() bool { return lines(logs, `err="wrong leader\nfor acks=0"`) == 1 })
}

func TestAnsweringTwicePanics(t *testing.T) {
	responders := make(chan Responder, 1)
	s, _ := start(t, heartbeatRoutes(func(_ context.Context, _ *Request, w Responder) { responders <- w }), Limits{})
	nc := dial(t, s)
	mustWrite(t, nc, heartbeat(1))
	w := <-responders
	w.Drop(nil)
	defer func() {
		if r := recover(); r != "BUG: a request was answered twice" {
			t.Fatalf("recovered %v", r)
		}
	}()
	w.Drop(nil)
}
