//go:build linux

package main

import (
	"math/rand/v2"
	"time"
)

// event is one fault of the schedule.
type event struct {
	kind  string
	node  int           // 1…n; of a fault that hits the whole cluster, where it begins
	other int           // another node
	ctl   bool          // hits the node of the controller instead
	wait  time.Duration // beyond the quiet time before
	hold  time.Duration // until the fault is healed
	dice  uint64        // for what the fault itself has to choose
}

// controllerEvery is how often the node of the controller is hit on purpose: a third of the faults. In a series it is hit
// then, and at no other time.
const controllerEvery = 3

// aim gives the event the nodes that it is to hit, where ctl is the controller's; 0: nobody knows.
func (e event) aim(ctl int, series bool) event {
	switch {
	case ctl <= 0:
	case e.ctl:
		if e.other == ctl {
			e.other = e.node
		}
		e.node = ctl
	case series && e.node == ctl:
		e.node, e.other = e.other, ctl
	}
	return e
}

// schedule gives events for ever, the same ones for the same seed. Every kind comes once in each round.
type schedule struct {
	rng   *rand.Rand
	kinds []string
	nodes int
	round []string
	made  int
}

func newSchedule(o options) *schedule {
	return &schedule{rng: rand.New(rand.NewPCG(o.seed, 0x6368616f73)), kinds: o.kinds, nodes: o.nodes}
}

func (s *schedule) next() event {
	if len(s.round) == 0 {
		s.round = append(s.round, s.kinds...)
		s.rng.Shuffle(len(s.round), func(i, j int) { s.round[i], s.round[j] = s.round[j], s.round[i] })
	}
	e := event{kind: s.round[0], node: 1 + s.rng.IntN(s.nodes), dice: s.rng.Uint64()}
	s.round = s.round[1:]
	e.other = 1 + (e.node+s.rng.IntN(s.nodes-1))%s.nodes
	s.made++
	e.ctl = s.made%controllerEvery == 0
	e.wait = time.Duration(s.rng.IntN(1500)) * time.Millisecond
	k, _ := find(kinds(), e.kind)
	e.hold = k.least + time.Duration(s.rng.Int64N(int64(k.most-k.least)+1))
	return e
}
