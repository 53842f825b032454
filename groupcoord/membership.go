package groupcoord

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
)

// Client says who sent a request, for members and for describing them.
type Client struct {
	ID   string
	Host string // "/" and the address, as Kafka writes it
}

// The methods below answer one request each through done: exactly once, from any goroutine, possibly before they
// return. The response has the request's version. Nothing of the request is kept but strings.

// JoinGroup answers when the join phase ends, or at once.
func (s *Service) JoinGroup(req *kmsg.JoinGroupRequest, c Client, done func(*kmsg.JoinGroupResponse)) {
	version := req.Version
	finish := func(resp *kmsg.JoinGroupResponse) {
		resp.Version = version
		done(resp)
	}
	fail := func(memberID string, err *kerr.Error) {
		resp := kmsg.NewPtrJoinGroupResponse()
		resp.ErrorCode, resp.MemberID, resp.Generation = err.Code, memberID, -1
		finish(resp)
	}
	session := millis(req.SessionTimeoutMillis)
	if req.Group == "" {
		fail(req.MemberID, kerr.InvalidGroupID)
		return
	}
	if session < s.o.Groups.MinSession || session > s.o.Groups.MaxSession {
		fail(req.MemberID, kerr.InvalidSessionTimeout)
		return
	}
	r := classic.JoinRequest{
		Version: version, Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID,
		ClientID: c.ID, ClientHost: c.Host, Session: session, Rebalance: millis(req.RebalanceTimeoutMillis),
		Type: req.ProtocolType, Protocols: make([]classic.Protocol, len(req.Protocols)),
	}
	if version == 0 {
		r.Rebalance = session
	}
	if req.Reason != nil {
		r.Reason = *req.Reason
	}
	for i, p := range req.Protocols {
		r.Protocols[i] = classic.Protocol{Name: p.Name, Metadata: slices.Clone(p.Metadata)}
	}
	if req.MemberID == "" {
		prefix := c.ID
		if req.InstanceID != nil {
			prefix = *req.InstanceID
		}
		r.NewMemberID = prefix + "-" + s.o.NewMemberUUID()
	}
	s.post(r.Group, func(m *machine, tok coord.Token, now time.Time) coord.Decision { return m.groups.Join(tok, now, r) },
		func(body any, err *kerr.Error) {
			if err != nil {
				fail("", err)
				return
			}
			finish(body.(*kmsg.JoinGroupResponse))
		})
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }

// SyncGroup answers when the leader's assignment is stored, or at once.
func (s *Service) SyncGroup(req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse)) {
	version := req.Version
	fail := func(err *kerr.Error) {
		resp := kmsg.NewPtrSyncGroupResponse()
		resp.Version, resp.ErrorCode = version, err.Code
		done(resp)
	}
	if req.Group == "" {
		fail(kerr.InvalidGroupID)
		return
	}
	r := classic.SyncRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
		Type: req.ProtocolType, Protocol: req.Protocol, Assignments: make(map[string][]byte, len(req.GroupAssignment)),
	}
	for _, a := range req.GroupAssignment {
		r.Assignments[a.MemberID] = slices.Clone(a.MemberAssignment)
	}
	s.post(r.Group, func(m *machine, tok coord.Token, now time.Time) coord.Decision { return m.groups.Sync(tok, now, r) },
		func(body any, err *kerr.Error) {
			if err != nil {
				fail(err)
				return
			}
			resp := body.(*kmsg.SyncGroupResponse)
			resp.Version = version
			done(resp)
		})
}

// Heartbeat keeps a member's session. While the shard loads it is answered as if all were well: the member keeps what
// it has until the coordinator knows better.
func (s *Service) Heartbeat(req *kmsg.HeartbeatRequest, done func(*kmsg.HeartbeatResponse)) {
	version := req.Version
	finish := func(code int16) {
		resp := kmsg.NewPtrHeartbeatResponse()
		resp.Version, resp.ErrorCode = version, code
		done(resp)
	}
	if req.Group == "" {
		finish(kerr.InvalidGroupID.Code)
		return
	}
	r := classic.HeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: req.InstanceID, Generation: req.Generation,
	}
	s.post(r.Group, func(m *machine, tok coord.Token, now time.Time) coord.Decision {
		return m.groups.Heartbeat(tok, now, r)
	},
		func(body any, err *kerr.Error) {
			switch {
			case err == kerr.CoordinatorLoadInProgress:
				finish(0)
			case err != nil:
				finish(err.Code)
			default:
				finish(body.(int16))
			}
		})
}

// LeaveGroup removes members. Before v3 a request names one member, whose error is the response's.
func (s *Service) LeaveGroup(req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse)) {
	version := req.Version
	finish := func(resp *kmsg.LeaveGroupResponse) {
		resp.Version = version
		if version < 3 && resp.ErrorCode == 0 && len(resp.Members) == 1 {
			resp.ErrorCode = resp.Members[0].ErrorCode
		}
		done(resp)
	}
	fail := func(err *kerr.Error) {
		resp := kmsg.NewPtrLeaveGroupResponse()
		resp.ErrorCode = err.Code
		finish(resp)
	}
	if req.Group == "" {
		fail(kerr.InvalidGroupID)
		return
	}
	members := req.Members
	if version < 3 {
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = req.MemberID
		members = []kmsg.LeaveGroupRequestMember{m}
	}
	group := req.Group
	s.post(group, func(m *machine, tok coord.Token, now time.Time) coord.Decision {
		return m.groups.Leave(tok, now, group, members)
	}, func(body any, err *kerr.Error) {
		if err != nil {
			fail(err)
			return
		}
		finish(body.(*kmsg.LeaveGroupResponse))
	})
}
