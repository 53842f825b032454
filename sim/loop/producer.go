package loop

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// inFlight is how many produce requests a producer has under way (max.in.flight.requests.per.connection).
const inFlight = 5

// producer writes to one partition. An idempotent one sends again, in order and with the same sequences, until it knows.
type producer struct {
	actor
	c     *cluster
	i     int // partition
	acks  int16
	pid   wire.ProducerID // NoProducer: not idempotent
	seq   int32
	queue []*sent // not acknowledged, in order
	next  int     // first of queue that is not under way
	conn  *conn
	to    int
	epoch wire.LeaderEpoch
	wait  time.Duration // no request before
	quiet bool

	stored []stored // the last five that were acknowledged by all
}

// stored is a batch that was acknowledged.
type stored struct {
	*sent
	base wire.Offset
}

// sent is one batch.
type sent struct {
	seq   int32
	first uint64 // id of the first record
	count int
}

// produced is the answer to a produce.
type produced struct {
	err   error
	base  wire.Offset
	epoch wire.LeaderEpoch // of the leader
}

func (c *cluster) addProducer(i int, acks int16, idempotent bool) {
	p := &producer{actor: actor{id: firstClient + len(c.clients), up: true}, c: c, i: i, acks: acks, pid: wire.NoProducer}
	c.clients = append(c.clients, &p.actor)
	c.producers = append(c.producers, p)
	if idempotent {
		p.initialise()
	} else {
		p.tick()
	}
}

// initialise asks for a producer id.
func (p *producer) initialise() {
	c := p.c
	n := c.anyNode()
	again := func() { c.after(100*time.Millisecond, p.initialise) }
	c.net.dial(&p.actor, &n.actor).call(2*rpcTimeout, func(reply func(any)) {
		n.drawProducerID(func(id wire.ProducerID, ok bool) {
			if !ok {
				reply(nil)
				return
			}
			reply(id)
		})
	}, func(r any) {
		id, ok := r.(wire.ProducerID)
		if !ok {
			again()
			return
		}
		c.check.producerID(id)
		p.pid = id
		p.tick()
	})
}

// drawProducerID gets a producer id that nobody else gets from the controller.
func (n *node) drawProducerID(done func(id wire.ProducerID, ok bool)) {
	id, epoch := wire.BrokerID(n.id), n.epoch
	n.ask(func(core *raftctl.Core) ([]byte, any, error) {
		data, ids, err := core.AllocateProducerIDs(id, epoch)
		return data, ids, err
	}, func(o outcome) {
		if o.err != nil {
			done(wire.NoProducer, false)
			return
		}
		done(o.value.(raftctl.ProducerIDs).First, true)
	})
}

// tick makes a batch now and then, until the run winds down.
func (p *producer) tick() {
	if p.c.now > p.c.opts.Writes {
		p.quiet = true
		p.send()
		return
	}
	if len(p.queue) < 4*inFlight {
		b := &sent{seq: p.seq, first: p.c.nextRecord, count: 1 + p.c.rng.IntN(3)}
		p.c.nextRecord += uint64(b.count)
		p.seq += int32(b.count)
		p.queue = append(p.queue, b)
		p.send()
	}
	p.c.after(p.c.between(p.c.opts.Pause/2, 2*p.c.opts.Pause), p.tick)
}

func (p *producer) again(d time.Duration) {
	p.next = 0
	if p.conn != nil {
		p.conn.breaks()
		p.conn = nil
	}
	p.wait = p.c.now + d
	p.c.after(d, p.send)
}

func (p *producer) send() {
	c := p.c
	if c.now < p.wait || len(p.queue) == 0 {
		return
	}
	if p.conn == nil {
		leader, epoch := c.anyNode().leaderOf(p.i)
		if leader == wire.NoBroker || epoch < p.epoch { // a client does not go back to an older leader
			p.again(c.between(30*time.Millisecond, 150*time.Millisecond))
			return
		}
		p.to, p.epoch = int(leader), epoch
		p.conn = c.net.dial(&p.actor, &c.node(p.to).actor)
	}
	for p.next < len(p.queue) && p.next < inFlight {
		b, conn, n := p.queue[p.next], p.conn, c.node(p.to)
		p.next++
		data := p.batch(b)
		conn.call(rpcTimeout, func(reply func(any)) { n.produce(p.i, p.acks, data, reply) }, func(r any) {
			if conn == p.conn {
				p.answered(b, r)
			}
		})
	}
}

func (p *producer) answered(b *sent, r any) {
	c := p.c
	got, ok := r.(produced)
	if p.pid == wire.NoProducer && (!ok || got.err != nil) {
		if ok && errors.Is(got.err, kerr.NotEnoughReplicas) {
			c.check.refused(b)
		}
		p.queue, p.next = nil, 0 // it does not try again: nobody knows
		p.again(50 * time.Millisecond)
		return
	}
	if !ok {
		p.again(c.between(20*time.Millisecond, 100*time.Millisecond))
		return
	}
	switch {
	case got.err == nil:
	case errors.Is(got.err, kerr.OutOfOrderSequenceNumber) && b == p.queue[0]:
		if !c.check.maySkip(p.i, p.acks) {
			c.violated("producer %d: the oldest batch not acknowledged, sequence %d of partition %d, is refused: %v", p.pid, b.seq, p.i, got.err)
		}
		p.pid, p.queue, p.seq = wire.NoProducer, nil, 0 // as a client does that finds data lost: a new id
		p.again(0)
		return
	default:
		p.again(c.between(20*time.Millisecond, 100*time.Millisecond))
		return
	}
	if b != p.queue[0] {
		c.violated("producer %d of partition %d: sequence %d is answered before %d", p.pid, p.i, b.seq, p.queue[0].seq)
		return
	}
	p.queue = p.queue[1:]
	p.next--
	if p.acks == -1 {
		c.check.acked(p.i, got.base, got.epoch, b)
		p.stored = append(p.stored[max(0, len(p.stored)-4):], stored{b, got.base})
	}
	p.send()
}

func (p *producer) batch(b *sent) []byte {
	spec := batch.Spec{LeaderEpoch: wire.NoLeaderEpoch}
	if p.pid != wire.NoProducer {
		spec.Producer = &batch.Producer{ID: p.pid, Epoch: 0, Sequence: b.seq}
	}
	builder := batch.NewBuilder(spec)
	for i := range b.count {
		builder.Add(batch.NewRecord{Timestamp: p.c.time().UnixMilli(), Value: binary.BigEndian.AppendUint64(nil, b.first+uint64(i))})
	}
	out, _, err := builder.Build(nil, p.c.codecs)
	if err != nil {
		p.c.violated("build a batch: %v", err)
	}
	return out
}

// leaderOf is what this node tells clients of a partition.
func (n *node) leaderOf(i int) (wire.BrokerID, wire.LeaderEpoch) {
	if !n.up || n.paused || !n.serving {
		return wire.NoBroker, wire.NoLeaderEpoch
	}
	p, ok := n.img.Partition(nameOf(i).Topic, nameOf(i).Partition)
	if !ok {
		return wire.NoBroker, wire.NoLeaderEpoch
	}
	return p.Leader, p.LeaderEpoch
}

// produce is the handler.
func (n *node) produce(i int, acks int16, data []byte, reply func(any)) {
	c := n.c
	p := n.served(i)
	if p == nil {
		reply(produced{err: kerr.NotLeaderForPartition})
		return
	}
	v, err := log.Validate(data, log.ValidateOptions{Config: c.logConfig, Now: c.time(), ProduceVersion: 11, Codecs: c.codecs})
	if err != nil {
		c.violated("validate: %v", err)
		return
	}
	epoch := p.meta.LeaderEpoch
	if _, err := p.append(v, wire.NoLeaderEpoch, acks, func(a log.Appended, err error) { reply(produced{err: err, base: a.First, epoch: epoch}) }); err != nil {
		reply(produced{err: err})
	}
}
