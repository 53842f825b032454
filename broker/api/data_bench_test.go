package api

import (
	"context"
	"slices"
	"testing"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sink takes answers as the server does, without a connection: a response is encoded, segments are released.
type sink struct {
	buf  []byte
	done chan struct{}
}

func (s *sink) Reply(resp kmsg.Response) { s.buf = resp.AppendTo(s.buf[:0]); s.done <- struct{}{} }
func (s *sink) ReplyFunc(build func() []wire.Segment) {
	wire.Release(build())
	s.done <- struct{}{}
}
func (s *sink) Drop(error) { s.done <- struct{}{} }

// producing gives a function that handles one produce of one batch and waits for its answer.
func producing(tb testing.TB, k *dataKit, size int) func() {
	k.topic("bench", 1)
	fresh := values(size-200, 1)
	msg := produceRequest(-1, produced{"bench", 0, slices.Clone(fresh)})
	msg.Version = 9
	frame := msg.AppendTo(nil)
	s := &sink{done: make(chan struct{}, 1)}
	h := k.produceHandler()
	in := kmsg.NewPtrProduceRequest()
	req := &server.Request{Version: 9, ClientID: "c", Msg: in, Conn: k.conn}
	return func() {
		in.Version = 9
		if err := in.ReadFrom(frame); err != nil {
			tb.Fatal(err)
		}
		copy(in.Topics[0].Partitions[0].Records, fresh) // the log has patched the frame
		h(context.Background(), req, s)
		<-s.done
	}
}

// What one produce and one fetch allocate besides decoding the request, at most. Stored bytes are never copied: the count
// does not depend on the size of the batch.
func TestHotPathAllocations(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fsync replica.FSync
		size  int
		max   float64
	}{
		{"1 KiB, no wait", replica.FSyncNever, 1 << 10, 7},
		{"64 KiB, no wait", replica.FSyncNever, 64 << 10, 7},
		{"64 KiB, group commit", replica.FSyncAuto, 64 << 10, 26},
	} {
		t.Run("produce "+tt.name, func(t *testing.T) {
			k := newDataKit(t)
			k.fsync = tt.fsync
			one := producing(t, k, tt.size)
			if got := testing.AllocsPerRun(200, one); got > tt.max {
				t.Errorf("%v allocations, at most %v", got, tt.max)
			} else {
				t.Logf("%v allocations", got)
			}
			k.close()
		})
	}
	t.Run("fetch", func(t *testing.T) {
		k := newDataKit(t)
		k.fsync = replica.FSyncNever
		producing(t, k, 64<<10)()
		one := fetching(t, k)
		if got := testing.AllocsPerRun(200, one); got > 21 {
			t.Errorf("%v allocations", got)
		} else {
			t.Logf("%v allocations", got)
		}
		k.close()
	})
}

func fetching(tb testing.TB, k *dataKit) func() {
	msg := fetchOf(0, 1, 1<<20, fetchTopic("bench", fetchPart(0, 0, 1<<20)))
	msg.Version = 12
	s := &sink{done: make(chan struct{}, 1)}
	req := &server.Request{Version: 12, ClientID: "c", Msg: msg, Conn: k.conn}
	return func() {
		k.fetch.handle(context.Background(), req, s)
		<-s.done
	}
}

func BenchmarkProduce(b *testing.B) {
	for _, bm := range []struct {
		name  string
		size  int
		fsync replica.FSync
	}{{"1KiB/never", 1 << 10, replica.FSyncNever}, {"64KiB/never", 64 << 10, replica.FSyncNever}, {"64KiB/auto", 64 << 10, replica.FSyncAuto}} {
		b.Run(bm.name, func(b *testing.B) {
			k := newDataKit(b)
			k.fsync = bm.fsync
			one := producing(b, k, bm.size)
			b.ReportAllocs()
			b.SetBytes(int64(bm.size))
			for b.Loop() {
				one()
			}
			k.close()
		})
	}
}

func BenchmarkFetch(b *testing.B) {
	k := newDataKit(b)
	k.fsync = replica.FSyncNever
	producing(b, k, 64<<10)()
	one := fetching(b, k)
	b.ReportAllocs()
	for b.Loop() {
		one()
	}
	k.close()
}
