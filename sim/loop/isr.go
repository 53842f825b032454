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
		if p == nil || !p.leads() {
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
		want, ok := p.state.Proposal(n.epoch)
		if !ok {
			continue
		}
		topic, _ := n.img.Topic(nameOf(p.i).Topic)
		ch := raftctl.ISRChange{TopicID: topic.ID, Partition: nameOf(p.i).Partition, LeaderEpoch: want.LeaderEpoch, PartitionEpoch: want.PartitionEpoch}
		for _, m := range want.ISR {
			ch.ISR = append(ch.ISR, raftctl.ISRMember(m))
		}
		n.c.note("propose", int64(n.id), int64(p.i), int64(len(isr)), int64(ch.PartitionEpoch))
		n.c.say("%v of %v", isr, p.meta.ISR)
		all = append(all, wanted{p, ch})
	}
	if len(all) > 0 {
		n.asking = true
		n.sendProposals(all)
	}
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

// answered takes the controller's answer. One that leaves the outcome open is asked again until an image or an answer
// settles it: till then the proposal stands.
func (n *node) answered(all []wanted, o outcome) {
	now := n.c.time()
	if o.err != nil {
		var open []wanted
		for _, w := range all {
			if w.p.leads() && w.p.meta.LeaderEpoch == w.change.LeaderEpoch && w.p.meta.PartitionEpoch == w.change.PartitionEpoch {
				open = append(open, w)
			}
		}
		if len(open) == 0 {
			n.asking = false
			return
		}
		n.later(n.c.between(20*time.Millisecond, 100*time.Millisecond), func() { n.sendProposals(open) })
		return
	}
	n.asking = false
	for i, r := range o.value.([]raftctl.ISRResult) {
		p, ch := all[i].p, all[i].change
		if !p.leads() || p.meta.LeaderEpoch != ch.LeaderEpoch || p.meta.PartitionEpoch != ch.PartitionEpoch {
			continue // an image was faster
		}
		switch {
		case r.Err == nil:
			n.c.note("accepted", int64(n.id), int64(p.i), int64(r.Partition.PartitionEpoch), int64(len(r.Partition.ISR)))
			if r.Partition.LeaderEpoch == ch.LeaderEpoch {
				p.meta.ISR, p.meta.PartitionEpoch, p.recovers = r.Partition.ISR, r.Partition.PartitionEpoch, false
				p.moved(p.state.Accepted(r.Partition.ISR, r.Partition.PartitionEpoch, now))
			}
		case errors.Is(r.Err, kerr.InvalidUpdateVersion), errors.Is(r.Err, kerr.NotController), errors.Is(r.Err, kerr.FencedLeaderEpoch):
			// Another state is in force, which an image will tell: what was proposed may be part of it.
		default:
			n.c.note("rejected", int64(n.id), int64(p.i), int64(r.Err.Code.Code), 0)
			p.moved(p.state.Rejected(ch.PartitionEpoch, now))
		}
	}
}
