package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// registrar is what a Lifecycle needs of Access.
type registrar interface {
	RegisterBroker(ctx context.Context, reg raftctl.Registration) (wire.BrokerEpoch, error)
	Heartbeat(ctx context.Context, hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error)
}

// LifecycleOptions is what NewLifecycle needs.
type LifecycleOptions struct {
	Access registrar
	NodeID wire.BrokerID
	// Interval is broker.heartbeat.interval.ms.
	Interval time.Duration
	// Timeout bounds one heartbeat; the next is due then.
	Timeout time.Duration
	// Applied is the metadata offset that this broker's image has reached.
	Applied func() wire.Offset
	// Session is broker.session.timeout.ms. There is this node's registration as its own metadata have it, nil for none.
	Session time.Duration
	There   func() *image.Broker
	// NewIncarnation draws an incarnation id, and Again takes the epoch of a registration after the first: see displaced.
	NewIncarnation func() wire.UUID
	Again          func(epoch wire.BrokerEpoch)
	// Offline are the log directories that have failed, Gone the deleted topics of which nothing is left here.
	Offline func() []wire.UUID
	Gone    func() []wire.UUID
	// Unfit says why this broker must not lead although it is ready: it has no disk that works, or one that hangs. Its
	// heartbeats ask to be fenced then, unless it is stopping. It must not wait. nil: it is fit; no function: always.
	Unfit  func() error
	Logger *slog.Logger
}

// Lifecycle is a broker's life under the controller. Safe for concurrent use.
type Lifecycle struct {
	o      LifecycleOptions
	epoch  atomic.Int64 // wire.BrokerEpoch
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wake   chan struct{} // holds one: a heartbeat is due now

	reg       raftctl.Registration // the last; that of run once it has begun
	displaced displaced            // run's

	ready    atomic.Bool // it wants to serve
	stopping atomic.Bool // it wants to stop

	mu      sync.Mutex
	heard   time.Time     // when the controller had been sure to be one, or the heartbeat was sent that it answered, if that was before
	known   wire.Offset   // of the metadata that it was answered from
	looked  time.Time     // when the last heartbeat began
	lone    time.Duration // for how long, up to looked, no controller had been heard of while this process ran
	fenced  bool
	changed chan struct{} // closed when fenced or stop changes
	stop    bool          // the controller lets it stop
	begun   bool
}

// NewLifecycle makes the life of a broker that is not registered yet.
func NewLifecycle(o LifecycleOptions) *Lifecycle {
	l := &Lifecycle{o: o, wake: make(chan struct{}, 1), changed: make(chan struct{}), fenced: true}
	l.epoch.Store(int64(wire.NoBrokerEpoch))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// registerWait is the time between two tries to register while the controller refuses for the time being.
const registerWait = 100 * time.Millisecond

// Register registers the broker as soon as a controller is there, and begins its heartbeats: fenced ones, until Ready. An
// error is final: the controller refuses for good, or ctx has ended.
func (l *Lifecycle) Register(ctx context.Context, reg raftctl.Registration) (wire.BrokerEpoch, error) {
	told := false
	for {
		epoch, err := l.o.Access.RegisterBroker(ctx, reg)
		if err == nil {
			l.epoch.Store(int64(epoch))
			l.reg = reg
			l.mu.Lock()
			l.begun = true
			l.mu.Unlock()
			l.wg.Go(l.run)
			return epoch, nil
		}
		// Another process under this id is alive, or the outcome is unknown.
		if !errors.Is(err, kerr.DuplicateBrokerRegistration) && !errors.Is(err, kerr.RequestTimedOut) || ctx.Err() != nil {
			return wire.NoBrokerEpoch, err
		}
		if !told {
			l.o.Logger.Warn("the controller does not register this broker yet", "err", err)
			told = true
		}
		if !sleep(ctx, registerWait) {
			return wire.NoBrokerEpoch, err
		}
	}
}

// sleep waits; false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Epoch is the broker epoch; NoBrokerEpoch before Register.
func (l *Lifecycle) Epoch() wire.BrokerEpoch { return wire.BrokerEpoch(l.epoch.Load()) }

// Fenced reports what the controller has said last.
func (l *Lifecycle) Fenced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fenced
}

// Unsure reports whether the controller may have replaced this broker as a leader without its knowing: it is fenced, has had no
// answer for a session, or has not applied yet what the controller knew when it answered last.
func (l *Lifecycle) Unsure() bool {
	unsure, _ := l.doubt()
	return unsure
}

// doubt is Unsure, and for how long no controller has been heard of.
func (l *Lifecycle) doubt() (unsure bool, lone time.Duration) {
	applied := l.o.Applied()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return l.lostLocked(now) || applied < l.known, l.loneLocked(now)
}

// lostLocked reports whether this broker may have been replaced whatever it has applied.
func (l *Lifecycle) lostLocked(now time.Time) bool {
	return l.fenced || now.Sub(l.heard) >= l.o.Session
}

// Behind is the metadata offset that this broker has not applied and the controller had when it answered last; false if that is not
// the one thing that makes it Unsure.
func (l *Lifecycle) Behind() (known wire.Offset, behind bool) {
	applied := l.o.Applied()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known, applied < l.known && !l.lostLocked(time.Now())
}

// loneLocked is for how long no controller has been heard of while this process ran. Where it takes longer from one heartbeat to the
// next than it may, the process has been paused: that it heard nobody meanwhile says nothing of controllers.
func (l *Lifecycle) loneLocked(now time.Time) time.Duration {
	return l.lone + min(now.Sub(l.looked), l.o.Interval+l.o.Timeout)
}

// hope is how much longer than a session a broker waits for the word of a controller before it takes it that there is none.
const hope = 10 * time.Second

// Outdated is Unsure, but not where no controller has been heard of for so long that none is to be expected: what rests on it would
// else not work for as long as there is none.
func (l *Lifecycle) Outdated() bool {
	unsure, lone := l.doubt()
	return unsure && lone < l.o.Session+hope
}

// Ready says that the broker can serve, and returns once the controller lets it.
func (l *Lifecycle) Ready(ctx context.Context) error {
	l.ready.Store(true)
	l.Wake()
	return l.await(ctx, "be unfenced", func() bool { return !l.fenced })
}

// ShutDown moves the leaderships away, and returns once the controller lets the broker stop: everybody knows then who
// leads instead.
func (l *Lifecycle) ShutDown(ctx context.Context) error {
	l.stopping.Store(true)
	l.Wake()
	return l.await(ctx, "be let go by the controller", func() bool { return l.stop })
}

func (l *Lifecycle) await(ctx context.Context, what string, reached func() bool) error {
	for {
		l.mu.Lock()
		done, changed := reached(), l.changed
		l.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait to %s: %w", what, ctx.Err())
		case <-l.ctx.Done():
			return fmt.Errorf("wait to %s: %w", what, context.Canceled)
		}
	}
}

// Wake sends the next heartbeat now: there is news. It does not wait.
func (l *Lifecycle) Wake() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Close ends the heartbeats without a word to the controller.
func (l *Lifecycle) Close() {
	l.cancel()
	l.wg.Wait()
}

// run sends heartbeats until Close.
func (l *Lifecycle) run() {
	failing, unfit := 0, false
	for {
		began := time.Now()
		err := l.unfit()
		if err != nil && !unfit {
			l.o.Logger.Error("this broker asks to be fenced: it has no disk that works", "err", err)
		}
		unfit = err != nil
		failing = l.beat(unfit, failing)
		wait := max(l.o.Interval-time.Since(began), 0)
		if l.stopping.Load() {
			wait = min(wait, stopInterval)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.wake:
			timer.Stop()
		case <-l.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// stopInterval is the time between heartbeats of a broker that waits to be let go.
const stopInterval = 10 * time.Millisecond

// unfit is nil for a broker that is stopping: it asks to be let go instead.
func (l *Lifecycle) unfit() error {
	if l.o.Unfit == nil || l.stopping.Load() {
		return nil
	}
	return l.o.Unfit()
}

// beat sends one heartbeat; failing counts those before it that failed.
func (l *Lifecycle) beat(unfit bool, failing int) int {
	ctx, cancel := context.WithTimeout(l.ctx, l.o.Timeout)
	defer cancel()
	hb := raftctl.Heartbeat{
		ID: l.o.NodeID, Epoch: l.Epoch(), Offset: l.o.Applied(), WantFence: !l.ready.Load() || unfit, WantShutDown: l.stopping.Load(),
		OfflineDirs: l.o.Offline(), Gone: l.o.Gone(),
	}
	sent := time.Now()
	l.mu.Lock()
	l.lone, l.looked = l.loneLocked(sent), sent
	l.mu.Unlock()
	reply, err := l.o.Access.Heartbeat(ctx, hb)
	if err != nil {
		if l.ctx.Err() == nil && (failing == 0 || failing%warnEvery == 0) {
			l.o.Logger.Warn("heartbeat failed", "epoch", hb.Epoch, "in_a_row", failing+1, "err", err)
		}
		if errors.Is(err, kerr.StaleBrokerEpoch) || errors.Is(err, kerr.BrokerIDNotRegistered) {
			l.took(raftctl.HeartbeatReply{Fenced: true}) // another process has taken this one's place, or nobody is to
			l.mu.Lock()
			l.lone = 0
			l.mu.Unlock()
		}
		if errors.Is(err, kerr.StaleBrokerEpoch) && !l.stopping.Load() {
			l.comeBack()
		}
		return failing + 1
	}
	l.displaced = displaced{}
	l.mu.Lock()
	l.heard, l.known = sent.Add(-reply.Since), reply.Metadata
	if reply.Since < l.o.Session { // else it may be one no more, and not know it
		l.lone = reply.Since
	}
	l.mu.Unlock()
	l.took(reply)
	return 0
}

// comeBack registers this process again if nobody is behind the registration that has taken its place. The next heartbeats ask
// for what they have asked for before.
func (l *Lifecycle) comeBack() {
	there := l.o.There()
	if !l.displaced.mayReturn(l.reg, l.Epoch(), there, time.Now(), l.o.Session) {
		return
	}
	if there.Incarnation != l.reg.Incarnation { // what it was is replaced for good
		l.reg.Incarnation, l.reg.PreviousEpoch = l.o.NewIncarnation(), wire.NoBrokerEpoch
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.o.Timeout)
	defer cancel()
	epoch, err := l.o.Access.RegisterBroker(ctx, l.reg)
	if err != nil {
		l.o.Logger.Warn("this broker does not get its place back yet", "err", err)
		l.displaced = displaced{} // again after another session
		return
	}
	l.o.Logger.Warn("this broker registers again: the registration that has replaced it is of a process that does not run",
		"epoch", epoch, "other_epoch", there.Epoch)
	l.epoch.Store(int64(epoch))
	l.o.Again(epoch)
	l.Wake()
}

// warnEvery is how many failures in a row one line stands for.
const warnEvery = 100

// took notes what the controller has said.
func (l *Lifecycle) took(reply raftctl.HeartbeatReply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fenced == reply.Fenced && l.stop == reply.ShouldShutDown {
		return
	}
	if l.fenced != reply.Fenced && !l.stopping.Load() {
		if reply.Fenced {
			l.o.Logger.Warn("the controller has fenced this broker")
		} else {
			l.o.Logger.Info("the controller lets this broker serve")
		}
	}
	l.fenced, l.stop = reply.Fenced, reply.ShouldShutDown
	close(l.changed)
	l.changed = make(chan struct{})
}
