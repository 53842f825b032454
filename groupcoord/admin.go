package groupcoord

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/wire"
)

// gather collects the answers of several shards.
type gather[T any] struct {
	mu      sync.Mutex
	waiting int
	out     []T
	done    func([]T)
}

// add counts one answer; the last one calls done, outside the lock.
func (g *gather[T]) add(part ...T) {
	g.mu.Lock()
	g.out = append(g.out, part...)
	g.waiting--
	last := g.waiting == 0
	g.mu.Unlock()
	if last {
		g.done(g.out)
	}
}

// describeNotFoundFrom is the first version of DescribeGroups that says that a group does not exist (KIP-1043).
const describeNotFoundFrom = 6

// DescribeGroups describes each group, in no particular order. Authorized operations are left unset.
func (s *Service) DescribeGroups(groups []string, version int16, done func([]kmsg.DescribeGroupsResponseGroup)) {
	g := &gather[kmsg.DescribeGroupsResponseGroup]{waiting: len(groups) + 1, done: done}
	for _, id := range groups {
		s.post(id, func(m *machine, tok coord.Token, _ time.Time) coord.Decision {
			d, ok := m.groups.Describe(id)
			if !ok && version >= describeNotFoundFrom {
				d.ErrorCode = kerr.GroupIDNotFound.Code
				d.ErrorMessage = kmsg.StringPtr(fmt.Sprintf("Group %s not found.", id))
			}
			return reply(tok, d)
		}, func(body any, err *kerr.Error) {
			if err == nil {
				g.add(body.(kmsg.DescribeGroupsResponseGroup))
				return
			}
			d := kmsg.NewDescribeGroupsResponseGroup()
			d.Group, d.ErrorCode = id, err.Code
			g.add(d)
		})
	}
	g.add()
}

// listed is one shard's part of a list.
type listed struct {
	groups []kmsg.ListGroupsResponseGroup
	err    *kerr.Error
}

// ListGroups lists the groups coordinated here, sorted, filtered by state and type. An error means that the list can't
// be complete now: a shard is loading.
func (s *Service) ListGroups(states, types []string, done func([]kmsg.ListGroupsResponseGroup, *kerr.Error)) {
	wanted := len(types) == 0 || slices.ContainsFunc(types, func(t string) bool {
		return strings.EqualFold(strings.TrimSpace(t), classic.TypeName)
	})
	ids := s.rt.IDs()
	g := &gather[listed]{waiting: len(ids) + 1, done: func(parts []listed) {
		var all []kmsg.ListGroupsResponseGroup
		for _, p := range parts {
			if p.err != nil {
				done(nil, p.err)
				return
			}
			all = append(all, p.groups...)
		}
		slices.SortFunc(all, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
		done(all, nil)
	}}
	for _, id := range ids {
		s.list(id, wanted, states, g)
	}
	g.add()
}

func (s *Service) list(id wire.PartitionID, wanted bool, states []string, g *gather[listed]) {
	s.rt.Post(id, func(m *machine, tok coord.Token, _ time.Time) coord.Decision {
		if !wanted {
			return reply(tok, listed{})
		}
		return reply(tok, listed{groups: m.groups.List(states)})
	}, func(body any, err error) {
		switch {
		case err == nil:
			g.add(body.(listed))
		case code(err) == kerr.NotCoordinator: // moved away meanwhile: its new coordinator lists it
			g.add(listed{})
		default:
			g.add(listed{err: code(err)})
		}
	})
}

// DeleteGroups deletes groups without members, with their offsets; each name once, in no particular order.
func (s *Service) DeleteGroups(groups []string, done func([]kmsg.DeleteGroupsResponseGroup)) {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	g := &gather[kmsg.DeleteGroupsResponseGroup]{waiting: len(groups) + 1, done: done}
	for _, id := range groups {
		s.post(id, func(m *machine, tok coord.Token, now time.Time) coord.Decision {
			return deleteGroup(id, tok)(m, tok, now)
		}, func(body any, err *kerr.Error) {
			if err == nil {
				err, _ = body.(*kerr.Error)
			}
			r := kmsg.NewDeleteGroupsResponseGroup()
			r.Group = id
			if err != nil {
				r.ErrorCode = err.Code
			}
			g.add(r)
		})
	}
	g.add()
}

// deleteGroup removes a group's offsets, as many as fit into one append at a time, and with the last of them the group;
// then it answers tok, with nil or with why the group can't be deleted.
func deleteGroup(id string, tok coord.Token) op {
	return func(m *machine, _ coord.Token, now time.Time) coord.Decision {
		if err := m.groups.ValidateDelete(id); err != nil {
			return reply(tok, err)
		}
		d := reply(tok, (*kerr.Error)(nil))
		d.Records, d.Timestamp = m.offsets.DeleteGroup(id), now
		more := len(d.Records) > maxSweepRecords
		if more {
			d.Records, d.Replies = d.Records[:maxSweepRecords], nil
		}
		d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
			switch {
			case err != nil:
				return []coord.Reply{{Token: tok, Err: err}}, nil
			case more:
				key := fmt.Sprintf("delete/%d/%s", tok, id)
				return nil, []coord.Effect{coord.Timer[*machine]{Key: key, At: now.Add(soon), Op: deleteGroup(id, tok)}}
			}
			return nil, nil
		}
		return d
	}
}
