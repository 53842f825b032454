package classic

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
)

// SyncRequest is a SyncGroup with a non-empty group id. The state keeps the assignments.
type SyncRequest struct {
	Group       string
	MemberID    string
	InstanceID  *string
	Generation  int32
	Type        *string           // v5+
	Protocol    *string           // v5+
	Assignments map[string][]byte // by member id; only the leader's count
}

// Sync answers a SyncGroup now or parks tok until the leader's assignment is stored.
func (s *State) Sync(tok coord.Token, now time.Time, r SyncRequest) coord.Decision {
	g, ok := s.view(r.Group)
	if !ok || g.phase == Empty {
		return only(tok, syncError(kerr.UnknownMemberID))
	}
	if err := g.validateSync(&r); err != nil {
		return only(tok, syncError(err))
	}
	c := s.begin(g, now)
	switch g.phase {
	case PreparingRebalance:
		return only(tok, syncError(kerr.RebalanceInProgress))
	case Stable:
		c.synced(r.MemberID)
		c.reply(tok, c.assignment(c.g.members[r.MemberID]))
		return c.decision()
	}
	c.synced(r.MemberID)
	m := c.g.edit(r.MemberID)
	if m.sync != 0 && m.sync != tok {
		c.reply(m.sync, syncError(kerr.RebalanceInProgress)) // its client has given up on it
	}
	m.sync = tok
	if g.leader == r.MemberID {
		waiting := c.g.clone()
		c.refused = func(err error) ([]coord.Reply, []coord.Effect) { return s.syncRefused(waiting, now, err) }
		c.assign(r.Assignments)
	}
	return c.decision()
}

func (g *group) validateSync(r *SyncRequest) *kerr.Error {
	if err := g.validateMember(r.MemberID, r.InstanceID); err != nil {
		return err
	}
	if r.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	if r.Type != nil && g.protocolType != "" && *r.Type != g.protocolType ||
		r.Protocol != nil && g.protocol != nil && *r.Protocol != *g.protocol {
		return kerr.InconsistentGroupProtocol
	}
	return nil
}

// synced notes that a member has synced; with the last one the sync timer ends.
func (c *change) synced(id string) {
	if _, waits := c.g.pendingSync[id]; !waits {
		return
	}
	delete(c.g.pendingSync, id)
	if len(c.g.pendingSync) == 0 {
		c.cancelSync()
	}
}

// assign stores the leader's assignment and answers everyone who waits for it. Members it does not mention get none.
func (c *change) assign(assignments map[string][]byte) {
	g := c.g
	for _, m := range g.sorted() {
		e := g.edit(m.id)
		e.assignment = assignments[m.id]
		if e.sync != 0 {
			c.reply(e.sync, c.assignment(e))
			e.sync = 0
			c.heartbeat(m.id, m.session)
		}
	}
	g.enter(Stable, c.now)
	c.records = append(c.records, metadataRecord(g))
	c.event("group is stable", "")
}

// syncRefused sends everyone back to join when the assignment could not be stored.
func (s *State) syncRefused(g *group, now time.Time, err error) ([]coord.Reply, []coord.Effect) {
	c := s.begin(g, now)
	c.failSyncs(AppendError(err).Code)
	c.prepare(reasonSyncNotPersisted)
	s.install(c.g)
	return c.replies, c.effects()
}

func (c *change) assignment(m *member) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.MemberAssignment, resp.Protocol = m.assignment, c.g.protocol
	if c.g.protocolType != "" {
		resp.ProtocolType = &c.g.protocolType
	}
	return resp
}

// syncError is an answer without assignment; err nil leaves the code to the caller.
func syncError(err *kerr.Error) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	if err != nil {
		resp.ErrorCode = err.Code
	}
	return resp
}
