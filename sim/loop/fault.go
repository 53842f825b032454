package loop

import (
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// nemesis makes faults: a seed switches about half of the kinds on.
type nemesis struct {
	c      *cluster
	kinds  []func()
	faults int
	lossy  int // node that has lost what it had not synced, and is not in sync again; 0 none
}

func newNemesis(c *cluster) *nemesis {
	f := &nemesis{c: c}
	all := []func(){f.kill, f.powerOff, f.pause, f.stop, f.isolate, f.oneWay, f.bridge, f.slow, f.deaf, f.flap, f.reset,
		f.elect, f.deleteRecords, f.pauseMember, f.kill, f.powerOff}
	if c.opts.Txns {
		all = append(all, f.lateAnswers)
	}
	for _, k := range all {
		if c.chance(500) {
			f.kinds = append(f.kinds, k)
		}
	}
	if len(f.kinds) == 0 {
		f.kinds = all
	}
	return f
}

// tick makes a fault every few hundred milliseconds to seconds, until the run winds down.
func (f *nemesis) tick() {
	if f.c.now > f.c.opts.Faults {
		return
	}
	f.faults++
	f.kinds[f.c.rng.IntN(len(f.kinds))]()
	f.c.after(f.c.between(200*time.Millisecond, 3*time.Second), f.tick)
}

// one draws a node that runs; nil if it would be one too many that is away.
func (f *nemesis) one() *node {
	away := 0
	for _, n := range f.c.nodes {
		if !n.up || n.paused {
			away++
		}
	}
	n := f.c.anyNode()
	if !n.up || n.paused || away > 0 && !f.c.chance(250) {
		return nil
	}
	return n
}

func (f *nemesis) restart(n *node) {
	f.c.after(f.c.between(20*time.Millisecond, 4*time.Second), func() {
		if !n.up {
			n.boot()
		}
	})
}

func (f *nemesis) kill() {
	if n := f.one(); n != nil {
		n.dies(memfs.Keep)
		n.clean = wire.NoBrokerEpoch
		f.restart(n)
	}
}

// powerOff loses what was not synced. With fsync=always any number of nodes may go; else one at a time may lose
// something, until it is in every ISR again: more is what min.insync.replicas of 2 does not promise to survive.
func (f *nemesis) powerOff() {
	n := f.one()
	if n == nil {
		return
	}
	if f.c.opts.FSync != replica.FSyncAlways {
		if f.c.opts.FSync == replica.FSyncNever || f.c.opts.MinISR < 2 || f.lossy != 0 && (f.lossy != n.id || !n.serving) && !f.recovered() {
			return
		}
		f.lossy = n.id
	}
	fate := memfs.Lose
	if f.c.chance(500) {
		fate = memfs.Coin
	}
	n.dies(fate)
	n.clean = wire.NoBrokerEpoch
	f.restart(n)
	if f.c.opts.FSync == replica.FSyncAlways && f.c.chance(200) { // all at once
		for _, o := range f.c.nodes {
			if o.up && !o.paused {
				o.dies(fate)
				o.clean = wire.NoBrokerEpoch
				f.restart(o)
			}
		}
	}
}

// recovered reports whether the node that lost something is in sync everywhere, in its present life.
func (f *nemesis) recovered() bool {
	n := f.c.node(f.lossy)
	for i := range f.c.opts.partitions() {
		if !f.c.check.member(n, i) {
			return false
		}
	}
	f.lossy = 0
	return true
}

func (f *nemesis) pause() {
	if n := f.one(); n != nil {
		n.pause()
		life := n.life
		f.c.after(f.c.between(50*time.Millisecond, 5*time.Second), func() {
			if n.up && n.life == life && n.paused {
				n.resume()
			}
		})
	}
}

func (f *nemesis) stop() {
	n := f.one()
	if n == nil || !n.serving {
		return
	}
	n.stop()
	f.c.after(4*time.Second, func() { f.restart(n) })
}

// partition cuts links for a while.
func (f *nemesis) partition(cut func(from, to int) bool) {
	k := len(f.c.nodes)
	var was [maxNodes + 1][maxNodes + 1]bool
	for a := 1; a <= k; a++ {
		for b := 1; b <= k; b++ {
			was[a][b] = a != b && cut(a, b)
			f.c.net.cut[a][b] = was[a][b]
		}
	}
	f.c.note("partition", 0, 0, 0, 0)
	f.c.after(f.c.between(100*time.Millisecond, 6*time.Second), func() {
		f.c.net.cut = [maxNodes + 1][maxNodes + 1]bool{}
		f.c.note("heal", 0, 0, 0, 0)
	})
}

func (f *nemesis) isolate() {
	x := f.c.anyNode().id
	f.partition(func(a, b int) bool { return a == x || b == x })
}

func (f *nemesis) oneWay() {
	x, y := f.c.anyNode().id, f.c.anyNode().id
	f.partition(func(a, b int) bool { return a == x && (b == y || x == y) })
}

// bridge lets only one node see all others.
func (f *nemesis) bridge() {
	x := f.c.anyNode().id
	f.partition(func(a, b int) bool { return a != x && b != x && (a+b)%2 == 1 })
}

func (f *nemesis) slow() {
	x := f.c.anyNode().id
	f.c.net.slow[x] = f.c.between(10*time.Millisecond, 300*time.Millisecond)
	f.c.note("slow", int64(x), int64(f.c.net.slow[x]), 0, 0)
	f.c.after(f.c.between(500*time.Millisecond, 5*time.Second), func() { f.c.net.slow[x] = 0 })
}

// deaf is a broker whose metadata grows old.
func (f *nemesis) deaf() {
	n := f.c.anyNode()
	n.deaf = f.c.now + f.c.between(200*time.Millisecond, 8*time.Second)
	f.c.note("deaf", int64(n.id), int64(n.deaf), 0, 0)
}

// lateAnswers lets a node take what transaction coordinators tell it long after it was said.
func (f *nemesis) lateAnswers() {
	n := f.c.anyNode()
	n.lateAnswers = f.c.between(100*time.Millisecond, 6*time.Second)
	f.c.note("late answers", int64(n.id), int64(n.lateAnswers), 0, 0)
	f.c.after(f.c.between(200*time.Millisecond, 2*time.Second), func() { n.lateAnswers = 0 })
}

func (f *nemesis) flap() {
	f.c.note("flap", 0, 0, 0, 0)
	if f.c.chance(500) {
		f.c.meta.flap()
	} else if f.c.meta.leader != 0 {
		f.c.meta.depose()
	}
}

// reset breaks connections at a rate.
func (f *nemesis) reset() {
	f.c.net.resets = f.c.rng.IntN(60)
	f.c.note("resets", int64(f.c.net.resets), 0, 0, 0)
	f.c.after(f.c.between(500*time.Millisecond, 5*time.Second), func() { f.c.net.resets = 0 })
}

// elect asks for preferred leaders, and for unclean ones where the run allows them.
func (f *nemesis) elect() {
	for _, v := range f.c.meta.voters() {
		if !v.up || v.paused || !v.ctrl.active {
			continue
		}
		kind := raftctl.PreferredElection
		if f.c.opts.Unclean && f.c.chance(500) {
			kind = raftctl.UncleanElection
		}
		f.c.note("ask for leaders", int64(v.id), int64(kind), 0, 0)
		v.ctrl.request(func(core *raftctl.Core) ([]byte, any, error) {
			data, results, err := core.ElectLeaders(kind, nil)
			return data, results, err
		}, func(any) {})
		return
	}
}

// deleteRecords moves the start of a partition up to its high watermark at most.
func (f *nemesis) deleteRecords() {
	i := f.c.rng.IntN(offsetsPartition)
	leader, _ := f.c.anyNode().leaderOf(i)
	if leader == wire.NoBroker {
		return
	}
	n := f.c.node(int(leader))
	if !n.up || n.paused || !n.serving || n.parts[i] == nil || !n.parts[i].leads() {
		return
	}
	p := n.parts[i]
	span := p.state.HW() - p.plog.StartOffset()
	if span <= 0 {
		return
	}
	to := p.plog.StartOffset() + wire.Offset(f.c.rng.Int64N(int64(span)))
	f.c.note("delete", int64(i), int64(to), int64(n.id), 0)
	f.c.check.parts[i].deleted = max(f.c.check.parts[i].deleted, to)
	p.deleteTo(to)
}

// pauseMember lets a group member sleep beyond its session.
func (f *nemesis) pauseMember() {
	if len(f.c.members) == 0 {
		return
	}
	m := f.c.members[f.c.rng.IntN(len(f.c.members))]
	if m.paused {
		return
	}
	m.paused = true
	f.c.after(f.c.between(time.Second, 5*time.Second), func() {
		m.paused = false
		late := m.late
		m.late = nil
		for _, fn := range late {
			fn()
		}
	})
}

// heal ends every fault.
func (f *nemesis) heal() {
	f.c.note("heal all", int64(f.faults), 0, 0, 0)
	f.c.net.cut, f.c.net.slow, f.c.net.resets = [maxNodes + 1][maxNodes + 1]bool{}, [maxNodes + 1]time.Duration{}, 0
	for _, n := range f.c.nodes {
		n.deaf, n.lateAnswers = 0, 0
		if n.up && n.paused {
			n.resume()
		}
		if !n.up {
			n.boot()
		}
	}
}
