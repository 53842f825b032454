package image

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"pgregory.net/rapid"
)

func str(s string) *string { return &s }

func topicID(n int) wire.UUID { return wire.UUID{0: 1, 14: byte(n >> 8), 15: byte(n)} }

// must applies records and fails the test if they do not fit.
func must(t interface {
	Helper()
	Fatalf(string, ...any)
}, img *Image, records ...coordrec.MetadataRecord) (*Image, *Delta) {
	t.Helper()
	next, d, err := img.With(Position{Offset: img.Offset() + 1, Entry: img.Entry() + 1}, records)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return next, d
}

func partition(topic, p int) *coordrec.PartitionRecord {
	return &coordrec.PartitionRecord{
		PartitionID: wire.PartitionID(p), TopicID: topicID(topic), Replicas: []wire.BrokerID{1}, ISR: []wire.BrokerID{1},
		Leader: 1, Directories: []wire.UUID{{15: 7}},
	}
}

func stream(img *Image) []byte {
	b := fmt.Appendf(nil, "%v|", img.Position())
	for r := range img.Records() {
		b = coordrec.AppendMetadata(b, r)
	}
	return b
}

func restore(t *rapid.T, img *Image) *Image {
	var records []coordrec.MetadataRecord
	for r := range img.Records() {
		back, err := coordrec.DecodeMetadata(coordrec.AppendMetadata(nil, r))
		if err != nil {
			t.Fatalf("decode snapshot record: %v", err)
		}
		records = append(records, back)
	}
	out, _, err := Empty(img.ClusterID()).With(img.Position(), records)
	if err != nil {
		t.Fatalf("restore: %v", err)
	}
	return out
}

// randomRecord draws a record that fits img, or nil.
func randomRecord(t *rapid.T, img *Image, serial *int) coordrec.MetadataRecord {
	var topics []*Topic
	for tp := range img.Topics() {
		topics = append(topics, tp)
	}
	brokers := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) wire.BrokerID {
		return wire.BrokerID(rapid.IntRange(0, 4).Draw(t, "b"))
	}), 0, 3, rapid.ID[wire.BrokerID])
	*serial++
	switch kind := rapid.IntRange(0, 11).Draw(t, "kind"); {
	case kind <= 1:
		return &coordrec.TopicRecord{Name: fmt.Sprintf("t%d", *serial), TopicID: topicID(*serial)}
	case kind <= 3 && len(topics) > 0:
		tp := topics[rapid.IntRange(0, len(topics)-1).Draw(t, "topic")]
		return &coordrec.PartitionRecord{
			PartitionID: wire.PartitionID(len(tp.Partitions)), TopicID: tp.ID, Replicas: []wire.BrokerID{0, 1, 2},
			ISR: brokers.Draw(t, "isr"), Leader: 0, Directories: make([]wire.UUID, 3),
			EligibleLeaderReplicas: brokers.Draw(t, "elr"), AddingReplicas: brokers.Draw(t, "adding"),
		}
	case kind <= 5 && len(topics) > 0:
		tp := topics[rapid.IntRange(0, len(topics)-1).Draw(t, "topic")]
		if len(tp.Partitions) == 0 {
			return nil
		}
		return &coordrec.PartitionChangeRecord{
			PartitionID: wire.PartitionID(rapid.IntRange(0, len(tp.Partitions)-1).Draw(t, "p")), TopicID: tp.ID,
			ISR: brokers.Draw(t, "isr"), Leader: wire.BrokerID(rapid.IntRange(-2, 2).Draw(t, "leader")),
			LeaderRecoveryState: int8(rapid.IntRange(-1, 1).Draw(t, "rec")), LastKnownELR: brokers.Draw(t, "last"),
		}
	case kind == 6 && len(topics) > 0:
		return &coordrec.RemoveTopicRecord{TopicID: topics[rapid.IntRange(0, len(topics)-1).Draw(t, "topic")].ID}
	case kind == 7:
		r := &coordrec.ConfigRecord{ResourceType: 2, ResourceName: "t1", Name: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "c"))}
		if rapid.Bool().Draw(t, "set") {
			r.Value = str(fmt.Sprint(*serial))
		}
		return r
	case kind == 8:
		return &coordrec.RegisterBrokerRecord{
			BrokerID: wire.BrokerID(rapid.IntRange(0, 3).Draw(t, "b")), BrokerEpoch: img.NextBrokerEpoch(), Fenced: true,
			Rack: str("r"), EndPoints: []coordrec.BrokerEndpoint{{Name: "P", Host: "h", Port: 1}},
			Features: []coordrec.BrokerFeature{{Name: "f", Min: 0, Max: 1}}, LogDirs: []wire.UUID{{15: 3}},
		}
	case kind == 9:
		for b := range img.Brokers() {
			return &coordrec.BrokerRegistrationChangeRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch, Fenced: -1}
		}
	case kind == 10:
		for id := range img.Removed() {
			return &coordrec.ReplicasRemovedRecord{TopicID: id}
		}
		for b := range img.Brokers() {
			return &coordrec.UnregisterBrokerRecord{BrokerID: b.ID, BrokerEpoch: b.Epoch}
		}
	}
	return &coordrec.ProducerIDsRecord{NextProducerID: img.NextProducerID() + 1000}
}

// The image that a snapshot restores is the one it was taken of, an entry's delta is the difference of the two images,
// and no image changes after it was handed out.
func TestImageProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		img, serial := Empty("c"), 0
		for range rapid.IntRange(1, 12).Draw(t, "entries") {
			before, frozen := img, stream(img)
			var entry []coordrec.MetadataRecord
			for range rapid.IntRange(1, 5).Draw(t, "records") {
				if r := randomRecord(t, img, &serial); r != nil {
					entry = append(entry, r)
					img, _ = must(t, img, r)
				}
			}
			pos := Position{Offset: img.Offset(), Entry: img.Entry()}
			whole, delta, err := before.With(pos, entry)
			if err != nil {
				t.Fatalf("the entry as a whole: %v", err)
			}
			if a, b := stream(whole), stream(img); !slices.Equal(a, b) {
				t.Fatalf("record by record and as one entry differ:\n%q\n%q", a, b)
			}
			if !slices.Equal(stream(before), frozen) {
				t.Fatalf("the image before the entry changed")
			}
			back := restore(t, whole)
			if !slices.Equal(stream(back), stream(whole)) {
				t.Fatalf("restore(snapshot) differs")
			}
			if d := Diff(whole, back); !d.Empty() {
				t.Fatalf("restore(snapshot) has a delta: %+v", d)
			}
			checkDelta(t, Diff(before, back), delta)
		}
	})
}

// checkDelta compares the delta of an entry with the computed one. The entry's may name things that ended as they were.
func checkDelta(t *rapid.T, computed, entry *Delta) {
	byID := make(map[wire.UUID]TopicDelta)
	for _, td := range entry.Topics {
		byID[td.ID] = td
	}
	for _, want := range computed.Topics {
		got, ok := byID[want.ID]
		if !ok || got.Created() != want.Created() || got.Removed() != want.Removed() {
			t.Fatalf("topic %q: computed %+v, entry %+v", want.Name, want, got)
		}
		parts := make(map[wire.PartitionID]PartitionDelta)
		for _, pd := range got.Partitions {
			parts[pd.ID] = pd
		}
		for _, pd := range want.Partitions {
			if d := cmp.Diff(pd, parts[pd.ID]); d != "" {
				t.Fatalf("topic %q partition %d (-computed +entry):\n%s", want.Name, pd.ID, d)
			}
		}
	}
	for _, want := range computed.Brokers {
		i := slices.IndexFunc(entry.Brokers, func(b BrokerDelta) bool { return b.ID == want.ID })
		if i < 0 {
			t.Fatalf("broker %d is missing in the entry's delta", want.ID)
		}
	}
	for _, want := range computed.Configs {
		if !slices.Contains(entry.Configs, want) {
			t.Fatalf("config of %v is missing in the entry's delta", want)
		}
	}
}

func TestPartitionChangeCountsEpochs(t *testing.T) {
	img, _ := must(t, Empty("c"), &coordrec.TopicRecord{Name: "t", TopicID: topicID(1)}, partition(1, 0))
	change := func(leader wire.BrokerID) {
		img, _ = must(t, img, &coordrec.PartitionChangeRecord{
			TopicID: topicID(1), Leader: leader, LeaderRecoveryState: coordrec.NoRecoveryChange,
		})
	}
	change(coordrec.NoLeaderChange)
	if p, _ := img.Partition("t", 0); p.LeaderEpoch != 0 || p.PartitionEpoch != 1 {
		t.Errorf("after a change without leader: epochs %d/%d, want 0/1", p.LeaderEpoch, p.PartitionEpoch)
	}
	change(1)
	if p, _ := img.Partition("t", 0); p.LeaderEpoch != 1 || p.PartitionEpoch != 2 {
		t.Errorf("after a change to the same leader: epochs %d/%d, want 1/2", p.LeaderEpoch, p.PartitionEpoch)
	}
}

func TestRecordsThatDoNotFit(t *testing.T) {
	img, _ := must(t, Empty("c"), &coordrec.TopicRecord{Name: "t", TopicID: topicID(1)}, partition(1, 0),
		&coordrec.ClaimControllerRecord{Epoch: 3, NodeID: 1}, &coordrec.ProducerIDsRecord{NextProducerID: 1000})
	for name, r := range map[string]coordrec.MetadataRecord{
		"topic exists":       &coordrec.TopicRecord{Name: "t", TopicID: topicID(2)},
		"topic id exists":    &coordrec.TopicRecord{Name: "u", TopicID: topicID(1)},
		"gap in partitions":  partition(1, 2),
		"unknown topic":      partition(9, 0),
		"unknown partition":  &coordrec.PartitionChangeRecord{TopicID: topicID(1), PartitionID: 1},
		"remove unknown":     &coordrec.RemoveTopicRecord{TopicID: topicID(9)},
		"old controller":     &coordrec.ClaimControllerRecord{Epoch: 3, NodeID: 1},
		"ids go back":        &coordrec.ProducerIDsRecord{NextProducerID: 999},
		"unknown broker":     &coordrec.BrokerRegistrationChangeRecord{BrokerID: 4},
		"unregister unknown": &coordrec.UnregisterBrokerRecord{BrokerID: 4},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := img.With(Position{}, []coordrec.MetadataRecord{r}); err == nil {
				t.Error("applied")
			}
		})
	}
}

func BenchmarkWithOneTopicAmongMany(b *testing.B) {
	img := Empty("c")
	for n := range 20000 {
		img, _ = must(b, img, &coordrec.TopicRecord{Name: fmt.Sprintf("t%d", n), TopicID: topicID(n)}, partition(n, 0))
	}
	change := &coordrec.PartitionChangeRecord{TopicID: topicID(77), Leader: 1, LeaderRecoveryState: -1}
	b.ReportAllocs()
	for b.Loop() {
		img, _ = must(b, img, change)
	}
}
