package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"pgregory.net/rapid"
)

// oracle is the slice that a log must equal.
type oracle struct {
	batches [][]byte
	start   wire.Offset
	end     wire.Offset
	flushed wire.Offset
	seqs    map[wire.ProducerID]int32
}

func (o *oracle) bytes() []byte {
	var out []byte
	for _, b := range o.batches {
		if batch.Batch(b).LastOffset() >= o.start {
			out = append(out, b...)
		}
	}
	return out
}

func (o *oracle) cut(at wire.Offset) {
	for n := len(o.batches); n > 0 && batch.Batch(o.batches[n-1]).LastOffset() >= at; n-- {
		o.end = batch.Batch(o.batches[n-1]).BaseOffset()
		o.batches = o.batches[:n-1]
	}
	o.flushed = min(o.flushed, o.end)
}

// The log against a slice: whatever is done to it, with crashes and restarts in between, it reads as the slice does.
func TestLogEqualsSlice(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mem := memfs.New(nil)
		b := newBench(rt, mem, func(c *Config) {
			c.SegmentBytes = rapid.Int64Range(800, 4000).Draw(rt, "segment bytes")
			c.IndexIntervalBytes = rapid.IntRange(0, 500).Draw(rt, "index interval")
			c.SegmentIndexBytes = rapid.IntRange(36, 400).Draw(rt, "index bytes")
			c.RetentionAge = -1
		})
		o := &oracle{seqs: map[wire.ProducerID]int32{}}
		history := map[wire.Offset][][]byte{} // every batch ever written at an offset
		equal := func() {
			var got []byte
			err := b.log.Scan(o.start, b.log.EndOffset(), func(x batch.Batch) error {
				got = append(got, x...)
				return nil
			})
			if err != nil || !bytes.Equal(got, o.bytes()) || b.log.EndOffset() != o.end || b.log.StartOffset() != o.start {
				rt.Fatalf("log %d–%d, want %d–%d; bytes equal: %v, %v",
					b.log.StartOffset(), b.log.EndOffset(), o.start, o.end, bytes.Equal(got, o.bytes()), err)
			}
			states := map[wire.ProducerID]int32{}
			for _, p := range b.log.Producers() {
				states[p.ID] = p.LastSequence
			}
			for id, next := range o.seqs {
				if next > 0 && states[id] != next-1 {
					rt.Fatalf("producer %d is at %d, want %d", id, states[id], next-1)
				}
			}
		}
		resetSeqs := func() {
			o.seqs = map[wire.ProducerID]int32{}
			for _, p := range b.log.Producers() {
				o.seqs[p.ID] = p.LastSequence + 1
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				id := wire.ProducerID(rapid.IntRange(0, 3).Draw(rt, "producer"))
				s := spec{n: rapid.IntRange(1, 4).Draw(rt, "n"), size: rapid.IntRange(0, 150).Draw(rt, "size"), codec: compress.Type(rapid.IntRange(0, 4).Draw(rt, "codec"))}
				if id > 0 {
					s.producer = &batch.Producer{ID: id, Sequence: o.seqs[id]}
				}
				v := b.validate(b.make(s))
				a, err := b.log.AppendAsLeader(v, wire.LeaderEpoch(len(o.batches)/7))
				if err != nil || a.First != o.end {
					rt.Fatalf("append: %+v, %v", a, err)
				}
				o.batches = append(o.batches, bytes.Clone(v.Batch))
				history[o.end] = append(history[o.end], bytes.Clone(v.Batch))
				o.end = a.Last + 1
				if id > 0 {
					o.seqs[id] += int32(s.n)
				}
			},
			"flush": func(*rapid.T) { b.must(b.log.Flush()); o.flushed = o.end },
			"roll":  func(*rapid.T) { b.must(b.log.Roll()) },
			"truncate": func(rt *rapid.T) {
				at := wire.Offset(rapid.Int64Range(int64(o.start), int64(o.end)).Draw(rt, "at"))
				if at == o.start {
					return
				}
				b.must(b.log.TruncateTo(at))
				o.cut(at)
				if o.end < o.start { // the start lay within the batch that went
					rt.Fatalf("cut below the start")
				}
				resetSeqs()
			},
			"delete records": func(rt *rapid.T) {
				bases := []wire.Offset{o.start}
				for _, x := range o.batches {
					bases = append(bases, max(o.start, batch.Batch(x).NextOffset()))
				}
				o.start = rapid.SampledFrom(bases).Draw(rt, "start")
				b.must(b.log.IncrementStart(o.start))
				_, err := b.log.DeleteOld(b.now, o.end)
				b.must(err)
			},
			"clean restart": func(*rapid.T) {
				b.must(b.log.Close())
				opt := b.options(true, o.end)
				opt.LogStartOffset = o.start
				reopen(b, opt)
				if b.rec.BytesRead != 0 || b.rec.IndexesRebuilt != 0 {
					rt.Fatalf("clean restart read again: %+v", b.rec)
				}
				o.flushed = o.end
			},
			"crash": func(rt *rapid.T) {
				fate := rapid.SampledFrom([]memfs.Fate{memfs.Coin, memfs.Lose, memfs.Keep}).Draw(rt, "fate")
				mem = mem.Crash(fate, rapid.Uint64().Draw(rt, "seed"))
				b.fs = mem
				opt := b.options(false, o.flushed)
				opt.LogStartOffset = o.start
				reopen(b, opt)
				end := b.log.EndOffset()
				if end < o.flushed {
					rt.Fatalf("lost flushed records: the log ends at %d, %d were flushed", end, o.flushed)
				}
				o.rebuild(rt, b, history)
				o.flushed = o.end
				resetSeqs()
			},
			"": func(*rapid.T) { equal() },
		})
	})
}

func reopen(b *bench, opt Options) {
	l, rec, err := Open(context.Background(), opt)
	b.must(err)
	b.log, b.rec = l, rec
}

// rebuild takes over what the crash left, after checking that each batch was once written there and that nothing which
// was flushed changed.
func (o *oracle) rebuild(rt *rapid.T, b *bench, history map[wire.Offset][][]byte) {
	var left [][]byte
	at := 0
	err := b.log.Scan(b.log.StartOffset(), b.log.EndOffset(), func(x batch.Batch) error {
		if !slices.ContainsFunc(history[x.BaseOffset()], func(h []byte) bool { return bytes.Equal(h, x) }) {
			return fmt.Errorf("batch at %d was never written", x.BaseOffset())
		}
		for at < len(o.batches) && batch.Batch(o.batches[at]).BaseOffset() < x.BaseOffset() {
			at++
		}
		if x.LastOffset() < o.flushed && (at == len(o.batches) || !bytes.Equal(o.batches[at], x)) {
			return errors.New("a flushed batch changed")
		}
		left = append(left, bytes.Clone(x))
		return nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	o.batches, o.start, o.end = left, b.log.StartOffset(), b.log.EndOffset()
}
