package classic

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
)

// TimerKind says what a Timer watches.
type TimerKind uint8

// The timers of a group. Join and InitialJoin are the same timer in two uses.
const (
	HeartbeatTimer   TimerKind = iota // a member's session, or a pending id's
	JoinTimer                         // the join phase
	InitialJoinTimer                  // the first join phase after Empty, which new members extend
	SyncTimer                         // members of the generation that have not synced
)

// Timer is the effect that asks for Expire to be called at At, or cancels it when At is zero. A Timer replaces the one
// with the same Key.
type Timer struct {
	Kind       TimerKind
	Group      string
	Member     string        // of HeartbeatTimer
	Generation int32         // of SyncTimer
	Delay      time.Duration // of InitialJoinTimer: how long this one runs
	Remaining  time.Duration // of InitialJoinTimer: how much longer it may be extended
	At         time.Time
}

// Key is unique among the timers of a shard.
func (t Timer) Key() string {
	switch t.Kind {
	case HeartbeatTimer:
		return "heartbeat/" + strconv.Itoa(len(t.Group)) + "/" + t.Group + "/" + t.Member
	case SyncTimer:
		return "sync/" + t.Group
	default:
		return "join/" + t.Group
	}
}

// Event is an effect for the log that an operator reads.
type Event struct {
	Group      string
	What       string
	Reason     string
	Generation int32
	Members    int
}

// RetryDelay is how long an expiry whose record could not be written waits before it is tried again.
const RetryDelay = time.Second

// change is the work on one group in one decision: a private copy, and what shall follow from it.
type change struct {
	s       *State
	g       *group
	now     time.Time
	records []coord.Record
	replies []coord.Reply
	timers  []Timer
	events  []Event
	// refused says what happens when the records could not be written; nil: nothing.
	refused func(err error) ([]coord.Reply, []coord.Effect)
}

func (s *State) begin(g *group, now time.Time) *change {
	return &change{s: s, g: g.clone(), now: now}
}

func (c *change) decision() coord.Decision {
	d := coord.Decision{Replies: c.replies}
	d.Records, d.Timestamp = c.records, c.now
	for _, e := range c.events {
		d.Effects = append(d.Effects, e)
	}
	d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
		if err != nil {
			if c.refused != nil {
				return c.refused(err)
			}
			return nil, nil
		}
		c.s.install(c.g)
		return nil, c.effects()
	}
	return d
}

func (c *change) effects() []coord.Effect {
	effects := make([]coord.Effect, len(c.timers))
	for i, t := range c.timers {
		effects[i] = t
	}
	return effects
}

func (c *change) reply(tok coord.Token, body any) {
	c.replies = append(c.replies, coord.Reply{Token: tok, Body: body})
}

func (c *change) event(what, reason string) {
	c.events = append(c.events, Event{
		Group: c.g.id, What: what, Reason: reason, Generation: c.g.generation, Members: len(c.g.members),
	})
}

// heartbeat restarts a member's session.
func (c *change) heartbeat(id string, timeout time.Duration) {
	c.timers = append(c.timers, heartbeatTimer(c.g.id, id, c.now.Add(timeout)))
}

func (c *change) cancelHeartbeat(id string) {
	c.timers = append(c.timers, heartbeatTimer(c.g.id, id, time.Time{}))
}

func heartbeatTimer(group, member string, at time.Time) Timer {
	return Timer{Kind: HeartbeatTimer, Group: group, Member: member, At: at}
}

func (c *change) joinTimer(timeout time.Duration) {
	c.timers = append(c.timers, Timer{Kind: JoinTimer, Group: c.g.id, At: c.now.Add(timeout)})
}

func (c *change) cancelJoin() {
	c.timers = append(c.timers, Timer{Kind: JoinTimer, Group: c.g.id})
}

func (c *change) cancelSync() {
	c.timers = append(c.timers, Timer{Kind: SyncTimer, Group: c.g.id})
}

// only is a decision that answers tok and changes nothing.
func only(tok coord.Token, body any) coord.Decision {
	return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: body}}}
}

// validateMember finds out whether the request comes from a member of the group and, if it names an instance, from the
// newest member of that instance (KIP-345).
func (g *group) validateMember(memberID string, instance *string) *kerr.Error {
	if instance != nil {
		existing, ok := g.static[*instance]
		if !ok {
			return kerr.UnknownMemberID
		}
		if existing != memberID {
			return kerr.FencedInstanceID
		}
	}
	if _, ok := g.members[memberID]; !ok {
		return kerr.UnknownMemberID
	}
	return nil
}
