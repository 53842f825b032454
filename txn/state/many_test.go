package state

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire"
)

func replayAll(t *testing.T, s *State, d coord.Decision) {
	t.Helper()
	for _, rec := range d.Records {
		if err := s.Replay(rec, coord.Pos{}); err != nil {
			t.Fatal(err)
		}
	}
	if d.Soft != nil {
		d.Soft(nil)
	}
}

// Many open transactions are bounded in memory, and their timeouts are carried out in steps of bounded size, none of
// which leaves one out (scenario T16).
func TestManyOpenTransactions(t *testing.T) {
	const ids, each = 30_000, 1200 // bytes
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s := New(scriptConfig)
	before := heap()
	for i := range ids {
		id := fmt.Sprintf("transactional-id-%06d", i)
		replayAll(t, s, s.InitProducerID(1, scriptStart, InitRequest{ID: id, TimeoutMs: 1000, Fresh: wire.ProducerID(i), Cluster: V2}))
		replayAll(t, s, s.AddPartitions(1, scriptStart, AddRequest{ID: id, Producer: Producer{ID: wire.ProducerID(i)}, Client: V2, Cluster: V2,
			Partitions: []wire.TopicPartition{{Topic: "t", Partition: wire.PartitionID(i % 100)}}}))
	}
	if used := int64(heap()) - int64(before); used > ids*each {
		t.Errorf("%d open transactions hold %d bytes, %d each; want at most %d", ids, used, used/ids, each)
	}
	now := scriptStart.Add(2 * time.Second)
	left, steps, markers := s.IDs(), 0, 0
	for len(left) > 0 {
		d, looked := s.AbortTimedOut(now, left, V2)
		size := 0
		for _, r := range d.Records {
			size += len(r.Key) + len(r.Value)
		}
		if size > 2*maxSweepBytes || looked == 0 {
			t.Fatalf("a step of %d bytes looked at %d ids", size, looked)
		}
		replayAll(t, s, d)
		markers += len(d.Effects)
		left, steps = left[looked:], steps+1
	}
	if markers != ids || steps < 10 {
		t.Errorf("%d of %d were aborted in %d steps", markers, ids, steps)
	}
}

// A transaction over 10,000 partitions is one record of bounded size, and owes one marker to each (scenario T16).
func TestTransactionOverManyPartitions(t *testing.T) {
	const partitions = 10_000
	s := New(scriptConfig)
	replayAll(t, s, s.InitProducerID(1, scriptStart, InitRequest{ID: "tx", TimeoutMs: 1000, Fresh: 1, Cluster: V2}))
	var tps []wire.TopicPartition
	for i := range partitions {
		tps = append(tps, wire.TopicPartition{Topic: "t", Partition: wire.PartitionID(i)})
	}
	add := s.AddPartitions(1, scriptStart, AddRequest{ID: "tx", Producer: Producer{ID: 1}, Client: V2, Cluster: V2, Partitions: tps})
	if n := len(add.Records[0].Value); n > 8*partitions {
		t.Errorf("the record has %d bytes", n)
	}
	replayAll(t, s, add)
	end := s.EndTxn(1, scriptStart, EndRequest{ID: "tx", Producer: Producer{ID: 1}, Commit: true, Client: V2, Cluster: V2})
	m, ok := end.Effects[0].(SendMarkers)
	if !ok || len(m.Partitions) != partitions || !m.Commit {
		t.Errorf("%d effects, markers for %d partitions", len(end.Effects), len(m.Partitions))
	}
}
