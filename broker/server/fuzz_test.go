package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/wire"
)

// FuzzConnection feeds a byte stream to a connection whose handlers answer at once, later, out of order, with segments
// or not at all, as the correlation ids say. Nothing may panic or hang, every goroutine must end (the bubble fails
// otherwise), every Done must be called and the budget must end empty.
func FuzzConnection(f *testing.F) {
	for _, tc := range framingCases() {
		f.Add(tc.send, uint8(len(tc.send)))
	}
	var mixed []byte
	for i := range int32(24) {
		mixed = append(mixed, heartbeat(i)...)
	}
	f.Add(mixed, uint8(7))
	f.Add(append(slices.Clone(mixed), mixed...), uint8(255))
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8) {
		synctest.Test(t, func(t *testing.T) { fuzzConnection(t, stream, int(chunk)+1) })
	})
}

func fuzzConnection(t *testing.T, stream []byte, chunk int) {
	var open atomic.Int64
	var late sync.WaitGroup
	routes := framingRoutes()
	for key, route := range routes {
		reply := route.Handle
		route.Handle = func(ctx context.Context, req *Request, w Responder) {
			fuzzAnswer(ctx, *req, w, reply, &open, &late)
		}
		routes[key] = route
	}
	l := newPipeListener()
	s, _ := start(t, routes, Limits{RequestBytes: 1 << 20, MaxFrameBytes: 1 << 16, InFlight: 5, ResponseBytes: 100}, onPipe(l))
	nc := l.dial()
	late.Go(func() { _, _ = io.Copy(io.Discard, nc) })
	for b := range slices.Chunk(stream, chunk) {
		if _, err := nc.Write(b); err != nil {
			break
		}
	}
	if len(stream)%2 == 0 {
		_ = nc.Close()
	}
	if err := s.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	_ = nc.Close()
	late.Wait()
	if n := open.Load(); n != 0 {
		t.Errorf("%d segments were not done", n)
	}
}

// fuzzAnswer answers in the way that the correlation id says.
func fuzzAnswer(ctx context.Context, req Request, w Responder, reply HandlerFunc, open *atomic.Int64, late *sync.WaitGroup) {
	answer := func() { reply(ctx, &req, w) }
	switch req.CorrelationID % 8 {
	case 1:
		answer = func() { w.Drop(nil) }
	case 2, 3:
		answer = func() {
			w.ReplyFunc(func() []wire.Segment {
				open.Add(2)
				return []wire.Segment{
					{Bytes: []byte("abc"), Done: func() { open.Add(-1) }},
					{Bytes: make([]byte, 70<<10), Done: func() { open.Add(-1) }},
				}
			})
		}
	case 4:
		if req.CorrelationID > 8 {
			answer = func() { w.Drop(errors.New("dropped")) }
		}
	}
	if req.CorrelationID%3 == 0 {
		answer()
		return
	}
	late.Go(func() {
		pause(time.Duration(req.CorrelationID%5+6) * time.Millisecond)
		answer()
	})
}
