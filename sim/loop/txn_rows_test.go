package loop

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/txn/marker"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// The rows of docs/scenarios.md on transactions in which a leader changes. What must hold is looked at as in every run; the
// tests bring the situation about, and count that it was there.

func tellTxns(t *testing.T, o Options, f func(s story)) {
	o.Txns = true
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	tell(t, o, f)
}

// cameAbout fails the test if a situation was never there.
func cameAbout(t *testing.T, what string, n int) {
	t.Helper()
	t.Logf("%s: %d times", what, n)
	if n == 0 {
		t.Errorf("%s: never", what)
	}
}

// event lets the next event happen.
func (s story) event() {
	s.t.Helper()
	s.pass(s.queue[0].at - s.now)
}

// reach lets events happen until ok; false if the end of the story comes first.
func (s story) reach(ok, ended func() bool) bool {
	s.t.Helper()
	begin := s.now
	for !ok() {
		if ended() || s.now-begin > 30*time.Second {
			return false
		}
		s.event()
	}
	return true
}

// writer is the first producer of a transactional id, which from now on does nothing but write and commit.
func (s story) writer(id string) *txnProducer {
	for _, p := range s.writers {
		if p.id == id {
			p.tame = true
			return p
		}
	}
	s.t.Fatalf("there is no producer %s", id)
	return nil
}

// leads is the replica that leads a partition, and knows it; nil while there is none.
func (s story) leads(i int) *part {
	p := s.partition(i)
	if p.Leader == wire.NoBroker {
		return nil
	}
	n := s.node(int(p.Leader))
	if !n.up || n.served(i) == nil || !n.parts[i].leads() || n.parts[i].meta.LeaderEpoch != p.LeaderEpoch {
		return nil
	}
	return n.parts[i]
}

func (s story) untilLed(i int) *part {
	s.t.Helper()
	s.until(20*time.Second, "a leader", func() bool { return s.leads(i) != nil })
	return s.leads(i)
}

// coordinator is the transaction coordinator that answers.
func (s story) coordinator() *txnShard {
	s.t.Helper()
	s.until(20*time.Second, "a coordinator", func() bool {
		p := s.leads(txnPartition)
		return p != nil && p.txns != nil && p.state.HW() >= p.txns.loaded
	})
	return s.leads(txnPartition).txns
}

func (s story) status(id string) state.Status {
	t, ok := s.coordinator().state.Lookup(id)
	if !ok {
		return state.Empty
	}
	return t.Status
}

// written lets a producer write a transaction, and hold it before its end.
func (s story) written(p *txnProducer) *txn {
	s.t.Helper()
	p.hold = true
	s.until(40*time.Second, "a transaction that is written", func() bool { return p.stage == written })
	return p.txn
}

// place is where a record of a transaction is stored.
func (s story) place(t *txn) (i int, o wire.Offset) {
	return t.records[0].i, s.check.parts[t.records[0].i].where[t.records[0].id]
}

// commits lets a producer end a transaction, and wants it committed.
func (s story) commits(p *txnProducer, t *txn) {
	s.t.Helper()
	p.hold = false
	s.until(40*time.Second, "the end of a transaction", func() bool { return p.before == t || p.txn != t || p.stage == starting })
	if t.told != committed {
		s.t.Fatalf("producer %s %v was told that its transaction is %v\n%s", p.id, t.producer, t.told, s.history())
	}
}

// back starts the nodes that are down, and waits until all is whole.
func (s story) back() {
	s.t.Helper()
	for _, n := range s.nodes {
		if !n.up {
			n.boot()
		}
	}
	s.wholeISR()
}

// others are the nodes but one.
func (s story) others(n *node) []*node {
	var out []*node
	for _, o := range s.nodes {
		if o != n {
			out = append(out, o)
		}
	}
	return out
}

// silence lets the followers of a leader fetch nothing from it for a while.
func (s story) silence(leader *node, d time.Duration) {
	for _, n := range s.others(leader) {
		s.deafen(n, leader, d)
	}
}

// exchange runs an operation of the coordinator for a producer until the answer is final.
func (s story) exchange(p *txnProducer, op func(m *state.State, tok coord.Token, now time.Time) coord.Decision) state.Reply {
	s.t.Helper()
	var got state.Reply
	answered := false
	var ask func()
	ask = func() {
		p.operate(op, func(r state.Reply, ok bool) {
			if !ok || errors.Is(r.Err, kerr.ConcurrentTransactions) {
				p.soon(ask)
				return
			}
			got, answered = r, true
		})
	}
	ask()
	s.until(20*time.Second, "an answer of the coordinator", func() bool { return answered })
	return got
}

// resend brings a batch to the leader of its partition until it is answered.
func (s story) resend(p *producer, b *sent) (base wire.Offset) {
	s.t.Helper()
	answered := false
	ask := func() {
		leader := s.untilLed(p.i)
		leader.n.produce(p.i, -1, p.batch(b), func(a any) {
			got := a.(produced)
			if got.err != nil {
				s.after(20*time.Millisecond, func() { answered = true; base = wire.NoOffset })
				return
			}
			base, answered = got.base, true
		})
	}
	for range 100 {
		answered = false
		ask()
		s.until(20*time.Second, "an answer to a produce", func() bool { return answered })
		if base != wire.NoOffset {
			return base
		}
	}
	s.t.Fatalf("sequence %d of producer %d is not taken", b.seq, p.pid)
	return base
}

// quieten lets the idempotent producers come to an end.
func (s story) quieten() {
	s.t.Helper()
	s.pass(5 * time.Second)
	s.opts.Writes = s.now
	s.until(10*time.Second, "quiet producers", func() bool {
		for _, p := range s.producers {
			if !p.quiet || len(p.queue) > 0 {
				return false
			}
		}
		return true
	})
}

// P1: each of the last five batches is sent again after a kill, a power loss and a clean stop of the leader: it is answered
// with its own offset.
func TestP1LastFiveBatchesAfterLeaderChanges(t *testing.T) {
	repeated := 0
	tell(t, Options{}, func(s story) {
		s.quieten()
		p := s.producers[0]
		for k := range 3 {
			leader := s.untilLed(p.i)
			switch k {
			case 0:
				s.crash(memfs.Keep, leader.n)
			case 1:
				s.crash(memfs.Lose, leader.n)
			case 2:
				leader.n.stop()
			}
			s.until(20*time.Second, "another leader", func() bool { l := s.leads(p.i); return l != nil && l.n != leader.n })
			for _, b := range p.stored {
				if base := s.resend(p, b.sent); base != b.base {
					s.t.Fatalf("sequence %d is at %d, and sent again at %d\n%s", b.seq, b.base, base, s.history())
				}
				repeated++
			}
			s.until(10*time.Second, "the leader is down", func() bool { return !leader.n.up })
			s.back()
		}
	})
	cameAbout(t, "a batch was repeated", repeated)
}

// P3: a retry reaches the new leader while the original lies above its high watermark: it is acknowledged with the
// original's offset, and not before that is below.
func TestP3RetryAboveTheHighWatermark(t *testing.T) {
	above := 0
	tell(t, Options{}, func(s story) {
		s.quieten()
		p := s.producers[0]
		leader := s.untilLed(p.i)
		rest := s.others(leader.n)
		a, b := rest[0], rest[1]
		if s.rng.IntN(2) == 0 {
			a, b = b, a
		}
		s.deafen(b, leader.n, time.Second)
		s.deafen(b, a, 8*time.Second)
		batch := &sent{seq: p.seq, first: s.nextRecord, count: 1}
		s.nextRecord++
		end := leader.plog.EndOffset()
		leader.n.produce(p.i, -1, p.batch(batch), func(any) {})
		s.until(time.Second, "a follower has it", func() bool { return a.parts[p.i].plog.EndOffset() > end })
		if leader.state.HW() > end {
			s.t.Fatalf("it is committed already\n%s", s.history())
		}
		s.crash(memfs.Keep, leader.n)
		now := s.untilLed(p.i)
		if now.n == a && now.state.HW() <= end {
			above++
			base, told := wire.NoOffset, false
			a.produce(p.i, -1, p.batch(batch), func(r any) { base, told = r.(produced).base, r.(produced).err == nil })
			s.pass(time.Millisecond)
			for !told && now.leads() && s.now < 10*time.Minute {
				if now.state.HW() > end {
					break
				}
				s.event()
			}
			if told && (now.state.HW() <= end || base != end) {
				s.t.Errorf("it was told %d with the high watermark at %d, the original is at %d\n%s", base, now.state.HW(), end, s.history())
			}
		}
		s.back()
		if base := s.resend(p, batch); now.n == a && base != end {
			s.t.Errorf("in the end it is at %d, the original at %d\n%s", base, end, s.history())
		}
	})
	cameAbout(t, "a retry found the original above the high watermark", above)
}

// P8: producer ids are asked for while controllers change, lose power and come back: none is given twice.
func TestP8ProducerIDsOverControllerChanges(t *testing.T) {
	given, controllers := 0, 0
	tell(t, Options{}, func(s story) {
		before := s.meta.committed().ControllerEpoch()
		for k := range 15 {
			for _, n := range s.nodes {
				if n.serving {
					n.drawProducerID(func(id wire.ProducerID, ok bool) {
						if ok {
							s.check.producerID(id)
							given++
						}
					})
				}
			}
			s.pass(s.between(0, 8*time.Millisecond))
			switch {
			case k%5 == 4 && s.meta.leader != 0:
				n := s.node(s.meta.leader)
				s.crash(memfs.Lose, n)
				s.pass(500 * time.Millisecond)
				n.boot()
			case k%2 == 0:
				s.meta.flap()
			case s.meta.leader != 0:
				s.meta.depose()
			}
			s.pass(400 * time.Millisecond)
		}
		s.wholeISR()
		controllers += int(s.meta.committed().ControllerEpoch() - before)
	})
	cameAbout(t, "a producer id was given", given)
	cameAbout(t, "a controller took over", controllers)
}

// P10: leaders die and ISRs shrink under producers that send each batch once: what is refused for certain is never there.
func TestP10WhatIsRefusedIsNeverThere(t *testing.T) {
	refused := 0
	tell(t, Options{}, func(s story) {
		s.addProducer(0, -1, false)
		s.addProducer(1, -1, false)
		for range 3 {
			leader := s.untilLed(0)
			s.silence(leader.n, 5*time.Second)
			s.net.resets = 50
			s.pass(4 * time.Second)
			s.crash(memfs.Keep, leader.n)
			s.net.resets = 0
			s.until(20*time.Second, "leaders", s.led)
			s.back()
		}
		refused += len(s.check.never)
	})
	cameAbout(t, "a record was refused for certain", refused)
}

// T1 (KAFKA-17754): an EndTxn, an AddPartitions and a Produce of the last transaction arrive in the next one, at a new
// coordinator and a new leader. Version 2 refuses each.
func TestT1DelayedIntoTheNextTransaction(t *testing.T) {
	delayed := 0
	tellTxns(t, Options{}, func(s story) {
		p := s.writer("z")
		x := s.written(p)
		s.commits(p, x)
		next := s.written(p)
		for _, i := range []int{txnPartition, next.records[0].i} {
			s.crash(memfs.Keep, s.untilLed(i).n)
			s.until(20*time.Second, "leaders", s.led)
			s.back()
		}
		for _, commit := range []bool{false, true} {
			r := p.endRequest(x, commit)
			if got := s.exchange(p, func(m *state.State, tok coord.Token, now time.Time) coord.Decision { return m.EndTxn(tok, now, r) }); !fences(got.Err) {
				s.t.Errorf("a delayed EndTxn (commit: %v) is answered %v", commit, got.Err)
			}
		}
		add := state.AddRequest{ID: p.id, Producer: x.producer, Partitions: []wire.TopicPartition{nameOf(0)}, Client: state.V2, Cluster: state.V2}
		if got := s.exchange(p, func(m *state.State, tok coord.Token, now time.Time) coord.Decision {
			return m.AddPartitions(tok, now, add)
		}); !fences(got.Err) {
			s.t.Errorf("a delayed AddPartitionsToTxn is answered %v", got.Err)
		}
		var answer error
		b := &sent{first: s.nextRecord, count: 1}
		s.nextRecord++
		s.check.writes(s.check.begins(p, x.producer), next.records[0].i, b)
		var produce func()
		produce = func() {
			p.produce(x, next.records[0].i, b, func(got produced, ok bool) {
				if !ok || got.err != nil && mayPass(got.err) {
					p.soon(produce)
					return
				}
				if answer = got.err; answer == nil {
					answer = errors.New("stored")
				}
			})
		}
		produce()
		s.until(20*time.Second, "an answer to the write", func() bool { return answer != nil })
		if !fences(answer) {
			s.t.Errorf("a delayed Produce is answered %v", answer)
		}
		delayed++
		s.commits(p, next)
	})
	cameAbout(t, "requests of the last transaction arrived in the next one", delayed)
}

// T1 for markers, version 1: one that is lost on its way is sent again, and arrives when the producer's next transaction, of the same
// epoch, is open at the partition. It is not taken for that of the open one.
func TestT1MarkerDelayedIntoTheNextTransaction(t *testing.T) {
	late := 0
	tellTxns(t, Options{}, func(s story) {
		p := s.writer("y")
		ends := func(x *txn) { // with an abort where a write was refused, as a client of version 1 does after a lost answer
			p.hold = false
			s.until(40*time.Second, "the end of a transaction", func() bool { return p.before == x || p.txn != x || p.stage == starting })
		}
		for range 4 {
			x := s.written(p)
			i, _ := s.place(x)
			c, leader := s.coordinator(), s.untilLed(i).n
			if leader == c.p.n {
				ends(x)
				s.crash(memfs.Keep, leader)
				s.until(20*time.Second, "leaders", s.led)
				s.back()
				continue
			}
			p.hold = false
			owed := func() bool {
				j := c.jobs[p.id]
				return j != nil && j.Producer == x.producer && j.missing == len(j.Partitions)
			}
			if !s.reach(owed, func() bool { return p.txn != x || p.stage == starting }) {
				continue
			}
			from, lost := c.p.n, c.p.n.lostMarkers[leader.id]
			s.net.cut[from.id][leader.id] = true
			s.until(20*time.Second, "the marker is lost", func() bool { return from.lostMarkers[leader.id] > lost })
			s.net.cut[from.id][leader.id] = false
			ends(x)
			next := s.written(p)
			there := func(r placed) bool { return r.i == i }
			if next.producer == x.producer && slices.ContainsFunc(next.records, there) && s.leads(i) != nil && s.leads(i).n == leader && leader.parts[i].plog.InTransaction(x.producer.ID, x.producer.Epoch) {
				m := coord.Marker{ProducerRef: coord.ProducerRef{ID: x.producer.ID, Epoch: x.producer.Epoch}, CoordinatorEpoch: int32(c.epoch)}
				var answer error
				leader.takeMarker(from.id, marker.Attempt{Broker: from.epoch, Lost: lost}, i, m, func(r any) { answer = r.(marked).err })
				if !errors.Is(answer, marker.ErrLate) {
					s.t.Errorf("a marker that was given up is answered %v", answer)
				}
				late++
			}
			ends(next)
			s.pass(time.Second) // readers see it
		}
	})
	cameAbout(t, "a marker of the last transaction arrived in the next one", late)
}

// T2 (KIP-890): the coordinator's word that a write belongs to an open transaction arrives after its marker, at a leader that
// was replaced meanwhile and leads again. The write is not taken: no transaction is open that its coordinator does not know.
func TestT2LeaderChangesBetweenVerificationAndAppend(t *testing.T) {
	lost := 0
	tellTxns(t, Options{}, func(s story) {
		p := s.writer("y")
		for _, o := range s.writers {
			o.still = true
		}
		s.until(30*time.Second, "idle producers", func() bool {
			return !slices.ContainsFunc(s.writers, func(o *txnProducer) bool { return o.stage != idle })
		})
		for _, n := range s.nodes {
			n.lateAnswers = 12 * time.Second
		}
		p.hasty, p.still = true, false
		s.until(10*time.Second, "the producer has begun", func() bool { return p.stage == writing })
		x := p.txn
		i := x.records[0].i
		s.until(time.Second, "a guard, and an answer on its way", func() bool { return s.untilLed(i).n.waiting > 0 })
		leader := s.untilLed(i).n
		for _, n := range s.others(leader) {
			s.net.cut[n.id][leader.id], s.net.cut[leader.id][n.id] = true, true
		}
		s.until(10*time.Second, "it has given up", func() bool { return p.stage != writing })
		p.hasty, p.still = false, true
		for _, n := range s.nodes {
			n.lateAnswers = 0
		}
		s.until(20*time.Second, "another leader", func() bool { l := s.leads(i); return l != nil && l.n != leader })
		s.until(20*time.Second, "its transaction is aborted", func() bool { return x.told == aborted })
		s.pass(500 * time.Millisecond)
		s.net.cut = [maxNodes + 1][maxNodes + 1]bool{}
		s.wholeISR()
		s.nemesis.elect()
		s.until(5*time.Second, "leaders", s.led)
		s.pass(time.Second)
		again := leader.waiting > 0 && s.leads(i) != nil && s.leads(i).n == leader
		before := s.check.txns.guardsLost
		s.until(15*time.Second, "the answer", func() bool { return leader.waiting == 0 })
		if again {
			lost += s.check.txns.guardsLost - before
		}
		for _, o := range s.writers {
			o.still = false
		}
	})
	cameAbout(t, "a guard was gone before the append", lost)
}

// T3: the coordinator dies once it has decided, and its markers are lost with it. The last stable offset moves all the same,
// long before the transaction would run out of time.
func TestT3MarkersOfADeadCoordinator(t *testing.T) {
	owed := 0
	tellTxns(t, Options{}, func(s story) {
		for range 3 {
			p := s.writer("z")
			x := s.written(p)
			i, at := s.place(x)
			c := s.coordinator()
			p.hold = false
			if !s.reach(func() bool { j := c.jobs[p.id]; return j != nil && j.missing > 0 && j.Commit }, func() bool { return p.before == x }) {
				continue
			}
			before := s.check.txns.owed
			s.crash(memfs.Lose, c.p.n)
			took := s.until(30*time.Second, "the last stable offset moves", func() bool { l := s.leads(i); return l != nil && l.state.LSO() > at })
			s.t.Logf("the last stable offset moved after %v", took)
			owed += s.check.txns.owed - before
			s.commits(p, x)
			s.back()
		}
	})
	cameAbout(t, "a new coordinator sent the markers that were owed", owed)
}

// T4: the coordinator is killed at each step between the decision and its completion, and the next one, too. The outcome is
// the decided one.
func TestT4CoordinatorKilledAtEachStep(t *testing.T) {
	steps := []string{"prepared, not committed", "decided", "one marker is there", "complete, not committed", "complete"}
	counts := make([]int, len(steps))
	tellTxns(t, Options{}, func(s story) {
		for k := range 2 * len(steps) {
			p := s.writer([]string{"z", "y"}[k%2])
			step := k / 2
			x := s.written(p)
			c := s.coordinator()
			p.hold = false
			committedAll := func() bool { return c.p.state.HW() >= c.p.plog.EndOffset() }
			there := func() bool {
				t, _ := c.state.Lookup(p.id)
				j := c.jobs[p.id]
				decided := j != nil && t.Status == state.PrepareCommit
				switch step {
				case 0:
					return t.Status == state.PrepareCommit && !committedAll()
				case 1:
					return decided && j.missing == len(j.Partitions)
				case 2:
					return decided && j.missing > 0 && j.missing < len(j.Partitions)
				case 3:
					return t.Status == state.CompleteCommit && !committedAll()
				}
				return t.Status == state.CompleteCommit
			}
			if s.reach(there, func() bool { return p.txn != x }) {
				counts[step]++
				s.crash([]memfs.Fate{memfs.Keep, memfs.Lose}[s.rng.IntN(2)], c.p.n)
				s.until(20*time.Second, "another coordinator", func() bool { l := s.leads(txnPartition); return l != nil && l.n != c.p.n })
				c.p.n.boot()
				s.wholeISR()
				s.crash(memfs.Keep, s.untilLed(txnPartition).n)
			}
			s.commits(p, x)
			s.back()
		}
	})
	for k, n := range counts {
		cameAbout(t, "a coordinator was killed: "+steps[k], n)
	}
}

// T5: the leader of one partition takes no marker: too few are in sync, then it dies and there is none. The marker is tried
// until it is there; the producer is not held up, nor is the other partition.
func TestT5MarkerCanNotBeWritten(t *testing.T) {
	stuck := 0
	tellTxns(t, Options{}, func(s story) {
		p := s.writer("z")
		for range 3 {
			x := s.written(p)
			i, at := s.place(x)
			leader := s.untilLed(i).n
			if leader == s.coordinator().p.n {
				s.commits(p, x)
				s.crash(memfs.Keep, leader)
				s.until(20*time.Second, "leaders", s.led)
				s.back()
				continue
			}
			s.silence(leader, 30*time.Second)
			if part := leader.parts[i]; !s.reach(part.state.UnderMinISR, func() bool { return !part.leads() }) { // its leadership moved meanwhile
				s.silence(leader, 0)
				s.commits(p, x)
				s.back()
				continue
			}
			before := s.check.txns.markerRetries
			s.commits(p, x)
			s.until(5*time.Second, "the marker is refused", func() bool { return s.check.txns.markerRetries > before+2 })
			if lso := leader.parts[i].state.LSO(); lso > at {
				s.t.Errorf("the last stable offset is %d, the transaction without its marker begins at %d", lso, at)
			}
			stuck++
			s.silence(leader, 0)
			s.crash(memfs.Keep, leader)
			s.until(20*time.Second, "the last stable offset moves", func() bool { l := s.leads(i); return l != nil && l.state.LSO() > at })
			s.back()
		}
	})
	cameAbout(t, "a marker was refused", stuck)
}

// T6: two producers take one transactional id from each other, while its coordinator changes at any step. One has it at a
// time; the other is told that it is fenced.
func TestT6TwoProducersOfOneID(t *testing.T) {
	fenced, both := 0, 0
	tellTxns(t, Options{}, func(s story) {
		for range 8 {
			s.pass(s.between(500*time.Millisecond, 1500*time.Millisecond))
			s.crash([]memfs.Fate{memfs.Keep, memfs.Lose}[s.rng.IntN(2)], s.coordinator().p.n)
			s.until(20*time.Second, "leaders", s.led)
			s.back()
		}
		fenced += s.check.txns.fenced
		if s.writers[0].commits > 0 && s.writers[1].commits > 0 {
			both++
		}
	})
	cameAbout(t, "a producer was fenced", fenced)
	cameAbout(t, "both have committed", both)
}

// T7: the record that begins a transaction is in the log of the coordinator alone, and the coordinator changes. Nothing was
// written that the new one does not know; the transaction begins anew, and commits.
func TestT7BeginningIsLostWithTheCoordinator(t *testing.T) {
	lost := 0
	tellTxns(t, Options{}, func(s story) {
		for _, id := range []string{"z", "y", "z", "y"} {
			p := s.writer(id)
			p.still = true
			s.until(20*time.Second, "an idle producer", func() bool { return p.stage == idle })
			s.until(10*time.Second, "the last transaction is complete", func() bool { return s.status(id) != state.PrepareCommit })
			c, begin := s.coordinator(), s.now
			s.silence(c.p.n, 10*time.Second)
			p.still = false
			began := func() bool { t, _ := c.state.Lookup(id); return t.Status == state.Ongoing && p.stage == writing }
			if !s.reach(began, func() bool { return c.ended || s.now > begin+lagTime }) { // its leadership moved meanwhile
				s.silence(c.p.n, 0)
				s.back()
				continue
			}
			x := p.txn
			if x.acks > 0 {
				s.t.Fatalf("a write was acknowledged before its coordinator's record\n%s", s.history())
			}
			s.crash(memfs.Keep, c.p.n)
			now := s.untilLed(txnPartition)
			if t, _ := now.txns.state.Lookup(id); t.Status != state.Ongoing {
				lost++
			}
			s.until(40*time.Second, "the end of the transaction", func() bool { return p.before == x || p.stage == starting })
			if x.told != committed {
				s.t.Fatalf("producer %s was told that its transaction is %v\n%s", id, x.told, s.history())
			}
			s.back()
		}
	})
	cameAbout(t, "the beginning of a transaction was lost", lost)
}

// T11: a transaction runs out of time as its commit comes, with and without a change of the coordinator: one outcome.
func TestT11TimeoutMeetsCommit(t *testing.T) {
	commits, timeouts := 0, 0
	tellTxns(t, Options{Timeout: 1500 * time.Millisecond}, func(s story) {
		p := s.writer("z")
		before := s.check.txns.timeouts
		for k := range 8 {
			p.hold = true
			s.until(40*time.Second, "a transaction that is written", func() bool { return p.stage == written })
			x := p.txn
			if k%2 == 0 {
				s.pass(s.between(0, 1200*time.Millisecond))
				s.crash(memfs.Keep, s.coordinator().p.n)
				s.pass(s.between(0, time.Second))
			} else {
				s.pass(s.between(time.Second, 2*time.Second))
			}
			p.hold = false
			s.until(40*time.Second, "the end of the transaction", func() bool { return p.before == x || p.txn != x || p.stage == starting })
			if x.told == committed {
				commits++
			}
			s.back()
		}
		timeouts += s.check.txns.timeouts - before
	})
	cameAbout(t, "the commit won", commits)
	cameAbout(t, "the timeout won", timeouts)
}

// T12: the partition of the coordinator is below min.insync.replicas, then its leader dies, and the next one loads: requests
// are refused or put off with the codes of coordinators, and no state is invented.
func TestT12CoordinatorBelowMinISRAndLoading(t *testing.T) {
	refused, loading := 0, 0
	tellTxns(t, Options{}, func(s story) {
		for range 3 {
			c := s.coordinator()
			refusals, puts := s.check.parts[txnPartition].refusals, s.check.txns.loading
			s.silence(c.p.n, 8*time.Second)
			if !s.reach(func() bool { return c.p.state.UnderMinISR() }, func() bool { return c.ended }) { // its leadership moved meanwhile
				s.silence(c.p.n, 0)
				s.back()
				continue
			}
			s.pass(2 * time.Second)
			refused += s.check.parts[txnPartition].refusals - refusals
			s.crash(memfs.Keep, c.p.n)
			s.untilLed(txnPartition)
			s.pass(2 * time.Second)
			s.back()
			loading += s.check.txns.loading - puts
		}
	})
	cameAbout(t, "the coordinator could not write", refused)
	cameAbout(t, "the coordinator was loading", loading)
}

// T13: the leader changes between the data and the marker: the new leader knows the open transaction and its first unstable
// offset, and readers of what is committed wait before it.
func TestT13LeaderChangesBeforeTheMarker(t *testing.T) {
	open := 0
	tellTxns(t, Options{}, func(s story) {
		for _, id := range []string{"z", "y"} {
			p := s.writer(id)
			x := s.written(p)
			i, at := s.place(x)
			leader := s.untilLed(i).n
			s.crash(memfs.Lose, leader)
			s.until(20*time.Second, "another leader", func() bool { l := s.leads(i); return l != nil && l.n != leader })
			now := s.leads(i)
			if first, unstable := now.plog.FirstUnstableOffset(); !unstable || first > at || now.state.LSO() > at || !now.plog.InTransaction(x.producer.ID, x.producer.Epoch) {
				s.t.Fatalf("the new leader of partition %d has its first unstable offset at %d (%v), the last stable one at %d; a transaction is open from %d on\n%s",
					i, first, unstable, now.state.LSO(), at, s.history())
			}
			open++
			s.back()
			s.commits(p, x)
		}
	})
	cameAbout(t, "a transaction was open as the leader changed", open)
}

// T15: an EndTxn is sent again after its success, to a new coordinator: it gets the same answer.
func TestT15EndTxnAgainAtANewCoordinator(t *testing.T) {
	again := 0
	tellTxns(t, Options{}, func(s story) {
		for _, id := range []string{"z", "y"} {
			p := s.writer(id)
			x := s.written(p)
			p.still = true
			s.commits(p, x)
			if s.until(20*time.Second, "an idle producer", func() bool { return p.stage == idle }); !p.client.Bumps() && p.now != x.producer {
				p.still = false // it had to take a new incarnation
				continue
			}
			s.until(10*time.Second, "the transaction is complete", func() bool { return s.status(id) == state.CompleteCommit })
			s.crash(memfs.Keep, s.coordinator().p.n)
			s.coordinator()
			r := p.endRequest(x, true)
			if got := s.exchange(p, func(m *state.State, tok coord.Token, now time.Time) coord.Decision { return m.EndTxn(tok, now, r) }); got.Err != nil || got.Producer != p.now {
				s.t.Errorf("EndTxn again is answered %v, %v; the producer is %v", got.Err, got.Producer, p.now)
			}
			again++
			p.still = false
			s.back()
		}
	})
	cameAbout(t, "an EndTxn was repeated", again)
}
