package image

import (
	"testing"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// A ClearELR record forgets the eligible leader replicas of one topic, or of all, and touches no partition without any.
func TestClearELR(t *testing.T) {
	a, b := wire.UUID{0: 1}, wire.UUID{0: 2}
	part := func(topic wire.UUID, id wire.PartitionID, elr, last []wire.BrokerID) coordrec.MetadataRecord {
		return &coordrec.PartitionRecord{PartitionID: id, TopicID: topic, Replicas: []wire.BrokerID{1, 2}, ISR: []wire.BrokerID{1}, Leader: 1,
			EligibleLeaderReplicas: elr, LastKnownELR: last}
	}
	img, _, err := Empty("c").With(Position{Offset: 1}, []coordrec.MetadataRecord{
		&coordrec.TopicRecord{Name: "a", TopicID: a}, part(a, 0, []wire.BrokerID{2}, nil), part(a, 1, nil, nil),
		&coordrec.TopicRecord{Name: "b", TopicID: b}, part(b, 0, []wire.BrokerID{2}, []wire.BrokerID{1}),
	})
	if err != nil {
		t.Fatal(err)
	}
	one, delta, err := img.With(Position{Offset: 2}, []coordrec.MetadataRecord{&coordrec.ClearELRRecord{Topic: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(delta.Topics) != 1 || delta.Topics[0].Name != "a" || len(delta.Topics[0].Partitions) != 1 || delta.Topics[0].Partitions[0].ID != 0 {
		t.Fatalf("delta %+v, want partition 0 of a", delta.Topics)
	}
	for _, want := range []struct {
		topic string
		elr   int
	}{{"a", 0}, {"b", 1}} {
		p, _ := one.Partition(want.topic, 0)
		if len(p.ELR) != want.elr {
			t.Errorf("%s has ELR %v, want %d", want.topic, p.ELR, want.elr)
		}
	}
	all, _, err := img.With(Position{Offset: 2}, []coordrec.MetadataRecord{&coordrec.ClearELRRecord{}})
	if err != nil {
		t.Fatal(err)
	}
	p, _ := all.Partition("b", 0)
	if len(p.ELR) != 0 || len(p.LastKnownELR) != 0 {
		t.Errorf("after clearing all, b has ELR %v and last known %v", p.ELR, p.LastKnownELR)
	}
	if _, _, err := img.With(Position{Offset: 2}, []coordrec.MetadataRecord{&coordrec.ClearELRRecord{Topic: "none"}}); err == nil {
		t.Error("a record of a topic that does not exist was applied")
	}
}
