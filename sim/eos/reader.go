package eos

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader follows every partition with read_committed, as fast as records become visible. It now and then starts again at
// an offset that it has passed.
type reader struct {
	load *Load
	h    *History
	c    *client
	rng  *rand.Rand
	at   map[wire.TopicPartition]*Span
}

func newReader(l *Load, h *History, i int) *reader {
	r := &reader{load: l, h: h, c: newClient(l.Dial, l.Seeds, "reader"), rng: rand.New(rand.NewPCG(l.Seed, uint64(1000+i))), at: map[wire.TopicPartition]*Span{}}
	for _, tp := range l.partitions() {
		r.at[tp] = &Span{TP: tp}
	}
	return r
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) {
	defer r.c.close()
	tps := r.load.partitions()
	for ctx.Err() == nil && !r.h.Failed() {
		if r.rng.IntN(30) == 0 {
			r.back(tps[r.rng.IntN(len(tps))])
		}
		if r.rng.IntN(10) == 0 {
			p := r.load.name(r.rng.IntN(r.load.Producers))
			if code, offset := groupOffset(ctx, r.c, "g-"+p, r.load.input(), false); code == 0 {
				r.h.SawOffset(p, offset)
			}
		}
		if !r.fetch(ctx, tps[r.rng.IntN(len(tps))]) {
			pause(ctx, retryPause)
		}
	}
	for _, s := range r.at {
		r.h.Went(*s)
	}
}

// back starts again at an offset that was passed.
func (r *reader) back(tp wire.TopicPartition) {
	s := r.at[tp]
	r.h.Went(*s)
	from := s.From
	if s.To > s.From {
		from += wire.Offset(r.rng.Int64N(int64(s.To - s.From)))
	}
	r.at[tp] = &Span{TP: tp, From: from, To: from}
}

// fetch asks once, for what the leader of tp leads; false when that did not work.
func (r *reader) fetch(ctx context.Context, tp wire.TopicPartition) bool {
	addr, err := r.c.leader(ctx, tp)
	if err != nil {
		return false
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.IsolationLevel, req.SessionEpoch = 11, -1, 1, -1
	req.MinBytes, req.MaxWaitMillis, req.MaxBytes = 1, 50, 1<<20
	for _, other := range r.load.partitions() {
		if other.Topic != tp.Topic || r.c.brokers[r.c.leaders[other]] != addr {
			continue
		}
		if len(req.Topics) == 0 {
			t := kmsg.NewFetchRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(other.Partition), int64(r.at[other].To), int32(200+r.rng.IntN(40_000))
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	if len(req.Topics) == 0 {
		return false
	}
	slices.SortFunc(req.Topics[0].Partitions, func(a, b kmsg.FetchRequestTopicPartition) int { return cmp.Compare(a.Partition, b.Partition) })
	got, err := r.c.at(ctx, addr, req)
	if err != nil {
		return false
	}
	ok := true
	for _, t := range got.(*kmsg.FetchResponse).Topics {
		for i := range t.Partitions {
			ok = r.take(wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(t.Partitions[i].Partition)}, &t.Partitions[i]) && ok
		}
	}
	return ok
}

// take goes through what came of one partition.
func (r *reader) take(tp wire.TopicPartition, p *kmsg.FetchResponseTopicPartition) bool {
	s := r.at[tp]
	switch p.ErrorCode {
	case 0:
	case kerr.OffsetOutOfRange.Code:
		r.h.Fail("lost: a reader of %s was at %d, which is out of range now", tp, s.To)
		return false
	default:
		r.c.forget()
		return false
	}
	if wire.Offset(p.LastStableOffset) > wire.Offset(p.HighWatermark) {
		r.h.Fail("the last stable offset %d of %s is above the high watermark %d", p.LastStableOffset, tp, p.HighWatermark)
	}
	f := newFilter(p.AbortedTransactions)
	rest := p.RecordBatches
	for {
		b, next, err := batch.Next(rest)
		if err != nil {
			return true // cut short, or the end
		}
		rest = next
		if err := b.CheckCRC(); err != nil {
			r.h.Fail("%s at %d: %v", tp, b.BaseOffset(), err)
			return false
		}
		if visible := f.visible(b); visible {
			r.records(s, b)
		}
		s.To = max(s.To, b.NextOffset())
	}
}

func (r *reader) records(s *Span, b batch.Batch) {
	it := batch.Iterate(b.Payload(), b.Count())
	for it.Next() {
		at := b.BaseOffset() + wire.Offset(it.Record.OffsetDelta)
		if at < s.To {
			continue
		}
		value := string(it.Record.Value)
		r.h.Saw(Place{s.TP, at}, value)
		s.Reads = append(s.Reads, Read{at, value})
	}
	if err := it.Err(); err != nil {
		r.h.Fail("%s at %d: %v", s.TP, b.BaseOffset(), err)
	}
}

// filter takes out the records of aborted transactions, as Kafka's consumer does: a transaction of the list begins with
// the batch that holds its first offset and ends with its producer's next marker.
type filter struct {
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction // that have not begun, by first offset
	now     map[int64]bool                                       // producers in an aborted transaction
}

func newFilter(aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction) *filter {
	aborted = slices.Clone(aborted)
	slices.SortFunc(aborted, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return &filter{aborted: aborted, now: map[int64]bool{}}
}

// visible reports whether the records of the next batch may be seen.
func (f *filter) visible(b batch.Batch) bool {
	for len(f.aborted) > 0 && f.aborted[0].FirstOffset <= int64(b.LastOffset()) {
		f.now[f.aborted[0].ProducerID] = true
		f.aborted = f.aborted[1:]
	}
	if b.Control() {
		if end, ok, err := b.EndTxn(nil); err == nil && ok && !end.Commit {
			delete(f.now, int64(b.ProducerID()))
		}
		return false
	}
	return !b.Transactional() || !f.now[int64(b.ProducerID())]
}

// settle waits until nothing is open in any partition.
func (l *Load) settle(ctx context.Context, h *History) {
	c := newClient(l.Dial, l.Seeds, "settle")
	defer c.close()
	for _, tp := range l.partitions() {
		began := time.Now()
		for {
			code, stable := listOffset(ctx, c, tp, true)
			code2, end := listOffset(ctx, c, tp, false)
			if code == 0 && code2 == 0 && stable == end {
				break
			}
			if time.Since(began) > l.Patience {
				h.Fail("hanging: the last stable offset of %s is %d, its end %d (codes %d, %d), and every transaction is over", tp, stable, end, code, code2)
				return
			}
			if !pause(ctx, retryPause) {
				return
			}
		}
	}
}
