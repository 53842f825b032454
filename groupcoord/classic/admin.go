package classic

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/internal/planted"
)

// Describe is the group as DescribeGroups shows it; false if it does not exist. Metadata is shown of stable groups
// only.
func (s *State) Describe(id string) (kmsg.DescribeGroupsResponseGroup, bool) {
	d := kmsg.NewDescribeGroupsResponseGroup()
	d.Group = id
	g, ok := s.view(id)
	if !ok {
		d.State = Dead
		return d, false
	}
	d.State, d.ProtocolType = g.phase.String(), g.protocolType
	stable := g.phase == Stable && g.protocol != nil
	if stable {
		d.Protocol = *g.protocol
	}
	for _, m := range g.sorted() {
		r := kmsg.NewDescribeGroupsResponseGroupMember()
		r.MemberID, r.InstanceID, r.ClientID, r.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		r.MemberAssignment = m.assignment
		if stable {
			r.ProtocolMetadata = m.metadata(*g.protocol)
		}
		d.Members = append(d.Members, r)
	}
	return d, true
}

// List is every group in one of the states, or in any when states is empty; names are compared without regard to
// case. Sorted by id.
func (s *State) List(states []string) []kmsg.ListGroupsResponseGroup {
	want := make(map[string]bool, len(states))
	for _, st := range states {
		want[strings.ToLower(strings.TrimSpace(st))] = true
	}
	var list []kmsg.ListGroupsResponseGroup
	for _, id := range s.Groups() {
		g, _ := s.view(id)
		state := g.phase.String()
		if len(states) > 0 && !want[strings.ToLower(state)] {
			continue
		}
		r := kmsg.NewListGroupsResponseGroup()
		r.Group, r.ProtocolType, r.GroupState, r.GroupType = id, g.protocolType, state, TypeName
		list = append(list, r)
	}
	return list
}

// TypeName is the group type of classic groups in ListGroups.
const TypeName = "classic"

// ValidateDelete says whether the group may be deleted: nil, GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP.
func (s *State) ValidateDelete(id string) *kerr.Error {
	g, ok := s.view(id)
	switch {
	case !ok:
		return kerr.GroupIDNotFound
	case g.phase != Empty:
		return kerr.NonEmptyGroup
	}
	return nil
}

// Tombstone is the record that removes the group.
func (s *State) Tombstone(id string) coord.Record { return tombstone(id) }

// ValidateCommit says whether a member, or someone outside any membership (generation -1, no ids), may commit offsets.
// A group that does not exist may be committed to from outside; it comes to exist with the commit.
func (s *State) ValidateCommit(id, memberID string, instance *string, generation int32, version int16) *kerr.Error {
	g, ok := s.view(id)
	if !ok {
		switch {
		case generation < 0:
			g = newGroup(id, time.Time{})
		case version >= 9:
			return kerr.GroupIDNotFound
		default:
			return kerr.IllegalGeneration
		}
	}
	if generation < 0 && g.phase == Empty {
		return nil
	}
	if generation >= 0 || memberID != "" || instance != nil {
		if err := g.validateMember(memberID, instance); err != nil {
			return err
		}
		if generation != g.generation && !planted.On(planted.GenerationUnchecked) {
			return kerr.IllegalGeneration
		}
	} else if g.phase != Empty {
		return kerr.UnknownMemberID
	}
	if g.phase == CompletingRebalance {
		return kerr.RebalanceInProgress
	}
	return nil
}

// txnGroupIDNotFoundFrom is the first version of TxnOffsetCommit that says that a group does not exist (KIP-1319).
const txnGroupIDNotFoundFrom = 6

// ValidateTxnCommit says whether offsets may be staged in a transaction (KIP-447). Who names no member and no generation
// is taken at any time, as producers before 2.5 do.
//
// Kafka: ClassicGroup.validateOffsetCommit, OffsetMetadataManager.validateTransactionalOffsetCommit.
func (s *State) ValidateTxnCommit(id, memberID string, instance *string, generation int32, version int16) *kerr.Error {
	g, ok := s.view(id)
	switch {
	case !ok && generation < 0:
		return nil
	case !ok && version >= txnGroupIDNotFoundFrom:
		return kerr.GroupIDNotFound
	case !ok:
		return kerr.IllegalGeneration
	case generation < 0 && (g.phase == Empty || memberID == "" && instance == nil):
		return nil
	}
	if err := g.validateMember(memberID, instance); err != nil {
		return err
	}
	if generation != g.generation {
		return kerr.IllegalGeneration
	}
	return nil
}

// Touch is the timer that a commit restarts: that of the member's session.
func (s *State) Touch(id, memberID string, now time.Time) (coord.Effect, bool) {
	g, ok := s.view(id)
	if !ok || g.phase != Stable && g.phase != PreparingRebalance {
		return nil, false
	}
	m, ok := g.members[memberID]
	if !ok {
		return nil, false
	}
	return heartbeatTimer(id, memberID, now.Add(m.session)), true
}

// ValidateOffsetDelete says whether offsets may be deleted: nil, GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP for groups
// with members of which the coordinator can't know the topics.
func (s *State) ValidateOffsetDelete(id string) *kerr.Error {
	g, ok := s.view(id)
	switch {
	case !ok:
		return kerr.GroupIDNotFound
	case g.phase != Empty && g.protocolType != ConsumerProtocol:
		return kerr.NonEmptyGroup
	}
	return nil
}

// Subscribed reports whether the group consumes the topic, as far as is known: a consumer group whose subscription
// does not parse counts as subscribed to everything.
func (s *State) Subscribed(id, topic string) bool {
	g, ok := s.view(id)
	if !ok {
		return false
	}
	if g.topics == nil {
		return g.protocolType == ConsumerProtocol
	}
	_, ok = g.topics[topic]
	return ok
}

// Retention says whether the group's offsets may expire in its present state, and since when the time counts: zero
// means from each offset's commit.
func (s *State) Retention(id string) (since time.Time, expires bool) {
	g, ok := s.view(id)
	switch {
	case !ok:
		return time.Time{}, false
	case g.protocolType == "": // a simple group: offsets without membership
		return time.Time{}, g.phase == Empty
	case g.phase == Empty && g.since >= 0:
		return time.UnixMilli(g.since), true
	case g.phase == Empty: // a record from before KIP-211
		return time.Time{}, true
	}
	return time.Time{}, g.phase == Stable && g.protocolType == ConsumerProtocol && g.topics != nil
}

// Removable reports whether the group holds nothing that a group without offsets needs to stay for.
func (s *State) Removable(id string) bool {
	g, ok := s.view(id)
	return ok && g.phase == Empty && len(g.pendingJoin) == 0
}
