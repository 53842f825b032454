package classic

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
)

// JoinRequest is a JoinGroup whose group id and session timeout are valid. The state keeps what it points to.
type JoinRequest struct {
	Version     int16
	Group       string
	MemberID    string  // "" for a member that is new to the group
	InstanceID  *string // nil for dynamic members
	NewMemberID string  // unique; used if the member needs an id
	ClientID    string
	ClientHost  string
	Session     time.Duration
	Rebalance   time.Duration // of v0: the session timeout
	Type        string
	Protocols   []Protocol
	Reason      string
}

const (
	memberIDRequiredFrom   = 4 // KIP-394
	skipAssignmentFrom     = 9 // KIP-814
	reasonNewMember        = "new member"
	reasonRejoin           = "member rejoined"
	reasonMetadata         = "member changed its metadata"
	reasonLeader           = "leader rejoined"
	reasonStaticReplaced   = "static member came back during the rebalance"
	reasonStaticProtocol   = "static member came back and changes the selected protocol"
	reasonSyncNotPersisted = "assignment could not be stored"
)

// Join answers a JoinGroup now or parks tok until the join phase ends.
func (s *State) Join(tok coord.Token, now time.Time, r JoinRequest) coord.Decision {
	g, exists := s.view(r.Group)
	if !exists {
		if r.MemberID != "" {
			return only(tok, joinError(r.MemberID, kerr.UnknownMemberID))
		}
		g = newGroup(r.Group, now)
	}
	c := s.begin(g, now)
	switch {
	case !s.accepts(g, r.MemberID):
		c.g.remove(r.MemberID)
		c.reply(tok, joinError("", kerr.GroupMaxSizeReached))
		c.maybeComplete() // it may have been the one that the others waited for
	case !s.hasRoom(g, r.MemberID, r.Protocols):
		c.reply(tok, joinError("", kerr.GroupMaxSizeReached))
	case r.MemberID == "":
		c.joinNew(tok, &r)
	default:
		c.joinExisting(tok, &r)
	}
	if !exists && len(c.records) == 0 {
		// The group must exist for a reload, too, before anything rests on it.
		c.records = append(c.records, metadataRecord(newGroup(r.Group, now)))
	}
	return c.decision()
}

// accepts reports whether group.max.size lets the member in.
func (s *State) accepts(g *group, memberID string) bool {
	m, known := g.members[memberID]
	switch g.phase {
	case Empty:
		return true
	case PreparingRebalance:
		return known && m.join != 0 || g.awaitingJoin() < s.cfg.MaxSize
	default:
		return known || len(g.members) < s.cfg.MaxSize
	}
}

// hasRoom reports whether the group may hold these protocols of the member beside those of the others. Kafka has no such
// limit: there a group that can't be stored fails at its leader's SyncGroup, after it was held in memory.
func (s *State) hasRoom(g *group, memberID string, protocols []Protocol) bool {
	n := protocolBytes(protocols)
	for id, m := range g.members {
		if id != memberID {
			n += protocolBytes(m.protocols)
		}
	}
	return n <= s.cfg.MaxProtocols || s.cfg.MaxProtocols == 0
}

func (c *change) joinNew(tok coord.Token, r *JoinRequest) {
	if !c.g.supports(r.Type, r.Protocols) {
		c.reply(tok, joinError("", kerr.InconsistentGroupProtocol))
		return
	}
	if r.InstanceID != nil {
		if old, ok := c.g.static[*r.InstanceID]; ok {
			c.replaceStatic(tok, r, old)
			return
		}
		c.addMember(tok, r, r.NewMemberID)
		return
	}
	if r.Version >= memberIDRequiredFrom {
		c.g.pendingJoin[r.NewMemberID] = struct{}{}
		c.heartbeat(r.NewMemberID, r.Session)
		c.reply(tok, joinError(r.NewMemberID, kerr.MemberIDRequired))
		return
	}
	c.addMember(tok, r, r.NewMemberID)
}

func (c *change) joinExisting(tok coord.Token, r *JoinRequest) {
	g := c.g
	if !g.supports(r.Type, r.Protocols) {
		c.reply(tok, joinError(r.MemberID, kerr.InconsistentGroupProtocol))
		return
	}
	if _, pending := g.pendingJoin[r.MemberID]; pending {
		if r.InstanceID != nil { // such an id is never given to a static member
			c.reply(tok, joinError(r.MemberID, kerr.UnknownServerError))
			return
		}
		c.addMember(tok, r, r.MemberID)
		return
	}
	if err := g.validateMember(r.MemberID, r.InstanceID); err != nil {
		c.reply(tok, joinError(r.MemberID, err))
		return
	}
	same := g.members[r.MemberID].matches(r.Protocols)
	switch {
	case g.phase == PreparingRebalance:
		c.updateMember(tok, r, r.MemberID, reasonRejoin)
	case g.phase == CompletingRebalance && same:
		c.reply(tok, c.joined(r.MemberID, g.leader == r.MemberID))
	case g.phase == Stable && same && g.leader != r.MemberID:
		c.reply(tok, c.joined(r.MemberID, false))
	case g.phase == Stable && same:
		c.updateMember(tok, r, r.MemberID, reasonLeader)
	case g.phase == Empty:
		c.reply(tok, joinError(r.MemberID, kerr.UnknownMemberID))
	default:
		c.updateMember(tok, r, r.MemberID, reasonMetadata)
	}
}

// addMember parks tok with a new member and starts or continues the join phase.
func (c *change) addMember(tok coord.Token, r *JoinRequest, id string) {
	g := c.g
	if g.phase == PreparingRebalance && g.before == Empty {
		g.newMember = true
	}
	g.add(&member{
		id: id, instance: r.InstanceID, clientID: r.ClientID, clientHost: r.ClientHost,
		rebalance: r.Rebalance, session: r.Session, protocols: r.Protocols, isNew: true, join: tok,
	}, r.Type)
	c.heartbeat(id, c.s.cfg.NewMember)
	c.rebalanceOrComplete(withReason(reasonNewMember, r.Reason))
}

// updateMember parks tok with a known member and starts or continues the join phase. A join of the same member that
// was parked before is answered: its client has given up on it.
func (c *change) updateMember(tok coord.Token, r *JoinRequest, id, reason string) {
	m := c.g.edit(id)
	if m.join != 0 && m.join != tok {
		c.reply(m.join, joinError(id, kerr.RebalanceInProgress))
	}
	m.protocols, m.rebalance, m.session, m.join = r.Protocols, r.Rebalance, r.Session, tok
	c.rebalanceOrComplete(withReason(reason, r.Reason))
}

// replaceStatic gives the instance's place to a new member id (KIP-345). The old one is fenced from here on.
func (c *change) replaceStatic(tok coord.Token, r *JoinRequest, oldID string) {
	g := c.g
	m := *g.members[oldID]
	if m.join != 0 {
		c.reply(m.join, joinError(oldID, kerr.FencedInstanceID))
	}
	if m.sync != 0 {
		c.reply(m.sync, syncError(kerr.FencedInstanceID))
	}
	delete(g.members, oldID)
	if _, waits := g.pendingSync[oldID]; waits {
		delete(g.pendingSync, oldID)
		g.pendingSync[r.NewMemberID] = struct{}{}
	}
	m.id, m.sync, m.join, m.isNew = r.NewMemberID, 0, tok, false
	m.protocols, m.rebalance, m.session = r.Protocols, r.Rebalance, r.Session
	g.members[m.id] = &m
	g.static[*r.InstanceID] = m.id
	oldLeader := g.leader
	if g.leader == oldID {
		g.leader = m.id
	}
	c.cancelHeartbeat(oldID)
	c.heartbeat(m.id, m.session)

	switch g.phase {
	case Stable:
		if g.protocol != nil && g.vote() == *g.protocol {
			c.keepStatic(tok, r, oldLeader)
			return
		}
		c.rebalanceOrComplete(withReason(reasonStaticProtocol, r.Reason))
	case CompletingRebalance:
		c.prepare(withReason(reasonStaticReplaced, r.Reason))
	default:
		c.maybeComplete()
	}
}

// keepStatic answers a returned static member without a rebalance, once its new id is durable. From v9 on a returned
// leader learns that it must not compute an assignment (KIP-814); before, it is told the old leader's id, which makes
// it a follower.
func (c *change) keepStatic(tok coord.Token, r *JoinRequest, oldLeader string) {
	m := c.g.edit(r.NewMemberID)
	m.join = 0
	leads := c.g.leader == m.id
	resp := c.joined(m.id, leads && r.Version >= skipAssignmentFrom)
	resp.SkipAssignment = leads && r.Version >= skipAssignmentFrom
	if r.Version < skipAssignmentFrom {
		resp.LeaderID = oldLeader
	}
	c.reply(tok, resp)
	c.records = append(c.records, metadataRecord(c.g))
	c.event("static member came back, no rebalance", r.Reason)
}

// joined is the answer for a member of the current generation.
func (c *change) joined(id string, withMembers bool) *kmsg.JoinGroupResponse {
	g := c.g
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.MemberID, resp.Generation, resp.Protocol, resp.LeaderID = id, g.generation, g.protocol, g.leader
	if g.protocolType != "" {
		resp.ProtocolType = &g.protocolType
	}
	if withMembers {
		for _, m := range g.sorted() {
			jm := kmsg.NewJoinGroupResponseMember()
			jm.MemberID, jm.InstanceID = m.id, m.instance
			if g.protocol != nil {
				jm.ProtocolMetadata = m.metadata(*g.protocol)
			}
			resp.Members = append(resp.Members, jm)
		}
	}
	return resp
}

func joinError(memberID string, err *kerr.Error) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.MemberID, resp.ErrorCode, resp.Generation = memberID, err.Code, -1
	return resp
}

func withReason(ours, client string) string {
	if client == "" {
		return ours
	}
	return ours + "; client reason: " + client
}
