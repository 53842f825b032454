package loop

import (
	"errors"
	"slices"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

const (
	fetchWait    = 200 * time.Millisecond
	fetchBackoff = 50 * time.Millisecond
	fetchBytes   = 4 << 10 // for each partition
)

// source is the fetching from one leader: one request at a time.
type source struct {
	busy  bool
	retry time.Duration
}

// asked is what a follower asks for of one partition.
type asked struct {
	i         int
	epoch     wire.LeaderEpoch
	offset    wire.Offset
	lastEpoch wire.LeaderEpoch
	logStart  wire.Offset
	hw        wire.Offset
}

// got is the answer to asked.
type got struct {
	err       error
	diverging bool
	end       replica.EpochEnd
	hw        wire.Offset
	logStart  wire.Offset
	leo       wire.Offset // with OFFSET_OUT_OF_RANGE: what ListOffsets would say
	data      []byte
}

// parkedFetch waits for something to answer.
type parkedFetch struct {
	asked []asked
	reply func(any)
	end   time.Duration
	first []got // what is an answer in itself
}

// fetchAll asks every leader that this node follows and has no request under way to.
func (n *node) fetchAll() {
	for id := 1; id <= len(n.c.nodes); id++ {
		n.fetch(id)
	}
}

func (n *node) fetch(leader int) {
	s := &n.sources[leader]
	if leader == n.id || s.busy || !n.serving || n.c.now < s.retry {
		return
	}
	var ask []asked
	for _, p := range n.parts {
		if p == nil || !p.known || p.meta.Leader != wire.BrokerID(leader) || n.c.now < p.retry {
			continue
		}
		if p.state.Held() < p.plog.EndOffset() {
			continue // fsync=always: nothing counts before it is on the disk
		}
		offset := p.state.Held()
		ask = append(ask, asked{i: p.i, epoch: p.meta.LeaderEpoch, offset: offset, lastEpoch: p.plog.LatestEpoch(),
			logStart: p.plog.StartOffset(), hw: p.state.HW()})
	}
	if len(ask) == 0 {
		return
	}
	s.busy = true
	from, epoch, to := wire.BrokerID(n.id), n.epoch, n.c.node(leader)
	n.conn(leader).call(rpcTimeout, func(reply func(any)) { to.serveFetch(from, epoch, ask, reply) }, func(r any) {
		s.busy = false
		answers, ok := r.([]got)
		if !ok {
			s.retry = n.c.now + fetchBackoff
			n.later(fetchBackoff, func() { n.fetch(leader) })
			return
		}
		for i, a := range ask {
			if p := n.parts[a.i]; p.known && p.meta.Leader == wire.BrokerID(leader) && p.meta.LeaderEpoch == a.epoch && p.plog.EndOffset() == a.offset {
				p.take(answers[i])
			}
		}
		n.fetch(leader)
	})
}

// take is a follower with an answer to what it asked for from its log's end on.
func (p *part) take(g got) {
	n := p.n
	switch {
	case errors.Is(g.err, kerr.OffsetOutOfRange):
		p.outside(g)
		return
	case g.err != nil:
		p.retry = n.c.now + fetchBackoff
		n.later(fetchBackoff+1, n.fetchAll)
		return
	case g.diverging:
		p.diverge(g)
		return
	}
	if len(g.data) > 0 {
		if b, _, err := batch.Next(g.data); err == nil && b.BaseOffset() < p.plog.EndOffset() && p.plog.EndOffset() <= max(p.plog.StartOffset(), g.logStart) {
			p.restartAt(b.BaseOffset()) // the leader's log starts within a batch (Kafka: UnexpectedAppendOffsetException)
		}
		if _, err := p.plog.AppendAsFollower(g.data); err != nil {
			n.c.violated("node %d: append fetched records of partition %d: %v", n.id, p.i, err)
			return
		}
		p.moved(p.state.OnAppend(p.plog.EndOffset(), p.unstable(), n.c.time()))
	}
	p.moved(p.state.OnLeaderHW(g.hw))
	if g.logStart > p.plog.StartOffset() && g.logStart <= p.plog.EndOffset() {
		p.deleteTo(g.logStart)
	}
}

// diverge cuts what the leader does not have.
func (p *part) diverge(g got) {
	p.cutTo(max(replica.TruncationOffset(p.plog, g.end), p.plog.StartOffset()))
}

// outside is a follower whose log's end its leader does not have.
func (p *part) outside(g got) {
	to, over := replica.OutOfRange(p.plog.EndOffset(), g.logStart, g.leo)
	if over {
		p.restartAt(to)
		return
	}
	p.cutTo(max(to, p.plog.StartOffset()))
	p.retry = p.n.c.now + fetchBackoff
	p.n.later(fetchBackoff+1, p.n.fetchAll)
}

// serveFetch answers a follower.
func (n *node) serveFetch(from wire.BrokerID, epoch wire.BrokerEpoch, ask []asked, reply func(any)) {
	f := &parkedFetch{asked: ask, reply: reply, end: n.c.now + fetchWait, first: make([]got, len(ask))}
	for i, a := range ask {
		f.first[i] = n.admit(from, epoch, a)
	}
	if n.answer(f) {
		return
	}
	n.parked = append(n.parked, f)
	n.later(fetchWait, n.serveParked)
}

// admit takes a follower's progress; an answer in itself is an error or a divergence.
func (n *node) admit(from wire.BrokerID, epoch wire.BrokerEpoch, a asked) got {
	p := n.parts[a.i]
	if p == nil {
		return got{err: kerr.NotLeaderForPartition}
	}
	if err := p.state.CheckLeader(a.epoch); err != nil {
		return got{err: err}
	}
	outside := got{err: kerr.OffsetOutOfRange, logStart: p.plog.StartOffset(), leo: p.plog.EndOffset()}
	if a.lastEpoch != wire.NoLeaderEpoch {
		end, diverging, err := replica.Divergence(p.plog, p.meta.LeaderEpoch, p.plog.EndOffset(), a.offset, a.lastEpoch)
		if err != nil {
			return outside
		}
		if diverging {
			return got{diverging: true, end: end}
		}
	}
	if a.offset < p.plog.StartOffset() || a.offset > p.plog.EndOffset() {
		return outside
	}
	ch, err := p.state.OnFollowerFetch(replica.FollowerFetch{Replica: from, BrokerEpoch: epoch, LeaderEpoch: a.epoch, Offset: a.offset, LogStart: a.logStart}, n.c.time())
	if err != nil {
		return got{err: err}
	}
	p.moved(ch)
	if isr := p.state.Expansion(from); isr != nil { // a fetch alone lets a replica join: one that is silent does not
		p.joins = from
		n.propose()
	}
	return got{}
}

// answer replies if there is something to say, or if time is up.
func (n *node) answer(f *parkedFetch) bool {
	out := slices.Clone(f.first)
	ready := n.c.now >= f.end
	for i, a := range f.asked {
		if out[i].err != nil || out[i].diverging {
			ready = true
			continue
		}
		p := n.parts[a.i]
		if err := p.state.CheckLeader(a.epoch); err != nil {
			out[i], ready = got{err: err}, true
			continue
		}
		data, err := p.bytes(a.offset, p.plog.EndOffset(), fetchBytes)
		if err != nil {
			if !outOfRange(err) {
				n.c.violated("node %d: read partition %d at %d: %v", n.id, p.i, a.offset, err)
			}
			out[i], ready = got{err: kerr.OffsetOutOfRange, logStart: p.plog.StartOffset(), leo: p.plog.EndOffset()}, true
			continue
		}
		out[i].data, out[i].hw, out[i].logStart = whole(data), p.state.HW(), p.plog.StartOffset()
		ready = ready || len(data) > 0 || out[i].hw > a.hw
	}
	if ready {
		f.reply(out)
	}
	return ready
}

// whole drops a batch that is cut short.
func whole(data []byte) []byte {
	rest := data
	for {
		_, r, err := batch.Next(rest)
		if err != nil {
			return data[:len(data)-len(rest)]
		}
		rest = r
	}
}

// kick lets what is parked be looked at again, once this event is over.
func (n *node) kick() {
	if n.kicked || len(n.parked) == 0 {
		return
	}
	n.kicked = true
	n.later(0, n.serveParked)
}

func (n *node) serveParked() {
	n.kicked = false
	parked := n.parked
	n.parked = nil
	for _, f := range parked {
		if !n.answer(f) {
			n.parked = append(n.parked, f)
		}
	}
}
