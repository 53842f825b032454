package classic

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
)

// Leave removes members; the reply is a v3+ response with one entry per asked member, in order.
func (s *State) Leave(tok coord.Token, now time.Time, groupID string, members []kmsg.LeaveGroupRequestMember) coord.Decision {
	g, ok := s.view(groupID)
	if !ok {
		resp := kmsg.NewPtrLeaveGroupResponse()
		for _, m := range members {
			resp.Members = append(resp.Members, leaveMember(m, kerr.UnknownMemberID))
		}
		return only(tok, resp)
	}
	c := s.begin(g, now)
	resp := kmsg.NewPtrLeaveGroupResponse()
	var reason string
	left := false
	for _, m := range members {
		err := c.leave(m)
		if err == nil {
			left = true
			if m.Reason != nil {
				reason = *m.Reason
			}
		}
		resp.Members = append(resp.Members, leaveMember(m, err))
	}
	c.reply(tok, resp)
	if left {
		switch c.g.phase {
		case Stable, CompletingRebalance:
			c.rebalanceOrComplete(withReason("members left", reason))
		case PreparingRebalance:
			c.maybeComplete()
		}
	}
	return c.decision()
}

func leaveMember(m kmsg.LeaveGroupRequestMember, err *kerr.Error) kmsg.LeaveGroupResponseMember {
	r := kmsg.NewLeaveGroupResponseMember()
	r.MemberID, r.InstanceID = m.MemberID, m.InstanceID
	if err != nil {
		r.ErrorCode = err.Code
	}
	return r
}

// leave removes one member: by id, or a static one by its instance alone (an administrator's way).
func (c *change) leave(m kmsg.LeaveGroupRequestMember) *kerr.Error {
	g := c.g
	id := m.MemberID
	if id == "" {
		if m.InstanceID == nil || g.static[*m.InstanceID] == "" {
			return kerr.UnknownMemberID
		}
		id = g.static[*m.InstanceID]
	} else if _, pending := g.pendingJoin[id]; pending {
		g.remove(id)
		c.cancelHeartbeat(id)
		return nil
	} else if err := g.validateMember(id, m.InstanceID); err != nil {
		return err
	}
	gone := g.members[id]
	if gone.join != 0 {
		c.reply(gone.join, joinError("", kerr.UnknownMemberID))
	}
	if gone.sync != 0 {
		c.reply(gone.sync, syncError(kerr.UnknownMemberID))
	}
	g.remove(id)
	c.cancelHeartbeat(id)
	return nil
}
