package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// found starts n controllers of a new cluster, at different times, and waits until each has the metadata.
func found(t *testing.T, q *Quorum, n int) []*Member {
	t.Helper()
	return foundWith(t, q, n, func(*Member) {})
}

// foundWith is found with a look at each member before it starts.
func foundWith(t *testing.T, q *Quorum, n int, prepare func(*Member)) []*Member {
	t.Helper()
	members := q.Found(n)
	for _, m := range members {
		prepare(m)
		if err := m.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	await(t, members...)
	newPulse(t, q, 1) // topics need a broker
	time.Sleep(time.Second)
	return members
}

func await(t *testing.T, members ...*Member) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, m := range members {
		if err := m.Controller().Await(ctx); err != nil {
			t.Fatalf("controller %s: %v", m.ID, err)
		}
	}
}

func createOn(ctx context.Context, m *Member, topic string) error {
	return createBy(ctx, m.Controller(), topic)
}

func createBy(ctx context.Context, c *raftctl.Controller, topic string) error {
	res, err := c.CreateTopics(ctx, []raftctl.NewTopic{{Name: topic, Partitions: 1, ReplicationFactor: 1}}, false)
	if err != nil {
		return err
	}
	if res[0].Err != nil {
		return res[0].Err
	}
	return nil
}

// alive are the members that run.
func alive(q *Quorum) []*Member {
	var out []*Member
	for _, m := range q.members {
		if m.run.Load() != nil {
			out = append(out, m)
		}
	}
	return out
}

// converged waits until all running members have the leader's image.
func converged(t *testing.T, q *Quorum) *image.Image {
	t.Helper()
	leader := q.Leader(time.Minute)
	if leader == nil {
		t.Fatal("nobody leads")
	}
	time.Sleep(3 * time.Second)
	want := leader.Controller().Image()
	for _, m := range alive(q) {
		got := m.Controller().Image()
		if got.Offset() != want.Offset() || Digest(got) != Digest(want) {
			t.Errorf("controller %s is at %d with digest %s, the leader at %d with %s", m.ID, got.Offset(), Digest(got), want.Offset(), Digest(want))
		}
	}
	return want
}

// What is committed is the image of every node at once, not with the next heartbeat.
func TestQuorumPublishesAtOnce(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		members := found(t, q, 3)
		leader := q.Leader(time.Minute)
		for i := range 50 {
			topic := fmt.Sprintf("t%d", i)
			if err := createOn(t.Context(), leader, topic); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			for _, m := range members {
				for {
					if _, ok := m.Controller().Image().Topic(topic); ok {
						break
					}
					time.Sleep(100 * time.Microsecond)
				}
			}
			if d := time.Since(start); d > 10*time.Millisecond {
				t.Errorf("topic %d was on every node %v after its commit", i, d)
			}
			time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		}
		converged(t, q)
	})
}

// A leader that is killed or stops costs next to nothing, one that falls silent the election timeout and little more.
func TestQuorumOutlivesItsLeader(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		found(t, q, 3)
		for i, end := range []func(*Member){(*Member).Kill, func(m *Member) { m.PowerOff(memfs.Lose, seed) }, func(m *Member) {
			if err := m.Stop(); err != nil {
				t.Error(err)
			}
		}} {
			old := q.Leader(time.Minute)
			if err := createOn(t.Context(), old, fmt.Sprintf("t%d", i)); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			end(old)
			if q.Leader(time.Minute) == nil {
				t.Fatal("nobody leads")
			}
			gap := time.Since(start)
			if most := []time.Duration{100 * time.Millisecond, 1200 * time.Millisecond, 100 * time.Millisecond}[i]; gap > most {
				t.Errorf("end %d of a leader: %v without one, want at most %v", i, gap, most)
			}
			if err := old.Begin(t.Context()); err != nil {
				t.Fatal(err)
			}
			await(t, old)
			time.Sleep(2 * time.Second) // what an operator waits for between two restarts
		}
		img := converged(t, q)
		for i := range 3 {
			if _, ok := img.Topic(fmt.Sprintf("t%d", i)); !ok {
				t.Errorf("topic t%d was acknowledged and is lost", i)
			}
		}
	})
}

// Random faults under requests on every node: what was answered with success is there at the end on all, what was refused
// for certain is not (P10, C5, C8, C10, C13, C15).
func TestQuorumUnderFaults(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		found(t, q, 3)
		w := &metadataWork{told: map[string]error{}}
		rng := rand.New(rand.NewPCG(seed, 0x71756f))
		for round := range 12 {
			undo := q.fault(t, rng)
			for i := range 8 {
				w.create(t, alive(q), fmt.Sprintf("r%d-%d", round, i))
				time.Sleep(time.Duration(rng.IntN(600)) * time.Millisecond)
			}
			undo()
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		}
		w.wg.Wait()
		img := converged(t, q)
		done := 0
		for topic, err := range w.told {
			_, there := img.Topic(topic)
			switch {
			case err == nil && !there:
				t.Errorf("topic %s was acknowledged and is lost", topic)
			case err == nil:
				done++
			case errors.Is(err, kerr.NotController) && there:
				t.Errorf("topic %s was refused (%v) and is there", topic, err)
			}
		}
		if done < 20 {
			t.Errorf("only %d of %d requests succeeded", done, len(w.told))
		}
	})
}

// metadataWork sends the same request to every node, as clients do that do not know who leads: one of them at most
// succeeds.
type metadataWork struct {
	mu   sync.Mutex
	told map[string]error
	wg   sync.WaitGroup
}

func (w *metadataWork) create(t *testing.T, members []*Member, name string) {
	for _, m := range members {
		topic := fmt.Sprintf("%s-%d", name, m.ID.NodeID)
		ctl := m.Controller()
		w.wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			err := createBy(ctx, ctl, topic)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told[topic] = err
		})
	}
}

// fault does something to a node and gives what ends it.
func (q *Quorum) fault(t *testing.T, rng *rand.Rand) (undo func()) {
	t.Helper()
	m := q.members[rng.IntN(len(q.members))]
	if l := q.Leader(time.Nanosecond); l != nil && rng.IntN(2) == 0 {
		m = l
	}
	restart := func() {
		if err := m.Begin(t.Context()); err != nil {
			t.Error(err)
		}
	}
	other := q.members[(int(m.ID.NodeID))%len(q.members)]
	kind := rng.IntN(7)
	_, _ = fmt.Fprintf(q.Log, "time=%s fault=%s node=%s\n", time.Now().Format(time.RFC3339Nano),
		[]string{"kill", "power-lose", "power-coin", "isolate", "cut", "reset", "stop"}[kind], m.host.name)
	switch kind {
	case 0:
		m.Kill()
		return restart
	case 1:
		m.PowerOff(memfs.Lose, rng.Uint64())
		return restart
	case 2:
		m.PowerOff(memfs.Coin, rng.Uint64())
		return restart
	case 3:
		q.Net.Isolate(m.host.name)
		return func() { q.Net.Rejoin(m.host.name) }
	case 4:
		q.Net.Cut(m.host.name, other.host.name)
		return func() { q.Net.Heal(m.host.name, other.host.name) }
	case 5:
		q.Net.Reset(m.host.name, other.host.name)
		return func() {}
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
	return restart
}

// A node whose directory was wiped comes back as another one: it is not let in before it is added, is no voter then, and
// its vote comes with the loss of the old one (C11).
func TestWipedNodeIsNoSilentVoter(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		members := found(t, q, 3)
		leader := q.Leader(time.Minute)
		gone := members[int(leader.ID.NodeID)%3]
		gone.PowerOff(memfs.Lose, seed)
		fresh := q.Add(int(gone.ID.NodeID), 1)
		if err := fresh.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if got := fresh.Controller().Image().ControllerEpoch(); got != 0 {
			t.Fatalf("a node that nobody added has metadata of epoch %d", got)
		}
		leader = q.Leader(time.Minute)
		if err := leader.Controller().AddNode(t.Context(), fresh.ID); err != nil {
			t.Fatal(err)
		}
		await(t, fresh)
		if got := voters(t, leader); got != "1 2 3" || votes(t, leader, fresh) {
			t.Fatalf("after it was added: voters %s, the new self votes: %v", got, votes(t, leader, fresh))
		}
		if err := leader.Controller().Promote(t.Context(), fresh.ID); err != nil {
			t.Fatal(err)
		}
		if got := voters(t, leader); got != "1 2 3" || !votes(t, leader, fresh) || votes(t, leader, gone) {
			t.Fatalf("after the promotion: voters %s", got)
		}
		converged(t, q)
	})
}

func voters(t *testing.T, m *Member) string {
	t.Helper()
	members, err := m.Controller().Members()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[wire.BrokerID]bool{}
	for _, v := range members {
		seen[v.ID.NodeID] = seen[v.ID.NodeID] || v.Voter
	}
	out := ""
	for id := wire.BrokerID(1); int(id) <= len(seen); id++ {
		if seen[id] {
			out += fmt.Sprintf(" %d", id)
		}
	}
	return out[1:]
}

func votes(t *testing.T, at, m *Member) bool {
	t.Helper()
	members, err := at.Controller().Members()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range members {
		if v.ID.NodeID == m.ID.NodeID && v.ID.DirectoryID == m.ID.DirectoryID {
			return v.Voter
		}
	}
	return false
}
