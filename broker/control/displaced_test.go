package control

import (
	"bytes"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What has taken a broker's place is nobody's if it names the same directories and stays fenced for a session; a process that
// was ever in service, other directories and no registration at all are not touched.
func TestDisplaced(t *testing.T) {
	one, two := wire.UUID{1}, wire.UUID{2}
	own := raftctl.Registration{ID: 3, Incarnation: wire.UUID{9}, LogDirs: []wire.UUID{one, two}}
	const session = 3 * time.Second
	dead := func(epoch wire.BrokerEpoch) *image.Broker {
		return &image.Broker{ID: 3, Epoch: epoch, Incarnation: wire.UUID{8}, Fenced: true, LogDirs: []wire.UUID{two, one}}
	}
	with := func(b *image.Broker, change func(*image.Broker)) *image.Broker { change(b); return b }
	type look struct {
		after time.Duration
		there *image.Broker
		want  bool
	}
	for name, looks := range map[string][]look{
		"nobody": {{0, dead(8), false}, {session - 1, dead(8), false}, {session, dead(8), true}, {2 * session, dead(8), true}},
		"another one each time": {{0, dead(8), false}, {2 * time.Second, dead(9), false}, {4 * time.Second, dead(10), false},
			{6 * time.Second, dead(11), false}, {9 * time.Second, dead(11), true}},
		"forgotten":              {{0, nil, false}, {2 * session, nil, false}},
		"the metadata is behind": {{0, dead(7), false}, {2 * session, dead(7), false}},
		"in service": {{0, dead(8), false}, {time.Second, with(dead(8), func(b *image.Broker) { b.Fenced = false }), false},
			{5 * time.Second, dead(8), false}, {20 * time.Second, dead(9), false}, {90 * time.Second, dead(9), false}},
		"fewer directories": {{0, with(dead(8), func(b *image.Broker) { b.LogDirs = []wire.UUID{one} }), false},
			{2 * session, with(dead(8), func(b *image.Broker) { b.LogDirs = []wire.UUID{one} }), false}},
		"more directories": {{0, with(dead(8), func(b *image.Broker) { b.LogDirs = []wire.UUID{one, two, {3}} }), false},
			{2 * session, with(dead(8), func(b *image.Broker) { b.LogDirs = []wire.UUID{one, two, {3}} }), false}},
		"its own, whose answer was lost":         {{0, with(dead(8), func(b *image.Broker) { b.Incarnation = wire.UUID{9} }), true}},
		"its own, and the answer is from before": {{0, with(dead(7), func(b *image.Broker) { b.Incarnation = wire.UUID{9} }), false}},
	} {
		var d displaced
		began := time.Unix(1000, 0)
		for i, l := range looks {
			if got := d.mayReturn(own, 7, l.there, began.Add(l.after), session); got != l.want {
				t.Errorf("%s, look %d: %v, want %v", name, i, got, l.want)
			}
		}
	}
}

// A broker that a dead process's registration has replaced registers again after a session, as a new incarnation, and is told
// its epoch also where the answer was lost.
func TestBrokerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		there := &image.Broker{ID: 3, Epoch: 7, LogDirs: []wire.UUID{{1}}}
		d := &desk{}
		d.answer = func(hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error) {
			mu.Lock()
			defer mu.Unlock()
			if hb.Epoch != there.Epoch {
				return raftctl.HeartbeatReply{}, &raftctl.Error{Code: kerr.StaleBrokerEpoch}
			}
			there.Fenced = hb.WantFence
			return raftctl.HeartbeatReply{Fenced: hb.WantFence}, nil
		}
		var log bytes.Buffer
		l := life(d, &log)
		l.o.There = func() *image.Broker { mu.Lock(); defer mu.Unlock(); b := *there; return &b }
		drawn := byte(100)
		l.o.NewIncarnation = func() wire.UUID { drawn++; return wire.UUID{drawn} }
		var told []wire.BrokerEpoch
		l.o.Again = func(e wire.BrokerEpoch) { told = append(told, e) }
		defer l.Close()
		if _, err := l.Register(t.Context(), raftctl.Registration{ID: 3, Incarnation: wire.UUID{100}, LogDirs: []wire.UUID{{1}}, PreviousEpoch: 5}); err != nil {
			t.Fatal(err)
		}
		if err := l.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		there = &image.Broker{ID: 3, Epoch: 8, Incarnation: wire.UUID{42}, Fenced: true, LogDirs: []wire.UUID{{1}}}
		mu.Unlock()
		d.mu.Lock()
		d.refuse = []error{errors.New("the answer is lost")}
		d.mu.Unlock()
		time.Sleep(4500 * time.Millisecond)
		synctest.Wait()
		if len(d.regs) != 2 || !l.Fenced() {
			t.Fatalf("registered %d times, fenced %v", len(d.regs), l.Fenced())
		}
		again := d.regs[1]
		if again.Incarnation != (wire.UUID{101}) || again.PreviousEpoch != wire.NoBrokerEpoch || !slices.Equal(again.LogDirs, []wire.UUID{{1}}) {
			t.Fatalf("registered again as %+v", again)
		}
		mu.Lock()
		there = &image.Broker{ID: 3, Epoch: 9, Incarnation: again.Incarnation, Fenced: true, LogDirs: []wire.UUID{{1}}} // it was carried out
		mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(d.regs) != 3 || d.regs[2].Incarnation != again.Incarnation || l.Epoch() != 9 || !slices.Equal(told, []wire.BrokerEpoch{9}) {
			t.Fatalf("registered as %+v, epoch %d, told %v", d.regs, l.Epoch(), told)
		}
		if l.Fenced() {
			t.Error("it is still fenced")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(d.regs) != 3 {
			t.Errorf("registered %d times", len(d.regs))
		}
	})
}
