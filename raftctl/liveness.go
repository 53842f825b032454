package raftctl

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Heartbeat is what a broker says of itself again and again.
type Heartbeat struct {
	ID           wire.BrokerID
	Epoch        wire.BrokerEpoch
	Offset       wire.Offset // of the metadata that it has applied
	WantFence    bool        // it is not ready to serve
	WantShutDown bool
	OfflineDirs  []wire.UUID // directories that it has lost
	// Cordoned is its directories that take no new partitions; nil: not known yet.
	Cordoned []wire.UUID
	// Gone is the deleted topics of which it holds nothing any more, of those that its metadata still lists.
	Gone []wire.UUID
}

// HeartbeatReply is what the controller makes of it.
type HeartbeatReply struct {
	CaughtUp       bool // it has applied its registration
	Fenced         bool
	ShouldShutDown bool // its leaderships are gone, and every other broker knows that
	// Metadata is up to where the metadata was committed when it was answered, everything that was decided before the heartbeat among
	// it: who has not applied that much knows less than the controller did. NoOffset from a controller that does not tell.
	Metadata wire.Offset
	// Since is for how long the controller has had no word of a majority of the voters that it still leads, counted from when it asked
	// them, and corrected by beforeSuccession: after a session the broker may have been replaced. 0 from one that does not tell.
	Since time.Duration
}

// liveness is what the active controller knows of the brokers' sessions. It belongs to one stint of leading, and is
// nowhere written down: whoever takes over begins every session anew, so that a change of the controller fences nobody
// who is there (C16). Not safe for concurrent use; it belongs to the decide loop.
type liveness struct {
	timeout  time.Duration
	sessions map[wire.BrokerID]*session
	// answered is when the broker's node has last answered raft; nil: unknown.
	answered func(id wire.BrokerID) time.Time
	asked    *asked    // how far the members without a broker are
	earliest time.Time // no session ends before
}

type session struct {
	progress // as its heartbeats say
	epoch    wire.BrokerEpoch
	// needed is the metadata offset that the broker must have applied to be unfenced: its registration's or a later one.
	needed wire.Offset
	gone   []wire.UUID // as last reported
	// stopAt is, during a controlled shutdown, the offset that every active broker must have applied.
	stopAt wire.Offset
}

// newLiveness begins the sessions of all brokers that are in service.
func newLiveness(img *image.Image, timeout time.Duration, now time.Time) *liveness {
	l := &liveness{timeout: timeout, sessions: map[wire.BrokerID]*session{}, asked: &asked{}}
	for b := range img.Brokers() {
		if !b.Fenced {
			l.session(b, img.Offset(), now)
		}
	}
	return l
}

// lastHeard dates a session back to what is known of the broker from elsewhere: the node that was the controller has spoken to
// this one as such at the time at. One that was silent for an election has to answer raft, which tells it several times who leads
// now, in what datedBack leaves of a session; with its first answer it is given more (end). It is never shortened further: those who
// have voted may have heard the node later, and by their answers the broker was sure of itself (beforeSuccession).
func (l *liveness) lastHeard(id wire.BrokerID, at time.Time) {
	s := l.sessions[id]
	if s == nil || !at.Before(s.heard) {
		return
	}
	back, most := s.heard.Sub(at), datedBack(l.timeout)
	if back >= electionTimeout {
		back = most
	}
	s.heard = s.heard.Add(-min(back, most))
}

// hurried is called instead of lastHeard by a controller that was elected although the voters may have heard the former one until then
// (HandOver, SuspectLeader): that one may have told brokers until now what holds for beforeSuccession longer than a session.
func (l *liveness) hurried(now time.Time) {
	l.earliest = now.Add(l.timeout + beforeSuccession(l.timeout, false))
}

// end is when a session ends unless the broker is heard. A node that still answers raft lives: where its heartbeats are late
// it is out of breath, and stopping it would not help. So a session ends half of itself after the node's last answer, but
// after two of itself anyhow: a broker may have died within a node that lives.
func (l *liveness) end(id wire.BrokerID, s *session) time.Time {
	end, most := s.heard.Add(l.timeout), s.heard.Add(2*l.timeout)
	if l.answered != nil {
		switch later := l.answered(id).Add(l.timeout / 2); {
		case later.After(most):
			end = most
		case later.After(end):
			end = later
		}
	}
	if end.Before(l.earliest) {
		return l.earliest
	}
	return end
}

// datedBack is by how much lastHeard shortens a session at most: three quarters of it, and no more than one and a half elections.
func datedBack(session time.Duration) time.Duration { return min(session/4*3, electionTimeout/2*3) }

// beforeSuccession is for how much longer than a session after it has asked a majority the controller's word to a broker holds.
// Nobody gets their votes before they have been without it for an election, or fences nobody for as much longer (hurried). The session
// of a broker that is not on its node begins anew then; nothing is made of that but where sessions are short, since it hears the voters
// no more often for it. The session of the one on its own node has been dated back: less than nothing where sessions are long.
func beforeSuccession(session time.Duration, ownNode bool) time.Duration {
	if ownNode {
		return electionTimeout - datedBack(session)
	}
	return max(0, electionTimeout-session/2)
}

// wordAge is HeartbeatReply.Since of a controller that has asked a majority since ago; the longest duration if never.
func wordAge(since, session time.Duration, ownNode bool) time.Duration {
	before := beforeSuccession(session, ownNode)
	if before < 0 && since > math.MaxInt64+before {
		return math.MaxInt64
	}
	return max(0, since-before)
}

// forgive lengthens every session by the time that this process did not get to run: nobody was silent then, he was not heard.
func (l *liveness) forgive(d time.Duration, now time.Time) {
	for _, s := range l.sessions {
		if s.heard = s.heard.Add(d); s.heard.After(now) {
			s.heard = now
		}
	}
}

// session is the session of a broker's present life; begun if there is none.
func (l *liveness) session(b *image.Broker, committed wire.Offset, now time.Time) *session {
	s := l.sessions[b.ID]
	if s == nil || s.epoch != b.Epoch {
		s = &session{progress: progress{heard: now, applied: wire.NoOffset}, epoch: b.Epoch, needed: committed, stopAt: wire.NoOffset}
		l.sessions[b.ID] = s
	}
	return s
}

// heartbeat decides what follows from a heartbeat (Kafka: BrokerHeartbeatManager.calculateNextBrokerState). committed is
// the offset of the committed image, which holds the broker's registration.
func (d *decider) heartbeat(l *liveness, img *image.Image, committed wire.Offset, hb Heartbeat, now time.Time) ([]coordrec.MetadataRecord, HeartbeatReply, error) {
	b, err := current(img, hb.ID, hb.Epoch)
	if err != nil {
		return nil, HeartbeatReply{}, err
	}
	s := l.session(b, committed, now)
	s.reported(committed, hb.Offset, now)
	s.gone = hb.Gone
	reply := HeartbeatReply{CaughtUp: hb.Offset >= s.needed, Fenced: b.Fenced}
	var records []coordrec.MetadataRecord
	switch {
	case b.Fenced && hb.WantShutDown:
		reply.ShouldShutDown = true
	case b.Fenced && !hb.WantFence && reply.CaughtUp:
		records, err = d.unfenceBroker(img, b.ID, b.Epoch)
		reply.Fenced = false
	case b.Fenced:
	case b.InShutdown:
		if s.stopAt == wire.NoOffset {
			s.stopAt = committed // the answer to the heartbeat that began it came after its commit
		}
		if !leads(img, b.ID) && s.stopAt <= l.lowest(img) {
			records, reply.Fenced, reply.ShouldShutDown = d.fenceBroker(img, b), true, true
		}
	case hb.WantFence, hb.WantShutDown && !leads(img, b.ID):
		records, reply.Fenced, reply.ShouldShutDown = d.fenceBroker(img, b), true, hb.WantShutDown
	case hb.WantShutDown:
		records = append([]coordrec.MetadataRecord{
			&coordrec.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, InControlledShutdown: 1}},
			d.partitionChanges(img, brokerChange{b.ID, wire.NoBroker, wire.NoBroker}, func(p *image.Partition) bool { return p.InISR(b.ID) })...)
		s.stopAt = wire.NoOffset
	}
	if err == nil && len(records) == 0 && len(hb.OfflineDirs) > 0 {
		records = d.dirsOffline(img, b, hb.OfflineDirs)
	}
	if err == nil && hb.Cordoned != nil && !slices.Equal(hb.Cordoned, b.CordonedLogDirs) {
		records = append(records, &coordrec.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, CordonedLogDirs: hb.Cordoned})
	}
	if err == nil && len(hb.Gone) > 0 {
		records = append(records, l.removed(img)...)
	}
	return records, reply, err
}

// removed forgets the deleted topics of which no registered broker holds a replica any more. A broker that is down has
// not said so, and keeps its old directories until it has seen that their topic was deleted (R21).
func (l *liveness) removed(img *image.Image) []coordrec.MetadataRecord {
	var records []coordrec.MetadataRecord
	for id := range img.Removed() {
		all := true
		for b := range img.Brokers() {
			s := l.sessions[b.ID]
			if s == nil || s.epoch != b.Epoch || !slices.Contains(s.gone, id) {
				all = false
				break
			}
		}
		if all {
			records = append(records, &coordrec.ReplicasRemovedRecord{TopicID: id})
		}
	}
	return records
}

// leads reports whether a broker leads any partition.
func leads(img *image.Image, id wire.BrokerID) bool {
	for t := range img.Topics() {
		if slices.ContainsFunc(t.Partitions, func(p *image.Partition) bool { return p.Leader == id }) {
			return true
		}
	}
	return false
}

// lowest is the smallest offset that an active broker has reported.
func (l *liveness) lowest(img *image.Image) wire.Offset {
	low := wire.Offset(1<<63 - 1)
	for b := range img.Brokers() {
		if !b.Active() {
			continue
		}
		if s := l.sessions[b.ID]; s != nil && s.epoch == b.Epoch {
			low = min(low, s.applied)
		}
	}
	return low
}

// expire fences the brokers that were silent for the length of a session, the longest silent first, one a call so that
// each sees what the one before has led to (Kafka: maybeFenceOneStaleBroker).
func (d *decider) expire(l *liveness, img *image.Image, now time.Time) ([]coordrec.MetadataRecord, wire.BrokerID) {
	var oldest *image.Broker
	for _, id := range slices.Sorted(maps.Keys(l.sessions)) {
		s := l.sessions[id]
		b, ok := img.Broker(id)
		if !ok || b.Fenced || b.Epoch != s.epoch {
			continue
		}
		if !now.Before(l.end(id, s)) && (oldest == nil || s.heard.Before(l.sessions[oldest.ID].heard)) {
			oldest = b
		}
	}
	if oldest == nil {
		return nil, wire.NoBroker
	}
	return d.fenceBroker(img, oldest), oldest.ID
}

// next is when the next session ends; false without one.
func (l *liveness) next(img *image.Image) (time.Time, bool) {
	var at time.Time
	for id, s := range l.sessions {
		b, ok := img.Broker(id)
		if !ok || b.Epoch != s.epoch {
			delete(l.sessions, id)
			continue
		}
		if end := l.end(id, s); !b.Fenced && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at, !at.IsZero()
}
