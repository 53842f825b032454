package loop

import (
	"errors"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// consumer reads one partition from its start, as a client without a group that checks for lost data (KIP-320).
type consumer struct {
	actor
	c     *cluster
	i     int
	at    wire.Offset
	last  wire.LeaderEpoch // of the last batch that it has read
	epoch wire.LeaderEpoch // of the leader that it reads from

	committed bool // it reads what is committed (isolation.level)
}

// view is what a leader answers a consumer.
type view struct {
	err   error
	data  []byte
	skip  []log.AbortedTransaction // for who reads what is committed
	start wire.Offset
	end   wire.Offset // of the epoch asked for; NoOffset: not known
}

func (c *cluster) addConsumer(i int) *consumer {
	r := &consumer{actor: actor{id: firstClient + len(c.clients), up: true}, c: c, i: i, last: wire.NoLeaderEpoch, epoch: wire.NoLeaderEpoch}
	c.clients = append(c.clients, &r.actor)
	c.consumers = append(c.consumers, r)
	c.after(100*time.Millisecond, r.poll)
	return r
}

func (r *consumer) poll() {
	c := r.c
	next := func(d time.Duration) { c.after(d, r.poll) }
	leader, epoch := c.anyNode().leaderOf(r.i)
	if leader == wire.NoBroker || epoch < r.epoch {
		next(c.between(20*time.Millisecond, 100*time.Millisecond))
		return
	}
	validate := epoch > r.epoch && r.last != wire.NoLeaderEpoch
	n := c.node(int(leader))
	at, last := r.at, r.last
	c.net.dial(&r.actor, &n.actor).call(rpcTimeout, func(reply func(any)) {
		if validate {
			n.epochEnd(r.i, epoch, last, reply)
		} else {
			n.consume(r.i, epoch, at, r.committed, reply)
		}
	}, func(a any) {
		v, ok := a.(view)
		switch {
		case !ok:
		case errors.Is(v.err, kerr.OffsetOutOfRange):
			if v.start <= r.at || r.at == 0 {
				if !c.check.mayLose(r.i) && v.start <= r.at {
					c.violated("a consumer at %d of partition %d is out of range at the leader %d in epoch %d", r.at, r.i, leader, epoch)
				}
			}
			r.at, r.last = v.start, wire.NoLeaderEpoch
		case v.err != nil:
		case validate && v.end != wire.NoOffset && v.end < r.at:
			if !c.check.mayLose(r.i) {
				c.violated("a consumer at %d of partition %d is told by leader %d that epoch %d ends at %d", r.at, r.i, leader, last, v.end)
			}
			r.at, r.epoch = v.end, epoch
		default:
			r.epoch = epoch
			if !validate {
				if r.committed && !c.check.replaced(r.i, epoch) {
					c.check.readCommitted(r.at, v.data, v.skip)
				}
				r.at, r.last = c.check.consumed(r.i, r.at, epoch, r.last, v.data)
			}
		}
		next(c.between(5*time.Millisecond, 120*time.Millisecond))
	})
}

// consume is the handler of a consumer's fetch.
func (n *node) consume(i int, epoch wire.LeaderEpoch, at wire.Offset, committed bool, reply func(any)) {
	p := n.served(i)
	if p == nil {
		reply(view{err: kerr.NotLeaderForPartition})
		return
	}
	if err := p.state.CheckLeader(epoch); err != nil {
		reply(view{err: err})
		return
	}
	if at < p.plog.StartOffset() || at > p.plog.EndOffset() {
		reply(view{err: kerr.OffsetOutOfRange, start: p.plog.StartOffset()})
		return
	}
	end := p.state.HW()
	if committed {
		end = p.state.LSO()
	}
	if at > end {
		reply(view{}) // R14: the new leader's high watermark lags
		return
	}
	data, upper, err := p.read(at, end, fetchBytes)
	if err != nil {
		n.c.violated("node %d: read partition %d at %d: %v", n.id, i, at, err)
		return
	}
	v := view{data: whole(data)}
	if committed {
		v.skip = p.plog.AbortedTransactions(at, upper)
	}
	reply(v)
}

// epochEnd is the handler of OffsetForLeaderEpoch.
func (n *node) epochEnd(i int, epoch, of wire.LeaderEpoch, reply func(any)) {
	p := n.served(i)
	if p == nil {
		reply(view{err: kerr.NotLeaderForPartition})
		return
	}
	if err := p.state.CheckLeader(epoch); err != nil {
		reply(view{err: err})
		return
	}
	_, end, ok := p.plog.EndOffsetForEpoch(of)
	if !ok {
		end = wire.NoOffset
	}
	reply(view{end: end})
}
