package replica

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// D11: appends, long polls, retention, DeleteRecords, timestamps and elections at once. Every acknowledged offset is given
// out once, a reader sees whole batches in order, never beyond the high watermark, and the log start never goes back.
func TestEverythingAtOnce(t *testing.T) {
	k := newKit(t, memfs.New(time.Now))
	c := log.DefaultConfig()
	c.SegmentBytes, c.RetentionBytes = 20_000, 60_000
	k.config["t"] = c
	k.open()
	k.topic("t", topicID("t"), 1)
	p := k.part("t", 0)
	k.append(p, records(1, 10), 1) // so that there is a log
	var stop atomic.Bool
	var wg sync.WaitGroup
	var acked sync.Map
	for range 2 {
		wg.Go(func() {
			for range 300 {
				a, err := p.AppendAsLeader(k.validate(p, records(3, 100)), wire.NoLeaderEpoch, -1)
				if err != nil {
					t.Error(err)
					return
				}
				done := make(chan error, 1)
				w := purgatory.NewCommit(1, kerr.RequestTimedOut, func(errs []error) { done <- errs[0] })
				p.Watch(w, 0, a)
				w.Start(time.Minute)
				if err := <-done; err != nil && !errors.Is(err, kerr.NotLeaderForPartition) {
					t.Error(err)
				}
				if _, twice := acked.LoadOrStore(a.First, true); twice {
					t.Errorf("offset %d was given twice", a.First)
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() { follow(t, p, &stop) })
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 2))
		last := wire.Offset(0)
		for !stop.Load() {
			o := p.Offsets()
			if o.LogStart < last || o.HW > o.LEO || o.LSO > o.HW {
				t.Errorf("log start was %d, now %+v", last, o)
			}
			last = o.LogStart
			switch rng.IntN(4) {
			case 0:
				if _, err := p.retain(p.at.Load(), p.plog()); err != nil {
					t.Error(err)
				}
			case 1:
				if _, err := p.DeleteRecords(o.LogStart + 3); err != nil && !errors.Is(err, kerr.OffsetOutOfRange) {
					t.Error(err)
				}
			case 2:
				if _, err := p.AtTimestamp(wire.NoLeaderEpoch, ReadUncommitted, time.Now().UnixMilli()-5); err != nil && !errors.Is(err, kerr.OffsetNotAvailable) {
					t.Error(err)
				}
			default:
				if err := p.dir().checkpointHW(); err != nil {
					t.Error(err)
				}
			}
		}
	})
	wg.Go(func() {
		for !stop.Load() {
			if o := p.Offsets(); o.HW >= 1801 {
				stop.Store(true)
			}
			wake := make(chan struct{})
			f := purgatory.NewFetch(1, 1, func() { close(wake) })
			p.WatchRead(f, ReadResult{Mark: p.look1()}, 1)
			f.Start(time.Millisecond)
			<-wake
		}
	})
	k.apply(change("t", 1))
	wg.Wait()
	k.close()
}

// follow reads like a consumer that waits for data, until stop.
func follow(t *testing.T, p *Partition, stop *atomic.Bool) {
	next := wire.Offset(0)
	for !stop.Load() {
		r, err := p.Read(ReadOptions{Offset: next, LeaderEpoch: wire.NoLeaderEpoch, LastFetchedEpoch: wire.NoLeaderEpoch, Max: 4000, MinOne: true})
		if errors.Is(err, kerr.OffsetOutOfRange) {
			next = p.Offsets().LogStart
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		for _, s := range r.Segments {
			buf := make([]byte, s.Size())
			if _, err := s.File.ReadAt(buf, s.Off); err != nil {
				t.Error(err)
			}
			for {
				b, rest, err := batch.Next(buf)
				if err != nil {
					break
				}
				if b.CheckCRC() != nil || b.NextOffset() <= next || b.BaseOffset() > next || b.NextOffset() > r.HW {
					t.Errorf("at %d below %d: batch %d to %d", next, r.HW, b.BaseOffset(), b.LastOffset())
				}
				next, buf = b.NextOffset(), rest
			}
		}
		wire.Release(r.Segments)
		if r.Size == 0 {
			wake := make(chan struct{})
			f := purgatory.NewFetch(1, 1, func() { close(wake) })
			p.WatchRead(f, r, 4000)
			f.Start(10 * time.Millisecond)
			<-wake
		}
	}
}
