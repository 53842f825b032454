package offsets

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire"
)

// Delete removes offsets of partitions that exist, of topics that the group does not consume (KIP-496).
func (s *State) Delete(tok coord.Token, now time.Time, group string, topics []kmsg.OffsetDeleteRequestTopic) coord.Decision {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	if err := s.groups.ValidateOffsetDelete(group); err != nil {
		resp.ErrorCode = err.Code
		return reply(tok, resp)
	}
	d := coord.Decision{Batch: coord.Batch{Timestamp: now}}
	for _, t := range topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		subscribed := s.groups.Subscribed(group, t.Topic)
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			k := Key{Group: group, Topic: t.Topic, Partition: wire.PartitionID(p.Partition)}
			if subscribed {
				rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
			} else if s.has(k) {
				d.Records = append(d.Records, tombstone(k))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	d.Replies = []coord.Reply{{Token: tok, Body: resp}}
	return d
}

func (s *State) has(k Key) bool {
	_, ok := s.offsets.get(k)
	return ok || s.unstable(k)
}

// DeleteGroup is the records that remove every offset of a group and the group itself.
func (s *State) DeleteGroup(group string) []coord.Record {
	keys := make(map[Key]struct{})
	collect := func(ts topics) {
		ts.each(group, func(k Key, _ Entry) bool {
			keys[k] = struct{}{}
			return true
		})
	}
	collect(s.offsets[group])
	for id := range s.open[group] {
		collect(s.pending[id][group])
	}
	records := make([]coord.Record, 0, len(keys)+1)
	for _, k := range slices.SortedFunc(maps.Keys(keys), Key.compare) {
		records = append(records, tombstone(k))
	}
	return append(records, s.groups.Tombstone(group))
}

// DropTopic removes the offsets of a topic that was deleted, in every group, at most limit of them; more reports
// whether some are left. Offsets committed for a later topic of that name stay.
func (s *State) DropTopic(now time.Time, topic string, id wire.UUID, limit int) (d coord.Decision, more bool) {
	d.Timestamp = now
	drop := func(g groups) {
		for _, group := range slices.Sorted(maps.Keys(g)) {
			ps := g[group][topic]
			for _, p := range slices.Sorted(maps.Keys(ps)) {
				if !ps[p].of(id) {
					continue
				}
				if len(d.Records) == limit {
					more = true
					return
				}
				d.Records = append(d.Records, tombstone(Key{Group: group, Topic: topic, Partition: p}))
			}
		}
	}
	drop(s.offsets)
	for _, producer := range slices.Sorted(maps.Keys(s.pending)) {
		drop(s.pending[producer])
	}
	return d, more
}

// Expire removes the offsets whose time is up, and the groups that are left with nothing, among the given groups; at
// most limit offsets, and done says how many of the groups were finished.
//
// Which clock counts: the retention of a commit (v2-4), else the time since the group became empty, else, for simple
// groups and for topics that a stable group does not consume, the time since the commit (KIP-211). While a group
// rebalances nothing expires (KAFKA-13636), nor do offsets with one in an open transaction.
func (s *State) Expire(now time.Time, groupIDs []string, limit int) (d coord.Decision, done int) {
	d.Timestamp = now
	for _, group := range groupIDs {
		if len(d.Records) >= limit {
			return d, done
		}
		since, expires := s.groups.Retention(group)
		left := len(s.open[group]) > 0
		complete := s.offsets[group].each(group, func(k Key, e Entry) bool {
			if len(d.Records) >= limit {
				return false
			}
			if expires && s.expired(k, e, since, now) {
				d.Records = append(d.Records, tombstone(k))
			} else {
				left = true
			}
			return true
		})
		if !complete {
			return d, done
		}
		if !left && s.groups.Removable(group) {
			d.Records = append(d.Records, s.groups.Tombstone(group))
		}
		done++
	}
	return d, done
}

func (s *State) expired(k Key, e Entry, since, now time.Time) bool {
	if s.groups.Subscribed(k.Group, k.Topic) || s.unstable(k) {
		return false
	}
	if e.Expire != wire.NoTimestamp {
		return now.UnixMilli() >= e.Expire
	}
	from := e.Commit
	if !since.IsZero() {
		from = since.UnixMilli()
	}
	return now.UnixMilli()-from >= s.cfg.Retention.Milliseconds()
}

func (k Key) compare(o Key) int {
	if k.Topic != o.Topic {
		if k.Topic < o.Topic {
			return -1
		}
		return 1
	}
	return int(k.Partition) - int(o.Partition)
}
