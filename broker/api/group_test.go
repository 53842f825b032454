package api

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// mustAsk asks and fails the test if there is no answer.
func mustAsk[R kmsg.Response](n *groupNode, req kmsg.Request, v int16) R {
	n.t.Helper()
	req.SetVersion(v)
	resp, err := n.ask(req)
	if err != nil {
		n.t.Fatalf("%T v%d: %v", req, v, err)
	}
	return resp.(R)
}

func findRequest(kind int8, keys ...string) *kmsg.FindCoordinatorRequest {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.CoordinatorType, r.CoordinatorKey, r.CoordinatorKeys = kind, keys[0], keys
	return r
}

func TestFindCoordinatorFirstUse(t *testing.T) {
	for _, tc := range []struct {
		name   string
		create time.Duration // how long the creation takes
		load   time.Duration // and the load of the coordinator's partition
		code   int16
		took   time.Duration
		joined int16 // what a JoinGroup right after the answer gets
	}{
		{name: "the answer waits for topic and coordinator", create: 60 * time.Millisecond, load: 20 * time.Millisecond, took: 80 * time.Millisecond,
			joined: kerr.MemberIDRequired.Code},
		{name: "creation takes too long", create: time.Minute, code: kerr.CoordinatorNotAvailable.Code, took: 2 * time.Second,
			joined: kerr.NotCoordinator.Code},
		{name: "loading takes too long", load: time.Minute, took: 2 * time.Second, joined: kerr.CoordinatorLoadInProgress.Code},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newGroupNode(t)
				defer n.service.Close()
				n.create, n.load = tc.create, tc.load
				start := time.Now()
				resp := mustAsk[*kmsg.FindCoordinatorResponse](n, findRequest(0, "g"), 3)
				if resp.ErrorCode != tc.code || time.Since(start) != tc.took {
					t.Fatalf("code %d after %v, want %d after %v", resp.ErrorCode, time.Since(start), tc.code, tc.took)
				}
				join := kmsg.NewPtrJoinGroupRequest()
				join.Group, join.SessionTimeoutMillis, join.ProtocolType = "g", 10_000, "consumer"
				join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
				if got := mustAsk[*kmsg.JoinGroupResponse](n, join, 9).ErrorCode; got != tc.joined {
					t.Fatalf("join: code %d, want %d", got, tc.joined)
				}
				if n.created != 1 {
					t.Fatalf("created %d times", n.created)
				}
			})
		})
	}
}

func TestFindCoordinatorTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNode(t)
		defer n.service.Close()
		for v := int16(1); v <= 6; v++ {
			for kind, want := range map[int8]int16{
				2: kerr.InvalidRequest.Code, 3: kerr.InvalidRequest.Code, -1: kerr.InvalidRequest.Code,
			} {
				resp := mustAsk[*kmsg.FindCoordinatorResponse](n, findRequest(kind, "a", "b"), v)
				got := []int16{resp.ErrorCode}
				if v >= 4 {
					got = []int16{resp.Coordinators[0].ErrorCode, resp.Coordinators[1].ErrorCode}
				}
				for _, code := range got {
					if code != want {
						t.Errorf("v%d type %d: code %d, want %d", v, kind, code, want)
					}
				}
			}
		}
		if n.created != 0 {
			t.Fatalf("the offsets topic was created for other types")
		}
	})
}

func TestFindCoordinatorUnreachableLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNode(t)
		defer n.service.Close()
		n.addTopic(image.OffsetsTopic, wire.UUID{1, 1}, 1)
		h := findCoordinator{image: n.image, endpoints: nowhere{}, topic: n, groups: n.service, node: 1}
		n.handle[10] = h.handle
		if got := mustAsk[*kmsg.FindCoordinatorResponse](n, findRequest(0, "g"), 4).Coordinators[0].ErrorCode; got != kerr.CoordinatorNotAvailable.Code {
			t.Fatalf("code %d", got)
		}
	})
}

// groupCodes asks every group API about group g and returns the code of each, by name.
func groupCodes(n *groupNode) map[string]int16 {
	codes := make(map[string]int16)
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.ProtocolType = "g", 10_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range"}}
	codes["join"] = mustAsk[*kmsg.JoinGroupResponse](n, join, 9).ErrorCode
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID, sync.ProtocolType, sync.Protocol = "g", "m", kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	codes["sync"] = mustAsk[*kmsg.SyncGroupResponse](n, sync, 5).ErrorCode
	hb := kmsg.NewPtrHeartbeatRequest()
	hb.Group, hb.MemberID = "g", "m"
	codes["heartbeat"] = mustAsk[*kmsg.HeartbeatResponse](n, hb, 4).ErrorCode
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.Members = "g", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}
	codes["leave"] = mustAsk[*kmsg.LeaveGroupResponse](n, leave, 5).ErrorCode
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation = "g", -1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
	codes["commit"] = mustAsk[*kmsg.OffsetCommitResponse](n, commit, 8).Topics[0].Partitions[0].ErrorCode
	for v := int16(1); v <= 9; v++ {
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group, fetch.Topics = "g", []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{0}}}}}
		resp := mustAsk[*kmsg.OffsetFetchResponse](n, fetch, v)
		code := resp.ErrorCode
		switch {
		case v == 1:
			code = resp.Topics[0].Partitions[0].ErrorCode
		case v >= 8:
			code = resp.Groups[0].ErrorCode
		}
		codes[fmt.Sprint("fetch v", v)] = code
	}
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group, del.Topics = "g", []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
	codes["offset delete"] = mustAsk[*kmsg.OffsetDeleteResponse](n, del, 0).ErrorCode
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g"}
	codes["describe"] = mustAsk[*kmsg.DescribeGroupsResponse](n, describe, 6).Groups[0].ErrorCode
	codes["list"] = mustAsk[*kmsg.ListGroupsResponse](n, kmsg.NewPtrListGroupsRequest(), 5).ErrorCode
	gone := kmsg.NewPtrDeleteGroupsRequest()
	gone.Groups = []string{"g"}
	codes["delete"] = mustAsk[*kmsg.DeleteGroupsResponse](n, gone, 3).Groups[0].ErrorCode
	return codes
}

// TestGroupCodesOfFailures: what each API answers while the coordinator can't (G2: never "no offset").
func TestGroupCodesOfFailures(t *testing.T) {
	const notHere, loading, unavailable, unknownMember, notFound = 16, 14, 15, 25, 69
	for _, tc := range []struct {
		name  string
		log   *memoryLog // of the group's partition; nil: led elsewhere
		all   int16      // the code of everything that is not in but
		but   map[string]int16
		fetch int16
	}{
		{name: "led elsewhere", all: notHere, fetch: notHere, but: map[string]int16{"list": 0}},
		{name: "loading", log: &memoryLog{load: time.Hour}, all: loading, fetch: loading, but: map[string]int16{"heartbeat": 0}},
		{name: "replay fails", log: &memoryLog{records: []coord.Record{{Key: []byte{0}}}}, all: notHere, fetch: notHere, but: map[string]int16{"list": 0}},
		{
			// The first append never commits: whatever comes after it waits, since it may rest on it.
			name: "commits do not come", log: &memoryLog{silent: true}, all: unavailable, fetch: notHere,
		},
		{
			name: "appends are refused", log: &memoryLog{refuse: kerr.NotEnoughReplicas}, all: unavailable, fetch: 0,
			but: map[string]int16{"sync": unknownMember, "heartbeat": unknownMember, "leave": 0, "offset delete": notFound,
				"describe": notFound, "list": 0, "delete": notFound},
		},
		{
			name: "the leadership is lost at the append", log: &memoryLog{refuse: kerr.NotLeaderForPartition}, all: notHere, fetch: 0,
			but: map[string]int16{"sync": unknownMember, "heartbeat": unknownMember, "leave": 0, "offset delete": notFound,
				"describe": notFound, "list": 0, "delete": notFound},
		},
		{
			name: "the disk fails with something else", log: &memoryLog{refuse: errors.New("broken")}, all: -1, fetch: 0,
			but: map[string]int16{"sync": unknownMember, "heartbeat": unknownMember, "leave": 0, "offset delete": notFound,
				"describe": notFound, "list": 0, "delete": notFound},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newGroupNode(t)
				defer n.service.Close()
				n.addTopic("t", wire.UUID{7}, 1)
				n.addTopic(image.OffsetsTopic, wire.UUID{1, 1}, 50)
				if tc.log != nil {
					n.service.Elected(groupcoord.PartitionFor("g", 50), 3, tc.log)
				}
				synctest.Wait()
				for name, got := range groupCodes(n) {
					want := tc.all
					if len(name) > 5 && name[:5] == "fetch" {
						want = tc.fetch
					}
					if code, ok := tc.but[name]; ok {
						want = code
					}
					if got != want {
						t.Errorf("%s: code %d, want %d", name, got, want)
					}
				}
			})
		})
	}
}

// TestGroupsSurviveARestart: a member that goes on within its session after a restart sees no rebalance; committed
// offsets are there.
func TestGroupsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNode(t)
		defer n.service.Close()
		n.addTopic("t", wire.UUID{7}, 1)
		mustAsk[*kmsg.FindCoordinatorResponse](n, findRequest(0, "g"), 3)
		d := &dialog{t: t, to: n, topic: "t", id: wire.UUID{7}}
		join := d.joinRequest(9, "g", "", kmsg.StringPtr("i"), 10_000, "consumer", "range")
		m := mustAsk[*kmsg.JoinGroupResponse](n, join, 9).MemberID
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group, sync.MemberID, sync.Generation = "g", m, 1
		sync.ProtocolType, sync.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
		sync.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: m, MemberAssignment: []byte("all")}}
		mustAsk[*kmsg.SyncGroupResponse](n, sync, 5)
		d.commit("c", commitArgs{group: "g", member: m, generation: 1}, "t", 0, kmsg.StringPtr("note"), 8)

		p := groupcoord.PartitionFor("g", 50)
		n.service.Resigned(p, 0)
		time.Sleep(time.Hour)
		n.service.Elected(p, 1, n.logs[p])
		synctest.Wait()
		time.Sleep(9 * time.Second)
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group, hb.MemberID, hb.Generation, hb.InstanceID = "g", m, 1, kmsg.StringPtr("i")
		if code := mustAsk[*kmsg.HeartbeatResponse](n, hb, 4).ErrorCode; code != 0 {
			t.Fatalf("heartbeat after the restart: code %d", code)
		}
		sync.GroupAssignment = nil
		if a := mustAsk[*kmsg.SyncGroupResponse](n, sync, 5).MemberAssignment; string(a) != "all" {
			t.Fatalf("assignment after the restart: %q", a)
		}
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Group, fetch.Topics = "g", nil
		got := mustAsk[*kmsg.OffsetFetchResponse](n, fetch, 7)
		if len(got.Topics) != 1 || got.Topics[0].Partitions[0].Offset != 42 || *got.Topics[0].Partitions[0].Metadata != "note" {
			t.Fatalf("offsets after the restart: %+v", got.Topics)
		}
		time.Sleep(10*time.Second + time.Millisecond)
		if code := mustAsk[*kmsg.HeartbeatResponse](n, hb, 4).ErrorCode; code != kerr.UnknownMemberID.Code {
			t.Fatalf("heartbeat after the session: code %d", code)
		}
	})
}
