package control

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kajamq/kaja/broker/peerclient"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Controller is this node's part in the metadata; raftctl.Controller is one.
type Controller interface {
	Leading() bool
	// Leader is the node that leads the metadata log, as far as this one knows.
	Leader() (peer.ID, bool)
	// LeaderContext ends when another node leads than the one that Leader gives now.
	LeaderContext() context.Context

	RegisterBroker(ctx context.Context, reg raftctl.Registration) (wire.BrokerEpoch, error)
	Heartbeat(ctx context.Context, hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error)
	AlterPartitions(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, changes []raftctl.ISRChange) ([]raftctl.ISRResult, error)
	AssignDirs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, assignments []raftctl.DirAssignment) ([]*raftctl.Error, error)
	AllocateProducerIDs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch) (raftctl.ProducerIDs, error)
	CreateTopics(ctx context.Context, topics []raftctl.NewTopic, validateOnly bool) ([]raftctl.CreatedTopic, error)
	AlterConfigs(ctx context.Context, requests []raftctl.AlterConfigs, validateOnly bool) ([]*raftctl.Error, error)
}

// Caller sends a request to a node and waits for the answer; peerclient's Client and Lane are.
type Caller interface {
	Do(ctx context.Context, node wire.BrokerID, req kmsg.Request) (kmsg.Response, error)
}

// Lanes are connections of their own, so that none waits for what another carries.
type Lanes struct {
	Beats Caller // heartbeats and registrations
	ISR   Caller // AlterPartition
	Asked Caller // what clients have asked for, which may take long
	Other Caller // the rest
}

// Options is what New needs.
type Options struct {
	Local     Controller
	NodeID    wire.BrokerID
	ClusterID string
	// Lanes lead to other nodes; nil: there are none, and this node always leads.
	Lanes *Lanes
	// Await returns once this node's image has reached offset.
	Await  func(ctx context.Context, offset wire.Offset) error
	Usable func() int // brokers that a replica can be placed on
	Logger *slog.Logger
}

// Access is the way to the active controller. Safe for concurrent use. Errors of its methods are *raftctl.Error.
type Access struct{ o Options }

// New makes an Access.
func New(o Options) *Access { return &Access{o} }

// Waits between two tries to find the active controller, and how long an answer of one that leads no more is waited for.
const (
	firstWait = 5 * time.Millisecond
	lastWait  = 100 * time.Millisecond
	lateWait  = 500 * time.Millisecond
)

// Alone reports whether there are no other nodes: this one always leads.
func (a *Access) Alone() bool { return a.o.Lanes == nil }

// Leading reports whether the active controller is in this process.
func (a *Access) Leading() bool { return a.o.Lanes == nil || a.o.Local.Leading() }

var errNotFound = &raftctl.Error{Code: kerr.NotController, Message: "No node is known to be the active controller."}

// unknown is what call does where nobody knows what became of a request.
type unknown int

const (
	// askAgain: it changes nothing to carry the request out twice.
	askAgain unknown = iota
	// tellNow: the caller has to know, since a copy of the request may be read long after its repetition was answered.
	tellNow
	// tellLate is tellNow, and a leader that leads no more is given a moment to answer first.
	tellLate
)

// call asks the active controller until it is answered or ctx ends.
func (a *Access) call(ctx context.Context, on unknown, local func(ctx context.Context) error, remote func(ctx context.Context, to wire.BrokerID) error) error {
	if a.o.Lanes == nil {
		return local(ctx)
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		sent, err := a.once(ctx, on, local, remote)
		switch {
		case err == nil:
			return nil
		case sent && on != askAgain:
			return &raftctl.Error{Code: kerr.RequestTimedOut, Message: "The active controller has not answered; the request may have been carried out."}
		case !retriable(err):
			return err
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return &raftctl.Error{Code: kerr.RequestTimedOut, Message: "The active controller could not be reached."}
		}
	}
}

// once asks the node that is thought to lead. sent: nobody knows what became of the request.
func (a *Access) once(ctx context.Context, on unknown, local func(ctx context.Context) error, remote func(ctx context.Context, to wire.BrokerID) error) (sent bool, err error) {
	if a.o.Local.Leading() {
		return false, local(ctx)
	}
	changed := a.o.Local.LeaderContext()
	leader, ok := a.o.Local.Leader()
	switch {
	case !ok:
		return false, errNotFound
	case leader.NodeID == a.o.NodeID: // it is about to claim the role, or has lost it
		return false, local(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(changed, func() {
		if on != tellLate {
			cancel()
			return
		}
		// The old leader may have carried the request out, and its answer may be on the way.
		timer := time.AfterFunc(lateWait, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	})
	defer stop()
	err = remote(ctx, leader.NodeID)
	var e *peerclient.Error
	return errors.As(err, &e) && e.Sent, err
}

// retriable: the request has had no effect, or may be repeated.
func retriable(err error) bool {
	var e *peerclient.Error
	return errors.As(err, &e) || errors.Is(err, kerr.NotController)
}

// coded is the error of a code in an answer; nil for 0.
func coded(code int16, message *string) error {
	if e := refused(code, message); e != nil {
		return e
	}
	return nil
}

// refused is coded for results in which nil is success.
func refused(code int16, message *string) *raftctl.Error {
	if code == 0 {
		return nil
	}
	e := &raftctl.Error{Code: kerr.TypedErrorForCode(code)}
	if e.Code == nil {
		e.Code = kerr.UnknownServerError
	}
	if message != nil {
		e.Message = *message
	}
	return e
}
