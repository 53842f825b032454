package marker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What an earlier attempt has sent is refused once a later one has come, whatever the sender; what it has begun is waited for.
func TestFence(t *testing.T) {
	var f Fence
	enter := func(from wire.BrokerID, a Attempt) (leave func()) {
		t.Helper()
		leave, err := f.Enter(from, a)
		if err != nil {
			t.Fatalf("%d, %v: %v", from, a, err)
		}
		return leave
	}
	refused := func(from wire.BrokerID, a Attempt) {
		t.Helper()
		if _, err := f.Enter(from, a); !errors.Is(err, ErrLate) {
			t.Fatalf("%d, %v: %v", from, a, err)
		}
	}
	enter(1, Attempt{5, 0})()
	enter(1, Attempt{5, 0})()
	enter(1, Attempt{5, 2})()
	refused(1, Attempt{5, 1})
	enter(2, Attempt{5, 1})() // of another
	enter(1, Attempt{6, 0})() // a later process
	refused(1, Attempt{5, 9})
	enter(2, Attempt{5, 1})()

	leave := enter(1, Attempt{7, 0})
	entered := make(chan struct{})
	go func() {
		defer close(entered)
		enter(1, Attempt{7, 1})()
	}()
	select {
	case <-entered:
		t.Error("a later attempt entered while an earlier one appended")
	case <-time.After(20 * time.Millisecond): // time enough for it to be wrong
	}
	leave()
	<-entered
}

// Each request says its attempt, and what is lost makes the next ones later. Kafka's tools say nothing.
func TestAttemptOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := newCluster()
		defer s.Close()
		var got []Attempt
		write := s.o.Write
		s.o.Write = func(to wire.BrokerID, req *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse)) {
			back := kmsg.NewPtrWriteTxnMarkersRequest()
			back.Version = req.Version
			if err := back.ReadFrom(req.AppendTo(nil)); err != nil {
				t.Error(err)
			}
			a, ok := AttemptOf(back)
			if !ok {
				t.Error("no attempt")
			}
			got = append(got, a)
			if len(got) <= 2 {
				done(nil)
				return
			}
			write(to, req, done)
		}
		c.leaders[tp("a", 0)] = 1
		var done bool
		s.Send(newJob("x", &done, tp("a", 0)))
		<-time.After(time.Second)
		synctest.Wait()
		if want := [3]Attempt{{7, 0}, {7, 1}, {7, 2}}; !done || len(got) != 3 || [3]Attempt(got) != want {
			t.Errorf("done %v after %v, want %v", done, got, want)
		}
	})
	if a, ok := AttemptOf(kmsg.NewPtrWriteTxnMarkersRequest()); ok {
		t.Errorf("a request without one has %v", a)
	}
}
