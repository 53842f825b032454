package coordrec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/wire"
)

func ids(v ...wire.BrokerID) []wire.BrokerID {
	if v == nil {
		v = []wire.BrokerID{}
	}
	return v
}

// metadataSamples are the records whose bytes Kafka 4.4's own serializer wrote into testdata/metadata_records.txt (kaja's
// own types follow the same envelope).
func metadataSamples() map[string]MetadataRecord {
	u := wire.UUID{7: 1, 15: 2}
	w := wire.UUID{7: 3, 15: 4}
	rack, one := "r1", "1"
	return map[string]MetadataRecord{
		"RegisterBroker": &RegisterBrokerRecord{
			BrokerID: 7, IncarnationID: u, BrokerEpoch: 9, Rack: &rack, Fenced: true, InControlledShutdown: true,
			EndPoints: []BrokerEndpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092}},
			Features:  []BrokerFeature{{Name: "metadata.version", Min: 7, Max: 33}},
			LogDirs:   []wire.UUID{w}, CordonedLogDirs: []wire.UUID{u},
		},
		"UnregisterBroker": &UnregisterBrokerRecord{BrokerID: 7, BrokerEpoch: 9},
		"Topic":            &TopicRecord{Name: "t", TopicID: u},
		"Partition": &PartitionRecord{
			PartitionID: 1, TopicID: u, Replicas: ids(1, 2, 3), ISR: ids(1), RemovingReplicas: ids(2),
			AddingReplicas: ids(3), Leader: 1, LeaderRecoveryState: 1, LeaderEpoch: 4, PartitionEpoch: 5,
			Directories: []wire.UUID{u, w, u}, EligibleLeaderReplicas: ids(2), LastKnownELR: ids(3),
		},
		"PartitionPlain": &PartitionRecord{
			TopicID: u, Replicas: ids(1), ISR: ids(1), Leader: 1, Directories: []wire.UUID{w},
		},
		"Config":     &ConfigRecord{ResourceType: 4, Name: "min.insync.replicas", Value: &one},
		"ConfigNull": &ConfigRecord{ResourceType: 2, ResourceName: "t", Name: "a"},
		"PartitionChange": &PartitionChangeRecord{
			PartitionID: 1, TopicID: u, ISR: ids(), Leader: -1, Replicas: ids(1), RemovingReplicas: ids(),
			AddingReplicas: ids(2), LeaderRecoveryState: 0, Directories: []wire.UUID{w},
			EligibleLeaderReplicas: ids(1), LastKnownELR: ids(2),
		},
		"PartitionChangeNone": &PartitionChangeRecord{
			PartitionID: 1, TopicID: u, Leader: NoLeaderChange, LeaderRecoveryState: NoRecoveryChange,
		},
		"FenceBroker":   &FenceBrokerRecord{ID: 1, Epoch: 2},
		"UnfenceBroker": &UnfenceBrokerRecord{ID: 1, Epoch: 2},
		"RemoveTopic":   &RemoveTopicRecord{TopicID: u},
		"FeatureLevel":  &FeatureLevelRecord{Name: "metadata.version", Level: 33},
		"ProducerIDs":   &ProducerIDsRecord{BrokerID: 1, BrokerEpoch: 2, NextProducerID: 3000},
		"BrokerRegistrationChange": &BrokerRegistrationChangeRecord{
			BrokerID: 1, BrokerEpoch: 2, Fenced: -1, InControlledShutdown: 1,
			LogDirs: []wire.UUID{u}, CordonedLogDirs: []wire.UUID{w},
		},
		"BrokerRegistrationChangeNone": &BrokerRegistrationChangeRecord{BrokerID: 1, BrokerEpoch: 2},
		"NoOp":                         &NoOpRecord{},
		"RegisterController": &RegisterControllerRecord{
			ControllerID: 7, IncarnationID: u,
			EndPoints: []BrokerEndpoint{{Name: "CONTROLLER", Host: "h", Port: 9093}},
			Features:  []BrokerFeature{{Name: "kraft.version", Max: 1}},
		},
		"ClearELR":        &ClearELRRecord{Topic: "t"},
		"ClearELRAll":     &ClearELRRecord{},
		"ClaimController": &ClaimControllerRecord{Epoch: 5, NodeID: 1},
		"ReplicasRemoved": &ReplicasRemovedRecord{TopicID: u},
		"RemovedTopic":    &RemovedTopicRecord{TopicID: u, Name: "t"},
		"BrokerEpochs":    &BrokerEpochsRecord{Next: 12},
		"Node":            &NodeRecord{NodeID: 2, DirectoryID: u, Host: "h", Port: 9093, Controller: true},
		"NodeRemoved":     &NodeRemovedRecord{NodeID: 2, DirectoryID: u},
	}
}

func metadataGolden(t testing.TB) map[string][]byte {
	text, err := os.ReadFile("testdata/metadata_records.txt")
	if err != nil {
		t.Fatal(err)
	}
	golden := make(map[string][]byte)
	for line := range strings.Lines(string(text)) {
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		b, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		golden[name] = b
	}
	return golden
}

func TestMetadataRecordsAreKafkasBytes(t *testing.T) {
	golden, samples := metadataGolden(t), metadataSamples()
	if len(golden) != len(samples) {
		t.Errorf("%d golden records for %d samples", len(golden), len(samples))
	}
	for name, r := range samples {
		t.Run(name, func(t *testing.T) {
			got := AppendMetadata(nil, r)
			if !bytes.Equal(got, golden[name]) {
				t.Errorf("bytes\n got %x\nwant %x", got, golden[name])
			}
			back, err := DecodeMetadata(got)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(r, back); d != "" {
				t.Errorf("decode(encode) differs (-want +got):\n%s", d)
			}
		})
	}
}

func TestMetadataDecodeRefuses(t *testing.T) {
	topic := AppendMetadata(nil, &TopicRecord{Name: "t", TopicID: wire.UUID{15: 9}})
	t.Run("unknown type", func(t *testing.T) {
		_, err := DecodeMetadata([]byte{1, 99, 0, 0})
		var unknown *UnknownRecordError
		if !errors.As(err, &unknown) || unknown.Type != 99 {
			t.Errorf("err = %v, want UnknownRecordError of type 99", err)
		}
	})
	t.Run("unknown version", func(t *testing.T) {
		_, err := DecodeMetadata([]byte{1, 2, 7, 0})
		var unknown *UnknownRecordError
		if !errors.As(err, &unknown) || unknown.Version != 7 {
			t.Errorf("err = %v, want UnknownRecordError of version 7", err)
		}
	})
	for i := range topic {
		if _, err := DecodeMetadata(topic[:i]); !errors.Is(err, ErrMalformedRecord) {
			t.Errorf("first %d bytes: err = %v, want ErrMalformedRecord", i, err)
		}
	}
	if _, err := DecodeMetadata(append(topic, 0)); !errors.Is(err, ErrMalformedRecord) {
		t.Errorf("one byte more: err = %v, want ErrMalformedRecord", err)
	}
}

func FuzzDecodeMetadata(f *testing.F) {
	for _, b := range metadataGolden(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeMetadata(b)
		if err != nil {
			return
		}
		again, err := DecodeMetadata(AppendMetadata(nil, r))
		if err != nil {
			t.Fatalf("cannot read back what was written: %v", err)
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Fatalf("differs after a second round (-first +second):\n%s", d)
		}
	})
}
