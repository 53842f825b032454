package loop

import (
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// The rows of docs/scenarios.md that are one story each. The invariants are looked at after every event, and everything
// at the end; what a test asks besides is that the story took place.

// rowSeeds is with how many seeds each story is told.
const rowSeeds = 5

// story is a cluster of three with writers and readers, and no faults but those that the test makes.
type story struct {
	*cluster
	t *testing.T
}

func tell(t *testing.T, o Options, f func(s story)) {
	t.Parallel()
	o.Nodes, o.Pause, o.Writes, o.End = 3, 100*time.Millisecond, 1<<40, 1<<40
	if o.MinISR == 0 {
		o.MinISR = 2
	}
	for seed := uint64(1); seed <= rowSeeds; seed++ {
		c := newCluster(seed, o)
		s := story{c, t}
		s.pass(4 * time.Second)
		s.wholeISR()
		f(s)
		s.end()
	}
}

// pass lets time go by.
func (s story) pass(d time.Duration) {
	s.t.Helper()
	s.run(s.now + d)
	if s.err != nil {
		s.t.Fatalf("%v\n%s", s.err, s.history())
	}
}

// until lets time go by until ok, at most limit, and gives how long it took.
func (s story) until(limit time.Duration, what string, ok func() bool) time.Duration {
	s.t.Helper()
	begin := s.now
	for !ok() {
		if s.now-begin > limit {
			s.t.Fatalf("%s: not within %v\n%s", what, limit, s.history())
		}
		s.pass(time.Millisecond)
	}
	return s.now - begin
}

func (s story) partition(i int) *image.Partition {
	p, ok := s.meta.committed().Partition(nameOf(i).Topic, nameOf(i).Partition)
	if !ok {
		s.t.Fatalf("there is no partition %d", i)
	}
	return p
}

func (s story) wholeISR() {
	s.t.Helper()
	s.until(20*time.Second, "whole ISRs", func() bool {
		for i := range s.opts.partitions() {
			for _, n := range s.nodes {
				if !s.check.member(n, i) {
					return false
				}
			}
		}
		return true
	})
}

func (s story) led() bool {
	for i := range s.opts.partitions() {
		if s.partition(i).Leader == wire.NoBroker {
			return false
		}
	}
	return true
}

// roles are the leader of partition 0 and the others.
func (s story) roles() (leader, a, b *node) {
	leader = s.node(int(s.partition(0).Leader))
	var rest []*node
	for _, n := range s.nodes {
		if n != leader {
			rest = append(rest, n)
		}
	}
	return leader, rest[0], rest[1]
}

func (s story) crash(fate memfs.Fate, nodes ...*node) {
	for _, n := range nodes {
		n.dies(fate)
		n.clean = wire.NoBrokerEpoch
	}
}

// end heals everything, lets the writers finish, and looks at the whole.
func (s story) end() {
	s.t.Helper()
	s.nemesis.heal()
	s.opts.Writes = s.now
	s.pass(20 * time.Second)
	s.check.settled(20 * time.Second)
	if s.err != nil {
		s.t.Fatalf("%v\n%s", s.err, s.history())
	}
	if s.check.acks < 50 {
		s.t.Fatalf("%d batches were acknowledged", s.check.acks)
	}
}

// deafen lets a replica live on, but not fetch from a leader.
func (s story) deafen(n, leader *node, d time.Duration) {
	n.sources[leader.id].retry = s.now + d
	n.later(d, n.fetchAll)
}

// R1 (KIP-101): a follower whose high watermark lags restarts, its leader dies before it has fetched again, and it leads.
// What was acknowledged stays, although it lies above the follower's own high watermark.
func TestR1RestartedFollowerKeepsWhatLiesAboveItsHW(t *testing.T) {
	tell(t, Options{}, func(s story) {
		for range 4 {
			leader, a, _ := s.roles()
			s.crash(memfs.Keep, a)
			s.pass(30 * time.Millisecond)
			a.boot()
			s.until(10*time.Second, "the follower serves", func() bool { return a.serving })
			s.crash(memfs.Keep, leader)
			s.until(15*time.Second, "another leader", s.led)
			leader.boot()
			s.wholeISR()
		}
	})
}

// R2 (KIP-101): leader and follower lose power together, the one with less comes back first and leads, and writes at the
// same offsets. The logs are equal in the end.
func TestR2PowerLossOfTwoLeavesEqualLogs(t *testing.T) {
	tell(t, Options{MinISR: 1, Unclean: true}, func(s story) {
		for i := range 3 {
			leader, a, b := s.roles()
			s.crash(memfs.Lose, leader, a)
			s.pass(50 * time.Millisecond)
			if i == 1 {
				s.crash(memfs.Lose, b)
			}
			s.pass(2 * time.Second)
			for _, n := range []*node{a, leader, b} {
				if !n.up {
					n.boot()
					s.pass(1500 * time.Millisecond)
				}
			}
			s.wholeISR()
		}
	})
}

// R8 (KIP-966): the ISR shrinks below min.insync.replicas, the last member loses its page cache. The high watermark has
// stood still meanwhile, so an eligible replica leads and nothing is lost.
func TestR8LastReplicaStandingLosesItsPageCache(t *testing.T) {
	tell(t, Options{}, func(s story) {
		leader, a, b := s.roles()
		s.deafen(a, leader, 8*time.Second)
		s.deafen(b, leader, 8*time.Second)
		s.until(10*time.Second, "an ISR of one", func() bool { p := s.partition(0); return len(p.ISR) == 1 && len(p.ELR) >= 1 })
		s.until(time.Second, "the leader hears of it", func() bool { return len(leader.parts[0].meta.ISR) == 1 })
		hw := leader.parts[0].state.HW()
		s.pass(time.Second)
		if now := leader.parts[0].state.HW(); now != hw {
			s.t.Errorf("the high watermark moved from %d to %d below min.insync.replicas\n%s", hw, now, s.history())
		}
		s.crash(memfs.Lose, leader)
		s.until(20*time.Second, "another leader", func() bool { l := s.partition(0).Leader; return l != wire.NoBroker && l != wire.BrokerID(leader.id) })
		leader.boot()
		s.wholeISR()
	})
}

// R10: the whole ISR loses power at once; with kaja.fsync=always nothing that was acknowledged is lost.
func TestR10PowerLossOfTheWholeISR(t *testing.T) {
	tell(t, Options{FSync: replica.FSyncAlways}, func(s story) {
		for _, fate := range []memfs.Fate{memfs.Lose, memfs.Coin, memfs.Lose} {
			s.crash(fate, s.nodes...)
			s.pass(time.Second)
			for _, n := range s.nodes {
				n.boot()
			}
			s.until(30*time.Second, "leaders", s.led)
			s.wholeISR()
		}
	})
}

// R11: a leader's request for a larger ISR lies on its way while its repetition is refused, because the replica was fenced
// meanwhile, and is read after that one has come back. It has no effect by then, and nobody has waited for the replica.
func TestR11CopyThatArrivesAfterTheRefusal(t *testing.T) {
	tell(t, Options{}, func(s story) {
		leader, a, b := s.roles()
		s.until(20*time.Second, "the controller on the third node", func() bool {
			if s.meta.leader != 0 && s.meta.leader != a.id {
				s.meta.depose()
			}
			return s.meta.leader == a.id && a.ctrl.active
		})
		in := func(n *node) bool { return s.partition(0).InISR(wire.BrokerID(n.id)) }
		s.deafen(b, leader, time.Minute)
		s.until(10*time.Second, "an ISR without it", func() bool { return !in(b) && len(leader.parts[0].meta.ISR) == 2 })
		s.net.cut[b.id][a.id] = true // no heartbeats: it is fenced before the leader asks again
		s.pass(sessionTimeout - 2*heartbeatEvery)
		leader.hint = a.id
		s.deafen(b, leader, 0)
		p, step := leader.parts[0], 50*time.Microsecond // less than a message takes
		for range time.Second / step {
			if s.pass(step); p.state.Proposing(p.meta.PartitionEpoch) {
				break
			}
		}
		s.net.cut[leader.id][a.id] = true
		copied := leader.proposal(p).change
		s.deafen(b, leader, time.Minute)
		s.pass(100 * time.Millisecond) // the request arrives, which is to say, does not
		s.net.cut[leader.id][a.id] = false
		fenced := func() bool { r, _ := s.meta.committed().Broker(wire.BrokerID(b.id)); return r.Fenced }
		s.until(3*time.Second, "the replica is fenced", fenced)
		if len(copied.ISR) != 3 || in(b) {
			s.t.Fatalf("%+v is on the way, and the ISR is %v\n%s", copied, s.partition(0).ISR, s.history())
		}
		end := b.parts[0].plog.EndOffset()
		s.until(10*time.Second, "records that the replica lacks", func() bool { return leader.parts[0].state.HW() > end })
		s.net.cut[b.id][a.id] = false
		s.until(10*time.Second, "the replica is in service", func() bool { return !fenced() })
		var r outcome
		a.ctrl.request(func(core *raftctl.Core) ([]byte, any, error) {
			data, results, err := core.AlterPartitions(wire.BrokerID(leader.id), leader.epoch, []raftctl.ISRChange{copied})
			return data, results, err
		}, func(o any) { r = o.(outcome) })
		s.pass(100 * time.Millisecond)
		if results, ok := r.value.([]raftctl.ISRResult); r.err != nil || !ok || results[0].Err == nil || results[0].Err.Code != kerr.InvalidUpdateVersion {
			s.t.Fatalf("the copy is answered %+v\n%s", r, s.history())
		}
		s.deafen(b, leader, 0)
		s.wholeISR()
	})
}

// R12: a replica that was in sync comes back empty. It is taken into the ISR again only when it has fetched everything in
// its new life and in the leader's epoch.
func TestR12ReplicaThatComesBackEmpty(t *testing.T) {
	tell(t, Options{}, func(s story) {
		_, a, _ := s.roles()
		s.crash(memfs.Keep, a)
		a.disk, a.checkpoints = memfs.New(s.time), make([]checkpoint, s.opts.partitions())
		if err := a.disk.MkdirAll("d"); err != nil {
			s.t.Fatal(err)
		}
		if err := a.disk.SyncDir("/"); err != nil {
			s.t.Fatal(err)
		}
		a.boot()
		s.wholeISR()
	})
}

// R13: connections break under fetches, which arrive late, after later ones and after elections.
func TestR13LateFetches(t *testing.T) {
	tell(t, Options{}, func(s story) {
		s.net.resets = 200
		for range 4 {
			s.pass(3 * time.Second)
			s.meta.flap()
			_, a, _ := s.roles()
			s.crash(memfs.Lose, a)
			s.pass(100 * time.Millisecond)
			a.boot()
			s.net.resets = 100
			s.pass(5 * time.Second)
		}
		s.net.resets = 0
		s.wholeISR()
	})
}

// R14: the leader dies as soon as it has committed; consumers are ahead of the next one's high watermark and are not told
// to begin anew.
func TestR14ConsumerAheadOfTheNewLeader(t *testing.T) {
	tell(t, Options{}, func(s story) {
		for range 5 {
			reads := s.check.reads
			s.until(10*time.Second, "readers", func() bool { return s.check.reads > reads+3 })
			leader, _, _ := s.roles()
			s.crash(memfs.Keep, leader)
			s.until(15*time.Second, "another leader", s.led)
			leader.boot()
			s.wholeISR()
		}
	})
}

// R15: the leader is paused for three sessions with produces under way, then wakes; or it is cut off with its clients.
// It acknowledges nothing more, and its log is cut to the new leader's history.
func TestR15ReplacedLeader(t *testing.T) {
	tell(t, Options{}, func(s story) {
		leader, _, _ := s.roles()
		leader.pause()
		s.pass(3 * sessionTimeout)
		if s.partition(0).Leader == wire.BrokerID(leader.id) {
			s.t.Error("the leader was not replaced")
		}
		leader.resume()
		s.wholeISR()
		leader, _, _ = s.roles()
		s.nemesis.partition(func(a, b int) bool { return a == leader.id || b == leader.id })
		s.until(10*time.Second, "another leader", func() bool { return s.partition(0).Leader != wire.BrokerID(leader.id) })
		s.pass(2 * time.Second)
		s.nemesis.heal()
		s.wholeISR()
	})
}

// R22: nobody in sync is left, and an unclean election is asked for. Then, and only then, a replica that is not in sync
// leads; only what it does not have is lost, and the epoch is a new one.
func TestR22UncleanElection(t *testing.T) {
	tell(t, Options{MinISR: 1, Unclean: true}, func(s story) {
		leader, a, b := s.roles()
		s.crash(memfs.Keep, b)
		s.until(10*time.Second, "an ISR without it", func() bool { return !s.partition(0).InISR(wire.BrokerID(b.id)) })
		s.pass(time.Second)
		s.crash(memfs.Keep, leader, a)
		before, epoch := s.check.lostUnclean, s.partition(0).LeaderEpoch
		b.boot()
		s.pass(100 * time.Millisecond)
		leader.boot() // for a majority of controllers; it comes back from an unclean stop
		s.until(20*time.Second, "an unclean election", func() bool { return s.check.lostUnclean > before })
		s.until(20*time.Second, "a leader", s.led)
		if s.partition(0).LeaderEpoch <= epoch {
			s.t.Error("the leader epoch is the old one")
		}
		a.boot()
		s.wholeISR()
	})
}

// R24: leaderships move to the preferred leaders and away under load, five requests in flight each.
func TestR24PreferredLeadersUnderLoad(t *testing.T) {
	tell(t, Options{}, func(s story) {
		elections := s.check.elections
		for range 5 {
			leader, _, _ := s.roles()
			s.crash(memfs.Keep, leader)
			s.until(15*time.Second, "another leader", s.led)
			leader.boot()
			s.wholeISR()
			s.nemesis.elect()
			s.pass(500 * time.Millisecond)
		}
		if s.check.elections < elections+10 {
			s.t.Errorf("%d leaderships began", s.check.elections-elections)
		}
	})
}

// R25: a replica whose fetches do not reach the leader leaves the ISR within 1.5 times replica.lag.time.max.ms.
func TestR25DeafReplicaLeavesTheISR(t *testing.T) {
	tell(t, Options{}, func(s story) {
		leader, a, b := s.roles()
		s.deafen(a, leader, time.Minute)
		took := s.until(5*time.Second, "an ISR without it", func() bool { return !s.partition(0).InISR(wire.BrokerID(a.id)) })
		if took > lagTime*3/2+isrTick+200*time.Millisecond {
			s.t.Errorf("it took %v, replica.lag.time.max.ms is %v", took, lagTime)
		}
		if !s.partition(0).InISR(wire.BrokerID(b.id)) {
			s.t.Error("the healthy replica left as well")
		}
		s.deafen(a, leader, 0)
	})
}

// C17: a broker with metadata of long ago leads, fetches and answers. Epochs keep it from harm.
func TestC17StaleMetadata(t *testing.T) {
	tell(t, Options{}, func(s story) {
		for range 3 {
			leader, a, _ := s.roles()
			leader.deaf, a.deaf = s.now+6*time.Second, s.now+4*time.Second
			s.pass(500 * time.Millisecond)
			s.meta.flap()
			s.nemesis.elect()
			s.pass(7 * time.Second)
			s.wholeISR()
		}
	})
}

// C16: controllers follow one another; no healthy broker is fenced for it.
func TestC16ControllerChangesFenceNobody(t *testing.T) {
	tell(t, Options{}, func(s story) {
		for range 10 {
			s.meta.depose()
			s.until(10*time.Second, "a controller", func() bool { return s.meta.leader != 0 })
			s.pass(300 * time.Millisecond)
			for b := range s.meta.committed().Brokers() {
				if b.Fenced {
					s.t.Fatalf("broker %d was fenced\n%s", b.ID, s.history())
				}
			}
		}
	})
}

// C10: the leadership flaps under decisions that are under way. Nothing that was answered is undone, no epoch is used
// twice.
func TestC10LeadershipFlaps(t *testing.T) {
	tell(t, Options{}, func(s story) {
		for i := range 40 {
			s.meta.flap()
			if i%4 == 0 {
				_, a, _ := s.roles()
				if a.up {
					s.crash(memfs.Keep, a)
					s.pass(20 * time.Millisecond)
					a.boot()
				}
			}
			s.pass(150 * time.Millisecond)
		}
		s.wholeISR()
	})
}
