package raftctl

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/wire"
)

// beaten is when each peer's heartbeats have left, counted from the first.
func beaten(u *pulse, term uint64, waits map[raft.ServerID][]time.Duration, fails map[raft.ServerID]bool) map[raft.ServerID][]time.Duration {
	began := time.Now()
	left := map[raft.ServerID][]time.Duration{}
	type beat struct {
		id raft.ServerID
		at time.Duration
	}
	beats := make(chan beat)
	for id, of := range waits {
		go func() {
			for _, wait := range of {
				<-time.After(wait)
				u.begin(id, term)
				beats <- beat{id, time.Since(began)}
				u.end(id, term, !fails[id])
			}
			beats <- beat{id, -1}
		}()
	}
	for open := len(waits); open > 0; {
		b := <-beats
		if b.at < 0 {
			open--
			continue
		}
		left[b.id] = append(left[b.id], b.at)
	}
	return left
}

// Heartbeats leave with the last of those that raft wants within beatMost, never later than that, and wait for no peer that is not
// about to be told: one whose heartbeat is under way, has failed, or belongs to another term.
func TestHeartbeatsLeaveTogether(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		waits, left map[raft.ServerID][]time.Duration
		fails       map[raft.ServerID]bool
	}{
		"two": {
			waits: map[raft.ServerID][]time.Duration{"a": {0, 80 * ms, 140 * ms}, "b": {0, 120 * ms, 90 * ms}},
			left:  map[raft.ServerID][]time.Duration{"a": {0, 120 * ms, 260 * ms}, "b": {0, 120 * ms, 260 * ms}},
		},
		"four": {
			waits: map[raft.ServerID][]time.Duration{"a": {0, 80 * ms}, "b": {0, 120 * ms}, "c": {0, 150 * ms}, "d": {0, 75 * ms}},
			left:  map[raft.ServerID][]time.Duration{"a": {0, 150 * ms}, "b": {0, 150 * ms}, "c": {0, 150 * ms}, "d": {0, 150 * ms}},
		},
		"alone": {
			waits: map[raft.ServerID][]time.Duration{"a": {0, 80 * ms, 90 * ms}},
			left:  map[raft.ServerID][]time.Duration{"a": {0, 80 * ms, 170 * ms}},
		},
		"one that answers later is waited for no longer than raft might have waited": {
			waits: map[raft.ServerID][]time.Duration{"a": {0, 100 * ms}, "b": {90 * ms, 140 * ms}},
			left:  map[raft.ServerID][]time.Duration{"a": {0, beatMost}, "b": {90 * ms, 90*ms + beatMost}},
		},
		"one that fails": {
			waits: map[raft.ServerID][]time.Duration{"a": {0, 80 * ms, 80 * ms}, "b": {0, 120 * ms, 120 * ms}},
			left:  map[raft.ServerID][]time.Duration{"a": {0, 80 * ms, 160 * ms}, "b": {0, 120 * ms, 240 * ms}},
			fails: map[raft.ServerID]bool{"b": true},
		},
		"one whose sender is gone": {
			waits: map[raft.ServerID][]time.Duration{"a": {0, 80 * ms, 80 * ms, 80 * ms}, "b": {0}},
			left:  map[raft.ServerID][]time.Duration{"a": {0, beatMost, beatMost + 80*ms, beatMost + 160*ms}, "b": {0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := beaten(&pulse{}, 1, c.waits, c.fails)
				for id, want := range c.left {
					if !slices.Equal(left[id], want) {
						t.Errorf("to %s they left at %v, want %v", id, left[id], want)
					}
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		u := &pulse{}
		beaten(u, 1, map[raft.ServerID][]time.Duration{"a": {0}, "b": {0}}, nil)
		for _, got := range beaten(u, 2, map[raft.ServerID][]time.Duration{"a": {80 * ms}}, nil) {
			if !slices.Equal(got, []time.Duration{80 * ms}) {
				t.Errorf("the first of another term left at %v", got)
			}
		}
	})
}

// A peer is back with the first heartbeat that it answers in a leadership, and with the first after one that failed.
func TestPeerThatIsBack(t *testing.T) {
	u := &pulse{}
	for i, beat := range []struct {
		term         uint64
		answered, is bool
	}{{1, false, false}, {1, true, true}, {1, true, false}, {1, false, false}, {1, false, false}, {1, true, true}, {2, true, true}, {2, true, false}} {
		u.begin("a", beat.term)
		if u.end("a", beat.term-1, true) {
			t.Errorf("%d: back in a term that is over", i)
		}
		if back := u.end("a", beat.term, beat.answered); back != beat.is {
			t.Errorf("%d: back is %v", i, back)
		}
	}
}

// watching is a controller with one session, whose decide loop is the caller.
func watching() (*Controller, *watch, *session) {
	s := &session{progress: progress{heard: time.Now()}}
	c := &Controller{sessions: &liveness{timeout: time.Hour, sessions: map[wire.BrokerID]*session{1: s}}, inject: &injector{}}
	c.inject.pulse.watch()
	return c, &watch{timer: time.NewTimer(time.Hour), unwatch: c.inject.pulse.unwatch}, s
}

// pause is time in which no timer of the pulse runs.
func (u *pulse) pause(d time.Duration) {
	u.mu.Lock()
	u.watchdog.Stop()
	u.mu.Unlock()
	<-time.After(d)
}

// A pause of this process lengthens every session by what it is longer than beatMost, once, whoever sees it first, however many peers
// there are, none included, and whatever is under way; time in which this process runs does not, nor what was before it led.
func TestPauseLengthensSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w, s := watching()
		defer w.stop()
		u, term := &c.inject.pulse, uint64(1)
		began, given := s.heard, time.Duration(0)
		<-time.After(time.Minute) // so that what is given is not cut off at the present
		beat := func(ids ...raft.ServerID) {
			for _, id := range ids {
				u.begin(id, term)
				u.end(id, term, true)
			}
		}
		check := func(what string, more time.Duration) {
			t.Helper()
			var got time.Duration // before it is decided who is fenced
			c.work(w, func() { got = s.heard.Sub(began) })
			if given += more; got != given || s.heard.Sub(began) != given {
				t.Errorf("%s: %v given, and %v, want %v", what, got, s.heard.Sub(began), given)
				given = s.heard.Sub(began)
			}
		}
		check("a minute without peers", 0)
		u.pause(beatMost)
		check("short", 0)
		u.pause(beatMost + 30*time.Millisecond)
		check("without peers", 30*time.Millisecond)
		beat("a", "b")
		u.pause(beatMost + 40*time.Millisecond)
		check("seen by the loop", 40*time.Millisecond)
		beat("a", "b")
		check("seen by the loop first", 0)
		u.pause(beatMost + time.Second)
		beat("a", "b")
		check("seen by the heartbeats", time.Second)
		u.begin("a", term)
		u.begin("b", term)
		<-time.After(time.Second)
		check("under way", 0)
		u.pause(beatMost + 5*time.Millisecond)
		u.end("a", term, true)
		u.end("b", term, false)
		check("under way, and a pause", 5*time.Millisecond)
		for range 100 { // the others are no members any more
			beat("a")
			<-time.After(100 * time.Millisecond)
			check("a peer that is gone", 0)
		}
		term = 3
		beat("a")
		u.begin("b", 1)
		if u.end("b", 1, true) {
			t.Error("a peer is back in a leadership that is over")
		}
		u.pause(beatMost + time.Second)
		check("after a heartbeat of an earlier term", time.Second)
		w.stop()
		<-time.After(time.Minute) // another leads
		u.watch()
		term = 9
		check("another leadership", 0)
		beat("a", "b")
		check("another leadership", 0)
	})
}

// A loop that was busy with one thing for long has heard nobody meanwhile, which counts once where the process was paused as well.
func TestBusyLoopLengthensSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, busy := range []struct {
			paused      bool
			took, given time.Duration
		}{{false, breath, 0}, {false, breath + 40*time.Millisecond, 40 * time.Millisecond}, {true, time.Second, time.Second - breath}} {
			c, w, s := watching()
			began := s.heard
			c.work(w, func() {
				if busy.paused {
					c.inject.pulse.pause(busy.took)
				} else {
					<-time.After(busy.took)
				}
			})
			w.stop()
			if given := s.heard.Sub(began); given != busy.given {
				t.Errorf("busy for %v: %v given, want %v", busy.took, given, busy.given)
			}
		}
	})
}

// pausing is a logger that pauses its process at the first line.
type pausing struct {
	slog.Handler
	pause func()
	lines *int
}

func (p pausing) Enabled(context.Context, slog.Level) bool { return true }

func (p pausing) Handle(context.Context, slog.Record) error {
	if *p.lines++; *p.lines == 1 {
		p.pause()
	}
	return nil
}

// A pause right after a silent broker was fenced is no silence of those that were heard just before it.
func TestPauseAfterABrokerWasFenced(t *testing.T) {
	o := testOptions(memFS(), nil)
	o.SessionTimeout = 300 * time.Millisecond
	r := openTest(t, o)
	for id := wire.BrokerID(1); id <= 3; id++ {
		reg := registration(byte(id), wire.NoBrokerEpoch)
		reg.ID, reg.LogDirs = id, []wire.UUID{{0: 1, 15: 200 + byte(id)}}
		epoch, err := r.RegisterBroker(t.Context(), reg)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.UnfenceBroker(t.Context(), id, epoch); err != nil {
			t.Fatal(err)
		}
	}
	c := &Controller{raft: r.raft, decider: r.decider, metrics: r.metrics, inject: &injector{}, fsm: r.fsm, pending: make(chan *pending, 10), ops: make(chan *op), ctx: t.Context()}
	lines := 0
	o.Logger = slog.New(pausing{slog.DiscardHandler, func() { c.inject.pulse.pause(beatMost + 2*o.SessionTimeout) }, &lines})
	c.opts = o
	c.published.Store(r.published.Load())
	st := &stint{epoch: 77, spec: r.committed(), settle: make(chan struct{}, 10), over: make(chan struct{})}
	now := time.Now()
	c.sessions = newLiveness(r.committed(), o.SessionTimeout, now)
	c.sessions.sessions[2].heard = now.Add(-2 * o.SessionTimeout)
	c.inject.pulse.watch()
	w := &watch{timer: time.NewTimer(time.Hour), unwatch: c.inject.pulse.unwatch}
	defer w.stop()
	c.expire(st, w)
	for id, fenced := range map[wire.BrokerID]bool{1: false, 2: true, 3: false} {
		if b, _ := st.spec.Broker(id); b.Fenced != fenced {
			t.Errorf("broker %d: fenced is %v", id, b.Fenced)
		}
	}
	if lines != 1 {
		t.Errorf("%d lines", lines)
	}
}
