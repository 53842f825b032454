package loop

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// stage is where a transactional producer stands.
type stage int

const (
	starting stage = iota // it asks for its incarnation
	idle
	writing
	written // everything is written, or given up; it is about to end the transaction
	ending
)

// Timeouts of transactions: that of most, and that of those which are meant to run out of time under faults.
const (
	longTxn  = 8 * time.Second
	shortTxn = 1200 * time.Millisecond
)

// txnProducer is a producer with a transactional id, of version 1 or 2 of transactions. It writes to one or both of the
// partitions and commits or aborts; it dies and begins anew, gives up, and repeats what was done already. What it does not
// know it asks again, until it is told.
type txnProducer struct {
	actor
	c       *cluster
	id      string
	client  state.Version
	timeout time.Duration

	stage  stage
	now    state.Producer // its incarnation
	resume bool           // the next incarnation goes on from this one (KIP-360)
	seq    [dataPartitions]int32
	// leaders are the newest leader epochs that it has heard of.
	leaders [dataPartitions]wire.LeaderEpoch
	txn     *txn
	lanes   int                   // partitions that are being written to
	before  *txn                  // the last one that it has ended
	follows [dataPartitions]int32 // the sequences that came after it
	// doubt says that requests of this incarnation may be under way still, or that it has given some of it up. Version 1
	// takes a new one then: they would count for its next transaction (KAFKA-17754).
	doubt bool
	quiet bool
	// replaced says that who answered last as the coordinator is it no more, which it may not have heard.
	replaced bool

	commits int

	// Of stories:
	hold  bool // it does not end its transaction
	tame  bool // it does not die, give up or abort
	hasty bool // it gives up at the first silence
	still bool // it begins no transaction
}

// lane is what a transaction still writes to one partition.
type lane struct {
	i       int
	batches []*sent
	tries   int // of the first
}

func (c *cluster) addTransactions() {
	c.addTxnProducer("x", state.V2)
	c.addTxnProducer("x", state.V2) // and each fences the other
	c.addTxnProducer("y", state.V0)
	c.addTxnProducer("z", state.V2)
	for i := range dataPartitions {
		c.addConsumer(i).committed = true
	}
}

func (c *cluster) addTxnProducer(id string, client state.Version) {
	p := &txnProducer{actor: actor{id: firstClient + len(c.clients), up: true}, c: c, id: id, client: client, now: state.NoProducer,
		leaders: [dataPartitions]wire.LeaderEpoch{wire.NoLeaderEpoch, wire.NoLeaderEpoch}}
	p.timeout = longTxn
	switch {
	case c.opts.Timeout > 0:
		p.timeout = c.opts.Timeout
	case c.chance(300):
		p.timeout = shortTxn
	}
	c.clients = append(c.clients, &p.actor)
	c.writers = append(c.writers, p)
	c.after(c.between(0, time.Second), p.initialise)
}

// soon lets fn happen after the pause before a request is sent again.
func (p *txnProducer) soon(fn func()) {
	p.c.after(p.c.between(20*time.Millisecond, 100*time.Millisecond), fn)
}

// ask sends a request to the coordinator. ok is false while nobody knows what became of it.
func (p *txnProducer) ask(handle func(n *node, reply func(any)), done func(r state.Reply, ok bool)) {
	leader, _ := p.c.anyNode().leaderOf(txnPartition)
	if leader == wire.NoBroker {
		p.soon(func() { done(state.Reply{}, false) })
		return
	}
	n := p.c.node(int(leader))
	p.c.net.dial(&p.actor, &n.actor).call(rpcTimeout, func(reply func(any)) { handle(n, reply) }, func(a any) {
		s, ok := a.(said)
		m, _ := p.c.meta.committed().Partition(nameOf(txnPartition).Topic, nameOf(txnPartition).Partition)
		p.replaced = m.Leader != wire.BrokerID(n.id)
		if !ok || s.err != nil {
			done(state.Reply{}, false)
			return
		}
		done(s.body.(state.Reply), true)
	})
}

// operate is ask for an operation that needs no more than the coordinator's core.
func (p *txnProducer) operate(op func(s *state.State, tok coord.Token, now time.Time) coord.Decision, done func(r state.Reply, ok bool)) {
	p.ask(func(n *node, reply func(any)) { n.askTxns(op, func(body any, err error) { reply(said{body, err}) }) }, done)
}

// fences reports whether a code tells a producer that another one has taken its place.
func fences(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping)
}

// initialise asks for an incarnation until there is one.
func (p *txnProducer) initialise() {
	p.stage = starting
	r := state.InitRequest{ID: p.id, TimeoutMs: int32(p.timeout.Milliseconds()), Fresh: wire.NoProducer, Cluster: state.V2}
	if p.resume {
		expected := p.now
		r.Expected = &expected
	}
	p.ask(func(n *node, reply func(any)) { n.initProducerID(r, reply) }, func(got state.Reply, ok bool) {
		switch {
		case ok && got.Err == nil:
			p.doubt, p.resume = false, false
			p.becomes(got.Producer)
			p.rest()
		case ok && fences(got.Err):
			p.lost()
		default:
			p.soon(p.initialise)
		}
	})
}

func (p *txnProducer) becomes(now state.Producer) {
	p.now, p.seq = now, [dataPartitions]int32{}
	p.c.check.given(p)
}

// lost is a producer that is told that another one has taken its place: it takes it back, after a while.
func (p *txnProducer) lost() {
	p.c.check.txns.fenced++
	p.resume = false
	p.restart(500*time.Millisecond, 3*time.Second)
}

func (p *txnProducer) restart(lo, hi time.Duration) {
	p.stage, p.before = starting, nil
	p.c.after(p.c.between(lo, hi), p.initialise)
}

// rest waits for the next transaction, until the run winds down.
func (p *txnProducer) rest() {
	p.stage = idle
	p.c.after(p.c.between(p.c.opts.Pause, 4*p.c.opts.Pause), p.begin)
}

func (p *txnProducer) begin() {
	c := p.c
	if c.now > c.opts.Writes {
		p.quiet = true
		return
	}
	if p.still {
		p.soon(p.begin)
		return
	}
	p.stage, p.txn = writing, c.check.begins(p, p.now)
	var lanes []*lane
	first := c.rng.IntN(dataPartitions)
	for k := range 1 + c.rng.IntN(dataPartitions) {
		l := &lane{i: (first + k) % dataPartitions}
		for range 1 + c.rng.IntN(3) {
			b := &sent{seq: p.seq[l.i], first: c.nextRecord, count: 1 + c.rng.IntN(3)}
			c.nextRecord += uint64(b.count)
			p.seq[l.i] += int32(b.count)
			l.batches = append(l.batches, b)
			c.check.writes(p.txn, l.i, b)
		}
		lanes = append(lanes, l)
	}
	if p.client.Bumps() {
		p.write(lanes)
	} else {
		p.add(lanes)
	}
}

// add is AddPartitionsToTxn, which clients of version 1 send.
func (p *txnProducer) add(lanes []*lane) {
	r := state.AddRequest{ID: p.id, Producer: p.now, Client: p.client, Cluster: state.V2}
	for _, l := range lanes {
		r.Partitions = append(r.Partitions, nameOf(l.i))
	}
	slices.SortFunc(r.Partitions, func(a, b wire.TopicPartition) int { return int(a.Partition - b.Partition) })
	p.operate(func(s *state.State, tok coord.Token, now time.Time) coord.Decision {
		return s.AddPartitions(tok, now, r)
	}, func(got state.Reply, ok bool) {
		switch {
		case ok && got.Err == nil:
			p.write(lanes)
		case ok && fences(got.Err):
			p.lost()
		default:
			p.doubt = true
			p.soon(func() { p.add(lanes) })
		}
	})
}

func (p *txnProducer) write(lanes []*lane) {
	p.lanes = len(lanes)
	for _, l := range lanes {
		p.send(l)
	}
}

// send writes the next batch of a lane.
func (p *txnProducer) send(l *lane) {
	if len(l.batches) == 0 || p.txn.broken {
		if p.lanes--; p.lanes == 0 {
			p.stage = written
			p.finish()
		}
		return
	}
	b, t := l.batches[0], p.txn
	l.tries++
	p.produce(t, l.i, b, func(got produced, ok bool) { p.answered(t, l, b, got, ok) })
}

// produce sends one batch of a transaction.
func (p *txnProducer) produce(t *txn, i int, b *sent, done func(got produced, ok bool)) {
	c := p.c
	leader, epoch := c.anyNode().leaderOf(i)
	if leader == wire.NoBroker || epoch < p.leaders[i] { // a client does not go back to an older leader
		p.soon(func() { done(produced{}, false) })
		return
	}
	p.leaders[i] = epoch
	n := c.node(int(leader))
	r := txnBatch{i: i, id: p.id, producer: t.producer, client: p.client, sequence: b.seq, data: t.batch(b)}
	c.net.dial(&p.actor, &n.actor).call(c.between(rpcTimeout/5, rpcTimeout), func(reply func(any)) { n.produceTxn(r, reply) }, func(a any) {
		got, ok := a.(produced)
		done(got, ok)
	})
}

// mayPass reports whether a batch that was refused so may be sent again.
func mayPass(err error) bool {
	return slices.ContainsFunc([]*kerr.Error{kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend,
		kerr.ConcurrentTransactions}, func(e *kerr.Error) bool { return errors.Is(err, e) })
}

func (p *txnProducer) answered(t *txn, l *lane, b *sent, got produced, ok bool) {
	c := p.c
	switch {
	case ok && got.err == nil:
		if !c.check.coordinatorMayLose() { // else an incarnation may have been given twice
			c.check.acked(l.i, got.base, got.epoch, b)
		}
		l.batches, l.tries = l.batches[1:], 0
		if t.acks++; t.acks == 1 {
			p.late()
		}
		if c.chance(60) {
			p.repeat(t, l.i, b, got.base)
		}
		p.send(l)
	case !ok || mayPass(got.err):
		p.doubt = true
		if p.hasty || !p.tame && c.chance(60) {
			t.broken = true
			p.send(l)
			return
		}
		p.soon(func() { p.send(l) })
	default:
		c.note("txn refused", int64(p.actor.id), int64(l.i), int64(t.producer.ID), int64(t.producer.Epoch))
		c.say("%v", got.err)
		// Under version 1 a repetition from before may have left a guard behind that wants its own sequence first, as in Kafka.
		if errors.Is(got.err, kerr.OutOfOrderSequenceNumber) && p.client.Bumps() && c.check.parts[l.i].deleted == 0 && !c.check.txnsMayLose() {
			c.violated("producer %s %v: sequence %d of partition %d, the oldest not acknowledged, is refused: %v", p.id, t.producer, b.seq, l.i, got.err)
		}
		if l.tries == 1 {
			c.check.refused(b)
		}
		p.doubt = true // the sequences of what was not sent are used up
		t.broken, t.fenced = true, t.fenced || fences(got.err)
		p.send(l)
	}
}

// batch makes the bytes of one batch.
func (t *txn) batch(b *sent) []byte {
	c := t.p.c
	builder := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Transactional: true,
		Producer: &batch.Producer{ID: t.producer.ID, Epoch: t.producer.Epoch, Sequence: b.seq}})
	for i := range b.count {
		builder.Add(batch.NewRecord{Timestamp: c.time().UnixMilli(), Value: binary.BigEndian.AppendUint64(nil, b.first+uint64(i))})
	}
	out, _, err := builder.Build(nil, c.codecs)
	if err != nil {
		c.violated("build a batch: %v", err)
	}
	return out
}

// finish ends a transaction whose writes have ended, or forgets it.
func (p *txnProducer) finish() {
	switch {
	case p.hold:
		p.c.after(5*time.Millisecond, p.finish)
	case !p.tame && p.c.chance(40): // it dies
		p.restart(50*time.Millisecond, 2*time.Second)
	case p.txn.fenced:
		p.lost()
	default:
		p.end(!p.txn.broken && (p.tame || p.c.chance(800)))
	}
}

func (p *txnProducer) endRequest(t *txn, commit bool) state.EndRequest {
	return state.EndRequest{ID: p.id, Producer: t.producer, Commit: commit, Client: p.client, Cluster: state.V2, Fresh: wire.NoProducer}
}

// end asks for the outcome until it is known.
func (p *txnProducer) end(commit bool) {
	t, c := p.txn, p.c
	p.stage = ending
	c.check.ends(t, commit)
	r := p.endRequest(t, commit)
	p.operate(func(s *state.State, tok coord.Token, now time.Time) coord.Decision { return s.EndTxn(tok, now, r) }, func(got state.Reply, ok bool) {
		switch {
		case ok && got.Err == nil:
			p.ended(commit, got.Producer)
		case !ok || errors.Is(got.Err, kerr.ConcurrentTransactions):
			t.doubt, p.doubt = true, true
			p.soon(func() { p.end(commit) })
		case fences(got.Err), errors.Is(got.Err, kerr.InvalidTxnState) && c.check.abortedFor(t):
			c.check.undecided(t)
			p.lost()
		default:
			// A coordinator that has not heard that it is replaced refuses what it does not know, as Kafka's does.
			if commit && !t.doubt && !p.replaced && !c.check.txnsMayLose() {
				c.violated("producer %s %v: the commit of acknowledged records is refused: %v", p.id, t.producer, got.Err)
			}
			p.resume = true
			p.initialise()
		}
	})
}

// ended takes a known outcome.
func (p *txnProducer) ended(commit bool, next state.Producer) {
	t := p.txn
	p.c.check.concluded(t, commit)
	p.before, p.follows = t, p.seq
	p.commits += int(b2i(commit))
	switch {
	case p.client.Bumps():
		p.becomes(next)
		if p.c.chance(80) {
			p.contradict(t, !commit)
		}
	case p.doubt:
		p.resume = p.c.chance(500)
		p.initialise()
		return
	}
	p.rest()
}

// repeat sends a batch that is stored once more, as a client does that has not got the answer.
func (p *txnProducer) repeat(t *txn, i int, b *sent, base wire.Offset) {
	c := p.c
	if c.check.parts[i].deleted > 0 { // a replica that has begun anew behind deleted records does not know their producers
		return
	}
	c.after(c.between(0, 300*time.Millisecond), func() {
		p.produce(t, i, b, func(got produced, ok bool) {
			if ok && got.err == nil && got.base != base && !c.check.txnsMayLose() {
				c.violated("producer %s %v: sequence %d of partition %d is at %d, and sent again it is at %d", p.id, t.producer, b.seq, i, base, got.base)
			}
		})
	})
}

// late sends a write and an end of the transaction before, which the coordinator has completed by now: both are refused
// under version 2. The write's sequence is a new one: a repetition would be answered, by a replaced leader, with where it lies.
func (p *txnProducer) late() {
	t, c := p.before, p.c
	if t == nil || !p.client.Bumps() || !c.chance(100) {
		return
	}
	i := c.rng.IntN(dataPartitions)
	b := &sent{seq: p.follows[i], first: c.nextRecord, count: 1}
	c.nextRecord++
	c.check.writes(c.check.begins(p, t.producer), i, b) // a transaction that nobody commits
	p.produce(t, i, b, func(got produced, ok bool) {
		if ok && got.err == nil && !c.check.txnsMayLose() {
			c.violated("producer %s %v: a write after the end of its transaction is stored at %d of partition %d", p.id, t.producer, got.base, i)
		}
	})
	p.contradict(t, t.told != committed)
}

// contradict asks for the opposite of what an ended transaction came to.
func (p *txnProducer) contradict(t *txn, commit bool) {
	c := p.c
	r := p.endRequest(t, commit)
	p.operate(func(s *state.State, tok coord.Token, now time.Time) coord.Decision { return s.EndTxn(tok, now, r) }, func(got state.Reply, ok bool) {
		if ok && got.Err == nil && !c.check.txnsMayLose() {
			c.violated("producer %s %v was told that its transaction is %v, and then that the opposite is done", p.id, t.producer, t.told)
		}
	})
}
