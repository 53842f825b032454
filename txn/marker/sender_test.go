package marker

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// cluster is brokers that take markers as the test wants.
type cluster struct {
	mu      sync.Mutex
	leaders map[wire.TopicPartition]wire.BrokerID // missing: deleted
	codes   map[wire.TopicPartition]int16
	slow    map[wire.BrokerID]time.Duration
	silent  map[wire.BrokerID]bool
	got     []string
	largest int // partitions in one request
}

func (c *cluster) leader(tp wire.TopicPartition) (wire.BrokerID, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, ok := c.leaders[tp]
	return id, ok
}

func (c *cluster) write(to wire.BrokerID, req *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse)) {
	c.mu.Lock()
	wait, silent := c.slow[to], c.silent[to]
	c.mu.Unlock()
	if silent {
		return
	}
	go func() {
		<-time.After(wait)
		resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
		c.mu.Lock()
		n := 0
		for _, m := range req.Markers {
			out := kmsg.NewWriteTxnMarkersResponseMarker()
			out.ProducerID = m.ProducerID
			for _, t := range m.Topics {
				rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
				rt.Topic = t.Topic
				for _, p := range t.Partitions {
					n++
					tp := wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p)}
					code := c.codes[tp]
					if c.leaders[tp] != to {
						code = kerr.NotLeaderForPartition.Code
					}
					c.got = append(c.got, fmt.Sprintf("%d %s v%d %d", to, tp, m.TransactionVersion, code))
					rt.Partitions = append(rt.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: code})
				}
				out.Topics = append(out.Topics, rt)
			}
			resp.Markers = append(resp.Markers, out)
		}
		c.largest = max(c.largest, n)
		c.mu.Unlock()
		done(resp)
	}()
}

func (c *cluster) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

func tp(topic string, p int) wire.TopicPartition {
	return wire.TopicPartition{Topic: topic, Partition: wire.PartitionID(p)}
}

func newCluster() (*cluster, *Sender) {
	c := &cluster{leaders: map[wire.TopicPartition]wire.BrokerID{}, codes: map[wire.TopicPartition]int16{},
		slow: map[wire.BrokerID]time.Duration{}, silent: map[wire.BrokerID]bool{}}
	return c, New(Options{Leader: c.leader, BrokerEpoch: func() wire.BrokerEpoch { return 7 }, Write: c.write, Logger: slog.New(slog.DiscardHandler)})
}

// bubble runs fn in virtual time.
func bubble(t *testing.T, name string, fn func(t *testing.T, c *cluster, s *Sender)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, s := newCluster()
			defer s.Close()
			fn(t, c, s)
		})
	})
}

func newJob(id string, done *bool, parts ...wire.TopicPartition) Job {
	return Job{Shard: 1, Epoch: 3, TxnID: id, Producer: state.Producer{ID: 7, Epoch: 1}, Commit: true, Version: state.V2,
		Partitions: parts, Done: func() { *done = true }}
}

// Scenario T5: what keeps a marker from being written delays that marker and nothing else.
func TestSender(t *testing.T) {
	bubble(t, "nothing to write", func(t *testing.T, _ *cluster, s *Sender) {
		var done bool
		if s.Send(newJob("x", &done)); !done {
			t.Error("a transaction without partitions is not done")
		}
	})
	bubble(t, "the leader has moved", func(t *testing.T, c *cluster, s *Sender) {
		c.leaders[tp("a", 0)] = 1
		c.slow[1] = time.Second
		var done bool
		s.Send(newJob("x", &done, tp("a", 0)))
		<-time.After(time.Millisecond)
		c.set(func() { c.leaders[tp("a", 0)] = 2 })
		<-time.After(2 * time.Second)
		synctest.Wait()
		if want := []string{"1 a-0 v2 6", "2 a-0 v2 0"}; !done || !slices.Equal(c.got, want) {
			t.Errorf("done %v, %q, want %q", done, c.got, want)
		}
	})
	bubble(t, "no leader for a while", func(t *testing.T, c *cluster, s *Sender) {
		c.leaders[tp("a", 0)] = wire.NoBroker
		var done bool
		s.Send(newJob("x", &done, tp("a", 0)))
		<-time.After(30 * time.Second)
		if done || len(c.got) > 0 {
			t.Fatalf("done %v, %q without a leader", done, c.got)
		}
		c.set(func() { c.leaders[tp("a", 0)] = 2 })
		<-time.After(time.Second)
		synctest.Wait()
		if !done {
			t.Error("not done with a leader")
		}
	})
	for _, code := range []int16{3, 6, 7, 15, 19, 20, 52, 56, -1} {
		bubble(t, fmt.Sprint("code ", code, " is tried again"), func(t *testing.T, c *cluster, s *Sender) {
			c.leaders[tp("a", 0)], c.leaders[tp("b", 0)] = 1, 1
			c.codes[tp("a", 0)] = code
			var done bool
			s.Send(newJob("x", &done, tp("a", 0), tp("b", 0)))
			<-time.After(time.Second)
			if done {
				t.Fatal("done with a partition missing")
			}
			c.set(func() { c.codes[tp("a", 0)] = 0 })
			<-time.After(time.Second)
			synctest.Wait()
			if n := count(c.got, "1 b-0 v2 0"); !done || n != 1 {
				t.Errorf("done %v, the other partition was written %d times", done, n)
			}
		})
	}
	bubble(t, "a partition with a later epoch counts as done", func(t *testing.T, c *cluster, s *Sender) {
		c.leaders[tp("a", 0)], c.codes[tp("a", 0)] = 1, kerr.InvalidProducerEpoch.Code
		var done bool
		s.Send(newJob("x", &done, tp("a", 0)))
		<-time.After(time.Second)
		synctest.Wait()
		if !done {
			t.Error("not done")
		}
	})
	bubble(t, "a deleted partition counts as done, also while it is tried", func(t *testing.T, c *cluster, s *Sender) {
		c.leaders[tp("a", 0)], c.codes[tp("a", 0)] = 1, 3
		var done bool
		s.Send(newJob("x", &done, tp("a", 0), tp("gone", 0)))
		<-time.After(time.Second)
		c.set(func() { delete(c.leaders, tp("a", 0)) })
		<-time.After(time.Second)
		synctest.Wait()
		if !done {
			t.Error("not done")
		}
	})
	bubble(t, "a silent broker delays only its own markers", func(t *testing.T, c *cluster, s *Sender) {
		c.leaders[tp("a", 0)], c.leaders[tp("b", 0)] = 1, 2
		c.silent[1] = true
		var stuck, done bool
		s.Send(newJob("x", &stuck, tp("a", 0), tp("b", 0)))
		s.Send(newJob("y", &done, tp("b", 0)))
		<-time.After(time.Second)
		synctest.Wait()
		if stuck || !done {
			t.Errorf("stuck %v, done %v", stuck, done)
		}
		if n, since := s.Pending(); n != 1 || since.IsZero() {
			t.Errorf("%d jobs pending since %v", n, since)
		}
	})
	bubble(t, "a shard that is led elsewhere gives its jobs up", func(t *testing.T, c *cluster, s *Sender) {
		c.leaders[tp("a", 0)], c.codes[tp("a", 0)] = 1, 6
		var done bool
		s.Send(newJob("x", &done, tp("a", 0)))
		s.Cancel(1, 2) // an older epoch
		if n, _ := s.Pending(); n != 1 {
			t.Fatalf("%d jobs", n)
		}
		s.Cancel(1, 3)
		c.set(func() { c.codes[tp("a", 0)] = 0 })
		<-time.After(time.Second)
		synctest.Wait()
		if n, _ := s.Pending(); done || n != 0 {
			t.Errorf("done %v, %d jobs", done, n)
		}
	})
	for _, again := range []string{"sent again", "given up and sent again"} {
		bubble(t, "the queue of a broker that does not answer is bounded while a job is "+again, func(t *testing.T, c *cluster, s *Sender) {
			var parts []wire.TopicPartition
			for i := range maxRequests * maxPartitions {
				parts = append(parts, tp("a", i))
				c.leaders[parts[i]] = 1
			}
			c.silent[1] = true
			var done, late bool
			s.Send(newJob("first", &done, parts...)) // is under way when the others come
			c.set(func() { c.leaders[tp("b", 0)] = 1; c.leaders[tp("c", 0)] = wire.NoBroker })
			synctest.Wait()
			for range 1000 {
				s.Send(newJob("x", &late, tp("b", 0), tp("c", 0)))
				if again != "sent again" {
					s.Cancel(1, 3)
				}
			}
			s.Send(newJob("x", &late, tp("b", 0), tp("c", 0)))
			synctest.Wait()
			s.mu.Lock()
			queued, later := len(s.queues[1].items), len(s.later)
			s.mu.Unlock()
			if queued > len(parts)+1 || later > 1 {
				t.Errorf("%d partitions in the queue and %d that wait for a leader, of 2 and %d", queued, later, len(parts))
			}
		})
	}
	bubble(t, "10,000 partitions go in requests of a bounded size", func(t *testing.T, c *cluster, s *Sender) {
		var parts []wire.TopicPartition
		for i := range 10_000 {
			parts = append(parts, tp("a", i))
			c.leaders[parts[i]] = 1
		}
		var done bool
		s.Send(newJob("x", &done, parts...))
		<-time.After(time.Second)
		synctest.Wait()
		if !done || c.largest != maxPartitions || len(c.got) != len(parts) {
			t.Errorf("done %v, largest request %d, %d markers", done, c.largest, len(c.got))
		}
	})
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}
