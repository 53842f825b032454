package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sourceEntry is one partition that this broker follows, as its fetcher keeps it.
type sourceEntry struct {
	p     *Partition
	epoch wire.LeaderEpoch // of the leader, as this broker follows it

	want   position // what the next request says of it
	ready  bool     // it is to be fetched; false: it waits for the end of a back-off, or for other metadata
	dirty  bool     // it stands in the session's list of changes
	listed bool     // the leader's session holds it

	backoff time.Duration // the last one; 0 after a success
	until   time.Time     // end of the back-off; zero: none
	told    time.Time     // when its error was last logged
}

func (e *sourceEntry) id() partitionID { return partitionID{e.p.TopicID, e.p.TP.Partition} }

// sourceSession is the follower's side of an incremental fetch session with one leader (KIP-227): it knows what the leader
// knows, so that a request names only what has changed since the last. Pure; not safe for concurrent use.
type sourceSession struct {
	self      wire.BrokerID
	id, epoch int32 // epoch 0: the next request names everything and begins a session

	entries map[partitionID]*sourceEntry
	changed []*sourceEntry // dirty ones
	gone    []*sourceEntry // listed and not followed any more
	ready   int            // entries that are ready
}

func newSourceSession(self wire.BrokerID) *sourceSession {
	return &sourceSession{self: self, entries: map[partitionID]*sourceEntry{}}
}

// put adds or replaces a partition.
func (s *sourceSession) put(e *sourceEntry) {
	s.remove(e.id())
	s.entries[e.id()] = e
}

func (s *sourceSession) remove(id partitionID) {
	e := s.entries[id]
	if e == nil {
		return
	}
	s.setReady(e, false)
	delete(s.entries, id)
	if e.listed {
		s.gone = append(s.gone, e)
	}
}

// setReady says whether e is fetched from now on.
func (s *sourceSession) setReady(e *sourceEntry, ready bool) {
	if e.ready == ready {
		return
	}
	e.ready = ready
	if ready {
		s.ready++
	} else {
		s.ready--
	}
	s.touch(e)
}

// touch has the next request say how e stands.
func (s *sourceSession) touch(e *sourceEntry) {
	if !e.dirty {
		e.dirty = true
		s.changed = append(s.changed, e)
	}
}

// reset gives the session up; the next request begins another. known says that the leader may still hold it.
func (s *sourceSession) reset(known bool) {
	s.epoch = 0
	if !known {
		s.id = 0
	}
}

// fetchLimits are the limits of a follower's fetches.
type fetchLimits struct {
	minBytes, maxBytes, maxPartitionBytes int32
}

// request is the next request. It must be answered by done or reset before the next.
func (s *sourceSession) request(brokerEpoch wire.BrokerEpoch, l fetchLimits, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = int32(s.self), int32(s.self), int64(brokerEpoch)
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), l.minBytes, l.maxBytes
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	list := s.changed
	if s.epoch == 0 {
		list = s.all()
	}
	b := fetchBuilder{req: req, max: l.maxPartitionBytes}
	for _, e := range list {
		switch {
		case e.ready:
			b.add(e)
			e.listed = true
		case e.listed && s.entries[e.id()] == e:
			s.gone = append(s.gone, e)
		}
		e.dirty = false
	}
	for _, e := range s.changed {
		e.dirty = false
	}
	s.changed = s.changed[:0]
	for _, e := range s.gone {
		// A partition that was replaced is named anew above.
		if now := s.entries[e.id()]; s.epoch != 0 && (now == nil || !now.listed || now == e) {
			b.forget(e)
		}
		e.listed = false
	}
	s.gone = s.gone[:0]
	return req
}

// all is every entry, ordered; what the leader held before counts no more.
func (s *sourceSession) all() []*sourceEntry {
	list := make([]*sourceEntry, 0, len(s.entries))
	for _, e := range s.entries {
		e.listed = false
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *sourceEntry) int {
		if c := slices.Compare(a.p.TopicID[:], b.p.TopicID[:]); c != 0 {
			return c
		}
		return cmp.Compare(a.p.TP.Partition, b.p.TP.Partition)
	})
	s.gone = s.gone[:0]
	return list
}

// done takes a response without a top-level error.
func (s *sourceSession) done(id int32) {
	switch {
	case s.epoch == 0 && id == 0:
		s.id = 0 // the leader keeps no session for it
	case s.epoch == 0:
		s.id, s.epoch = id, 1
	case s.epoch == 1<<31-1:
		s.epoch = 1
	default:
		s.epoch++
	}
}

// fetchBuilder groups partitions by topic as they come.
type fetchBuilder struct {
	req *kmsg.FetchRequest
	max int32
}

func (b *fetchBuilder) add(e *sourceEntry) {
	n := len(b.req.Topics)
	if n == 0 || b.req.Topics[n-1].TopicID != e.p.TopicID {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = e.p.TP.Topic, e.p.TopicID
		b.req.Topics = append(b.req.Topics, t)
		n++
	}
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset = int32(e.p.TP.Partition), int32(e.epoch), int64(e.want.offset)
	p.LastFetchedEpoch, p.LogStartOffset, p.PartitionMaxBytes = int32(e.want.last), int64(e.want.logStart), b.max
	b.req.Topics[n-1].Partitions = append(b.req.Topics[n-1].Partitions, p)
}

func (b *fetchBuilder) forget(e *sourceEntry) {
	n := len(b.req.ForgottenTopics)
	if n == 0 || b.req.ForgottenTopics[n-1].TopicID != e.p.TopicID {
		t := kmsg.NewFetchRequestForgottenTopic()
		t.Topic, t.TopicID = e.p.TP.Topic, e.p.TopicID
		b.req.ForgottenTopics = append(b.req.ForgottenTopics, t)
		n++
	}
	b.req.ForgottenTopics[n-1].Partitions = append(b.req.ForgottenTopics[n-1].Partitions, int32(e.p.TP.Partition))
}
