package api

import (
	"context"
	"sync"
	"testing"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// writerReply is the connection's writer that is at work when an answer's turn comes: it does not wait until the handler has returned.
type writerReply struct {
	server.Responder
	done chan []wire.Segment
}

func (w *writerReply) ReplyFunc(build func() []wire.Segment) { go func() { w.done <- build() }() }

// A fetch may be woken, and read again by the writer, while its handler still adds it to its other partitions.
func TestFetchIsWokenWhileItParks(t *testing.T) {
	const n = 500
	k := newDataKit(t)
	defer k.close()
	k.topic("t", n)
	parts := make([]kmsg.FetchRequestTopicPartition, n)
	for offset := range int64(20) {
		for p := range parts {
			parts[p] = fetchPart(int32(p), offset, 1<<20)
		}
		msg := fetchOf(10_000, 1, 1<<20, fetchTopic("t", parts...))
		msg.Version = 12
		w := &writerReply{done: make(chan []wire.Segment, 1)}
		var wg sync.WaitGroup
		wg.Go(func() {
			for p := range int32(n) {
				k.mustProduce("t", p, values(1, 1))
			}
		})
		k.fetch.handle(context.Background(), k.request(msg, ""), w)
		wire.Release(<-w.done)
		wg.Wait()
	}
}
