package replica

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// gate holds every sync of a .log file until the test lets it pass, and counts them.
type gate struct {
	pass    chan struct{}
	waiting atomic.Int32
	passed  atomic.Int32
	open    atomic.Bool
}

func newGate(fs *faultfs.FS) *gate {
	g := &gate{pass: make(chan struct{})}
	fs.Before(func(op faultfs.Op, name string) {
		if op != faultfs.OpSync || !strings.HasSuffix(name, ".log") {
			return
		}
		if !g.open.Load() {
			g.waiting.Add(1)
			<-g.pass
			g.waiting.Add(-1)
		}
		g.passed.Add(1)
	})
	return g
}

// ack watches an append the way a produce does.
type ack struct {
	done atomic.Bool
	err  error
}

func watch(p *Partition, a Appended, timeout time.Duration) *ack {
	k := &ack{}
	if !a.Waits() {
		k.done.Store(true)
		return k
	}
	c := purgatory.NewCommit(1, kerr.RequestTimedOut, func(errs []error) {
		k.err = errs[0]
		k.done.Store(true)
	})
	p.Watch(c, 0, a)
	c.Start(timeout)
	return k
}

// No acknowledgement and no visibility of a record precedes the Sync that covers it; what is appended while a Sync runs
// shares the next one, whatever the number of appends.
func TestNoAckBeforeSync(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fsync FSync
		acks  int16
		rf    int
	}{
		{"auto, acks=all", FSyncAuto, -1, 1},
		{"auto, acks=1, RF 1", FSyncAuto, 1, 1},
		{"always, acks=all", FSyncAlways, -1, 1},
		{"always, acks=1, RF 3", FSyncAlways, 1, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := faultfs.New(memfs.New(time.Now))
				g := newGate(fs)
				k := newKit(t, fs)
				k.fsync = tt.fsync
				k.open()
				k.topic("t", topicID("t"), 1, []wire.BrokerID{1, 2, 3}[:tt.rf]...)
				p := k.part("t", 0)
				var acks []*ack
				add := func() { acks = append(acks, watch(p, k.append(p, records(2, 100), tt.acks), time.Minute)) }
				add()
				synctest.Wait()
				if g.waiting.Load() != 1 || g.passed.Load() != 0 {
					t.Fatalf("%d syncs wait, %d passed", g.waiting.Load(), g.passed.Load())
				}
				for range 50 {
					add()
				}
				synctest.Wait()
				for i, a := range acks {
					if a.done.Load() {
						t.Fatalf("append %d was acknowledged before any sync", i)
					}
				}
				if n := readable(t, p, 0); n != 0 {
					t.Fatalf("%d bytes are visible before any sync", n)
				}
				g.pass <- struct{}{}
				synctest.Wait()
				if !acks[0].done.Load() || acks[0].err != nil || acks[1].done.Load() {
					t.Fatalf("after the first sync: first done %v (%v), second done %v", acks[0].done.Load(), acks[0].err, acks[1].done.Load())
				}
				if o := p.Offsets(); tt.rf == 1 && (o.HW != 2 || o.LEO != 102) {
					t.Fatalf("after the first sync: %+v", o)
				}
				g.pass <- struct{}{}
				synctest.Wait()
				for i, a := range acks {
					if !a.done.Load() || a.err != nil {
						t.Fatalf("append %d after the second sync: done %v, %v", i, a.done.Load(), a.err)
					}
				}
				if g.passed.Load() != 2 || g.waiting.Load() != 0 {
					t.Fatalf("51 appends took %d syncs", g.passed.Load())
				}
				g.open.Store(true)
				k.close()
			})
		})
	}
}

// kaja.fsync=never and acks=1 with other replicas under auto wait for no disk.
func TestAckWithoutSync(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fsync FSync
		acks  int16
		rf    int
		hw    wire.Offset
	}{
		{"never, acks=all", FSyncNever, -1, 1, 2},
		{"auto, acks=1, RF 3", FSyncAuto, 1, 3, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit(t, memfs.New(time.Now))
			k.fsync = tt.fsync
			k.open()
			k.topic("t", topicID("t"), 1, []wire.BrokerID{1, 2, 3}[:tt.rf]...)
			p := k.part("t", 0)
			if a := k.append(p, records(2, 10), tt.acks); a.Waits() {
				t.Fatal("the answer waits")
			}
			if o := p.Offsets(); o.HW != tt.hw {
				t.Fatalf("HW %d, want %d", o.HW, tt.hw)
			}
			k.close()
		})
	}
}

// flush.messages and flush.ms are honoured where nothing else asks for a flush.
func TestFlushByConfig(t *testing.T) {
	for _, tt := range []struct {
		name     string
		messages int64
		interval time.Duration
		appends  int
		after    time.Duration
		want     int32
	}{
		{"no flush", 1 << 62, log.Forever, 10, time.Hour, 0},
		{"flush.messages", 4, log.Forever, 2, 0, 1},
		{"flush.messages not reached", 7, log.Forever, 2, 0, 0},
		// The first append finds the last flush longer ago than that.
		{"flush.ms", 1 << 62, 300 * time.Millisecond, 2, 301 * time.Millisecond, 2},
		{"flush.ms not reached", 1 << 62, 300 * time.Millisecond, 2, 299 * time.Millisecond, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := faultfs.New(memfs.New(time.Now))
				g := newGate(fs)
				g.open.Store(true)
				k := newKit(t, fs)
				k.fsync = FSyncNever
				c := log.DefaultConfig()
				c.FlushMessages, c.FlushInterval = tt.messages, tt.interval
				k.config["t"] = c
				k.open()
				k.topic("t", topicID("t"), 1)
				p := k.part("t", 0)
				k.append(p, records(2, 10), 1)
				synctest.Wait()
				time.Sleep(time.Hour)
				synctest.Wait()
				before := g.passed.Load()
				for range tt.appends {
					k.append(p, records(2, 10), 1)
					synctest.Wait()
				}
				time.Sleep(tt.after)
				synctest.Wait()
				if got := g.passed.Load() - before; got != tt.want {
					t.Fatalf("%d flushes, want %d", got, tt.want)
				}
				k.close()
			})
		})
	}
}

// D5: after the first failed fsync the directory takes no writes, nothing is acknowledged, and no fsync is tried again.
// What was readable stays so.
func TestFailedSyncIsFinal(t *testing.T) {
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(cause.Error(), func(t *testing.T) { failedSync(t, cause) })
	}
}

func failedSync(t *testing.T, cause error) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(memfs.New(time.Now))
		k := newKit(t, fs)
		var failed []Dir
		k.o.DirFailed = func(d Dir, _ error) { failed = append(failed, d) }
		k.open()
		k.topic("t", topicID("t"), 2)
		p, other := k.part("t", 0), k.part("t", 1)
		first := watch(p, k.append(p, records(1, 10), -1), time.Minute)
		synctest.Wait()
		if !first.done.Load() || first.err != nil {
			t.Fatalf("first append: %v", first.err)
		}
		rule := fs.Add(faultfs.Rule{Op: faultfs.OpSync, Path: "*.log", Times: 1, Err: cause})
		second := watch(p, k.append(p, records(1, 10), -1), time.Minute)
		synctest.Wait()
		if !second.done.Load() || !errors.Is(second.err, ErrOffline) {
			t.Fatalf("second append: done %v, %v", second.done.Load(), second.err)
		}
		syncs := fs.Calls(faultfs.OpSync)
		for _, p := range []*Partition{p, other} {
			if err := p.CheckProduce(1); !errors.Is(err, ErrOffline) {
				t.Fatalf("%s after the failure: %v", p.TP, err)
			}
			if _, err := p.AppendAsLeader(k.validate(p, records(1, 10)), wire.NoLeaderEpoch, 1); !errors.Is(err, ErrOffline) {
				t.Fatalf("append to %s after the failure: %v", p.TP, err)
			}
		}
		time.Sleep(time.Hour)
		if rule.Hits() != 1 || fs.Calls(faultfs.OpSync) != syncs {
			t.Fatalf("%d syncs after the failure", fs.Calls(faultfs.OpSync)-syncs)
		}
		if len(failed) != 1 || k.m.LogDirs()[0].Err == nil {
			t.Fatalf("failure was reported as %v", failed)
		}
		if err := k.m.Close(t.Context()); !errors.Is(err, ErrOffline) {
			t.Fatalf("close: %v", err)
		}
		if _, ok := readCleanShutdown(fs, "data"); ok {
			t.Fatal("a failed directory was left as clean")
		}
	})
}

// Waiting produces end with their timeout, a new leader epoch, and the deletion of the topic.
func TestAckEndsOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, memfs.New(time.Now))
		k.open()
		k.topic("t", topicID("t"), 1, 1, 2)
		p := k.part("t", 0)
		late := watch(p, k.append(p, records(1, 10), -1), time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if !late.done.Load() || !errors.Is(late.err, kerr.RequestTimedOut) {
			t.Fatalf("after the timeout: %v", late.err)
		}
		fenced := watch(p, k.append(p, records(1, 10), -1), time.Hour)
		k.apply(change("t", 2))
		synctest.Wait()
		if !fenced.done.Load() || !errors.Is(fenced.err, kerr.NotLeaderForPartition) {
			t.Fatalf("after the election: %v", fenced.err)
		}
		k.apply(change("t", 1))
		gone := watch(p, k.append(p, records(1, 10), -1), time.Hour)
		k.apply(remove("t"))
		synctest.Wait()
		if !gone.done.Load() || !errors.Is(gone.err, kerr.UnknownTopicOrPartition) {
			t.Fatalf("after the deletion: %v", gone.err)
		}
		k.close()
	})
}

// A retry that finds the original in the log, but above the high watermark, is acknowledged with the original offset once
// that is below it, and not before (scenario P3).
func TestRetryWaitsForTheHighWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := faultfs.New(memfs.New(time.Now))
		g := newGate(fs)
		k := newKit(t, fs)
		k.open()
		k.topic("t", topicID("t"), 1)
		p := k.part("t", 0)
		first := watch(p, k.append(p, idempotent(7, 0, 5), -1), time.Minute)
		again := k.append(p, idempotent(7, 0, 5), -1)
		if !again.Duplicate || again.First != 0 {
			t.Fatalf("the retry: %+v", again)
		}
		retry := watch(p, again, time.Minute)
		synctest.Wait()
		if first.done.Load() || retry.done.Load() {
			t.Fatal("acknowledged before any sync")
		}
		g.open.Store(true)
		g.pass <- struct{}{}
		synctest.Wait()
		if !first.done.Load() || !retry.done.Load() || first.err != nil || retry.err != nil {
			t.Fatalf("after the sync: first %v %v, retry %v %v", first.done.Load(), first.err, retry.done.Load(), retry.err)
		}
		if o := p.Offsets(); o.LEO != 5 {
			t.Fatalf("end offset %d, want 5", o.LEO)
		}
		k.close()
	})
}

// A follower under fsync=always whose partition is deleted, or its manager closed, between the append and the flush waits
// for no flush that will not come: the fetcher goes on with the other partitions of its leader.
func TestStoppedFollowerWaitsForNoFlush(t *testing.T) {
	for _, tt := range []struct {
		name string
		stop func(k *kit, p *Partition)
	}{
		{"deleted", func(k *kit, _ *Partition) { k.apply(remove("t")) }},
		{"stopped", func(_ *kit, p *Partition) { p.stop(ErrOffline) }},
		{"a new leader", func(k *kit, _ *Partition) { k.apply(change("t", 3)) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKit(t, memfs.New(time.Now))
				k.fsync = FSyncAlways
				k.open()
				k.topic("t", topicID("t"), 1, 2, 1, 3)
				p := k.part("t", 0)
				raw := records(2, 100)
				batch.Batch(raw).SetLeaderEpoch(0)
				if _, err := p.appendAsFollower(0, fetched{records: raw}); err != nil {
					t.Fatal(err)
				}
				if o := p.Offsets(); o.LEO != 2 {
					t.Fatalf("log ends at %d", o.LEO)
				}
				tt.stop(k, p)
				var wg sync.WaitGroup
				p.whenHeld(&wg)
				wg.Wait() // forever would end the bubble in a deadlock
				k.close()
			})
		})
	}
}
