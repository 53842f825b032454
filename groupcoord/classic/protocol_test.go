package classic

import (
	"errors"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func members(protocols ...[]string) *group {
	g := newGroup("g", testStart)
	for i, ps := range protocols {
		m := &member{id: string(rune('a' + i))}
		for _, p := range ps {
			m.protocols = append(m.protocols, Protocol{Name: p})
		}
		g.add(m, ConsumerProtocol)
	}
	return g
}

func TestVote(t *testing.T) {
	for _, tc := range []struct {
		name    string
		members [][]string
		want    string
	}{
		{"one member's first", [][]string{{"b", "a"}}, "b"},
		{"only what all support", [][]string{{"b", "a"}, {"c", "a"}}, "a"},
		{"most first places", [][]string{{"b", "a"}, {"b", "a"}, {"a", "b"}}, "b"},
		{"a member's vote goes to its first that all support", [][]string{{"x", "b", "a"}, {"a", "b"}, {"y", "b", "a"}}, "b"},
		{"a tie goes to the first by name", [][]string{{"b", "a"}, {"a", "b"}}, "a"},
		{"a protocol named twice counts once", [][]string{{"b", "b", "a"}, {"a"}}, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := members(tc.members...).vote(); got != tc.want {
				t.Fatalf("vote: %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseSubscription(t *testing.T) {
	full := kmsg.NewConsumerMemberMetadata()
	full.Version, full.Topics, full.UserData = 3, []string{"t", "u"}, []byte("data")
	full.Rack = kmsg.StringPtr("r")
	empty := kmsg.NewConsumerMemberMetadata()
	for _, tc := range []struct {
		name  string
		bytes []byte
		want  []string
		fails bool
	}{
		{"v3 with everything", full.AppendTo(nil), []string{"t", "u"}, false},
		{"no topics", empty.AppendTo(nil), []string{}, false},
		{"a version from the future", []byte{0, 99, 0, 0, 0, 1, 0, 1, 't', 1, 2, 3}, []string{"t"}, false},
		{"nothing", nil, nil, true},
		{"a negative version", []byte{0xff, 0xff, 0, 0, 0, 0}, nil, true},
		{"null topics", []byte{0, 0, 0xff, 0xff, 0xff, 0xff}, nil, true},
		{"more topics than bytes", []byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 1, 't'}, nil, true},
		{"a null topic", []byte{0, 0, 0, 0, 0, 1, 0xff, 0xff}, nil, true},
		{"a topic beyond the end", []byte{0, 0, 0, 0, 0, 1, 0, 9, 't'}, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseSubscription(tc.bytes)
			if (err != nil) != tc.fails || !slices.Equal(got, tc.want) {
				t.Fatalf("%q, %v", got, err)
			}
		})
	}
}

// FuzzParseSubscription compares with kmsg's decoder where that accepts the bytes, and bounds what is made of them.
func FuzzParseSubscription(f *testing.F) {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = []string{"t", "u"}
	f.Add(m.AppendTo(nil))
	f.Add([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff})
	f.Add([]byte{0, 1, 0, 0, 0, 1, 0, 1, 't'})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseSubscription(b)
		if err != nil && got != nil || len(got) > len(b)/2 {
			t.Fatalf("%d topics from %d bytes, error %v", len(got), len(b), err)
		}
		var want kmsg.ConsumerMemberMetadata
		if want.ReadFrom(b) == nil && want.Version >= 0 && len(want.Topics) > 0 && (err != nil || !slices.Equal(got, want.Topics)) {
			t.Fatalf("%q, %v; kmsg: %q", got, err, want.Topics)
		}
	})
}

func TestAppendError(t *testing.T) {
	for _, tc := range []struct{ err, want error }{
		{kerr.UnknownTopicOrPartition, kerr.CoordinatorNotAvailable},
		{kerr.NotEnoughReplicas, kerr.CoordinatorNotAvailable},
		{kerr.RequestTimedOut, kerr.CoordinatorNotAvailable},
		{kerr.NotLeaderForPartition, kerr.NotCoordinator},
		{kerr.KafkaStorageError, kerr.NotCoordinator},
		{kerr.MessageTooLarge, kerr.UnknownServerError},
		{kerr.RecordListTooLarge, kerr.UnknownServerError},
		{kerr.InvalidFetchSize, kerr.UnknownServerError},
		{kerr.CorruptMessage, kerr.CorruptMessage},
		{errors.New("something"), kerr.UnknownServerError},
	} {
		if got := AppendError(tc.err); !errors.Is(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}
