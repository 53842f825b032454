package loop

import (
	"errors"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

const isrTick = 250 * time.Millisecond

func (n *node) tickISR() {
	n.later(isrTick, n.tickISR)
	n.propose()
}

// wanted is what a leader asks for of one partition.
type wanted struct {
	p      *part
	change raftctl.ISRChange
}

// propose asks the controller for the ISRs that the leaders of this node want: one request at a time.
func (n *node) propose() {
	if n.asking || !n.serving {
		return
	}
	var all []wanted
	for _, p := range n.parts {
		if p == nil || !p.leads() || p.state.Proposing(p.meta.PartitionEpoch) {
			continue
		}
		isr := p.state.Shrunk(n.c.time())
		if isr == nil && p.joins != 0 {
			isr = p.state.Expansion(p.joins)
		}
		p.joins = 0
		if isr == nil && p.recovers {
			isr = p.meta.ISR
		}
		if isr == nil {
			continue
		}
		p.state.Propose(isr)
		all = append(all, n.proposal(p))
	}
	if len(all) > 0 {
		n.asking = true
		n.sendProposals(all)
	}
}

// proposal is what p's state asks for.
func (n *node) proposal(p *part) wanted {
	want, _ := p.state.Proposal(n.epoch)
	topic, _ := n.img.Topic(nameOf(p.i).Topic)
	ch := raftctl.ISRChange{TopicID: topic.ID, Partition: nameOf(p.i).Partition, LeaderEpoch: want.LeaderEpoch, PartitionEpoch: want.PartitionEpoch}
	for _, m := range want.ISR {
		ch.ISR = append(ch.ISR, raftctl.ISRMember(m))
	}
	n.c.note("propose", int64(n.id), int64(p.i), int64(len(ch.ISR)), int64(ch.PartitionEpoch))
	n.c.say("%v of %v", ch.ISR, p.meta.ISR)
	return wanted{p, ch}
}

func (n *node) sendProposals(all []wanted) {
	changes := make([]raftctl.ISRChange, len(all))
	for i, w := range all {
		changes[i] = w.change
	}
	id, epoch := wire.BrokerID(n.id), n.epoch
	n.ask(func(core *raftctl.Core) ([]byte, any, error) {
		data, results, err := core.AlterPartitions(id, epoch, changes)
		return data, results, err
	}, func(o outcome) { n.answered(all, o) })
}

// answered takes the controller's answer. What it leaves open is asked again until an image or an answer settles it: till
// then the proposal stands.
func (n *node) answered(all []wanted, o outcome) {
	var open []wanted
	if o.err != nil {
		for _, w := range all {
			if w.open() {
				w.p.state.Unanswered(w.change.PartitionEpoch)
				open = append(open, w)
			}
		}
	} else {
		for i, r := range o.value.([]raftctl.ISRResult) {
			// Else an image was faster.
			if w := all[i]; w.open() && n.settle(w, r) {
				open = append(open, n.proposal(w.p))
			}
		}
	}
	if n.asking = len(open) > 0; n.asking {
		n.later(n.c.between(20*time.Millisecond, 100*time.Millisecond), func() { n.sendProposals(open) })
	}
}

// open reports whether the partition is as it was when the change was asked for.
func (w wanted) open() bool {
	return w.p.leads() && w.p.meta.LeaderEpoch == w.change.LeaderEpoch && w.p.meta.PartitionEpoch == w.change.PartitionEpoch
}

// settle takes what the controller says to one change, and reports whether the state has something else to ask for now.
func (n *node) settle(w wanted, r raftctl.ISRResult) bool {
	p, ch := w.p, w.change
	switch {
	case r.Err == nil:
		n.c.note("accepted", int64(n.id), int64(p.i), int64(r.Partition.PartitionEpoch), int64(len(r.Partition.ISR)))
		if r.Partition.LeaderEpoch == ch.LeaderEpoch {
			p.meta.ISR, p.meta.PartitionEpoch, p.recovers = r.Partition.ISR, r.Partition.PartitionEpoch, false
			p.moved(p.state.Accepted(r.Partition.ISR, r.Partition.PartitionEpoch, n.c.time()))
		}
	case errors.Is(r.Err, kerr.InvalidUpdateVersion), errors.Is(r.Err, kerr.NotController), errors.Is(r.Err, kerr.FencedLeaderEpoch):
		// Another state is in force, which an image will tell: what was proposed may be part of it.
	default:
		n.c.note("rejected", int64(n.id), int64(p.i), int64(r.Err.Code.Code), 0)
		p.moved(p.state.Rejected(ch.PartitionEpoch, n.c.time()))
		return p.state.Proposing(ch.PartitionEpoch)
	}
	return false
}
