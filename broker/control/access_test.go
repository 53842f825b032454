package control

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/peerclient"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// elsewhere is a node that does not lead: node 2 does.
type elsewhere struct{ Controller }

func (elsewhere) Leading() bool                  { return false }
func (elsewhere) Leader() (peer.ID, bool)        { return peer.ID{NodeID: 2}, true }
func (elsewhere) LeaderContext() context.Context { return context.Background() }

// wireTo is a way to a node on which the first requests meet faults.
type wireTo struct {
	faults []error
	sent   int
}

func (w *wireTo) Do(_ context.Context, node wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	w.sent++
	if len(w.faults) == 0 {
		return req.ResponseKind(), nil
	}
	err := &peerclient.Error{Node: node, Key: req.Key(), Sent: true, Err: w.faults[0]}
	if errors.Is(err.Err, errConnect) {
		err.Sent = false
	}
	w.faults = w.faults[1:]
	return nil, err
}

var errConnect = errors.New("connection refused")

// A leader must know when nobody knows what became of its AlterPartition: a copy that is read after the repetition was
// answered may bring a replica into the ISR which it no longer waits for. What was not sent, and what changes nothing when
// it is carried out twice, is asked again without a word.
func TestOnlyWhatMayBeDoneTwiceIsSentTwice(t *testing.T) {
	alter := func(ctx context.Context, a *Access) error {
		_, err := a.AlterPartitions(ctx, 1, 7, []raftctl.ISRChange{{}})
		return err
	}
	beat := func(ctx context.Context, a *Access) error {
		_, err := a.Heartbeat(ctx, raftctl.Heartbeat{ID: 1})
		return err
	}
	for _, tt := range []struct {
		name   string
		ask    func(ctx context.Context, a *Access) error
		faults []error
		sent   int
		err    error
	}{
		{"AlterPartition not sent", alter, []error{errConnect, errConnect}, 3, nil},
		{"AlterPartition without an answer", alter, []error{errConnect, io.EOF}, 2, kerr.RequestTimedOut},
		{"heartbeat without an answer", beat, []error{io.EOF, io.EOF}, 3, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wireTo{faults: tt.faults}
				a := New(Options{Local: elsewhere{}, NodeID: 1, Lanes: &Lanes{Beats: w, ISR: w, Asked: w, Other: w}})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := tt.ask(ctx, a); !errors.Is(err, tt.err) || w.sent != tt.sent {
					t.Errorf("%v after %d requests, want %v after %d", err, w.sent, tt.err, tt.sent)
				}
			})
		})
	}
}
