package api

import (
	"encoding/binary"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/wire"
)

// Markers of a request that its coordinator has given up are refused, and not appended, once what it has sent in its place has come.
// Who is no node of the cluster says nothing by that field.
func TestMarkersThatWereGivenUp(t *testing.T) {
	k := newDataKit(t)
	defer k.close()
	k.topic("t", 2)
	h := &writeTxnMarkers{images: k, parts: k}
	write := func(lost uint64) (codes []int16) {
		t.Helper()
		msg := kmsg.NewPtrWriteTxnMarkersRequest()
		m := kmsg.NewWriteTxnMarkersRequestMarker()
		m.ProducerID, m.CoordinatorEpoch = 5, 1
		m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: []int32{0, 1}}}
		msg.Markers = append(msg.Markers, m)
		msg.UnknownTags.Set(10_001, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 3), lost))
		resp := ask[*kmsg.WriteTxnMarkersResponse](k, h.handle, msg, 2)
		for _, p := range resp.Markers[0].Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		return codes
	}
	late := kerr.NotEnoughReplicas.Code
	for i, step := range []struct {
		node int32 // 0 for a client
		lost uint64
		code int16
	}{{0, 9, 0}, {2, 0, 0}, {2, 1, 0}, {2, 0, late}, {3, 0, 0}, {0, 0, 0}, {2, 1, 0}} {
		if step.node != 0 {
			k.conn.SetPeer(peer.ID{NodeID: wire.BrokerID(step.node)})
		} else {
			k.conn = server.NewConn(1, "PLAINTEXT", nil, nil)
		}
		want := k.end("t")
		codes := write(step.lost)
		if len(codes) != 2 || codes[0] != step.code || codes[1] != step.code {
			t.Errorf("step %d: codes %v, want twice %d", i, codes, step.code)
		}
		if step.code == 0 {
			want++
		}
		if got := k.end("t"); got != want {
			t.Errorf("step %d: the log ends at %d, want %d", i, got, want)
		}
	}
}
