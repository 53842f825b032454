package loop

import (
	"slices"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// clusterID of every run.
const clusterID = "loop"

// proposal is an entry that a leader wants committed.
type proposal struct {
	data []byte
	done func(ok bool) // ok: committed, which is not to say that it had an effect; false: nobody knows
}

// meta stands for raft: the committed entries, who leads, and what is under way. An entry that was under way when its
// leader lost the leadership may be committed all the same, and a leader that lost and regained it may commit what it
// decided before (raft's Apply asks for no term).
type meta struct {
	c       *cluster
	entries [][]byte
	images  []*image.Image // images[i] is what entries[:i] make
	term    int
	leader  int // node id; 0 none
	life    int // of the leader, in which it was elected
	pending []*proposal
	away    time.Duration // since when the leader has no majority
}

func newMeta(c *cluster) *meta {
	return &meta{c: c, images: []*image.Image{image.Empty(clusterID)}}
}

// committed is what every node will come to know.
func (m *meta) committed() *image.Image { return m.images[len(m.entries)] }

// voters are the nodes that may lead the metadata.
func (m *meta) voters() []*node { return m.c.nodes[:min(3, len(m.c.nodes))] }

// majority reports whether id reaches most voters in both directions.
func (m *meta) majority(n *node) bool {
	if !n.up || n.paused {
		return false
	}
	reached := 0
	for _, v := range m.voters() {
		if v.up && !v.paused && (v == n || !m.c.net.isCut(n.id, v.id) && !m.c.net.isCut(v.id, n.id)) {
			reached++
		}
	}
	return 2*reached > len(m.voters())
}

// electionTick is how often the stand-in for raft's timers looks.
const electionTick = 50 * time.Millisecond

func (m *meta) tick() {
	m.c.after(electionTick, m.tick)
	if m.leader != 0 {
		if n := m.c.node(m.leader); n.life == m.life && m.majority(n) {
			m.away = m.c.now
			return
		}
		if m.c.now-m.away < 250*time.Millisecond && m.c.node(m.leader).life == m.life {
			return
		}
		m.depose()
	}
	if m.leader == 0 && m.c.chance(120) {
		var able []*node
		for _, v := range m.voters() {
			if m.majority(v) {
				able = append(able, v)
			}
		}
		if len(able) > 0 {
			m.elect(able[m.c.rng.IntN(len(able))])
		}
	}
}

// depose ends a leadership: of what was under way some is committed, in order, and nobody knows how much.
func (m *meta) depose() {
	old := m.c.node(m.leader)
	m.c.note("depose", int64(m.leader), int64(m.term), int64(len(m.pending)), 0)
	m.leader = 0
	pending := m.pending
	m.pending = nil
	survive := m.c.rng.IntN(len(pending) + 1)
	for i, p := range pending {
		if i < survive {
			m.append(p.data)
		}
		old.later(m.c.between(0, 20*time.Millisecond), func() { p.done(false) })
	}
	term := m.term
	old.later(m.c.between(0, 30*time.Millisecond), func() { old.ctrl.lost(term) })
}

func (m *meta) elect(n *node) {
	m.term++
	m.leader, m.life, m.away = n.id, n.life, m.c.now
	m.c.note("elect", int64(n.id), int64(m.term), int64(len(m.entries)), 0)
	term := m.term
	n.later(m.c.between(0, 10*time.Millisecond), func() { n.ctrl.lead(term) })
}

// flap lets the leader lose the leadership and have it again before it has heard of either.
func (m *meta) flap() {
	if m.leader == 0 {
		return
	}
	n := m.c.node(m.leader)
	m.depose()
	m.elect(n)
}

// propose asks for an entry of a leader. A node that does not lead is told so.
func (m *meta) propose(n *node, data []byte, done func(ok bool)) {
	if m.leader != n.id || m.life != n.life {
		n.later(m.c.between(0, 5*time.Millisecond), func() { done(false) })
		return
	}
	p := &proposal{data, done}
	m.pending = append(m.pending, p)
	m.c.after(m.c.between(500*time.Microsecond, 6*time.Millisecond), func() { m.settle(p) })
}

// settle commits what is under way up to p, if its leader still can.
func (m *meta) settle(p *proposal) {
	i := slices.Index(m.pending, p)
	if i < 0 {
		return
	}
	n := m.c.node(m.leader)
	if n.life != m.life || !m.majority(n) {
		m.c.after(electionTick, func() { m.settle(p) })
		return
	}
	done := m.pending[:i+1]
	m.pending = slices.Clone(m.pending[i+1:])
	for _, q := range done {
		m.append(q.data)
	}
	n.follow()
	for _, q := range done {
		n.do(n.life, func() { q.done(true) })
	}
}

// append commits an entry.
func (m *meta) append(data []byte) {
	offset := wire.Offset(len(m.entries) + 1)
	before := m.committed()
	next, delta, dropped, err := raftctl.ApplyEntry(before, offset, data)
	if err != nil {
		m.c.violated("a committed metadata entry cannot be applied: %v", err)
		return
	}
	m.entries = append(m.entries, data)
	m.images = append(m.images, next)
	m.c.note("commit", int64(offset), int64(next.ControllerEpoch()), int64(next.Entry()), b2i(dropped))
	if !dropped {
		m.c.check.metadata(before, next, delta)
	}
	for _, n := range m.c.nodes {
		if n.id != m.leader {
			n.later(m.c.net.latency(m.leader, n.id), n.follow)
		}
	}
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
