package classic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// supports reports whether a member with these protocols can be in the group: its type is the group's and at least one
// of its protocols is supported by every member.
func (g *group) supports(protocolType string, protocols []Protocol) bool {
	if g.phase == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	if g.protocolType != protocolType {
		return false
	}
	return slices.ContainsFunc(protocols, func(p Protocol) bool { return g.common(p.Name) })
}

// common reports whether every member supports the protocol.
func (g *group) common(name string) bool {
	for _, m := range g.members {
		if m.metadata(name) == nil {
			return false
		}
	}
	return true
}

// vote picks the protocol that most members rank first among those that all support; ties go to the first by name.
// The group has members, and they have a protocol in common.
func (g *group) vote() string {
	support := make(map[string]int)
	for _, m := range g.members {
		for i, p := range m.protocols {
			if !slices.ContainsFunc(m.protocols[:i], func(q Protocol) bool { return q.Name == p.Name }) {
				support[p.Name]++
			}
		}
	}
	votes := make(map[string]int)
	for _, m := range g.members {
		for _, p := range m.protocols {
			if support[p.Name] == len(g.members) {
				votes[p.Name]++
				break
			}
		}
	}
	var best string
	for name, n := range votes {
		if n > votes[best] || n == votes[best] && (best == "" || name < best) {
			best = name
		}
	}
	return best
}

// metadata is what the member sent for a protocol; nil if it does not support it, never nil if it does.
func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			if p.Metadata == nil {
				return []byte{}
			}
			return p.Metadata
		}
	}
	return nil
}

// matches reports whether the member sent exactly these protocols.
func (m *member) matches(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// heartbeatSatisfied reports whether the member is excused from heartbeats: it waits for an answer of ours. A new
// member is not, so that abandoned joins end (KAFKA-7610).
func (m *member) heartbeatSatisfied() bool { return !m.isNew && (m.join != 0 || m.sync != 0) }

// subscribe computes what the members subscribe. It is nil when that can't be known: another protocol type, no
// protocol, or metadata that does not parse.
func (g *group) subscribe() map[string]struct{} {
	if g.protocolType != ConsumerProtocol {
		return nil
	}
	topics := make(map[string]struct{})
	if len(g.members) == 0 {
		return topics
	}
	if g.protocol == nil {
		return nil
	}
	for _, m := range g.members {
		subscribed, err := ParseSubscription(m.metadata(*g.protocol))
		if err != nil {
			return nil
		}
		for _, t := range subscribed {
			topics[t] = struct{}{}
		}
	}
	return topics
}

// errSubscription: the metadata is not a consumer subscription.
var errSubscription = errors.New("classic: malformed consumer subscription")

// ParseSubscription reads the topics of a consumer protocol subscription. Only the part that every version has in front
// (int16 version, array of strings) is read. Memory is bounded by len(b).
func ParseSubscription(b []byte) ([]string, error) {
	if len(b) < 6 || int16(binary.BigEndian.Uint16(b)) < 0 {
		return nil, errSubscription
	}
	n := int(int32(binary.BigEndian.Uint32(b[2:])))
	b = b[6:]
	if n < 0 || n > len(b)/2 { // a string takes two bytes at least
		return nil, errSubscription
	}
	topics := make([]string, 0, n)
	for range n {
		if len(b) < 2 {
			return nil, errSubscription
		}
		size := int(int16(binary.BigEndian.Uint16(b)))
		b = b[2:]
		if size < 0 || size > len(b) {
			return nil, errSubscription
		}
		topics = append(topics, string(b[:size]))
		b = b[size:]
	}
	return topics, nil
}
