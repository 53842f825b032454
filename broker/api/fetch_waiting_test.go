package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fetch of a session that has waited is answered with what has moved meanwhile, of whatever kind, and with nothing else. The
// follower is replica 3 of t, whose own fetches are cut off; 2 commits what the leader has once it is let.
func TestWaitingFetchTellsWhatHasMoved(t *testing.T) {
	for name, tt := range map[string]struct {
		before, meanwhile func(c *replCluster)
		offset1           int64 // asked for of partition 1; others 1
		want              string
		atOnce            bool
	}{
		"nothing": {},
		"append": {meanwhile: func(c *replCluster) { c.nodes[1].send(1, "t", 1, values(10, 1)) },
			want: "1: error 0, 79 bytes, hw 1, start 0", atOnce: true},
		"high watermark": {
			before: func(c *replCluster) {
				c.sever(1, 2)
				c.nodes[1].send(1, "t", 1, values(10, 1))
			},
			meanwhile: func(c *replCluster) { c.heal(1, 2) }, offset1: 2, want: "1: error 0, 0 bytes, hw 2, start 0",
		},
		"log start": {
			meanwhile: func(c *replCluster) {
				if _, err := c.nodes[1].part("t", 2).DeleteRecords(1); err != nil {
					c.t.Error(err)
				}
			},
			want: "2: error 0, 0 bytes, hw 1, start 1",
		},
		"leader": {meanwhile: func(c *replCluster) { c.elect("t", 2, 1, 2, 3) }, want: "0: error 6, 0 bytes, hw -1, start -1", atOnce: true},
		"deletion": {meanwhile: func(c *replCluster) { c.change(removeTopicRecord("t")) }, atOnce: true,
			want: "0: error 3, 0 bytes, hw -1, start -1; 1: error 3, 0 bytes, hw -1, start -1; 2: error 3, 0 bytes, hw -1, start -1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newReplCluster(t, 3)
				defer c.close()
				c.topic("t", 3, 1, 2, 3)
				for p := range int32(3) {
					c.nodes[1].produce("t", p, values(10, 1))
				}
				time.Sleep(time.Second)
				c.sever(1, 3)
				if tt.before != nil {
					tt.before(c)
					time.Sleep(time.Second)
				}
				fetch := func(session, epoch int32, wait time.Duration, parts ...kmsg.FetchRequestTopicPartition) *dataReply {
					msg := fetchOf(int32(wait.Milliseconds()), 1, 1<<20)
					if len(parts) > 0 {
						msg.Topics = []kmsg.FetchRequestTopic{fetchTopic("t", parts...)}
					}
					msg.SessionID, msg.SessionEpoch, msg.Version = session, epoch, 17
					msg.ReplicaState.ID, msg.ReplicaState.Epoch = 3, c.nodes[3].epoch.Load()
					conn := server.NewConn(7, "PLAINTEXT", nil, nil)
					conn.SetPeer(peer.ID{ClusterID: "kit", NodeID: 3})
					w := &dataReply{done: make(chan struct{})}
					c.nodes[1].fetch.handle(context.Background(), &server.Request{Key: 1, Version: 17, Msg: msg, Conn: conn, Received: time.Now()}, w)
					return w
				}
				answer := func(w *dataReply) *kmsg.FetchResponse {
					<-w.done
					return decode[*kmsg.FetchResponse](&dataKit{t: t}, w, 17)
				}
				first := answer(fetch(0, 0, 0, fetchPart(0, 1, 1<<20), fetchPart(1, max(1, tt.offset1), 1<<20), fetchPart(2, 1, 1<<20)))
				if first.ErrorCode != 0 || first.SessionID == 0 || len(first.Topics) != 1 || len(first.Topics[0].Partitions) != 3 {
					t.Fatalf("no session: %+v", first)
				}
				if again := told(answer(fetch(first.SessionID, 1, 0))); again != "" {
					t.Fatalf("told again: %s", again)
				}
				began := time.Now()
				w := fetch(first.SessionID, 2, 5*time.Second)
				if synctest.Wait(); w.answered() {
					t.Fatalf("does not wait: %s", told(answer(w)))
				}
				if tt.meanwhile != nil {
					tt.meanwhile(c)
				}
				got := answer(w)
				if took := time.Since(began); took > time.Second == tt.atOnce {
					t.Errorf("answered after %v", took)
				}
				if told(got) != tt.want {
					t.Errorf("told %q, want %q", told(got), tt.want)
				}
			})
		})
	}
}

// told is the partitions of an answer in words.
func told(r *kmsg.FetchResponse) string {
	var out []string
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			out = append(out, fmt.Sprintf("%d: error %d, %d bytes, hw %d, start %d", p.Partition, p.ErrorCode, len(p.RecordBatches), p.HighWatermark, p.LogStartOffset))
		}
	}
	return strings.Join(out, "; ")
}
