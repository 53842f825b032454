package classic

import (
	"maps"
	"slices"
	"time"

	"github.com/kajamq/kaja/coord"
)

// Config are the broker's limits. All durations are positive but InitialDelay, which may be 0.
type Config struct {
	MinSession   time.Duration // group.min.session.timeout.ms
	MaxSession   time.Duration // group.max.session.timeout.ms
	InitialDelay time.Duration // group.initial.rebalance.delay.ms
	NewMember    time.Duration // how long a member that never completed a join may wait in one (Kafka: 5 min)
	MaxSize      int           // group.max.size
	// MaxProtocols bounds what the members of one group say about themselves, in bytes of names and metadata of all their
	// protocols: it is held in memory for as long as they are members, also of those who only came to join and went away. 0: no limit.
	MaxProtocols int
}

// NewMemberTimeout is Kafka's limit for a join of a member that was never part of a generation (KAFKA-7610).
const NewMemberTimeout = 5 * time.Minute

// ConsumerProtocol is the protocol type of ordinary consumers.
const ConsumerProtocol = "consumer"

// Phase is the state of a group.
type Phase uint8

// The phases of a group; their names are Kafka's.
const (
	Empty Phase = iota
	PreparingRebalance
	CompletingRebalance
	Stable
)

func (p Phase) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[p]
}

// Dead is what DescribeGroups says of a group that does not exist.
const Dead = "Dead"

// State is every classic group of one shard. Not safe for concurrent use.
type State struct {
	cfg Config
	// hard holds what the log says; changed by replay alone. Its values are never changed once stored.
	hard map[string]*stored
	// live holds the groups with soft state; a group without is exactly what its stored form says.
	live map[string]*group
}

// New makes a state without groups.
func New(cfg Config) *State {
	return &State{cfg: cfg, hard: make(map[string]*stored), live: make(map[string]*group)}
}

// Len is the number of groups.
func (s *State) Len() int { return len(s.hard) }

// Groups lists the ids of the groups, sorted.
func (s *State) Groups() []string { return slices.Sorted(maps.Keys(s.hard)) }

// view is the group as it is now, or false. The result is only read.
func (s *State) view(id string) (*group, bool) {
	if g, ok := s.live[id]; ok {
		return g, true
	}
	if h, ok := s.hard[id]; ok {
		return h.group(id), true
	}
	return nil, false
}

// install makes g the running group. One that holds nothing beyond its stored form is not kept.
func (s *State) install(g *group) {
	if g.phase == Empty && len(g.pendingJoin) == 0 {
		delete(s.live, g.id)
		return
	}
	s.live[g.id] = g
}

// group is a running group. A group reachable from State is only read; changes happen on a clone.
type group struct {
	id           string
	phase        Phase
	before       Phase  // the phase before this one
	protocolType string // "" while none was set
	protocol     *string
	generation   int32
	leader       string // "" if none
	since        int64  // when the phase began, wall clock in ms; -1 unknown (records before v2)
	members      map[string]*member
	static       map[string]string   // instance id to member id
	pendingJoin  map[string]struct{} // ids given out by MEMBER_ID_REQUIRED that have not joined yet
	pendingSync  map[string]struct{} // members of the generation that have not synced yet
	newMember    bool                // a member joined during the initial delay
	// topics is what the members subscribe, as of the last completed join; nil when it is not known.
	topics map[string]struct{}
}

// member of a group; changed on a copy only.
type member struct {
	id         string
	instance   *string // nil for dynamic members
	clientID   string
	clientHost string
	rebalance  time.Duration
	session    time.Duration
	protocols  []Protocol // in order of preference
	assignment []byte
	isNew      bool        // never completed a join
	join       coord.Token // parked JoinGroup, 0 if none
	sync       coord.Token // parked SyncGroup, 0 if none
}

// Protocol is one assignment protocol that a member supports. Metadata is never changed.
type Protocol struct {
	Name     string
	Metadata []byte
}

// protocolBytes is what protocols count towards Config.MaxProtocols.
func protocolBytes(protocols []Protocol) int {
	n := 0
	for _, p := range protocols {
		n += len(p.Name) + len(p.Metadata)
	}
	return n
}

func newGroup(id string, now time.Time) *group {
	return &group{
		id: id, since: now.UnixMilli(),
		members: make(map[string]*member), static: make(map[string]string),
		pendingJoin: make(map[string]struct{}), pendingSync: make(map[string]struct{}),
	}
}

func (g *group) clone() *group {
	c := *g
	c.members, c.static = maps.Clone(g.members), maps.Clone(g.static)
	c.pendingJoin, c.pendingSync = maps.Clone(g.pendingJoin), maps.Clone(g.pendingSync)
	return &c
}

// sorted lists the members by id.
func (g *group) sorted() []*member {
	ms := make([]*member, 0, len(g.members))
	for _, id := range slices.Sorted(maps.Keys(g.members)) {
		ms = append(ms, g.members[id])
	}
	return ms
}

// edit returns a copy of a member that is already part of g; g must be a clone.
func (g *group) edit(id string) *member {
	m := *g.members[id]
	g.members[id] = &m
	return &m
}

// enter changes the phase.
func (g *group) enter(p Phase, now time.Time) {
	g.before, g.phase, g.since = g.phase, p, now.UnixMilli()
}

func (g *group) add(m *member, protocolType string) {
	if m.instance != nil {
		g.static[*m.instance] = m.id
	}
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.members[m.id] = m
	delete(g.pendingJoin, m.id)
}

// remove forgets a member or a pending id; a removed leader is replaced by another member.
func (g *group) remove(id string) {
	if m, ok := g.members[id]; ok {
		delete(g.members, id)
		if m.instance != nil {
			delete(g.static, *m.instance)
		}
	}
	if g.leader == id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.sorted()[0].id
		}
	}
	delete(g.pendingJoin, id)
	delete(g.pendingSync, id)
}

// awaitingJoin counts the parked joins.
func (g *group) awaitingJoin() int {
	n := 0
	for _, m := range g.members {
		if m.join != 0 {
			n++
		}
	}
	return n
}

// joined reports whether nobody is missing any more.
func (g *group) joined() bool {
	return len(g.pendingJoin) == 0 && g.awaitingJoin() == len(g.members)
}

// rebalanceTimeout is the largest of the members'.
func (g *group) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, m := range g.members {
		d = max(d, m.rebalance)
	}
	return d
}

// canRebalance reports whether PreparingRebalance may follow.
func (g *group) canRebalance() bool { return g.phase != PreparingRebalance }
