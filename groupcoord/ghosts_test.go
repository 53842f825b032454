package groupcoord

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func joinReq(v int16, member string, rebalanceMs int32) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.ProtocolType = v, "g", member, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10_000, rebalanceMs
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: subscription("t")}}
	return r
}

// TestAbandonedJoins (B22): clients that join and go away, 200 of each kind, beside one real member that takes its time.
// The rebalance ends once the real one has joined, and what the others left is gone after their sessions.
func TestAbandonedJoins(t *testing.T) {
	for _, version := range []int16{3, 9} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := service(t, 1, nil)
				defer s.Close()
				n := 0
				s.o.NewMemberUUID = func() string { n++; return fmt.Sprint(n) }
				synctest.Wait()
				joined := make(chan *kmsg.JoinGroupResponse, 1)
				join := func(member string) *kmsg.JoinGroupResponse {
					s.JoinGroup(joinReq(9, member, 300_000), Client{ID: "real"}, func(r *kmsg.JoinGroupResponse) { joined <- r })
					return <-joined
				}
				live := join(join("").MemberID)
				if live.ErrorCode != 0 {
					t.Fatalf("join: %d", live.ErrorCode)
				}
				synced := make(chan int16, 1)
				sync := func(generation int32) int16 {
					r := kmsg.NewPtrSyncGroupRequest()
					r.Group, r.MemberID, r.Generation = "g", live.MemberID, generation
					s.SyncGroup(r, func(r *kmsg.SyncGroupResponse) { synced <- r.ErrorCode })
					return <-synced
				}
				beats := make(chan int16, 1)
				beat := func(generation int32) int16 {
					r := kmsg.NewPtrHeartbeatRequest()
					r.Group, r.MemberID, r.Generation = "g", live.MemberID, generation
					s.Heartbeat(r, func(r *kmsg.HeartbeatResponse) { beats <- r.ErrorCode })
					return <-beats
				}
				if code := sync(1); code != 0 {
					t.Fatalf("sync: %d", code)
				}
				for range 200 {
					s.JoinGroup(joinReq(version, "", 5_000), Client{ID: "ghost"}, func(*kmsg.JoinGroupResponse) {})
					time.Sleep(100 * time.Millisecond)
					if code := beat(1); code != 0 && code != kerr.RebalanceInProgress.Code {
						t.Fatalf("heartbeat among ghosts: %d", code)
					}
				}
				again := joinReq(9, live.MemberID, 300_000)
				again.Protocols[0].Metadata = subscription("t", "u")
				s.JoinGroup(again, Client{ID: "real"}, func(r *kmsg.JoinGroupResponse) { joined <- r })
				second := <-joined
				if second.ErrorCode != 0 || second.Generation != 2 {
					t.Fatalf("second join: %+v", second)
				}
				for range 10 { // the ghosts' sessions and sync time pass
					time.Sleep(5 * time.Second)
					if code := beat(2); code == kerr.RebalanceInProgress.Code {
						break
					}
				}
				s.JoinGroup(joinReq(9, live.MemberID, 300_000), Client{ID: "real"}, func(r *kmsg.JoinGroupResponse) { joined <- r })
				last := <-joined
				if last.ErrorCode != 0 || len(last.Members) != 1 {
					t.Fatalf("last join: code %d, generation %d, %d members", last.ErrorCode, last.Generation, len(last.Members))
				}
			})
		})
	}
}
