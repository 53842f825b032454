package replica

import (
	"slices"
	"testing"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
)

// counter is the value of a metric without labels.
func counter(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// A proposal of which a copy straggled, and took effect after its repetition had been refused, was this leader's, and counts.
func TestStrayISRChangeIsCounted(t *testing.T) {
	k := newKit(t, memfs.New(nil))
	metrics := prometheus.NewRegistry()
	k.o.Registerer = metrics
	defer k.close()
	k.open()
	k.topic("t", topicID("t"), 1, 1, 2)
	p := k.part("t", 0)
	p.mu.Lock()
	p.state.Propose([]wire.BrokerID{1})
	asked, ok := p.state.Proposal(5)
	p.mu.Unlock()
	if !ok {
		t.Fatal("nothing is proposed")
	}
	p.unanswered(asked)
	if p.settle(asked, ISRResult{Err: kerr.IneligibleReplica}) {
		t.Fatal("a refusal has settled what went unanswered before")
	}
	k.apply(&coordrec.PartitionChangeRecord{TopicID: topicID("t"), Leader: coordrec.NoLeaderChange, ISR: []wire.BrokerID{1},
		LeaderRecoveryState: coordrec.NoRecoveryChange})
	if isr := p.state.assignment.ISR; !slices.Equal(isr, []wire.BrokerID{1}) {
		t.Fatalf("isr %v", isr)
	}
	if n := counter(t, metrics, "kaja_replica_isr_shrinks_total"); n != 1 {
		t.Errorf("%v shrinks, want 1", n)
	}
}
