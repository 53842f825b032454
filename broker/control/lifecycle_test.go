package control

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// desk is a controller that answers as the test says, and keeps what it was told.
type desk struct {
	mu     sync.Mutex
	beats  []raftctl.Heartbeat
	at     []time.Duration
	began  time.Time
	answer func(hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error)
	refuse []error // of registrations, in turn
	regs   []raftctl.Registration
}

func (d *desk) RegisterBroker(_ context.Context, reg raftctl.Registration) (wire.BrokerEpoch, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.regs = append(d.regs, reg)
	if len(d.refuse) > 0 {
		err := d.refuse[0]
		d.refuse = d.refuse[1:]
		return wire.NoBrokerEpoch, err
	}
	return wire.BrokerEpoch(6 + len(d.regs)), nil
}

func (d *desk) Heartbeat(_ context.Context, hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beats, d.at = append(d.beats, hb), append(d.at, time.Since(d.began))
	return d.answer(hb)
}

func (d *desk) heard() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.beats)
}

func life(d *desk, log *bytes.Buffer) *Lifecycle {
	d.began = time.Now()
	return NewLifecycle(LifecycleOptions{
		Access: d, NodeID: 3, Interval: time.Second, Timeout: time.Second, Applied: func() wire.Offset { return 42 },
		Session: 3 * time.Second, There: func() *image.Broker { return nil },
		Offline: func() []wire.UUID { return nil }, Gone: func() []wire.UUID { return nil },
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
}

// A whole life: registered, fenced while it is not ready, unfenced, let go when it wants to stop.
func TestLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: func(hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error) {
			return raftctl.HeartbeatReply{CaughtUp: true, Fenced: hb.WantFence || hb.WantShutDown, ShouldShutDown: hb.WantShutDown}, nil
		}}
		var log bytes.Buffer
		l := life(d, &log)
		defer l.Close()
		epoch, err := l.Register(t.Context(), raftctl.Registration{ID: 3})
		if err != nil || epoch != 7 || l.Epoch() != 7 {
			t.Fatalf("epoch %d, %v", epoch, err)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if got := len(d.beats); got != 2 || !d.beats[1].WantFence || d.beats[1].Epoch != 7 || d.beats[1].Offset != 42 || !l.Fenced() {
			t.Fatalf("%d heartbeats, last %+v, fenced %v", got, d.beats[got-1], l.Fenced())
		}
		if err := l.Ready(t.Context()); err != nil || l.Fenced() {
			t.Fatalf("%v, fenced %v", err, l.Fenced())
		}
		if at := d.at[2]; at != 1500*time.Millisecond {
			t.Errorf("being ready was told at %v, want at once", at)
		}
		if err := l.ShutDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if last := d.beats[len(d.beats)-1]; !last.WantShutDown {
			t.Errorf("the last heartbeat is %+v", last)
		}
	})
}

// A registration that is refused for the time being is tried again; one that is refused for good is not.
func TestRegistrationRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{refuse: []error{&raftctl.Error{Code: kerr.DuplicateBrokerRegistration}, &raftctl.Error{Code: kerr.RequestTimedOut}},
			answer: func(raftctl.Heartbeat) (raftctl.HeartbeatReply, error) { return raftctl.HeartbeatReply{}, nil }}
		var log bytes.Buffer
		l := life(d, &log)
		defer l.Close()
		if _, err := l.Register(t.Context(), raftctl.Registration{}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(d.began); took != 2*registerWait {
			t.Errorf("registered after %v, want %v", took, 2*registerWait)
		}
		bad := &desk{refuse: []error{&raftctl.Error{Code: kerr.InvalidRegistration}}}
		l2 := life(bad, &log)
		defer l2.Close()
		if _, err := l2.Register(t.Context(), raftctl.Registration{}); !errors.Is(err, kerr.InvalidRegistration) {
			t.Errorf("%v, want the refusal", err)
		}
	})
}

// A broker without a disk that works asks to be fenced; when it stops it says so, and is let go at once.
func TestUnfitBrokerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &desk{answer: func(hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error) {
			return raftctl.HeartbeatReply{Fenced: true, ShouldShutDown: hb.WantShutDown}, nil
		}}
		var log bytes.Buffer
		l := life(d, &log)
		l.o.Unfit = func() error { return errors.New("the disk is broken") }
		l.ready.Store(true)
		defer l.Close()
		if _, err := l.Register(t.Context(), raftctl.Registration{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10500 * time.Millisecond)
		synctest.Wait()
		if n := d.heard(); n != 11 || !d.beats[n-1].WantFence || d.beats[n-1].WantShutDown {
			t.Fatalf("%d heartbeats, the last %+v", n, d.beats[n-1])
		}
		if err := l.ShutDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(d.began) - 10500*time.Millisecond; took != 0 {
			t.Errorf("the stop took %v, want none", took)
		}
		if last := d.beats[d.heard()-1]; last.WantFence || !last.WantShutDown {
			t.Errorf("the last heartbeat is %+v", last)
		}
	})
}

// A broker whose disk hangs asks to be fenced until it works again; one that was replaced by another process knows that it is
// fenced; what fails again and again is not logged each time.
func TestHeartbeatsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail error
		d := &desk{answer: func(raftctl.Heartbeat) (raftctl.HeartbeatReply, error) { return raftctl.HeartbeatReply{}, fail }}
		var log bytes.Buffer
		l := life(d, &log)
		var mu sync.Mutex
		var unfit error
		l.o.Unfit = func() error { mu.Lock(); defer mu.Unlock(); return unfit }
		defer l.Close()
		if _, err := l.Register(t.Context(), raftctl.Registration{}); err != nil {
			t.Fatal(err)
		}
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // a heartbeat that has found the disk well may be under way
		mu.Lock()
		unfit = errors.New("the disk hangs")
		mu.Unlock()
		l.Wake()
		synctest.Wait()
		before := d.heard()
		time.Sleep(10500 * time.Millisecond)
		synctest.Wait()
		for _, hb := range d.beats[before:] {
			if !hb.WantFence {
				t.Errorf("a heartbeat while the disk hung does not ask to be fenced: %+v", hb)
			}
		}
		if got := d.heard(); got != before+10 {
			t.Errorf("%d heartbeats while the disk hung", got-before)
		}
		mu.Lock()
		unfit = nil
		mu.Unlock()
		l.Wake()
		synctest.Wait()
		if last := d.beats[d.heard()-1]; last.WantFence {
			t.Errorf("the disk works again, and the heartbeat is %+v", last)
		}
		d.mu.Lock()
		fail = &raftctl.Error{Code: kerr.StaleBrokerEpoch}
		d.mu.Unlock()
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if !l.Fenced() {
			t.Error("it does not know that another process has taken its place")
		}
		if n := strings.Count(log.String(), "heartbeat failed"); n != 1 {
			t.Errorf("%d lines about failed heartbeats, want 1", n)
		}
		if n := strings.Count(log.String(), "no disk that works"); n != 1 {
			t.Errorf("%d lines about the disk, want 1", n)
		}
	})
}

// A broker is sure that it leads where it did while the controller answers it: not before it is let serve, not while it has not
// applied what the controller knew, and not once it has heard nothing for as long as the controller waits before it replaces it,
// counted from when it asked.
func TestUnsure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known, slow, silent := wire.Offset(42), time.Duration(0), false
		var since time.Duration
		d := &desk{}
		d.answer = func(hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error) {
			if silent {
				return raftctl.HeartbeatReply{}, kerr.RequestTimedOut
			}
			reply, pause := raftctl.HeartbeatReply{CaughtUp: true, Fenced: hb.WantFence, Metadata: known, Since: since}, slow
			d.mu.Unlock() // nobody else waits for it while time passes
			time.Sleep(pause)
			d.mu.Lock()
			return reply, nil
		}
		var log bytes.Buffer
		l := life(d, &log)
		defer l.Close()
		set := func(k wire.Offset, pause time.Duration, quiet bool) {
			d.mu.Lock()
			defer d.mu.Unlock()
			known, slow, silent = k, pause, quiet
		}
		look := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got := l.Unsure(); got != want {
				t.Errorf("%s: unsure %v", when, got)
			}
			if got := l.Outdated(); got != want {
				t.Errorf("%s: outdated %v", when, got)
			}
		}
		if !l.Unsure() {
			t.Error("not registered, and sure")
		}
		if _, err := l.Register(t.Context(), raftctl.Registration{ID: 3}); err != nil {
			t.Fatal(err)
		}
		look("fenced", true)
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		look("let serve", false)
		behind := func(when string, want bool) {
			t.Helper()
			if lacks, got := l.Behind(); got != want || got && lacks != 43 {
				t.Errorf("%s: behind %v, of %d", when, got, lacks)
			}
		}
		behind("let serve", false)
		set(43, 0, false) // and 42 are applied
		time.Sleep(1100 * time.Millisecond)
		look("behind the controller", true)
		behind("behind the controller", true)
		set(43, 0, true)
		time.Sleep(3 * time.Second)
		look("behind, and a session after it has asked", true)
		behind("behind, and a session after it has asked", false)
		set(42, 500*time.Millisecond, false)
		time.Sleep(2 * time.Second)
		look("again", false)
		asked := d.last()
		set(42, 0, true)
		time.Sleep(time.Until(asked.Add(3*time.Second - time.Millisecond)))
		look("a moment less than a session after it has asked", false)
		time.Sleep(time.Millisecond)
		look("a session after it has asked", true)
		set(42, 0, false)
		time.Sleep(2 * time.Second)
		look("answered again", false)
		d.mu.Lock()
		since = 3 * time.Second
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		look("a session after the controller was sure to be one", true)
		d.mu.Lock()
		since = time.Second
		d.mu.Unlock()
		time.Sleep(2 * time.Second)
		look("a controller that was sure a second ago", false)
		set(42, 0, true)
		d.mu.Lock()
		since = 0
		d.mu.Unlock()
		last := d.last().Add(-time.Second)
		time.Sleep(time.Until(last.Add(13*time.Second - time.Millisecond)))
		look("no controller for nearly a session and ten seconds", true)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if !l.Unsure() || l.Outdated() {
			t.Errorf("no controller for a session and ten seconds: unsure %v, outdated %v", l.Unsure(), l.Outdated())
		}
	})
}

// That nobody was heard of is no sign that there is no controller while this process did not run, nor is the answer that this broker's
// place is taken: it has been replaced for all that it knows.
func TestOutdatedAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := func() (raftctl.HeartbeatReply, error) { return raftctl.HeartbeatReply{CaughtUp: true}, nil }
		// The process stands still for a minute: whatever was under way ends then, whenever it was to end.
		stopped := func(reply raftctl.HeartbeatReply, err error) func() (raftctl.HeartbeatReply, error) {
			return func() (raftctl.HeartbeatReply, error) { time.Sleep(time.Minute); return reply, err }
		}
		say := good
		d := &desk{}
		d.answer = func(raftctl.Heartbeat) (raftctl.HeartbeatReply, error) {
			say := say
			d.mu.Unlock()
			defer d.mu.Lock()
			return say()
		}
		var log bytes.Buffer
		l := life(d, &log)
		defer l.Close()
		set := func(next func() (raftctl.HeartbeatReply, error)) {
			d.mu.Lock()
			defer d.mu.Unlock()
			say = next
		}
		look := func(when string, outdated bool) {
			t.Helper()
			synctest.Wait()
			if unsure, got := l.Unsure(), l.Outdated(); unsure != outdated || got != outdated {
				t.Errorf("%s: unsure %v, outdated %v, want %v", when, unsure, got, outdated)
			}
		}
		if _, err := l.Register(t.Context(), raftctl.Registration{ID: 3}); err != nil {
			t.Fatal(err)
		}
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		silent := func() (raftctl.HeartbeatReply, error) { return raftctl.HeartbeatReply{}, kerr.RequestTimedOut }
		for what, pause := range map[string]func() (raftctl.HeartbeatReply, error){
			"its heartbeat failed":                     stopped(raftctl.HeartbeatReply{}, kerr.RequestTimedOut),
			"its heartbeat was answered":               stopped(raftctl.HeartbeatReply{CaughtUp: true}, nil),
			"the controller within it had stood still": stopped(raftctl.HeartbeatReply{CaughtUp: true, Since: time.Minute}, nil),
		} {
			set(good)
			time.Sleep(2 * time.Second)
			look("while it is answered", false)
			set(pause)
			time.Sleep(500 * time.Millisecond) // one answer may be good yet
			time.Sleep(59 * time.Second)
			look("while it stood still and "+what, true)
			set(silent)
			time.Sleep(2 * time.Second)
			look("it runs again, and "+what, true)
		}
		set(func() (raftctl.HeartbeatReply, error) {
			return raftctl.HeartbeatReply{}, &raftctl.Error{Code: kerr.StaleBrokerEpoch}
		})
		time.Sleep(time.Hour)
		look("another process has had its place for an hour", true)
		set(silent)
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if !l.Unsure() || l.Outdated() {
			t.Errorf("no controller for a while: unsure %v, outdated %v", l.Unsure(), l.Outdated())
		}
	})
}

// last is when the last heartbeat came.
func (d *desk) last() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.began.Add(d.at[len(d.at)-1])
}
