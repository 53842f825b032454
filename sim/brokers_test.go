package sim

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// beatEvery is how often a healthy broker sends a heartbeat.
const beatEvery = 500 * time.Millisecond

// pulse is a broker as the controller sees it: it registers, sends heartbeats to whoever leads, and listens.
type pulse struct {
	q      *Quorum
	id     wire.BrokerID
	epoch  wire.BrokerEpoch
	host   *Host
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu   sync.Mutex
	last raftctl.HeartbeatReply
}

func newPulse(t *testing.T, q *Quorum, id int) *pulse {
	t.Helper()
	p := &pulse{q: q, id: wire.BrokerID(id), host: q.Net.Host("b" + string(rune('0'+id)))}
	l, err := p.host.Boot().Listen("tcp", ":9092")
	if err != nil {
		t.Fatal(err)
	}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	})
	m := q.Leader(time.Minute)
	p.epoch, err = m.Controller().RegisterBroker(t.Context(), raftctl.Registration{
		ID: p.id, Incarnation: wire.UUID{0: byte(id), 15: 201}, PreviousEpoch: wire.NoBrokerEpoch, LogDirs: []wire.UUID{{0: byte(id), 15: 201}},
		Endpoints: []image.Endpoint{{Listener: "PLAINTEXT", Host: p.host.name, Port: 9092}}, Features: api.BrokerFeatures(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.cancel = cancel
	p.wg.Go(func() { p.beat(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		p.wg.Wait()
	})
	return p
}

func (p *pulse) beat(ctx context.Context) {
	for ctx.Err() == nil {
		if c := p.q.leading(); c != nil {
			reply, err := c.Heartbeat(ctx, raftctl.Heartbeat{ID: p.id, Epoch: p.epoch, Offset: c.Image().Offset()})
			if err == nil {
				p.mu.Lock()
				p.last = reply
				p.mu.Unlock()
			}
		}
		t := time.NewTimer(beatEvery)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

func (p *pulse) fenced(m *Member) bool {
	b, ok := m.Controller().Image().Broker(p.id)
	return !ok || b.Fenced
}

// untilFenced waits for a broker to be fenced, and gives how long that took; at most d.
func (p *pulse) untilFenced(t *testing.T, d time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	for time.Since(start) < d {
		if m := p.q.Leader(time.Nanosecond); m != nil && p.fenced(m) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(start)
}

// withBrokers are three controllers and three brokers with a partition that broker 1 leads.
func withBrokers(t *testing.T, q *Quorum) []*pulse {
	t.Helper()
	members := q.Found(3)
	for _, m := range members {
		if err := m.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await(t, members...)
	var out []*pulse
	for id := 1; id <= 3; id++ {
		out = append(out, newPulse(t, q, id))
	}
	time.Sleep(2 * time.Second)
	res, err := q.Leader(time.Minute).Controller().CreateTopics(t.Context(), []raftctl.NewTopic{{Name: "t", Partitions: -1, ReplicationFactor: -1,
		Assignments: []raftctl.Assignment{{Partition: 0, Replicas: []wire.BrokerID{1, 2, 3}}}}}, false)
	if err == nil && res[0].Err != nil {
		err = res[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func leaderOf(t *testing.T, m *Member) wire.BrokerID {
	t.Helper()
	p, ok := m.Controller().Image().Partition("t", 0)
	if !ok {
		t.Fatal("the partition is gone")
	}
	return p.Leader
}

// A silent broker keeps its session to its end, which is twice as far off while its node answers raft; one whose machine refuses connections is fenced at once; a broken
// connection of a broker that listens fences nobody.
func TestQuorumFencesBrokers(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		brokers := withBrokers(t, q)
		leader := q.Leader(time.Minute)
		for range 5 {
			leader.Controller().Suspect(1, brokers[0].epoch)
			time.Sleep(time.Second)
		}
		if brokers[0].fenced(leader) || leaderOf(t, leader) != 1 {
			t.Fatal("a healthy broker was fenced for a broken connection")
		}
		brokers[2].cancel()
		if d := brokers[2].untilFenced(t, time.Minute); d < 16*time.Second || d > 18500*time.Millisecond {
			t.Errorf("a silent broker of a node that lives was fenced after %v, its session has 9 s", d)
		}
		brokers[0].cancel()
		brokers[0].host.Kill()
		leader.Controller().Suspect(1, brokers[0].epoch)
		if d := brokers[0].untilFenced(t, time.Minute); d > 10*time.Millisecond {
			t.Errorf("a broker whose machine refuses connections was fenced after %v", d)
		}
		if got := leaderOf(t, leader); got != 2 {
			t.Errorf("the partition is led by %d, want 2", got)
		}
	})
}

// A broker that dies while it is looked for is looked for again: what was seen of it before, and that it was heard then, counts no more.
func TestQuorumLooksForTheDeadAgain(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		brokers := withBrokers(t, q)
		b, leader := brokers[0], q.Leader(time.Minute).Controller()
		b.cancel()
		leader.Suspect(b.id, b.epoch)
		time.Sleep(100 * time.Millisecond)
		if _, err := leader.Heartbeat(t.Context(), raftctl.Heartbeat{ID: b.id, Epoch: b.epoch, Offset: leader.Image().Offset()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		b.host.Kill()
		leader.Suspect(b.id, b.epoch)
		if d := b.untilFenced(t, time.Minute); d > 200*time.Millisecond {
			t.Errorf("a broker whose machine refuses connections was fenced after %v", d)
		}
	})
}

// A controller that takes over fences nobody who is there, and finds at once who died with its predecessor (C16).
func TestQuorumFailoverFencesOnlyTheDead(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		brokers := withBrokers(t, q)
		old := q.Leader(time.Minute)
		brokers[0].cancel()
		brokers[0].host.Kill()
		old.PowerOff(memfs.Lose, seed)
		start := time.Now()
		if d := brokers[0].untilFenced(t, time.Minute); d > 1200*time.Millisecond {
			t.Errorf("the broker that died with the controller was fenced after %v", d)
		}
		t.Logf("election and fencing took %v", time.Since(start))
		time.Sleep(20 * time.Second)
		now := q.Leader(time.Minute)
		for _, b := range brokers[1:] {
			if b.fenced(now) {
				t.Errorf("broker %d is there and was fenced", b.id)
			}
		}
		if got := leaderOf(t, now); got != 2 {
			t.Errorf("the partition is led by %d, want 2", got)
		}
	})
}
