package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// journey moves t-0, which holds records, from one to two, with more records coming, and gives the number of batches that
// were acknowledged, at any time.
type journey struct {
	*moveKit
	mem    *memfs.FS
	faults *faultfs.FS

	mu    sync.Mutex
	acked wire.Offset
}

// newJourney begins one with segments of about so many bytes.
func newJourney(t *testing.T, segment int64) *journey {
	mem := memfs.New(time.Now)
	j := &journey{mem: mem, faults: faultfs.New(mem)}
	j.moveKit = newMoveKit(t, j.faults, "one", "two")
	j.config["t"].SegmentBytes = segment
	j.start(0)
	for range 12 {
		j.put()
	}
	return j
}

// put appends one record; an answer other than success is none.
func (j *journey) put() {
	p := j.part("t", 0)
	a, err := p.AppendAsLeader(j.validate(p, records(1, 500)), wire.NoLeaderEpoch, -1)
	if err != nil {
		return
	}
	w := watch(p, a, time.Second)
	time.Sleep(2 * time.Second)
	if w.done.Load() && w.err == nil {
		j.mu.Lock()
		j.acked = max(j.acked, a.End)
		j.mu.Unlock()
	}
}

func (j *journey) ackedNow() wire.Offset {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acked
}

// travel goes the whole way, as far as it can.
func (j *journey) travel() {
	if err := j.m.MoveReplica("t", 0, "two"); err != nil {
		return
	}
	synctest.Wait()
	j.put()
	j.put()
	for range 10 {
		synctest.Wait()
		if !j.obey() {
			time.Sleep(moveBackoffMax)
			synctest.Wait()
			if !j.obey() {
				break
			}
		}
	}
	j.put()
}

// sound checks a node after its restart on what was left: nothing that was acknowledged is missing, it takes records, and the
// move, asked for again, comes to its end; after one more restart all is there.
func (k *moveKit) sound(t *testing.T, where string, acked wire.Offset) {
	t.Helper()
	p := k.part("t", 0)
	if err := p.Err(); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	if end := p.Offsets().LEO; end < acked {
		t.Fatalf("%s: the log in %s ends at %d, %d were acknowledged", where, p.dir().path, end, acked)
	}
	for i, b := range held(t, p) {
		if want := fmt.Sprintf("%d/", i); b[:len(want)] != want {
			t.Fatalf("%s: batch %d is %s", where, i, b)
		}
	}
	k.committed(p, records(1, 500))
	want := held(t, p)
	if len(want) <= int(acked) {
		t.Fatalf("%s: %d batches, %d were acknowledged", where, len(want), acked)
	}
	k.move("two")
	k.settle()
	k.lies("two")
	sameHeld(t, where+", moved", held(t, p), want)
	if got := append(named(t, k.fs, "one"), named(t, k.fs, "two")...); !slices.Equal(got, []string{"t-0"}) {
		t.Fatalf("%s: directories %v", where, got)
	}
	k.close()
	k = k.restart(k.fs)
	sameHeld(t, where+", once more", held(t, k.part("t", 0)), want)
	k.close()
}

// A crash at any file call of a move loses nothing that was acknowledged, whatever the crash leaves of what was not synced;
// there is one replica afterwards, and its move can be finished.
func TestMoveCrash(t *testing.T) {
	for _, fate := range []memfs.Fate{memfs.Lose, memfs.Keep, memfs.Coin} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			t.Parallel()
			for n, calls := 1, 0; ; n++ {
				synctest.Test(t, func(t *testing.T) {
					j := newJourney(t, 4000)
					var mu sync.Mutex
					var left *memfs.FS
					acked, img, pos := wire.Offset(0), j.img, j.pos
					calls = 0
					where := ""
					j.faults.Before(func(op faultfs.Op, name string) {
						mu.Lock()
						defer mu.Unlock()
						if calls++; calls == n {
							left, acked, where = j.mem.Crash(fate, uint64(n)), j.ackedNow(), fmt.Sprintf("before call %d, %s of %s", n, op, name)
							img, pos = j.m.img.Load(), j.pos
						}
					})
					j.travel()
					j.faults.Before(nil)
					_ = j.m.Close(t.Context())
					mu.Lock()
					defer mu.Unlock()
					if left == nil {
						return
					}
					j.img, j.pos = img, pos
					k := j.restart(left)
					k.sound(t, where, acked)
				})
				if t.Failed() {
					return
				}
				if n > calls {
					if calls < 60 {
						t.Errorf("only %d calls", calls)
					}
					t.Logf("%d calls", calls)
					return
				}
			}
		})
	}
}

// A file call of a move fails, whichever it is, once or from there on: what was acknowledged is there, now or after a
// restart on a disk that works again.
func TestMoveWhenAnyCallFails(t *testing.T) {
	for _, tt := range []struct {
		cause error
		times int
	}{{syscall.EIO, 1}, {syscall.EIO, 0}, {syscall.ENOSPC, 1}, {syscall.ENOSPC, 20}, {syscall.EMFILE, 1}} {
		t.Run(fmt.Sprintf("%v/%d", tt.cause, tt.times), func(t *testing.T) {
			t.Parallel()
			offline := 0
			for n, hits := 1, 1; hits > 0; n++ {
				synctest.Test(t, func(t *testing.T) {
					j := newJourney(t, 4000)
					rule := j.faults.Add(faultfs.Rule{Nth: n, Times: tt.times, Err: tt.cause})
					j.travel()
					j.faults.Clear()
					synctest.Wait() // a call that has failed may be about to take its directory offline
					hits = rule.Hits()
					where := fmt.Sprintf("call %d (%s)", n, rule.Last())
					failed := len(j.m.OfflineDirs()) > 0
					if failed {
						offline++
					} else {
						j.settle()
						j.put()
						failed = j.part("t", 0).plog().Err() != nil // its own log takes no writes until the next start
						if err := j.part("t", 0).Err(); err != nil {
							t.Errorf("%s: both directories work, and yet: %v", where, err)
						}
					}
					acked, img, pos := j.ackedNow(), j.img, j.pos
					if !failed && int(acked) < 13 {
						t.Errorf("%s: only %d were acknowledged", where, acked)
					}
					if err := j.m.Close(t.Context()); err != nil && !failed {
						t.Errorf("%s: close: %v", where, err)
					}
					j.img, j.pos = img, pos
					for _, fate := range []memfs.Fate{memfs.Keep, memfs.Lose} {
						k := j.restart(j.mem.Crash(fate, uint64(n)))
						k.sound(t, where, acked)
					}
				})
				if t.Failed() {
					return
				}
			}
			if errors.Is(tt.cause, syscall.EIO) && offline == 0 {
				t.Error("no failure took a directory offline")
			}
		})
	}
}

// From some moment on names cannot be made durable, for want of descriptors, which is no fault of the disk's: whatever is
// acknowledged from then on is there after a crash, also one before descriptors are back.
func TestMoveWhenNamesStayUncertain(t *testing.T) {
	for n, hits := 1, 1; hits > 0; n++ {
		synctest.Test(t, func(t *testing.T) {
			j := newJourney(t, 1<<20) // a new segment would need a durable name
			rule := j.faults.Add(faultfs.Rule{Op: faultfs.OpSyncDir, Nth: n, Err: syscall.EMFILE})
			j.travel()
			for range 5 {
				j.put()
			}
			acked, img, pos := j.ackedNow(), j.img, j.pos
			left := map[string]*memfs.FS{"keep": j.mem.Crash(memfs.Keep, 1), "lose": j.mem.Crash(memfs.Lose, 1)}
			for seed := range uint64(8) {
				left[fmt.Sprint("coin ", seed)] = j.mem.Crash(memfs.Coin, seed)
			}
			j.faults.Clear()
			hits = rule.Hits()
			_ = j.m.Close(t.Context())
			left["stopped"] = j.mem.Crash(memfs.Keep, 1)
			j.img, j.pos = img, pos
			for how, fs := range left {
				j.restart(fs).sound(t, fmt.Sprintf("sync of a directory %d, %s", n, how), acked)
			}
		})
		if t.Failed() {
			return
		}
	}
}
