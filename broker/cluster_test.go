package broker

import (
	"encoding/json"
	"testing"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// How far a node is crosses as it is; a node of an older release tells the index of its log and nothing of its metadata.
func TestStatusOfAnAnswer(t *testing.T) {
	for _, tc := range []struct {
		json string
		want raftctl.NodeStatus
	}{
		{`{"Applied":9,"End":8}`, raftctl.NodeStatus{Applied: 9, Offset: 7}},
		{`{"Applied":9}`, raftctl.NodeStatus{Applied: 9, Offset: wire.NoOffset}},
		{`{"Applied":9,"End":8,"Later":1}`, raftctl.NodeStatus{Applied: 9, Offset: 7}},
		{`{}`, raftctl.NodeStatus{Offset: wire.NoOffset}},
	} {
		var a peer.Answer
		if err := json.Unmarshal([]byte(tc.json), &a); err != nil {
			t.Fatal(err)
		}
		if got := statusOf(a); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.json, got, tc.want)
		}
	}
}
