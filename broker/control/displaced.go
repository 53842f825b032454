package control

import (
	"slices"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// displaced is what a broker whose heartbeats are refused for their epoch has seen of the registration that has taken its
// place. That is the one of a later process, which this one gives way to, or it is that of a process which died long ago and
// was read late: its fence would hold for good, since nobody sends its heartbeats. Pure; the zero value has seen nothing.
//
// A broker holds the locks of its log directories for as long as it runs, so that no other process can serve from them. A
// registration that names exactly these, and stays fenced for as long as a session lasts, is nobody's.
type displaced struct {
	epoch wire.BrokerEpoch // of the registration that stands there; 0 before one was seen
	since time.Time        // when it was first seen
	alive bool             // one was seen in service: another process runs, and this one does not come back
}

// mayReturn says whether the broker registers again: own is what it has registered last, under the epoch mine, and there is
// the registration that the metadata hold, nil for none. session is the length of a session.
func (d *displaced) mayReturn(own raftctl.Registration, mine wire.BrokerEpoch, there *image.Broker, now time.Time, session time.Duration) bool {
	switch {
	case there == nil || there.Epoch <= mine: // the metadata here are behind, or nobody is to be there
		return false
	case there.Incarnation == own.Incarnation: // its own, whose answer was lost
		return true
	case !there.Fenced:
		d.alive = true
	case there.Epoch != d.epoch:
		d.epoch, d.since = there.Epoch, now
	}
	return !d.alive && now.Sub(d.since) >= session && sameDirs(own.LogDirs, there.LogDirs)
}

func sameDirs(a, b []wire.UUID) bool {
	within := func(a, b []wire.UUID) bool {
		return !slices.ContainsFunc(a, func(id wire.UUID) bool { return !slices.Contains(b, id) })
	}
	return within(a, b) && within(b, a)
}
