package loop

import (
	"errors"
	"time"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// ctrl is the active controller's part of a node: raftctl.Core, fed by the scheduler.
type ctrl struct {
	n      *node
	core   *raftctl.Core
	term   int  // of the leadership that it has heard of; 0 none
	active bool // its claim is committed
	stint  int  // counts claims, so that what an earlier one asked for is told apart
	open   int  // entries under way
	queue  []*answer
}

// answer waits for the entries up to its own.
type answer struct {
	settled bool
	ok      bool
	wrote   bool
	reply   func(ok bool)
}

// errUnsettled is what became of a request that may have been carried out.
var errUnsettled = errors.New("the outcome is not known")

func newCtrl(n *node) *ctrl {
	ids := uint64(0)
	return &ctrl{n: n, core: raftctl.NewCore(raftctl.CoreOptions{
		NodeID: wire.BrokerID(n.id), Seed: n.c.rng.Uint64(), Configs: n.c.configs, SessionTimeout: sessionTimeout,
		Defaults: raftctl.Defaults{NumPartitions: 1, ReplicationFactor: 3},
		NewUUID: func() wire.UUID {
			ids++
			return wire.UUID{0: 7, 1: byte(n.id), 2: byte(n.life), 13: byte(ids >> 16), 14: byte(ids >> 8), 15: byte(ids)}
		},
	})}
}

// lead says that the node leads the metadata log in a term.
func (k *ctrl) lead(term int) {
	if k.n.c.meta.term != term {
		return
	}
	k.end()
	k.term = term
	k.claim()
}

// claim waits until the node has applied what predecessors have committed, and claims the next controller epoch.
func (k *ctrl) claim() {
	m, term := k.n.c.meta, k.term
	k.n.follow()
	if k.n.applied < len(m.entries) && !planted.On(planted.WithoutBarrier) {
		k.n.later(10*time.Millisecond, func() {
			if k.term == term {
				k.claim()
			}
		})
		return
	}
	k.stint++
	stint := k.stint
	m.propose(k.n, k.core.Claim(k.n.img), func(ok bool) {
		if k.stint != stint {
			return
		}
		if !ok || k.n.img.ControllerEpoch() != k.core.Epoch() || k.n.img.ControllerID() != wire.BrokerID(k.n.id) {
			k.end()
			return
		}
		k.core.Claimed(k.n.img, k.n.c.time())
		k.active = true
		k.n.c.note("active", int64(k.n.id), int64(k.core.Epoch()), 0, 0)
		k.tick(stint)
	})
}

// lost says that the leadership of a term is over.
func (k *ctrl) lost(term int) {
	if k.term == term {
		k.end()
	}
}

func (k *ctrl) end() {
	k.term, k.active, k.open = 0, false, 0
	k.stint++
	queue := k.queue
	k.queue = nil
	for _, a := range queue {
		a.reply(false)
	}
}

// tick is the controller's own work.
func (k *ctrl) tick(stint int) {
	if k.stint != stint {
		return
	}
	if data, id := k.core.Expire(k.n.c.time()); data != nil {
		k.n.c.note("expire", int64(id), 0, 0, 0)
		k.write(data, func(bool) {})
	} else if k.n.c.chance(20) {
		if data := k.core.Balance(); data != nil {
			k.write(data, func(bool) {})
		}
	}
	k.n.later(100*time.Millisecond, func() { k.tick(stint) })
}

// write proposes an entry, nil if there is nothing to write, and tells reply once everything up to it is settled.
func (k *ctrl) write(data []byte, reply func(ok bool)) {
	a := &answer{wrote: data != nil, settled: data == nil, ok: data == nil, reply: reply}
	k.queue = append(k.queue, a)
	if data == nil {
		k.pop()
		return
	}
	stint := k.stint
	k.open++
	entries := k.n.img
	k.n.c.meta.propose(k.n, data, func(ok bool) {
		if k.stint != stint {
			return
		}
		// It had an effect if the image went on by an entry of this epoch.
		if !ok || k.n.img == entries || k.n.img.ControllerEpoch() != k.core.Epoch() {
			k.end()
			return
		}
		a.settled, a.ok = true, true
		if k.open--; k.open == 0 {
			k.core.Settled(k.n.img)
		}
		k.pop()
	})
}

func (k *ctrl) pop() {
	for len(k.queue) > 0 && k.queue[0].settled {
		a := k.queue[0]
		k.queue = k.queue[1:]
		a.reply(a.ok)
	}
}

// errOther says that another node is the active controller.
var errOther = errors.New("not the active controller")

// outcome is the answer to a request to the controller.
type outcome struct {
	err   error // errOther: nothing happened; errUnsettled: nobody knows; else the decision
	value any
}

// request decides at this node if it is the active controller, and replies with an outcome.
func (k *ctrl) request(decide func(core *raftctl.Core) (data []byte, value any, err error), reply func(any)) {
	if !k.active {
		reply(outcome{err: errOther})
		return
	}
	data, value, err := decide(k.core)
	k.write(data, func(ok bool) {
		switch {
		case ok:
			reply(outcome{err: err, value: value})
		case data == nil:
			reply(outcome{err: errOther})
		default:
			reply(outcome{err: errUnsettled})
		}
	})
}

// configs are the settings of the runs' topics.
type configs struct{ minISR, unclean string }

func (c configs) ValidateTopic(_, _, _ map[string]string) error { return nil }
func (c configs) ValidateBroker(_, _ raftctl.Layers, _, _ bool, _ []string) error {
	return nil
}
func (c configs) ListDefault(image.ResourceType, string) (string, bool) { return "", false }
func (c configs) TopicValue(_, _, _ map[string]string, name string) string {
	switch name {
	case "min.insync.replicas":
		return c.minISR
	case "unclean.leader.election.enable":
		return c.unclean
	}
	return ""
}
