package classic

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
)

// Versions of the GroupMetadata record: what is written, and what is read.
const (
	keyVersion      = 2
	valueVersion    = 3
	maxValueVersion = 4
)

// stored is a group as its last record says. It is never changed.
type stored struct {
	value kmsg.GroupMetadataValue
}

// ReplayMetadata applies a GroupMetadata record. key is the record's key without regard to who decoded it; value nil
// is a tombstone and removes the group. The bytes are not kept.
func (s *State) ReplayMetadata(groupID string, value []byte) error {
	if value == nil {
		delete(s.hard, groupID)
		delete(s.live, groupID)
		return nil
	}
	var v kmsg.GroupMetadataValue
	if err := v.ReadFrom(slices.Clone(value)); err != nil {
		return fmt.Errorf("group metadata of %q: %w", groupID, err)
	}
	if v.Version < 0 || v.Version > maxValueVersion {
		return fmt.Errorf("group metadata of %q: version %d is not known, the newest is %d", groupID, v.Version, maxValueVersion)
	}
	s.hard[groupID] = &stored{value: v}
	return nil
}

// ReplayOffset notes that an offset of the group was committed: a group without a metadata record comes to exist.
func (s *State) ReplayOffset(groupID string) {
	if _, ok := s.hard[groupID]; !ok {
		s.hard[groupID] = &stored{value: kmsg.GroupMetadataValue{CurrentStateTimestamp: -1}}
	}
}

// group is the running group that the record describes.
func (h *stored) group(id string) *group {
	v := &h.value
	g := newGroup(id, time.Time{})
	g.protocolType, g.protocol, g.generation, g.since = v.ProtocolType, v.Protocol, v.Generation, v.CurrentStateTimestamp
	for i := range v.Members {
		g.add(storedMember(v, &v.Members[i]), v.ProtocolType)
	}
	g.leader = ""
	if v.Leader != nil {
		g.leader = *v.Leader
	}
	if len(v.Members) > 0 {
		g.phase = Stable
	}
	g.topics = g.subscribe()
	return g
}

func storedMember(v *kmsg.GroupMetadataValue, r *kmsg.GroupMetadataValueMember) *member {
	m := &member{
		id: r.MemberID, instance: r.InstanceID, clientID: r.ClientID, clientHost: r.ClientHost,
		session:    time.Duration(r.SessionTimeoutMillis) * time.Millisecond,
		rebalance:  time.Duration(r.RebalanceTimeoutMillis) * time.Millisecond,
		assignment: r.Assignment,
	}
	if v.Version < 1 || r.RebalanceTimeoutMillis == -1 {
		m.rebalance = m.session
	}
	if v.Protocol != nil {
		m.protocols = []Protocol{{Name: *v.Protocol, Metadata: r.Subscription}}
	}
	return m
}

// metadataRecord is the record that makes g durable.
func metadataRecord(g *group) coord.Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version = valueVersion
	v.ProtocolType, v.Generation, v.Protocol, v.CurrentStateTimestamp = g.protocolType, g.generation, g.protocol, g.since
	if g.leader != "" {
		v.Leader = &g.leader
	}
	for _, m := range g.sorted() {
		r := kmsg.NewGroupMetadataValueMember()
		r.MemberID, r.InstanceID, r.ClientID, r.ClientHost = m.id, m.instance, m.clientID, m.clientHost
		r.RebalanceTimeoutMillis, r.SessionTimeoutMillis = millis(m.rebalance), millis(m.session)
		if g.protocol != nil {
			r.Subscription = m.metadata(*g.protocol)
		}
		r.Assignment = m.assignment
		v.Members = append(v.Members, r)
	}
	return coord.Record{Key: metadataKey(g.id), Value: v.AppendTo(nil)}
}

func tombstone(groupID string) coord.Record { return coord.Record{Key: metadataKey(groupID)} }

func metadataKey(groupID string) []byte {
	k := kmsg.GroupMetadataKey{Version: keyVersion, Group: groupID}
	return k.AppendTo(nil)
}

func millis(d time.Duration) int32 { return int32(d / time.Millisecond) }

// Image is the hard state as text, for comparing a live state with a replayed one.
func (s *State) Image() string {
	var b strings.Builder
	for _, id := range s.Groups() {
		v := s.hard[id].value
		fmt.Fprintf(&b, "group %q type=%q generation=%d protocol=%s leader=%s since=%d\n", id, v.ProtocolType, v.Generation,
			text(v.Protocol), text(v.Leader), v.CurrentStateTimestamp)
		for i := range v.Members {
			m := &v.Members[i]
			fmt.Fprintf(&b, "  member %q instance=%s client=%q host=%q rebalance=%d session=%d subscription=%x assignment=%x\n",
				m.MemberID, text(m.InstanceID), m.ClientID, m.ClientHost, m.RebalanceTimeoutMillis, m.SessionTimeoutMillis,
				m.Subscription, m.Assignment)
		}
	}
	return b.String()
}

func text(s *string) string {
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%q", *s)
}
