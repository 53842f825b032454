package coordrec

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// message is what kmsg's keys and values of internal topics have in common.
type message interface {
	AppendTo(dst []byte) []byte
	ReadFrom(src []byte) error
}

// Records that Kafka 4.4 wrote into `__consumer_offsets`, read and written by the types that kaja uses for them.
func TestConsumerOffsetsAreKafkasBytes(t *testing.T) {
	protocol, leader := "range", "i1-fd8c709d"
	for _, tc := range []struct {
		name  string
		bytes string
		empty message
		want  message
	}{
		{
			"OffsetCommit key", "00010000000a67726f75702d61322d7400000000", new(kmsg.OffsetCommitKey),
			&kmsg.OffsetCommitKey{Version: 1, Topic: "group-a2-t"},
		},
		{
			"OffsetCommit value v4 with a topic id",
			"0004000000000000002a0000000301000001a2292418c6010010411189632baf489bba61926f574f3856",
			new(kmsg.OffsetCommitValue),
			&kmsg.OffsetCommitValue{
				Version: 4, Offset: 42, LeaderEpoch: 3, CommitTimestamp: 0x1a2292418c6,
				TopicID: [16]byte{0x41, 0x11, 0x89, 0x63, 0x2b, 0xaf, 0x48, 0x9b, 0xba, 0x61, 0x92, 0x6f, 0x57, 0x4f, 0x38, 0x56},
			},
		},
		{
			"GroupMetadata key", "0002000a67726f75702d61322d67", new(kmsg.GroupMetadataKey),
			&kmsg.GroupMetadataKey{Version: 2, Group: "group-a2-g"},
		},
		{
			"GroupMetadata value v3 of an empty group", "0003000000000000ffffffff000001a22924198c00000000",
			new(kmsg.GroupMetadataValue),
			&kmsg.GroupMetadataValue{
				Version: 3, CurrentStateTimestamp: 0x1a22924198c,
			},
		},
		{
			"GroupMetadata value v3 with a static member",
			"00030008636f6e73756d657200000001000572616e6765000b69312d6664386337303964000001a22924199600000001" +
				"000b69312d6664386337303964000269310003677270000a2f3132372e302e302e310000271000002710" +
				"00000016000000000001000a67726f75702d61322d74ffffffff00000000",
			new(kmsg.GroupMetadataValue),
			&kmsg.GroupMetadataValue{
				Version: 3, ProtocolType: "consumer", Generation: 1, Protocol: &protocol, Leader: &leader,
				CurrentStateTimestamp: 0x1a229241996,
				Members: []kmsg.GroupMetadataValueMember{{
					MemberID: leader, InstanceID: ptr("i1"), ClientID: "grp", ClientHost: "/127.0.0.1",
					RebalanceTimeoutMillis: 10000, SessionTimeoutMillis: 10000,
					Subscription: unhex(t, "000000000001000a67726f75702d61322d74ffffffff"), Assignment: []byte{},
				}},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			raw := unhex(t, tc.bytes)
			if err := tc.empty.ReadFrom(raw); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, tc.empty, cmp.Comparer(func(a, b kmsg.Tags) bool { return a.Len() == b.Len() })); d != "" {
				t.Errorf("decoded (-want +got):\n%s", d)
			}
			if got := tc.want.AppendTo(nil); !bytes.Equal(got, raw) {
				t.Errorf("encoded\n got %x\nwant %x", got, raw)
			}
		})
	}
}

func ptr(s string) *string { return &s }

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
