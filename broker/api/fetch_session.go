package api

import (
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Incremental fetch sessions (KIP-227).

const (
	// minSessionEviction is for how long a session that is used, or a new one, is safe from others (Kafka:
	// min.incremental.fetch.session.eviction.ms).
	minSessionEviction = 2 * time.Minute
	initialEpoch       = 0
	finalEpoch         = -1
)

// partitionKey names a partition within a fetch: by topic id from v13 on, by name before.
type partitionKey struct {
	topic     string
	id        wire.UUID
	partition wire.PartitionID
}

// fetchTarget is what a client wants of one partition. Immutable.
type fetchTarget struct {
	partitionKey
	offset           wire.Offset
	maxBytes         int32
	leaderEpoch      wire.LeaderEpoch
	lastFetchedEpoch wire.LeaderEpoch
	logStart         wire.Offset // of a follower
}

// cachedPartition is one partition of a session. Guarded by the session's lock.
type cachedPartition struct {
	target       *fetchTarget
	topic        string      // the name of the target's id, "" while that was never known
	hw, logStart wire.Offset // last sent; NoOffset: never, or an error since
	prev, next   *cachedPartition
}

// fetchSession is a session. order is the list of its partitions in which a fetch reads them: whoever had data goes to
// the end, so that nobody starves.
type fetchSession struct {
	id         int32
	privileged bool
	usesIDs    bool
	created    time.Time

	// Guarded by the cache's lock.
	used            time.Time
	size            int // partitions, as of the last use
	evictableByAll  bool
	evictableByPriv bool

	mu         sync.Mutex
	epoch      int32 // that the next request must carry
	partitions map[partitionKey]*cachedPartition
	head, tail *cachedPartition
}

// fetchSessions is the cache of sessions. Safe for concurrent use. Lock order: cache, then session.
type fetchSessions struct {
	slots int
	now   func() time.Time
	newID func() int32 // random, positive

	mu        sync.Mutex
	sessions  map[int32]*fetchSession
	evictions int64
}

func newFetchSessions(slots int, now func() time.Time, newID func() int32) *fetchSessions {
	return &fetchSessions{slots: slots, now: now, newID: newID, sessions: map[int32]*fetchSession{}}
}

// Stats gives the number of sessions, of the partitions in them, and of evictions so far.
func (c *fetchSessions) Stats() (sessions, partitions int, evictions int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		partitions += s.size
	}
	return len(c.sessions), partitions, c.evictions
}

// fetchContext is one request's place in its session, or outside of any.
type fetchContext struct {
	cache   *fetchSessions
	session *fetchSession // of an incremental fetch
	create  bool          // a full fetch that asks for a session
	usesIDs bool
	follow  bool
	epoch   int32
	items   []fetchItem
}

type fetchItem struct {
	target *fetchTarget
	cached *cachedPartition // of an incremental fetch
	topic  string           // cached's
}

// sessionRequest is what a Fetch says about its session.
type sessionRequest struct {
	id, epoch int32
	usesIDs   bool
	follower  bool
	targets   []*fetchTarget
	forgotten []partitionKey
}

// open finds or makes the place of a request. The errors are those of the response's top level: 70, 71, 106.
func (c *fetchSessions) open(r sessionRequest) (*fetchContext, error) {
	if r.epoch == initialEpoch || r.epoch == finalEpoch {
		if r.id != 0 {
			c.mu.Lock()
			delete(c.sessions, r.id)
			c.mu.Unlock()
		}
		return &fetchContext{cache: c, create: r.epoch == initialEpoch, usesIDs: r.usesIDs, follow: r.follower, items: dedupe(r.targets)}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.sessions[r.id]
	if !ok {
		return nil, kerr.FetchSessionIDNotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.epoch != r.epoch:
		return nil, kerr.InvalidFetchSessionEpoch
	case s.usesIDs != r.usesIDs:
		return nil, kerr.FetchSessionTopicIDError
	}
	s.updateLocked(r)
	if len(s.partitions) == 0 {
		delete(c.sessions, s.id)
		return &fetchContext{cache: c, usesIDs: r.usesIDs, items: dedupe(r.targets)}, nil
	}
	c.touchLocked(s)
	ctx := &fetchContext{cache: c, session: s, usesIDs: r.usesIDs, epoch: nextEpoch(r.epoch), items: make([]fetchItem, 0, len(s.partitions))}
	s.epoch = ctx.epoch
	for p := s.head; p != nil; p = p.next {
		ctx.items = append(ctx.items, fetchItem{target: p.target, cached: p, topic: p.topic})
	}
	return ctx, nil
}

// dedupe keeps the first place and the last value of a partition that is named more than once.
func dedupe(targets []*fetchTarget) []fetchItem {
	items := make([]fetchItem, 0, len(targets))
	if len(targets) == 1 {
		return append(items, fetchItem{target: targets[0]})
	}
	at := make(map[partitionKey]int, len(targets))
	for _, t := range targets {
		if i, ok := at[t.partitionKey]; ok {
			items[i].target = t
			continue
		}
		at[t.partitionKey] = len(items)
		items = append(items, fetchItem{target: t})
	}
	return items
}

func nextEpoch(e int32) int32 {
	if e == 1<<31-1 {
		return 1
	}
	return e + 1
}

// updateLocked takes the changes of an incremental request: the cache's and the session's lock are held.
func (s *fetchSession) updateLocked(r sessionRequest) {
	for _, t := range r.targets {
		if p, ok := s.partitions[t.partitionKey]; ok {
			p.target = t
			continue
		}
		p := &cachedPartition{target: t, hw: wire.NoOffset, logStart: wire.NoOffset}
		s.partitions[t.partitionKey] = p
		s.pushLocked(p)
	}
	for _, k := range r.forgotten {
		if p, ok := s.partitions[k]; ok {
			delete(s.partitions, k)
			s.unlinkLocked(p)
		}
	}
}

func (s *fetchSession) pushLocked(p *cachedPartition) {
	p.prev, p.next = s.tail, nil
	if s.tail != nil {
		s.tail.next = p
	} else {
		s.head = p
	}
	s.tail = p
}

func (s *fetchSession) unlinkLocked(p *cachedPartition) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		s.head = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		s.tail = p.prev
	}
	p.prev, p.next = nil, nil
}

// touchLocked notes a use. Both locks are held.
func (c *fetchSessions) touchLocked(s *fetchSession) {
	s.used, s.size = c.now(), len(s.partitions)
	aged := s.used.Sub(s.created) > minSessionEviction
	s.evictableByPriv = !s.privileged || aged
	s.evictableByAll = aged
}

// partitionAnswer is what finish has to know of one partition's answer.
type partitionAnswer struct {
	topic        string // its name, "" if that is not known
	bytes        int64
	hw, logStart wire.Offset
	failed       bool
	must         bool // a diverging epoch or a preferred replica
}

// finish takes the answers in the order of items and says which of them have to be sent, and under which session id.
// It fails with 71 when another request of the session came in between.
func (x *fetchContext) finish(answers []partitionAnswer) (id int32, send []bool, err error) {
	send = make([]bool, len(answers))
	if x.session == nil {
		for i := range send {
			send[i] = true
		}
		if x.create {
			id = x.cache.create(x, answers)
		}
		return id, send, nil
	}
	s := x.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != x.epoch {
		return s.id, nil, kerr.InvalidFetchSessionEpoch
	}
	for i, a := range answers {
		p := x.items[i].cached
		if s.partitions[p.target.partitionKey] != p {
			continue // forgotten meanwhile
		}
		p.topic = a.topic
		send[i] = p.noteLocked(a)
		if send[i] && a.bytes > 0 {
			s.unlinkLocked(p)
			s.pushLocked(p)
		}
	}
	return s.id, send, nil
}

// noteLocked reports whether an incremental answer has to hold this partition, and remembers what the client then
// knows. After an error the client knows nothing, so that the partition is sent again when the error has gone.
func (p *cachedPartition) noteLocked(a partitionAnswer) bool {
	send := a.bytes > 0 || a.must || a.failed || a.hw != p.hw || a.logStart != p.logStart
	p.hw, p.logStart = a.hw, a.logStart
	if a.failed {
		p.hw = wire.NoOffset
	}
	return send
}

// create gives a full fetch its session: 0 if there is no room.
func (c *fetchSessions) create(x *fetchContext, answers []partitionAnswer) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if len(c.sessions) >= c.slots && !c.evictLocked(x.follow, len(answers), now) {
		return 0
	}
	id := c.newID()
	for _, taken := c.sessions[id]; taken || id <= 0; _, taken = c.sessions[id] {
		id = c.newID()
	}
	s := &fetchSession{id: id, privileged: x.follow, usesIDs: x.usesIDs, created: now, epoch: nextEpoch(initialEpoch),
		partitions: make(map[partitionKey]*cachedPartition, len(answers))}
	for i, a := range answers {
		p := &cachedPartition{target: x.items[i].target, topic: a.topic, hw: a.hw, logStart: a.logStart}
		if a.failed {
			p.hw = wire.NoOffset
		}
		s.partitions[p.target.partitionKey] = p
		s.pushLocked(p)
	}
	c.sessions[id] = s
	c.touchLocked(s)
	return id
}

// evictLocked makes room for a session of size partitions: first what was not used for long, else the least valuable
// one, if it is worth less than the new one (a follower's is worth more than a consumer's, a large one more than a
// small one).
func (c *fetchSessions) evictLocked(privileged bool, size int, now time.Time) bool {
	var stale, least *fetchSession
	for _, s := range c.sessions {
		if stale == nil || s.used.Before(stale.used) {
			stale = s
		}
		evictable := s.evictableByAll
		if privileged {
			evictable = s.evictableByPriv
		}
		if evictable && (least == nil || worthLess(s.privileged, s.size, s.id, least.privileged, least.size, least.id)) {
			least = s
		}
	}
	victim := least
	if stale != nil && now.Sub(stale.used) > minSessionEviction {
		victim = stale
	} else if least == nil || worthLess(privileged, size, 0, least.privileged, least.size, least.id) {
		return false
	}
	delete(c.sessions, victim.id)
	c.evictions++
	return true
}

func worthLess(privA bool, sizeA int, idA int32, privB bool, sizeB int, idB int32) bool {
	switch {
	case privA != privB:
		return privB
	case sizeA != sizeB:
		return sizeA < sizeB
	}
	return idA < idB
}
