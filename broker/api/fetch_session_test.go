package api

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

type sessionClock struct{ at time.Time }

func (c *sessionClock) now() time.Time { return c.at }

func testSessions(slots int) (*fetchSessions, *sessionClock) {
	clock := &sessionClock{time.Unix(1000, 0)}
	id := int32(0)
	return newFetchSessions(slots, clock.now, func() int32 { id++; return id }), clock
}

func targets(n int) []*fetchTarget {
	out := make([]*fetchTarget, n)
	for i := range out {
		out[i] = &fetchTarget{partitionKey: partitionKey{topic: "t", partition: wire.PartitionID(i)}}
	}
	return out
}

func answers(n int, hw wire.Offset) []partitionAnswer {
	out := make([]partitionAnswer, n)
	for i := range out {
		out[i] = partitionAnswer{hw: hw}
	}
	return out
}

func newSession(t *testing.T, c *fetchSessions, n int, follower bool) int32 {
	t.Helper()
	x, err := c.open(sessionRequest{epoch: initialEpoch, targets: targets(n), follower: follower})
	if err != nil {
		t.Fatal(err)
	}
	id, _, err := x.finish(answers(n, 5))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestSessionLife(t *testing.T) {
	c, _ := testSessions(10)
	id := newSession(t, c, 3, false)
	step := func(epoch int32, r sessionRequest, a []partitionAnswer, want string) {
		t.Helper()
		r.id, r.epoch = id, epoch
		x, err := c.open(r)
		if err != nil {
			if e, ok := errors.AsType[*kerr.Error](err); !ok || e.Message != want {
				t.Fatalf("epoch %d: %v, want %s", epoch, err, want)
			}
			return
		}
		order := ""
		for _, it := range x.items {
			order += fmt.Sprint(it.target.partition)
		}
		_, send, err := x.finish(a)
		if got := fmt.Sprintf("%s %v %v", order, send, err); got != want {
			t.Fatalf("epoch %d: %s, want %s", epoch, got, want)
		}
	}
	step(2, sessionRequest{}, nil, "INVALID_FETCH_SESSION_EPOCH")
	step(1, sessionRequest{usesIDs: true}, nil, "FETCH_SESSION_TOPIC_ID_ERROR")
	step(1, sessionRequest{}, answers(3, 5), "012 [false false false] <nil>")
	a := answers(3, 5)
	a[0].bytes = 10
	step(2, sessionRequest{}, a, "012 [true false false] <nil>")
	// Who had data goes to the end. An error is sent, and once more when it has gone.
	a = answers(3, 5)
	a[1] = partitionAnswer{failed: true, hw: -1, logStart: -1}
	step(3, sessionRequest{}, a, "120 [false true false] <nil>")
	step(4, sessionRequest{}, answers(3, 5), "120 [false true false] <nil>")
	step(5, sessionRequest{}, answers(3, 5), "120 [false false false] <nil>")
	// A new partition and a changed one; a forgotten one.
	more := targets(4)
	step(6, sessionRequest{targets: more[3:], forgotten: []partitionKey{more[2].partitionKey}}, answers(3, 5), "103 [false false true] <nil>")
	a = answers(3, 5)
	a[2].must = true
	step(7, sessionRequest{}, a, "103 [false false true] <nil>")
	// Nothing left: the session is gone.
	var all []partitionKey
	for _, t := range more {
		all = append(all, t.partitionKey)
	}
	step(8, sessionRequest{forgotten: all}, nil, " [] <nil>")
	step(9, sessionRequest{}, nil, "FETCH_SESSION_ID_NOT_FOUND")
}

func TestSessionOvertaken(t *testing.T) {
	c, _ := testSessions(10)
	id := newSession(t, c, 1, false)
	first, err := c.open(sessionRequest{id: id, epoch: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.open(sessionRequest{id: id, epoch: 2}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := first.finish(answers(1, 5)); got != id || !errors.Is(err, kerr.InvalidFetchSessionEpoch) {
		t.Fatalf("overtaken request finished with id %d, %v", got, err)
	}
}

func TestSessionClosedByFullFetch(t *testing.T) {
	for _, epoch := range []int32{initialEpoch, finalEpoch} {
		c, _ := testSessions(10)
		id := newSession(t, c, 1, false)
		x, err := c.open(sessionRequest{id: id, epoch: epoch, targets: targets(1)})
		if err != nil {
			t.Fatal(err)
		}
		next, send, err := x.finish(answers(1, 5))
		if err != nil || !send[0] || (next != 0) != (epoch == initialEpoch) {
			t.Fatalf("epoch %d: id %d, %v, %v", epoch, next, send, err)
		}
		if _, err := c.open(sessionRequest{id: id, epoch: 1}); !errors.Is(err, kerr.FetchSessionIDNotFound) {
			t.Fatalf("epoch %d: old session: %v", epoch, err)
		}
	}
}

func TestSessionEpochWraps(t *testing.T) {
	if got := nextEpoch(1<<31 - 1); got != 1 {
		t.Fatalf("next epoch %d", got)
	}
}

func TestSessionEviction(t *testing.T) {
	for _, tt := range []struct {
		name     string
		age      time.Duration // of the sessions that are there, both used just now
		idle     time.Duration
		follower bool
		size     int
		room     bool
	}{
		{"young and used", time.Second, 0, false, 100, false},
		{"idle for too long", 0, minSessionEviction + time.Second, false, 1, true},
		{"aged and smaller", minSessionEviction + time.Second, 0, false, 3, true},
		{"aged and larger", minSessionEviction + time.Second, 0, false, 1, false},
		{"follower against young consumer", time.Second, 0, true, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, clock := testSessions(2)
			var ids []int32
			for range 2 {
				ids = append(ids, newSession(t, c, 2, false))
			}
			clock.at = clock.at.Add(tt.age)
			for _, id := range ids {
				if _, err := c.open(sessionRequest{id: id, epoch: 1}); err != nil {
					t.Fatal(err)
				}
			}
			clock.at = clock.at.Add(tt.idle)
			if id := newSession(t, c, tt.size, tt.follower); (id != 0) != tt.room {
				t.Fatalf("new session got id %d", id)
			}
			if n, _, _ := c.Stats(); n != 2 {
				t.Fatalf("%d sessions", n)
			}
		})
	}
}
