package raftctl

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// A leader is sure of it as of when it asked those who, with itself, are a majority: what is answered late says as little as a minority.
func TestMajorityIsAsOfTheQuestion(t *testing.T) {
	now := time.Unix(1000, 0)
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	var c contacts
	note := func(id wire.BrokerID, asked, answered int) {
		c.note(raft.ServerID(peer.ID{NodeID: id, DirectoryID: wire.UUID{0: byte(id)}}.String()), ago(asked), ago(answered))
	}
	note(2, 9, 1)
	note(3, 5, 4)
	note(4, 7, 6)
	note(4, 8, 3) // the answer to an earlier question comes later
	for _, tc := range []struct {
		voters []wire.BrokerID // but the leader
		want   time.Time
	}{
		{nil, now},
		{[]wire.BrokerID{2}, ago(9)},
		{[]wire.BrokerID{2, 3}, ago(5)},
		{[]wire.BrokerID{2, 5}, ago(9)},
		{[]wire.BrokerID{5, 6}, time.Time{}},
		{[]wire.BrokerID{2, 3, 4}, ago(7)},
		{[]wire.BrokerID{2, 3, 4, 5}, ago(7)},
		{[]wire.BrokerID{2, 3, 5, 6}, ago(9)},
		{[]wire.BrokerID{3, 5, 6, 7}, time.Time{}},
	} {
		if got := c.majority(tc.voters, now); !got.Equal(tc.want) {
			t.Errorf("beside %v: as of %v ago, want %v", tc.voters, now.Sub(got), now.Sub(tc.want))
		}
	}
	if got := c.of(4); !got.Equal(ago(3)) {
		t.Errorf("node 4 has answered %v ago, want 3s", now.Sub(got))
	}
}
