package raftctl

import (
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
)

// What this process did not hear because it did not run lengthens the sessions, but none beyond a whole one from now.
func TestSessionsOfAControllerOutOfBreath(t *testing.T) {
	now := time.Unix(1000, 0)
	l := &liveness{timeout: time.Second, sessions: map[wire.BrokerID]*session{1: {progress: progress{heard: now.Add(-3 * time.Second)}}, 2: {progress: progress{heard: now.Add(-time.Second)}}}}
	l.forgive(2*time.Second, now)
	for id, want := range map[wire.BrokerID]time.Duration{1: time.Second, 2: 0} {
		if got := now.Sub(l.sessions[id].heard); got != want {
			t.Errorf("broker %d counts as heard %v ago, want %v", id, got, want)
		}
	}
}

// The session of the node that was the controller goes back to when it was heard as such, by three quarters of a session at most,
// and never forward; nor to before others may have heard it, by whose answers it was sure of itself.
func TestSessionOfTheFormerController(t *testing.T) {
	const timeout, kafkas = 1500 * time.Millisecond, 9 * time.Second
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		name    string
		timeout time.Duration
		ago     time.Duration
		want    time.Duration // how long ago the broker counts as heard
	}{
		{"it spoke a moment ago", timeout, 40 * time.Millisecond, 40 * time.Millisecond},
		{"it was silent for less than an election", timeout, 600 * time.Millisecond, 600 * time.Millisecond},
		{"it was silent for an election", timeout, electionTimeout, timeout / 4 * 3},
		{"it was silent for less than an election, which is more than a session", 500 * time.Millisecond, 600 * time.Millisecond, 375 * time.Millisecond},
		{"it was silent for long", timeout, time.Minute, timeout / 4 * 3},
		{"it was silent for long, and sessions are short", time.Second, time.Minute, time.Second / 4 * 3},
		{"it was silent for less than an election, and sessions are long", kafkas, 600 * time.Millisecond, 600 * time.Millisecond},
		{"it was silent to this node, but not to who has voted", kafkas, 4 * time.Second, electionTimeout / 2 * 3},
		{"a clock ahead", timeout, -time.Second, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &liveness{timeout: tc.timeout, sessions: map[wire.BrokerID]*session{1: {progress: progress{heard: now}}, 2: {progress: progress{heard: now}}}}
			l.lastHeard(1, now.Add(-tc.ago))
			l.lastHeard(3, now.Add(-tc.ago)) // it is no broker
			if got := now.Sub(l.sessions[1].heard); got != tc.want {
				t.Errorf("heard %v ago, want %v", got, tc.want)
			}
			if !l.sessions[2].heard.Equal(now) {
				t.Error("another broker's session has changed")
			}
		})
	}
}

// However long sessions are: none that a successor of the controller begins ends before a session after the time as of which the
// controller was sure, also if the successor has not heard it for long.
func TestNoSessionEndsBeforeItIsKnown(t *testing.T) {
	asked := time.Unix(1000, 0)
	elected := asked.Add(electionTimeout)
	for _, timeout := range []time.Duration{50 * time.Millisecond, electionTimeout, 2 * electionTimeout, 9 * time.Second} {
		l := &liveness{timeout: timeout, sessions: map[wire.BrokerID]*session{1: {progress: progress{heard: elected}}}}
		for _, own := range []bool{false, true} {
			if own {
				l.lastHeard(1, asked.Add(-time.Minute))
			}
			unsure := asked.Add(beforeSuccession(timeout, own)).Add(timeout)
			if end := l.end(1, l.sessions[1]); end.Before(unsure) {
				t.Errorf("sessions of %v, on the controller's node %v: it ends %v before the broker is unsure", timeout, own, unsure.Sub(end))
			}
		}
	}
}

// Nor where the voters have heard the controller until they elected its successor.
func TestNoSessionEndsBeforeItIsKnownAfterAHandOver(t *testing.T) {
	elected := time.Unix(1000, 0)
	for _, timeout := range []time.Duration{50 * time.Millisecond, electionTimeout, 2 * electionTimeout, 9 * time.Second} {
		l := &liveness{timeout: timeout, sessions: map[wire.BrokerID]*session{1: {progress: progress{heard: elected}}}}
		l.hurried(elected)
		for _, own := range []bool{false, true} {
			unsure := elected.Add(beforeSuccession(timeout, own)).Add(timeout)
			if end := l.end(1, l.sessions[1]); end.Before(unsure) {
				t.Errorf("sessions of %v, on the controller's node %v: it ends %v before the broker is unsure", timeout, own, unsure.Sub(end))
			}
		}
	}
}

// A controller that no majority has ever answered has not become sure by arithmetic.
func TestWordAge(t *testing.T) {
	const session, ever = 1500 * time.Millisecond, time.Duration(1<<63 - 1)
	for _, tc := range []struct {
		since, session time.Duration
		ownNode        bool
		want           time.Duration
	}{
		{ever, session, true, ever},
		{ever, session, false, ever},
		{ever - time.Second, 9 * time.Second, true, ever - 625*time.Millisecond},
		{100 * time.Millisecond, session, false, 100 * time.Millisecond},
		{100 * time.Millisecond, session, true, 475 * time.Millisecond},
		{100 * time.Millisecond, 50 * time.Millisecond, true, 0},
		{time.Second, 50 * time.Millisecond, false, 275 * time.Millisecond},
	} {
		if got := wordAge(tc.since, tc.session, tc.ownNode); got != tc.want {
			t.Errorf("%v, session %v, own node %v: %v, want %v", tc.since, tc.session, tc.ownNode, got, tc.want)
		}
	}
}

// A node that answers raft and whose heartbeats are late has twice the session; one that is dead has no more than the session.
func TestSessionOfANodeThatAnswersRaft(t *testing.T) {
	const timeout = 1500 * time.Millisecond
	heard := time.Unix(1000, 0)
	for _, tc := range []struct {
		name     string
		answered time.Duration // after it was heard
		want     time.Duration
	}{
		{"it never answered", -time.Hour, timeout},
		{"it died after its heartbeat", 10 * time.Millisecond, timeout},
		{"it died just before the next one", 200 * time.Millisecond, timeout},
		{"it stopped answering", time.Second, 1750 * time.Millisecond},
		{"it answers", 2100 * time.Millisecond, 2850 * time.Millisecond},
		{"it goes on answering", 2900 * time.Millisecond, 2 * timeout},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := &liveness{timeout: timeout, answered: func(wire.BrokerID) time.Time { return heard.Add(tc.answered) }}
			if got := l.end(1, &session{progress: progress{heard: heard}}).Sub(heard); got != tc.want {
				t.Errorf("the session ends %v after the heartbeat, want %v", got, tc.want)
			}
		})
	}
}
