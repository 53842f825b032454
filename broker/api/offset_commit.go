package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// offsetCommit answers OffsetCommit (key 8), versions 2-10. v2-4 a retention of its own; v6 leader epochs (KIP-320); v7
// static members (KIP-345); v9 GROUP_ID_NOT_FOUND (KIP-848), member epochs are generations of classic groups here; v10
// topic ids instead of names. Errors, all per partition: 3, 12, 14, 15, 16, 22, 25, 27, 69 (v9+), 82, 100 (v10+).
type offsetCommit struct {
	image  func() *image.Image // what a whole request is answered from
	groups *groupcoord.Service
}

const commitTopicIDsFrom = 10

func (h offsetCommit) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.OffsetCommitRequest)
	resp, r := h.resolve(msg)
	if len(r.Topics) == 0 {
		w.Reply(resp)
		return
	}
	h.groups.CommitOffsets(r, func(stored *kmsg.OffsetCommitResponse) {
		mergeCommit(resp, stored)
		w.Reply(resp)
	})
}

// resolve splits the request into the whole response, in which partitions that do not exist have their error, and
// what the coordinator shall store. Partitions that are open still are marked by openPartition.
func (h offsetCommit) resolve(msg *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, offsets.CommitRequest) {
	img := h.image()
	byID := msg.Version >= commitTopicIDsFrom
	r := offsets.CommitRequest{
		Version: msg.Version, Group: msg.Group, MemberID: msg.MemberID, InstanceID: msg.InstanceID,
		Generation: msg.Generation, Retention: -1,
	}
	if msg.Version >= 2 && msg.Version <= 4 {
		r.Retention = msg.RetentionTimeMillis
	}
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = msg.Version
	for _, t := range msg.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		topic, known := resolveTopic(img, byID, t.Topic, t.TopicID)
		var store offsets.CommitTopic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, committable(topic, known, byID, p.Partition)
			if rp.ErrorCode == openPartition {
				store.Partitions = append(store.Partitions, p)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(store.Partitions) > 0 {
			store.Name, store.ID = topic.Name, topic.ID
			r.Topics = append(r.Topics, store)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, r
}

// openPartition stands in a response for a code that the coordinator will give; no error has this code.
const openPartition = -32768

// committable is the code of a partition that no offset can be committed for, openPartition of any other. topic is what
// resolveTopic gave.
func committable(topic *image.Topic, known, byID bool, partition int32) int16 {
	if !known && byID {
		return kerr.UnknownTopicID.Code
	}
	if known {
		if _, ok := topic.Partition(wire.PartitionID(partition)); ok {
			return openPartition
		}
	}
	return kerr.UnknownTopicOrPartition.Code
}

// mergeCommit puts the coordinator's codes, in order, where they are open.
func mergeCommit(resp, stored *kmsg.OffsetCommitResponse) {
	var codes []int16
	for _, t := range stored.Topics {
		for _, p := range t.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	for i := range resp.Topics {
		ps := resp.Topics[i].Partitions
		for j := range ps {
			if ps[j].ErrorCode == openPartition {
				ps[j].ErrorCode, codes = codes[0], codes[1:]
			}
		}
	}
}
