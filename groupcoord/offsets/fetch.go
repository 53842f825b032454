package offsets

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/wire"
)

// FetchTopic asks for partitions of one topic. ID is the topic's id as of now; zero if the topic does not exist.
type FetchTopic struct {
	Name       string
	ID         wire.UUID
	Partitions []int32
}

// Fetch reads the offsets of the asked partitions. A group or partition without offset is no error: offset -1, epoch
// -1, metadata "". An offset that was committed for a topic with another id counts as none. With stable, partitions
// with an offset in an open transaction answer UNSTABLE_OFFSET_COMMIT (KIP-447).
func (s *State) Fetch(group string, topics []FetchTopic, stable bool) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = group
	for _, t := range topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Name, t.ID
		for _, p := range t.Partitions {
			k := Key{Group: group, Topic: t.Name, Partition: wire.PartitionID(p)}
			e, ok := s.offsets.get(k)
			rt.Partitions = append(rt.Partitions, s.fetched(k, e, ok && e.of(t.ID), stable))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// FetchAll reads every offset of the group, sorted; current gives a topic's id as of now.
func (s *State) FetchAll(group string, current func(topic string) (wire.UUID, bool), stable bool) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = group
	s.offsets[group].each(group, func(k Key, e Entry) bool {
		id, _ := current(k.Topic)
		if !e.of(id) {
			return true
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != k.Topic {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = k.Topic, id
			resp.Topics = append(resp.Topics, rt)
		}
		rt := &resp.Topics[len(resp.Topics)-1]
		rt.Partitions = append(rt.Partitions, s.fetched(k, e, true, stable))
		return true
	})
	return resp
}

// of reports whether the offset belongs to the topic with this id; an id that is not known on either side fits.
func (e Entry) of(id wire.UUID) bool {
	return id.IsZero() || e.TopicID.IsZero() || e.TopicID == id
}

func (s *State) fetched(k Key, e Entry, ok, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(k.Partition), -1, -1, new(string)
	switch {
	case stable && s.unstable(k):
		p.ErrorCode = kerr.UnstableOffsetCommit.Code
	case ok:
		p.Offset, p.LeaderEpoch, *p.Metadata = int64(e.Offset), int32(e.LeaderEpoch), e.Metadata
	}
	return p
}
