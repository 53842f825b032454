package replica

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// D10: a wall clock that jumps, forwards or backwards, deletes nothing early and keeps nothing for ever.
func TestWallClockJumps(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		name string
		jump time.Duration
	}{{"a year forwards", year}, {"a year backwards", -year}, {"three hours forwards", 3 * time.Hour}, {"three hours backwards", -3 * time.Hour}} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { jumpAndBack(t, tt.jump) })
			synctest.Test(t, func(t *testing.T) { jumpToStay(t, tt.jump) })
		})
	}
}

// jumping is a kit with a topic of one hour's retention whose wall clock can be moved.
func jumping(t *testing.T, off *atomic.Int64) (*kit, *Partition) {
	k := newKit(t, memfs.New(time.Now))
	k.o.Wall = func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
	k.o.ClockJumpHold = 10 * time.Hour
	c := log.DefaultConfig()
	c.SegmentBytes, c.RetentionAge = 1000, 2*time.Hour
	k.config["t"] = c
	k.open()
	k.topic("t", topicID("t"), 1)
	p := k.part("t", 0)
	k.stamped(p, time.Duration(off.Load()))
	time.Sleep(time.Minute)
	return k, p
}

// stamped appends a segment's worth of records by a producer whose clock is off.
func (k *kit) stamped(p *Partition, off time.Duration) {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
	b.Add(batch.NewRecord{Timestamp: time.Now().Add(off).UnixMilli(), Value: make([]byte, 900)})
	raw, _, err := b.Build(nil, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	v, err := log.Validate(raw, log.ValidateOptions{Config: p.Config(), Now: k.o.Wall(), ProduceVersion: 11, Codecs: k.o.Codecs})
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := p.AppendAsLeader(v, wire.NoLeaderEpoch, 1); err != nil {
		k.t.Fatal(err)
	}
	synctest.Wait()
}

// A jump that is put right changes nothing about when a record goes.
func jumpAndBack(t *testing.T, jump time.Duration) {
	var off atomic.Int64 // what the wall clock is wrong by; the housekeeper reads it, too
	k, p := jumping(t, &off)
	off.Store(int64(jump))
	time.Sleep(time.Hour)
	if start := p.Offsets().LogStart; start != 0 {
		t.Fatalf("one hour after the jump the log starts at %d", start)
	}
	k.stamped(p, jump)
	off.Store(0)
	time.Sleep(40 * time.Minute) // 1 h 41 min old
	if start := p.Offsets().LogStart; start != 0 {
		t.Fatalf("after the way back the log starts at %d", start)
	}
	time.Sleep(30 * time.Minute)
	if start := p.Offsets().LogStart; start < 1 {
		t.Fatal("an old record is still there")
	}
	k.close()
}

// A jump that stands is believed in the end: by then nothing has gone before its time, and nothing stays for ever.
func jumpToStay(t *testing.T, jump time.Duration) {
	var off atomic.Int64 // what the wall clock is wrong by; the housekeeper reads it, too
	k, p := jumping(t, &off)
	off.Store(int64(jump))
	time.Sleep(90 * time.Minute)
	if start := p.Offsets().LogStart; start != 0 {
		t.Fatalf("after the jump the log starts at %d", start)
	}
	time.Sleep(40 * time.Minute)
	if start := p.Offsets().LogStart; start < 1 {
		t.Fatal("a record from before the jump was kept beyond its time")
	}
	k.stamped(p, jump) // by the new time
	k.stamped(p, jump)
	end := p.Offsets().LEO
	time.Sleep(10*time.Hour + 3*time.Hour)
	if start := p.Offsets().LogStart; start < end-1 {
		t.Fatalf("records from after the jump stay: log starts at %d of %d", start, end)
	}
	k.close()
}

// What a time daemon corrects in small steps is no jump.
func TestSlowDriftIsNoJump(t *testing.T) {
	wall, mono := time.UnixMilli(1e12), time.UnixMilli(0)
	c := &clock{wall: func() time.Time { return wall }, mono: func() time.Time { return mono }, hold: time.Hour}
	for range 1000 {
		wall, mono = wall.Add(51*time.Second), mono.Add(50*time.Second)
		if got := c.now(); !got.Equal(wall) {
			t.Fatalf("%v, want %v", got, wall)
		}
	}
}
