package compattests_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// mirrorWriter writes to a topic until it is stopped.
type mirrorWriter struct {
	acked atomic.Int64 // the records below it are acknowledged
	stop  context.CancelFunc
	done  chan struct{}
	err   error
}

// keepWriting writes the records from from on, one after the other.
func (d *mirrored) keepWriting(t *testing.T, from int) *mirrorWriter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client := d.writer(t)
	w := &mirrorWriter{stop: cancel, done: make(chan struct{})}
	w.acked.Store(int64(from))
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			if w.err = client.ProduceSync(context.WithoutCancel(ctx), mirroredRecord(int(w.acked.Load()))).FirstErr(); w.err != nil {
				return
			}
			w.acked.Add(1)
		}
	}()
	t.Cleanup(func() { cancel(); <-w.done })
	return w
}

// advance waits until 100 more records are acknowledged and copied.
func (d *mirrored) advance(t *testing.T, w *mirrorWriter) {
	t.Helper()
	n := w.acked.Load() + 100
	err := poll.Until(t.Context(), stepWithin, fmt.Sprintf("%d records are acknowledged", n), func() (bool, error) {
		return w.acked.Load() >= n, fmt.Errorf("%d are", w.acked.Load())
	})
	if err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprintf("%q=", fmt.Sprint("key ", n-1))
	d.follow(t, func(got map[int32][]string) bool {
		for _, records := range got {
			if slices.ContainsFunc(records, func(r string) bool { return strings.HasPrefix(r, last) }) {
				return true
			}
		}
		return false
	})
}

// killUnderMirror writes to both sides, the records from from on, and kills under that the node of b that coordinates MirrorMaker's group
// there; of three partitions with three replicas it leads one, at the source and in the copy. It stays away. The number of the next record
// is returned.
func killUnderMirror(t *testing.T, directions []*mirrored, b *site, from int) int {
	t.Helper()
	var writers []*mirrorWriter
	for _, d := range directions {
		writers = append(writers, d.keepWriting(t, from))
	}
	for i, d := range directions {
		d.advance(t, writers[i])
	}
	found := b.admin(t).FindGroupCoordinators(t.Context(), "a-mm2")["a-mm2"]
	if found.Err != nil {
		t.Fatal(found.Err)
	}
	killed := b.nodes[found.NodeID-1]
	t.Logf("node %d is killed; it leads %v", found.NodeID, ledBy(t, killed, found.NodeID, directions[0].copy, directions[1].topic))
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	b.nodes = slices.DeleteFunc(slices.Clone(b.nodes), func(n *target.Broker) bool { return n == killed })
	next := from
	for i, d := range directions {
		d.advance(t, writers[i])
	}
	for i, d := range directions {
		writers[i].stop()
		<-writers[i].done
		if writers[i].err != nil {
			t.Fatalf("write to %s: %v", d.from, writers[i].err)
		}
		next = max(next, int(writers[i].acked.Load()))
	}
	return next
}

// ledBy are the partitions of topics that a node leads.
func ledBy(t *testing.T, b *target.Broker, node int32, topics ...string) (led []string) {
	t.Helper()
	for _, topic := range metadata(t, dial(t, b), 12, false, topics...).Topics {
		for _, p := range topic.Partitions {
			if p.Leader == node {
				led = append(led, fmt.Sprintf("%s-%d", *topic.Topic, p.Partition))
			}
		}
	}
	return led
}

// checkReplicas checks that every topic of a site, those of MirrorMaker included, has its replicas.
func checkReplicas(t *testing.T, s *site) {
	t.Helper()
	topics, err := s.admin(t).ListTopicsWithInternal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		for _, p := range topic.Partitions {
			if len(p.Replicas) != s.replicas {
				t.Errorf("%s-%d at %s has the replicas %v", p.Topic, p.Partition, s, p.Replicas)
			}
		}
	}
	for _, name := range []string{"a.from-a", "from-b", "mm2-configs.a.internal", "mm2-offsets.a.internal", "mm2-status.a.internal", "mm2-offset-syncs.a.internal", "a.checkpoints.internal", "heartbeats"} {
		if !topics.Has(name) {
			t.Errorf("%s has no topic %s", s, name)
		}
	}
}

// judge says how many records the copy lacks, and what is wrong with it.
func (d *mirrored) judge(want, got map[int32][]string) (lacks int, wrong string) {
	for p := range got {
		if len(want[p]) == 0 {
			return 0, fmt.Sprintf("the copy has a partition %d, the source has not", p)
		}
	}
	for p, w := range want {
		n, wrong := judgeCopy(w, got[p], d.repeats)
		if wrong != "" {
			return 0, fmt.Sprintf("partition %d: %s", p, wrong)
		}
		lacks += n
	}
	return lacks, ""
}

// judgeCopy says how many of the records of a partition its copy lacks, and what is wrong with it. In the copy each record is followed by
// the next one of the source. Where the copy may repeat, it may also go back to one that it had already.
func judgeCopy(want, got []string, repeats bool) (lacks int, wrong string) {
	number := map[string]int{}
	for i, r := range want {
		number[r] = i
	}
	last, reached := -1, 0
	for at, r := range got {
		i, there := number[r]
		switch {
		case !there:
			return 0, fmt.Sprintf("record %d of the copy is not in the source: %s", at, r)
		case i > last+1:
			return 0, fmt.Sprintf("record %d of the copy passes over %d of the source: %s", at, i-last-1, want[last+1])
		case i <= last && !repeats:
			return 0, fmt.Sprintf("record %d of the copy has been there: %s", at, r)
		}
		last, reached = i, max(reached, i+1)
	}
	return len(want) - reached, ""
}

// The judge of copies finds what it is there to find.
func TestMirrorJudgeFindsFaults(t *testing.T) {
	want := strings.Fields("a b c d e")
	for _, tt := range []struct {
		got     string
		repeats bool
		lacks   int
		wrong   string
	}{
		{"a b c d e", false, 0, ""},
		{"a b c", false, 2, ""},
		{"", true, 5, ""},
		{"a b c b c d", true, 1, ""},
		{"a b c c d e", true, 0, ""},
		{"a b c b", true, 2, ""},
		{"a b c b c d e", false, 0, "record 3 of the copy has been there: b"},
		{"a c", true, 0, "record 1 of the copy passes over 1 of the source: b"},
		{"a b c a c", true, 0, "record 4 of the copy passes over 1 of the source: b"},
		{"b", false, 0, "record 0 of the copy passes over 1 of the source: a"},
		{"a x", true, 0, "record 1 of the copy is not in the source: x"},
	} {
		if lacks, wrong := judgeCopy(want, strings.Fields(tt.got), tt.repeats); lacks != tt.lacks || wrong != tt.wrong {
			t.Errorf("%q, repeats %v: lacks %d, %q, want %d, %q", tt.got, tt.repeats, lacks, wrong, tt.lacks, tt.wrong)
		}
	}
	d := &mirrored{}
	if lacks, wrong := d.judge(map[int32][]string{0: {"a"}, 1: {"b", "c"}}, map[int32][]string{1: {"b"}}); lacks != 2 || wrong != "" {
		t.Errorf("lacks %d, %q", lacks, wrong)
	}
	if _, wrong := d.judge(map[int32][]string{0: {"a"}}, map[int32][]string{0: {"a"}, 1: {"a"}}); wrong == "" {
		t.Error("a partition that is not in the source is not found")
	}
}
