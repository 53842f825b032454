package groupcoord

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
)

// runOffsets are the commands about committed offsets.
func (s *script) runOffsets(t *testing.T, a args, tok coord.Token, group string) {
	topic := a.str("topic", "t")
	switch a.d.Cmd {
	case "commit":
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch = int32(a.num("partition", 0)), int64(a.num("offset", 0)), int32(a.num("epoch", -1))
		p.Metadata = a.opt("metadata")
		retention := int64(-1)
		if v := a.str("retention", ""); v != "" {
			retention = a.dur("retention", "").Milliseconds()
		}
		d := s.m.offsets.Commit(tok, s.now, offsets.CommitRequest{
			Version: int16(a.num("v", 8)), Group: group, MemberID: a.str("member", ""), InstanceID: a.opt("instance"),
			Generation: int32(a.num("generation", -1)), Retention: retention,
			Topics: []offsets.CommitTopic{{Name: topic, ID: s.topics[topic], Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}},
		})
		if id := a.num("producer", -1); id >= 0 && len(d.Records) > 0 {
			d.Producer = &coord.ProducerRef{ID: wire.ProducerID(id)}
		}
		s.do(tok, d)
	case "marker":
		commit := a.str("result", "commit") == "commit"
		must(s.m.ReplayMarker(wire.ProducerID(a.num("producer", 0)), 0, commit))
		s.printf("%s", image(s.m))
	case "fetch":
		var g kmsg.OffsetFetchResponseGroup
		stable := a.str("stable", "") == "true"
		if topic == "*" {
			g = s.m.offsets.FetchAll(group, func(n string) (wire.UUID, bool) { id, ok := s.topics[n]; return id, ok }, stable)
		} else {
			g = s.m.offsets.Fetch(group, []offsets.FetchTopic{{Name: topic, ID: s.topics[topic],
				Partitions: []int32{int32(a.num("partition", 0))}}}, stable)
		}
		for _, tp := range g.Topics {
			for _, p := range tp.Partitions {
				s.printf("%s-%d offset=%d epoch=%d metadata=%q %s", tp.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, codeName(p.ErrorCode))
			}
		}
	case "offset-delete":
		s.do(tok, s.m.offsets.Delete(tok, s.now, group, []kmsg.OffsetDeleteRequestTopic{{Topic: topic,
			Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: int32(a.num("partition", 0))}}}}))
	case "delete-group":
		if err := s.m.groups.ValidateDelete(group); err != nil {
			s.printf("%s", err.Message)
			return
		}
		s.do(0, coord.Decision{Batch: coord.Batch{Records: s.m.offsets.DeleteGroup(group), Timestamp: s.now}})
	case "recreate":
		id := s.topics[topic]
		id[15]++
		s.topics[topic] = id
	case "drop-topic":
		d, more := s.m.offsets.DropTopic(s.now, topic, s.topics[topic], a.num("limit", 1000))
		s.do(0, d)
		s.printf("more=%v", more)
	case "sweep":
		groups := s.m.groups.Groups()
		d, done := s.m.offsets.Expire(s.now, groups, a.num("limit", 1000))
		s.do(0, d)
		s.printf("%d of %d groups", done, len(groups))
	default:
		t.Fatalf("unknown command %q", a.d.Cmd)
	}
}
